"""The contiguous KV cache: one row of ``max_seqlen`` tokens for every sequence that may ever run.

The layout is that of TensorRT-LLM: ``[max_batch_size * max_beam_width, 2, num_heads, max_seqlen, head_size]``, with
keys at index 0 and values at index 1 of the second dimension. The third counts the heads that are cached: with
grouped-query attention the ``num_kv_heads``, not the query heads. Each layer has such a tensor of its own, rather than
one with a leading layer dimension, so that the rows in flight while beams are reordered are those of one layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from workbench.attention.kvcache.checks import check_cache_dtype, check_device, check_layer, check_tokens
from workbench.attention.kvcache.errors import SequenceStateError, UnknownSequenceError, check_count
from workbench.attention.kvcache.memory_use import MemoryUse
from workbench.base.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class ContiguousStep:
    """Where new tokens go, for `ContiguousKVCache.write`: row and position of each, sequence after sequence.

    Attributes:
        rows, positions: ``[num_tokens] int64``.
    """

    rows: torch.Tensor
    positions: torch.Tensor


class ContiguousKVCache:
    """Keys and values of up to ``max_batch_size * max_beam_width`` sequences, a row each.

    A forward pass first makes room (`allocate` for a prompt, `append` for one new token of each sequence), then
    writes every layer: ``cache.write(layer, key, value, step)``. Every method either does all that it says or raises
    and changes nothing.

    Args:
        num_layers: layers, each with a tensor in ``.layers``.
        max_batch_size, max_beam_width: requests, and beams of each; beam b of request i is row
            ``i * max_beam_width + b`` (see `row`).
        max_seqlen: tokens that a row has room for.
        num_kv_heads: heads that are cached; head_size: elements of each.
        dtype, device: of the cache.

    Raises:
        ArgumentError: a size, row, layer or tensor that does not fit.
        SequenceStateError: a row that is taken. UnknownSequenceError: one that is not.
    """

    @names_wrong_kinds
    def __init__(
        self,
        *,
        num_layers: int,
        max_batch_size: int,
        max_seqlen: int,
        num_kv_heads: int,
        head_size: int,
        max_beam_width: int = 1,
        dtype: torch.dtype = torch.float16,
        device: torch.device | str = "cpu",
    ):
        self.num_layers = check_count("num_layers", num_layers, 1, "Layers of the model.")
        self.max_batch_size = check_count("max_batch_size", max_batch_size, 1, "Requests at a time.")
        self.max_beam_width = check_count("max_beam_width", max_beam_width, 1, "1 is no beam search.")
        self.max_seqlen = check_count("max_seqlen", max_seqlen, 1, "Tokens of a row.")
        self.num_kv_heads = check_count("num_kv_heads", num_kv_heads, 1, "KV heads of the model.")
        self.head_size = check_count("head_size", head_size, 1, "Elements of a head.")
        self.dtype = check_cache_dtype(dtype)
        self.num_rows = self.max_batch_size * self.max_beam_width
        shape = (self.num_rows, 2, self.num_kv_heads, self.max_seqlen, self.head_size)
        self.device = check_device(device)
        self.layers = [torch.zeros(shape, dtype=dtype, device=self.device) for _ in range(self.num_layers)]
        self._lengths: dict[int, int] = {}  # of the rows in use

    # -- the life of a sequence ---------------------------------------------------------------------------------

    def row(self, request: int, beam: int = 0) -> int:
        """The row of one beam of one request."""
        if not 0 <= request < self.max_batch_size:
            raise ArgumentError("request", request, f"0 to {self.max_batch_size - 1}", "See max_batch_size.")
        if not 0 <= beam < self.max_beam_width:
            raise ArgumentError("beam", beam, f"0 to {self.max_beam_width - 1}", "See max_beam_width.")
        return request * self.max_beam_width + beam

    def allocate(self, row: int, num_tokens: int) -> ContiguousStep:
        """Context phase: take a row and make room for the tokens of a prompt."""
        self._check_row(row)
        if row in self._lengths:
            raise SequenceStateError("row", row, f"one that is not in use ({self._free_rows()})", "Free it first.")
        self._check_room(row, 0, check_count("num_tokens", num_tokens, 0, "The length of the prompt."))
        self._lengths[row] = 0
        return self._advance({row: num_tokens})

    def append(self, rows: Iterable[int], num_tokens: int = 1) -> ContiguousStep:
        """Generation phase: make room for one new token (or ``num_tokens``) of each of the rows, in their order."""
        check_count("num_tokens", num_tokens, 1, "New tokens of each row.")
        rows = list(rows)
        counts = dict.fromkeys(rows, num_tokens)
        if len(counts) < len(rows):
            raise ArgumentError("rows", rows, "each row once", "Use num_tokens for several tokens of a row.")
        for row in counts:
            self._check_room(row, self.length(row), num_tokens)
        return self._advance(counts)

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor, step: ContiguousStep) -> None:
        """Store the keys and values of new tokens in one layer.

        Args:
            key, value: ``[num_tokens, num_kv_heads, head_size]``, in the order of ``step``.
        """
        cache = self.layers[check_layer(layer, self.num_layers)]
        shape = (len(step.rows), self.num_kv_heads, self.head_size)
        check_tokens(key, value, shape, self.dtype, self.device)
        cache[step.rows, 0, :, step.positions] = key
        cache[step.rows, 1, :, step.positions] = value

    def reorder(self, parents: Mapping[int, int]) -> int:
        """Give every row the history that another row has now, all at once: one step of beam search.

        ``{0: 1, 1: 0}`` exchanges two rows. A row that is not in use is taken, so that ``{1: 0, 2: 0}`` spreads the
        prompt over the beams.

        Returns:
            Bytes copied: what paging saves by exchanging block tables instead.
        """
        for row, parent in parents.items():
            self._check_row(row)
            self.length(parent)
        moves = {row: parent for row, parent in parents.items() if row != parent}
        lengths = {row: self._lengths[parent] for row, parent in moves.items()}
        longest = max(lengths.values(), default=0)
        if longest:
            rows = torch.tensor(list(moves), device=self.device)
            sources = torch.tensor(list(moves.values()), device=self.device)
            for cache in self.layers:
                # Indexing copies the sources before anything is written, so that rows may be sources and targets.
                cache[rows, :, :, :longest] = cache[sources, :, :, :longest]
        self._lengths.update(lengths)
        return len(moves) * longest * self._bytes_per_token

    def free(self, row: int) -> None:
        """Give a row back."""
        self.length(row)
        del self._lengths[row]

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows in use, in ascending order."""
        return tuple(sorted(self._lengths))

    def length(self, row: int) -> int:
        """Tokens in a row that is in use."""
        self._check_row(row)
        if row not in self._lengths:
            raise UnknownSequenceError("row", row, f"one in use: {list(self.rows)}", "Call allocate first.")
        return self._lengths[row]

    def seq_lens(self, rows: Iterable[int] | None = None) -> torch.Tensor:
        """``[num_seqs] int32`` lengths of the given rows; by default of all ``num_rows``, 0 for those not in use."""
        if rows is None:
            lengths = [self._lengths.get(row, 0) for row in range(self.num_rows)]
        else:
            lengths = [self.length(row) for row in rows]
        return torch.tensor(lengths, dtype=torch.int32, device=self.device)

    def gather(self, layer: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a row, copies, ``[num_tokens, num_kv_heads, head_size]`` each."""
        cache = self.layers[check_layer(layer, self.num_layers)]
        key, value = cache[row, :, :, : self.length(row)].transpose(1, 2).unbind(0)
        return key.clone(), value.clone()

    def memory(self) -> MemoryUse:
        """Bytes of the cache, of the rows in use, and of the tokens in them."""
        return MemoryUse(
            pool_bytes=self.num_rows * self.max_seqlen * self._bytes_per_token,
            reserved_bytes=len(self._lengths) * self.max_seqlen * self._bytes_per_token,
            used_bytes=sum(self._lengths.values()) * self._bytes_per_token,
        )

    # -- steps of the above -------------------------------------------------------------------------------------

    @property
    def _bytes_per_token(self) -> int:
        return self.num_layers * 2 * self.num_kv_heads * self.head_size * self.dtype.itemsize

    def _free_rows(self) -> str:
        free = [row for row in range(self.num_rows) if row not in self._lengths]
        return f"free: {free[:8]}{' and more' if len(free) > 8 else ''}"

    def _check_row(self, row: int) -> None:
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < self.num_rows:
            raise ArgumentError(
                "row", repr(row), f"0 to {self.num_rows - 1}", "A cache has max_batch_size * max_beam_width rows."
            )

    def _check_room(self, row: int, length: int, num_tokens: int) -> None:
        if length + num_tokens > self.max_seqlen:
            raise ArgumentError(
                "num_tokens",
                f"{num_tokens} on top of the {length} tokens of row {row}",
                f"at most {self.max_seqlen - length}: max_seqlen is {self.max_seqlen}",
                "A contiguous row cannot grow: make the cache with a larger max_seqlen, or use PagedKVCache.",
            )

    def _advance(self, counts: Mapping[int, int]) -> ContiguousStep:
        rows: list[int] = []
        positions: list[int] = []
        for row, count in counts.items():
            start = self._lengths[row]
            rows += [row] * count
            positions += range(start, start + count)
            self._lengths[row] = start + count
        return ContiguousStep(
            torch.tensor(rows, dtype=torch.int64, device=self.device),
            torch.tensor(positions, dtype=torch.int64, device=self.device),
        )
