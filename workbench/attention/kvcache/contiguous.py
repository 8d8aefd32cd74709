"""The contiguous KV cache: one row of ``max_seqlen`` tokens for every sequence that may ever run.

The layout is that of TensorRT-LLM: ``[max_batch_size * max_beam_width, 2, num_heads, max_seqlen, head_size]``, with
keys at index 0 and values at index 1 of the second dimension. The third dimension counts the cached heads: with
grouped-query attention ``num_kv_heads``, not the query heads. Each layer has a tensor of its own, instead of one tensor
with a leading layer dimension, so that reordering beams needs temporary memory for the rows of one layer only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from workbench.attention.kvcache.checks import check_cache_dtype, check_device, check_layer, check_tokens
from workbench.attention.kvcache.errors import SequenceStateError, UnknownSequenceError, check_count
from workbench.attention.kvcache.memory_use import MemoryUse
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class ContiguousStep:
    """Places of new tokens for `ContiguousKVCache.write`, sequence after sequence.

    Attributes:
        rows: row of each token, ``[num_tokens] int64``.
        positions: position of each token in its row, ``[num_tokens] int64``.
    """

    rows: torch.Tensor
    positions: torch.Tensor


class ContiguousKVCache:
    """Keys and values of up to ``max_batch_size * max_beam_width`` sequences, each in a row of its own.

    A forward pass first makes room (`allocate` for a prompt, `append` for one new token of each sequence), then
    writes every layer: ``cache.write(layer, key, value, step)``. A method that raises an error has changed nothing.

    Args:
        num_layers: layers of the model; each has a tensor in ``.layers``.
        max_batch_size: largest number of requests.
        max_beam_width: beams of each request; beam b of request i is row ``i * max_beam_width + b`` (see `row`).
        max_seqlen: capacity of a row in tokens.
        num_kv_heads: cached heads.
        head_size: elements of each head.
        dtype: element type of the cache: torch.float32, float16 or bfloat16.
        device: where the cache lives.

    Raises:
        ArgumentError: if a size, row, layer or tensor does not fit.
        SequenceStateError: if a row to allocate is in use.
        UnknownSequenceError: if a row is not in use and must be.
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
        self.max_beam_width = check_count("max_beam_width", max_beam_width, 1, "1 means no beam search.")
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
        """Return the row of one beam of a request."""
        if not 0 <= request < self.max_batch_size:
            raise ArgumentError("request", request, f"0 to {self.max_batch_size - 1}", "See max_batch_size.")
        if not 0 <= beam < self.max_beam_width:
            raise ArgumentError("beam", beam, f"0 to {self.max_beam_width - 1}", "See max_beam_width.")
        return request * self.max_beam_width + beam

    def allocate(self, row: int, num_tokens: int) -> ContiguousStep:
        """Take a row and make room for the tokens of a prompt (the context phase)."""
        self._check_row(row)
        if row in self._lengths:
            raise SequenceStateError("row", row, f"a row that is not in use ({self._free_rows()})", "Free it first.")
        self._check_room(row, 0, check_count("num_tokens", num_tokens, 0, "The length of the prompt."))
        self._lengths[row] = 0
        return self._advance({row: num_tokens})

    def append(self, rows: Iterable[int], num_tokens: int = 1) -> ContiguousStep:
        """Make room for ``num_tokens`` new tokens in each of the rows, in their order (the generation phase)."""
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
            layer: index of the layer, from 0.
            key: keys ``[num_tokens, num_kv_heads, head_size]``, in the order of ``step``.
            value: values of the same shape and order.
            step: the places of the tokens, from `allocate` or `append`.
        """
        cache = self.layers[check_layer(layer, self.num_layers)]
        shape = (len(step.rows), self.num_kv_heads, self.head_size)
        check_tokens(key, value, shape, self.dtype, self.device)
        cache[step.rows, 0, :, step.positions] = key
        cache[step.rows, 1, :, step.positions] = value

    def reorder(self, parents: Mapping[int, int]) -> int:
        """Replace the histories of rows by those of their ``parents``, all at once: one step of beam search.

        ``{0: 1, 1: 0}`` exchanges two rows. A row that is not in use is taken, so that ``{1: 0, 2: 0}`` copies the
        prompt to the other beams.

        Returns:
            The number of bytes copied. A paged cache copies none of them: it changes block tables instead.
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
                # Indexing copies the sources before anything is written, so a row may be both source and target.
                cache[rows, :, :, :longest] = cache[sources, :, :, :longest]
        self._lengths.update(lengths)
        return len(moves) * longest * self._bytes_per_token

    def free(self, row: int) -> None:
        """Give a row back."""
        self.length(row)
        del self._lengths[row]

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows in use, in ascending order."""
        return tuple(sorted(self._lengths))

    def length(self, row: int) -> int:
        """Return the number of tokens in a row that is in use."""
        self._check_row(row)
        if row not in self._lengths:
            raise UnknownSequenceError("row", row, f"a row in use: {list(self.rows)}", "Call allocate first.")
        return self._lengths[row]

    def seq_lens(self, rows: Iterable[int] | None = None) -> torch.Tensor:
        """Return the lengths ``[num_seqs] int32`` of rows, by default of all ``num_rows``; 0 for a row not in use."""
        if rows is None:
            lengths = [self._lengths.get(row, 0) for row in range(self.num_rows)]
        else:
            lengths = [self.length(row) for row in rows]
        return torch.tensor(lengths, dtype=torch.int32, device=self.device)

    def gather(self, layer: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies of the keys and values of a row, ``[num_tokens, num_kv_heads, head_size]`` each."""
        cache = self.layers[check_layer(layer, self.num_layers)]
        key, value = cache[row, :, :, : self.length(row)].transpose(1, 2).unbind(0)
        return key.clone(), value.clone()

    def memory(self) -> MemoryUse:
        """Return the bytes of the cache, of the rows in use, and of the tokens in them."""
        return MemoryUse(
            pool_bytes=self.num_rows * self.max_seqlen * self._bytes_per_token,
            reserved_bytes=len(self._lengths) * self.max_seqlen * self._bytes_per_token,
            used_bytes=sum(self._lengths.values()) * self._bytes_per_token,
        )

    # -- internal steps -----------------------------------------------------------------------------------------

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
