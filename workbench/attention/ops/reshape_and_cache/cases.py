"""Named writes with a known answer: every byte of both caches.

* keys and values are N(0, 1), so that no two tokens, heads or halves agree by accident;
* each *run* is a number of tokens that follow each other in one sequence, from some offset in a page on: a long one is
  a prefill, runs of one are a decode step. Pages are shuffled over the cache, with free pages in between;
* some tokens in between are skipped (slot -1), as the padding of a batch is;
* a quantized cache gets scales at which a few elements in a thousand saturate;
* both caches hold NaN before. ``Tensors.out`` is the bytes of both caches, and the answer is exact: every written
  element bit for bit, every other byte untouched.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.layouts import LAYOUTS, PagedGeometry, from_canonical
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, quantize
from workbench.attention.ops.cache_case import (
    FREE_PAGES,
    SCALES,
    UNWRITTEN,
    CacheCase,
    cache_row_bytes,
    check_nvfp4,
    random_scales,
)
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import by_name, check_bits
from workbench.attention.ops.reshape_and_cache.problem import ReshapeAndCacheProblem, ReshapeAndCacheTensors
from workbench.ops import Check


@dataclass(frozen=True)
class ReshapeAndCacheCase(CacheCase):
    """One write. ``runs`` has the tokens that follow each other in each sequence; ``skipped`` tokens have no slot."""

    num_kv_heads: int
    head_size: int
    runs: tuple[int, ...]
    skipped: int = 0
    dtype: str = "float16"
    layout: str = "x"
    block_size: int = 16
    seed: int = 0
    kv_cache_dtype: str = "auto"
    scales: str = "head"

    _lengths = "runs"
    _problem = ReshapeAndCacheProblem

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", tuple(self.runs))
        self._check_choices(dtype=DTYPES, layout=LAYOUTS, kv_cache_dtype=("auto", *CACHE_DTYPES), scales=SCALES)
        check_nvfp4(self)

    @property
    def num_tokens(self) -> int:
        """Number of all tokens, the skipped ones included."""
        return sum(self.runs) + self.skipped

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``prefill 346 tokens float16 x/16``."""
        return f"{self.name} {self.num_tokens} tokens {self.dtype} {self.cache_label}"

    @property
    def alignment(self) -> int:
        """Alignment of every row of key and value in bytes, at most 16."""
        bits = 16 | self.head_size * DTYPES[self.dtype].itemsize
        return bits & -bits

    def minimum_bytes(self, problem: ReshapeAndCacheProblem) -> int:
        """Return the bytes that must cross memory once.

        They are those of written tokens read and stored, K and V, of their scales, and of every slot.
        """
        row = self.head_size * DTYPES[self.dtype].itemsize + cache_row_bytes(self, problem)
        token = self.num_kv_heads * row
        if self.quantized and self.scales == "token":
            token += 4 * self.num_kv_heads
        return 2 * sum(self.runs) * token + 8 * self.num_tokens

    def inputs(self, problem: ReshapeAndCacheProblem, device: str | torch.device = "cpu") -> ReshapeAndCacheTensors:
        """Return fresh tensors; both caches are views of ``out``, whose bytes are all ones."""
        content, dtype = _content(self), problem.cache_dtype
        geometry = PagedGeometry(self.layout, content.num_blocks, self.block_size, self.num_kv_heads, self.head_size)
        out = torch.full_like(_answer(self), UNWRITTEN, device=device)
        key_cache, value_cache = out.view(dtype).chunk(2)
        return ReshapeAndCacheTensors(
            key=content.key.to(device, copy=True),
            value=content.value.to(device, copy=True),
            key_cache=key_cache.view(geometry.key_shape(dtype)),
            value_cache=value_cache.view(geometry.value_shape(dtype)),
            slot_mapping=content.slots.to(device, copy=True),
            k_scale=None if content.k_scale is None else content.k_scale.to(device, copy=True),
            v_scale=None if content.v_scale is None else content.v_scale.to(device, copy=True),
            out=out,
        )

    def reference(self) -> torch.Tensor:
        """Return the bytes of both caches after the write, keys first."""
        return _answer(self)

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output, by its bits; ``max_error`` is the largest difference of two elements, inf beside a NaN."""
        return check_bits(out, _answer(self), self.problem().cache_dtype)


@dataclass(frozen=True)
class _Content:
    """key, value ``[num_tokens, num_kv_heads, head_size]``; slots ``[num_tokens] int64``; scales like the op's."""

    key: torch.Tensor
    value: torch.Tensor
    slots: torch.Tensor
    num_blocks: int
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None


@functools.lru_cache(maxsize=4)
def _content(case: ReshapeAndCacheCase) -> _Content:
    generator = torch.Generator().manual_seed(case.seed)
    shape = (2, case.num_tokens, case.num_kv_heads, case.head_size)
    key, value = torch.randn(shape, generator=generator).to(DTYPES[case.dtype])
    # The longest run starts its page, as a prefill does; the others start anywhere.
    starts = [int(torch.randint(case.block_size, (1,), generator=generator)) for _ in case.runs]
    if starts:
        starts[case.runs.index(max(case.runs))] = 0
    counts = [-(-(start + length) // case.block_size) for start, length in zip(starts, case.runs, strict=True)]
    num_blocks = sum(counts) + FREE_PAGES
    pages = torch.randperm(num_blocks, generator=generator)[: sum(counts)]
    slots = []
    for start, length, table in zip(starts, case.runs, pages.split(counts), strict=True):
        position = start + torch.arange(length)
        slots.append(table[position // case.block_size] * case.block_size + position % case.block_size)
    slots = torch.cat([*slots, torch.full((case.skipped,), -1)]).long()
    if case.skipped:  # somewhere in between, but no run is torn into single tokens
        at = torch.randint(case.num_tokens - case.skipped + 1, (1,), generator=generator)
        slots = slots.roll(int(at))
    k_scale, v_scale = random_scales(case, (num_blocks, case.block_size, case.num_kv_heads), generator)
    return _Content(key, value, slots, num_blocks, k_scale, v_scale)


@functools.lru_cache(maxsize=8)
def _answer(case: ReshapeAndCacheCase) -> torch.Tensor:
    content, dtype, sides = _content(case), case.problem().cache_dtype, []
    num_slots = content.num_blocks * case.block_size
    for tokens, scale in ((content.key, content.k_scale), (content.value, content.v_scale)):
        size = num_slots * case.num_kv_heads * cache_row_bytes(case, case.problem())
        empty = torch.full((size,), UNWRITTEN, dtype=torch.uint8)
        cache = empty.view(dtype).view(num_slots, case.num_kv_heads, -1)
        for token, slot in zip(tokens, content.slots.tolist(), strict=True):
            if slot < 0:
                continue
            if case.quantized:
                own = 1.0 if scale is None else scale.flatten(0, 1)[slot] if case.scales == "token" else scale
                token = quantize(token, own, case.kv_cache_dtype)
            cache[slot] = token
        sides.append(cache.unflatten(0, (content.num_blocks, case.block_size)))
    keys, values = sides
    if case.kv_cache_dtype == "nvfp4":
        return torch.cat([nvfp4.from_rows(side, case.layout).flatten() for side in sides])
    return torch.cat([side.flatten().view(torch.uint8) for side in from_canonical(keys, values, case.layout)])


CASES = by_name(
    ReshapeAndCacheCase("small", num_kv_heads=2, head_size=64, runs=(1, 17, 1, 16, 5, 40), skipped=3),
    ReshapeAndCacheCase("llama-3-8b-prefill", num_kv_heads=8, head_size=128, runs=(300, 45)),
    ReshapeAndCacheCase("llama-3-8b-decode", num_kv_heads=8, head_size=128, runs=(1,) * 64),
    ReshapeAndCacheCase(
        "nhd", num_kv_heads=4, head_size=80, runs=(33, 1, 1, 9), skipped=2, dtype="bfloat16", layout="nhd"
    ),
    ReshapeAndCacheCase("hnd", num_kv_heads=3, head_size=96, runs=(33, 1, 7), skipped=1, dtype="float32", layout="hnd"),
    ReshapeAndCacheCase("int8", 2, 64, (1, 17, 1, 16, 5, 40), skipped=3, kv_cache_dtype="int8", scales="token"),
    ReshapeAndCacheCase("fp8", 4, 80, (33, 1, 1, 9), 2, "bfloat16", "nhd", kv_cache_dtype="fp8_e4m3"),
    ReshapeAndCacheCase("nvfp4", 4, 80, (33, 1, 1, 9), 2, "bfloat16", "nhd", kv_cache_dtype="nvfp4"),
)
