"""The paged KV cache: the tensors of several layers, managed by one `BlockManager`.

A block number means the same in every layer, so one block table per sequence serves all layers. The layouts of the
tensors are those of `workbench.attention.cache_formats.layouts`; `workbench.attention.ops.paged_attention` reads them
in place::

    step = cache.append_batch({"a": [token_a], "b": [token_b]})
    for layer in range(num_layers):
        cache.write(layer, key, value, step.slot_mapping)
        out = paged_attention(query, *cache.layers[layer], cache.block_tables(seqs), cache.seq_lens(seqs),
                              **cache.attention_options(layer))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from workbench.attention.cache_formats.layouts import LAYOUTS, PagedGeometry
from workbench.attention.cache_formats.nvfp4 import row_bytes
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, check_kind, store_token_scales
from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.checks import check_cache_dtype, check_device, check_layer, check_tokens
from workbench.attention.kvcache.errors import check_count
from workbench.attention.kvcache.memory_use import MemoryUse
from workbench.attention.kvcache.sequence import FREED, Placement, Tokens
from workbench.attention.ops.cache_arguments import as_scale, check_scale
from workbench.attention.ops.copy_blocks import copy_blocks
from workbench.attention.ops.gather_cache import gather_cache
from workbench.attention.ops.reshape_and_cache import reshape_and_cache
from workbench.attention.ops.reshape_and_cache.api import check_slots
from workbench.attention.ops.swap_blocks import swap_blocks
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError, UnknownNameError

Layers = list[tuple[torch.Tensor, torch.Tensor]]
Scale: TypeAlias = torch.Tensor | float | None


@dataclass(frozen=True)
class PagedStep:
    """Slots of new tokens, for `PagedKVCache.write`.

    Attributes:
        slot_mapping: slot of each new token, ``[num_tokens] int64`` on the cache's device, sequence after sequence.
        num_cached_tokens: number of leading tokens of a new sequence that the prefix cache holds; they get no slot.
    """

    slot_mapping: torch.Tensor
    num_cached_tokens: int = 0


class PagedKVCache:
    """Keys and values of sequences, in blocks that a `BlockManager` allocates, shares and frees.

    A method that raises an error of the manager has changed nothing.

    Args:
        num_layers: layers of the model; each has a pair (key_cache, value_cache) in ``.layers``.
        num_blocks: blocks on the device, the same number in each layer.
        num_host_blocks: blocks of swap space on the host.
        block_size: tokens per block.
        num_kv_heads: KV heads of the model.
        head_size: elements of a head.
        dtype: element type of the tensors written and gathered, and of the cache unless that is quantized.
        layout: order of the elements in a block: "x", "nhd" or "hnd".
        kv_cache_dtype: "auto" (not quantized), "int8", "fp8_e4m3", "fp8_e5m2" or "nvfp4"; see
            `workbench.attention.cache_formats.quantization`.
        k_scale: scale of quantized keys: a number, ``[1]`` or ``[num_kv_heads] float32`` for all layers, or a list with
            one of these for each layer; default 1. "token" gives every token and head a scale of its own when it is
            written; it is stored beside the cache and moves with its block. nvfp4 takes none: its blocks have scales.
            ``.scales`` has the scales of each layer.
        v_scale: scale of quantized values, given as ``k_scale`` is.
        device: where the cache lives; the swap space is in host memory, pinned if the device is a GPU.
        prefix_caching: keep the contents of freed blocks for sequences with the same prefix; see `BlockManager`.
        sliding_window: tokens that attention reads, the newest included; see `BlockManager`.

    Raises:
        ArgumentError: if a size, layer or tensor does not fit.
    """

    @names_wrong_kinds
    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        dtype: torch.dtype = torch.float16,
        layout: str = "nhd",
        device: torch.device | str = "cpu",
        num_host_blocks: int = 0,
        prefix_caching: bool = False,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        k_scale: Scale | Sequence[Scale] | str = None,
        v_scale: Scale | Sequence[Scale] | str = None,
    ):
        if layout not in LAYOUTS:
            raise UnknownNameError(
                "layout", repr(layout), ", ".join(LAYOUTS), "See workbench.attention.cache_formats.layouts."
            )
        self.num_layers = check_count("num_layers", num_layers, 1, "Layers of the model.")
        self.num_kv_heads = check_count("num_kv_heads", num_kv_heads, 1, "KV heads of the model.")
        self.head_size = check_count("head_size", head_size, 1, "Elements of a head.")
        self.dtype = check_cache_dtype(dtype)
        self.kv_cache_dtype = kv_cache_dtype if kv_cache_dtype == "auto" else check_kind(kv_cache_dtype)
        self.layout = layout
        self.manager = BlockManager(
            num_blocks,
            block_size,
            num_host_blocks=num_host_blocks,
            prefix_caching=prefix_caching,
            sliding_window=sliding_window,
        )
        self.block_size = self.manager.block_size
        self.device = check_device(device)
        self.layers = [self._new_pair(self.manager.num_blocks, self.device) for _ in range(self.num_layers)]
        num_host, pinned = self.manager.num_host_blocks, self.device.type == "cuda"
        self._host_layers = [self._new_pair(num_host, "cpu", pinned=pinned) for _ in range(self.num_layers)]
        sides = [self._new_scales(name, given) for name, given in (("k_scale", k_scale), ("v_scale", v_scale))]
        self.scales = list(zip(*sides, strict=True))
        self._token_scales = [scale for pair in self.scales for scale in pair if scale is not None and scale.dim() == 3]
        shape = (num_host, self.block_size, self.num_kv_heads)
        self._host_token_scales = [torch.ones(shape, pin_memory=pinned) for _ in self._token_scales]

    # -- the life of a sequence ---------------------------------------------------------------------------------

    def allocate(self, seq: Hashable, tokens: Tokens, *, salt: Hashable = None) -> PagedStep:
        """Begin a sequence and make room for the tokens of its prompt that the prefix cache does not hold."""
        return self._step(self.manager.allocate(seq, tokens, salt=salt))

    def append(self, seq: Hashable, tokens: Tokens = 1) -> PagedStep:
        """Make room for new tokens of one sequence."""
        return self._step(self.manager.append(seq, tokens))

    def append_batch(self, batch: Mapping[Any, Tokens]) -> PagedStep:
        """Make room for new tokens of several sequences, and copy the shared blocks that they will write."""
        return self._step(self.manager.append_batch(batch))

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store the keys and values of new tokens in one layer, quantized if the cache is.

        Args:
            layer: index of the layer, from 0.
            key: keys ``[num_tokens, num_kv_heads, head_size]`` of the cache's ``dtype``.
            value: values of the same shape and dtype.
            slot_mapping: slot of each token, ``[num_tokens] int64``; -1 skips a token.
        """
        caches = self.layers[check_layer(layer, self.num_layers)]
        options: dict[str, Any] = {"layout": self.layout, "kv_cache_dtype": self.kv_cache_dtype}
        if self.kv_cache_dtype != "auto":
            k_scale, v_scale = self.scales[layer]
            options |= {"k_scale": k_scale, "v_scale": v_scale}
            shape = (len(slot_mapping), self.num_kv_heads, self.head_size)
            check_tokens(key, value, shape, self.dtype, self.device)
            check_slots(slot_mapping, self.manager.num_blocks * self.block_size)
            for tokens, scale in ((key, k_scale), (value, v_scale)):
                if scale is not None and scale.dim() == 3:
                    store_token_scales(tokens, scale, slot_mapping, self.kv_cache_dtype)
        reshape_and_cache(key, value, *caches, slot_mapping, **options)

    def fork(self, parent: Hashable, child: Hashable) -> None:
        """Begin ``child`` with the history of ``parent``, sharing its blocks."""
        self.manager.fork(parent, child)

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``: a step of beam search without copies."""
        self.manager.reorder(parents)

    def free(self, seq: Hashable) -> None:
        """End a sequence, running or swapped out."""
        self.manager.free(seq)

    def swap_out(self, *seqs: Hashable) -> int:
        """Move sequences to host memory and return the number of blocks moved."""
        pairs = self.manager.swap_out(*seqs)
        return self._move(pairs, (self.layers, self._token_scales), (self._host_layers, self._host_token_scales))

    def swap_in(self, *seqs: Hashable) -> int:
        """Move sequences back to the device and return the number of blocks moved."""
        pairs = self.manager.swap_in(*seqs)
        return self._move(pairs, (self._host_layers, self._host_token_scales), (self.layers, self._token_scales))

    # -- queries ------------------------------------------------------------------------------------------------

    def attention_options(self, layer: int) -> dict[str, Any]:
        """Return the keyword arguments with which `workbench.attention.ops.paged_attention` reads one layer.

        They are the layout, the quantization with its scales, and the sliding window.
        """
        k_scale, v_scale = self.scales[check_layer(layer, self.num_layers)]
        return {
            "layout": self.layout,
            "kv_cache_dtype": self.kv_cache_dtype,
            "k_scale": k_scale,
            "v_scale": v_scale,
            "sliding_window": self.manager.sliding_window,
        }

    def block_tables(self, seqs: Iterable[Hashable]) -> torch.Tensor:
        """Return the block tables ``[num_seqs, max_blocks] int32`` of running sequences, for attention ops.

        Entries behind the sliding window name the sequence's first live block, so that a kernel which reads and masks
        them never reads another sequence's memory. Entries past the end are 0 and never read.
        """
        tables = []
        for seq in self._check_running(seqs):
            table = self.manager.block_table(seq)
            if table and table[0] == FREED:
                live = next((block for block in table if block != FREED), 0)
                table = [live if block == FREED else block for block in table]
            tables.append(table)
        widest = max(map(len, tables), default=0)
        rows = [table + [0] * (widest - len(table)) for table in tables]
        return torch.tensor(rows, dtype=torch.int32, device=self.device).view(len(rows), widest)

    def seq_lens(self, seqs: Iterable[Hashable]) -> torch.Tensor:
        """Return the lengths of running sequences in tokens, ``[num_seqs] int32``."""
        lengths = [self.manager.num_tokens(seq) for seq in self._check_running(seqs)]
        return torch.tensor(lengths, dtype=torch.int32, device=self.device)

    def slot_mapping(self, seq: Hashable, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """Return the slots of tokens ``start`` to ``stop``, ``[num_tokens] int64``; -1 behind the sliding window."""
        return self._slots(self.manager.slots(seq, start, stop))

    def gather(self, layer: int, seq: Hashable) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of a running sequence, ``[num_tokens, num_kv_heads, head_size]`` each, dequantized.

        Both have the cache's ``dtype``. Leading tokens whose blocks have left the sliding window are omitted.
        """
        caches = self.layers[check_layer(layer, self.num_layers)]
        (seq,) = self._check_running([seq])
        table = [block for block in self.manager.block_table(seq) if block != FREED]
        gone = len(self.manager.block_table(seq)) - len(table)
        length = self.manager.num_tokens(seq) - gone * self.block_size
        tables = torch.tensor([table], dtype=torch.int32, device=self.device)
        lengths = torch.tensor([length], dtype=torch.int32, device=self.device)
        options = self.attention_options(layer)
        del options["sliding_window"]
        return gather_cache(*caches, tables, lengths, dtype=self.dtype, **options)

    def memory(self) -> MemoryUse:
        """Return the bytes of the device cache, of the blocks in use, and of the tokens in them.

        Scales per token are included.
        """
        counts = self.manager.statistics()
        row = self.head_size * self._element.itemsize if self.kv_cache_dtype != "nvfp4" else row_bytes(self.head_size)
        slot_bytes = self.num_layers * 2 * self.num_kv_heads * row
        slot_bytes += 4 * self.num_kv_heads * len(self._token_scales)
        return MemoryUse(
            pool_bytes=counts.num_blocks * self.block_size * slot_bytes,
            reserved_bytes=counts.num_slots * slot_bytes,
            used_bytes=counts.filled_slots * slot_bytes,
        )

    # -- internal steps -----------------------------------------------------------------------------------------

    def _new_pair(
        self, num_blocks: int, device: torch.device | str, *, pinned: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        geometry = PagedGeometry(self.layout, num_blocks, self.manager.block_size, self.num_kv_heads, self.head_size)
        shapes = geometry.key_shape(self._element), geometry.value_shape(self._element)
        key_cache, value_cache = (
            torch.zeros(shape, dtype=self._element, device=device, pin_memory=pinned) for shape in shapes
        )
        return key_cache, value_cache

    @property
    def _element(self) -> torch.dtype:
        return CACHE_DTYPES.get(self.kv_cache_dtype, self.dtype)

    def _new_scales(self, name: str, given: Scale | Sequence[Scale] | str) -> list[torch.Tensor | None]:
        """Return the scales of K or of V for every layer, on the device."""
        shape = (self.manager.num_blocks, self.block_size, self.num_kv_heads)
        if isinstance(given, str) and given != "token":
            raise ArgumentError(
                name, repr(given), 'a number, a tensor, a list of them, or "token"', "See PagedKVCache."
            )
        if isinstance(given, str):
            scales = [torch.ones(shape, device=self.device) for _ in range(self.num_layers)]
        elif isinstance(given, list | tuple):
            scales = list(given)
        else:
            scales = [given] * self.num_layers
        if any(isinstance(scale, torch.Tensor) and scale.is_meta for scale in scales):
            raise ArgumentError(
                name, "a tensor on the meta device", "scales that have values", "Pass the scales of the checkpoint."
            )
        if len(scales) != self.num_layers:
            raise ArgumentError(
                name,
                f"{len(scales)} scales",
                f"{self.num_layers}, one per layer",
                "Pass one for each layer, or one for all.",
            )
        like, geometry = self.layers[0][0], PagedGeometry(self.layout, *shape, self.head_size)
        scales = [
            scale.to(self.device) if isinstance(scale, torch.Tensor) else as_scale(scale, like) for scale in scales
        ]
        for scale in scales:
            check_scale(name, scale, geometry, self.kv_cache_dtype)
            if scale is not None and scale.dim() == 3 and given != "token":
                raise ArgumentError(
                    name, f"shape {tuple(scale.shape)}", "one scale, or one per KV head", 'Or pass "token".'
                )
        return scales

    @staticmethod
    def _move(
        pairs: list[tuple[int, int]],
        sources: tuple[Layers, list[torch.Tensor]],
        targets: tuple[Layers, list[torch.Tensor]],
    ) -> int:
        """Copy blocks and their scales between device and host, wait for it, and return the number of blocks."""
        if pairs:
            mapping = torch.tensor(pairs, dtype=torch.int64)
            source_caches, target_caches = (
                [cache for pair in layers for cache in pair] for layers, _ in (sources, targets)
            )
            swap_blocks(source_caches, target_caches, mapping)
            for source, target in zip(sources[1], targets[1], strict=True):
                moved = source[mapping[:, 0].to(source.device)]
                target[mapping[:, 1].to(target.device)] = moved.to(target.device)
        return len(pairs)

    def _slots(self, slots: list[int]) -> torch.Tensor:
        return torch.tensor(slots, dtype=torch.int64, device=self.device)

    def _step(self, placement: Placement) -> PagedStep:
        if placement.copies:
            pairs = torch.tensor(placement.copies, dtype=torch.int64, device=self.device)
            copy_blocks([key for key, _ in self.layers], [value for _, value in self.layers], pairs)
            for scale in self._token_scales:
                scale[pairs[:, 1]] = scale[pairs[:, 0]]
        return PagedStep(self._slots(placement.slots), placement.num_cached_tokens)

    def _check_running(self, seqs: Iterable[Hashable]) -> list[Hashable]:
        seqs = list(seqs)
        self.manager.check_running(seqs)
        return seqs
