"""Named reads with a known answer: every bit of the result.

* tokens are N(0, 1), quantized by the definition in `workbench.attention.cache_formats.quantization` where the case
  says so, with
  scales at which a few elements in a thousand saturate;
* lengths are unequal and lie on, before and after page boundaries; pages are shuffled, with free pages in between;
* slots that no token owns hold NaN, in the caches and in scales per token, and unused entries of the table are -1;
* the result holds ones before. ``Tensors.out`` is the bytes of keys and values, each filled up to 16, and the answer is
  exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats.layouts import LAYOUTS, to_paged
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, dequantize, quantize
from workbench.attention.ops.cache_case import (
    SCALES,
    UNWRITTEN,
    CacheCase,
    cache_row_bytes,
    check_nvfp4,
    in_pages,
    random_scales,
    shuffled_tables,
)
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gather_cache.problem import GatherCacheProblem, GatherCacheTensors
from workbench.attention.ops.named_case import OfSequences, by_name, check_bits
from workbench.ops import Check


@dataclass(frozen=True)
class GatherCacheCase(OfSequences, CacheCase):
    """One read of whole sequences. ``dtype`` is that of the result, and of a cache that is not quantized."""

    num_kv_heads: int
    head_size: int
    seq_lens: tuple[int, ...]
    dtype: str = "float16"
    layout: str = "x"
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    scales: str = "head"
    seed: int = 0

    _problem = GatherCacheProblem

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_lens", tuple(self.seq_lens))
        self._check_choices(dtype=DTYPES, layout=LAYOUTS, kv_cache_dtype=("auto", *CACHE_DTYPES), scales=SCALES)
        check_nvfp4(self)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``prefix 4x300 float16 x/16 int8 per token``."""
        return f"{self.name} {self.num_seqs}x{self.max_seq_len} {self.dtype} {self.cache_label}"

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the result."""
        return self.total_tokens

    def minimum_bytes(self, problem: GatherCacheProblem) -> int:
        """Return the bytes that must cross memory once.

        They are those of every token read and written, K and V, of scales per token, and of used table entries.
        """
        token = self.num_kv_heads * (cache_row_bytes(self, problem) + self.head_size * problem.itemsize)
        if self.quantized and self.scales == "token":
            token += 4 * self.num_kv_heads
        entries = sum(-(-length // self.block_size) for length in self.seq_lens)
        return 2 * self.num_tokens * token + 4 * entries + 12 * self.num_seqs

    def inputs(self, problem: GatherCacheProblem, device: str | torch.device = "cpu") -> GatherCacheTensors:
        """Return fresh tensors; keys and values are views of ``out``, whose bytes are all ones."""
        content = _content(self)
        key_cache, value_cache = to_paged(
            content.codes[0].split(self.seq_lens),
            content.codes[1].split(self.seq_lens),
            content.tables,
            num_blocks=content.num_blocks,
            block_size=self.block_size,
            layout=self.layout,
        )
        out = torch.full_like(_answer(self), UNWRITTEN, device=device)
        shape, dtype = (self.num_tokens, self.num_kv_heads, self.head_size), DTYPES[self.dtype]
        keys, values = (side[: math.prod(shape) * dtype.itemsize].view(dtype).view(shape) for side in out)
        lengths = torch.tensor(self.seq_lens, dtype=torch.int32)
        placed = [None if scale is None else scale.to(device, copy=True) for scale in self._placed_scales(content)]
        return GatherCacheTensors(
            keys=keys,
            values=values,
            key_cache=key_cache.to(device),
            value_cache=value_cache.to(device),
            block_tables=content.tables.to(device, copy=True),
            seq_lens=lengths.to(device),
            starts=(lengths.cumsum(0) - lengths).to(device),
            k_scale=placed[0],
            v_scale=placed[1],
            out=out,
        )

    def _placed_scales(self, content: _Content) -> list[torch.Tensor | None]:
        """Return the scales of K and V as the op takes them."""
        if self.scales != "token" or not self.quantized:
            return list(content.scales)
        where = content.tables, self.seq_lens, self.block_size, content.num_blocks
        return [in_pages(scale, *where) for scale in content.scales]

    def reference(self) -> torch.Tensor:
        """Return the bytes of keys and of values, ``[2, bytes] uint8``."""
        return _answer(self)

    def check(self, out: torch.Tensor) -> Check:
        """Judge a result, by its bits; ``max_error`` is the largest difference of two elements, inf beside a NaN."""
        return check_bits(out, _answer(self), DTYPES[self.dtype])


@dataclass(frozen=True)
class _Content:
    """Content of a case: codes of K and V ``[tokens, num_kv_heads, head_size]``, their scales, and their pages.

    Scales per token are ``[tokens, num_kv_heads]``.
    """

    codes: Sequence[torch.Tensor]
    scales: Sequence[torch.Tensor | None]
    tables: torch.Tensor
    num_blocks: int


@functools.lru_cache(maxsize=4)
def _content(case: GatherCacheCase) -> _Content:
    generator = torch.Generator().manual_seed(case.seed)
    tables, num_blocks = shuffled_tables(case.seq_lens, case.block_size, generator)
    num_tokens = sum(case.seq_lens)
    tokens = torch.randn(2, num_tokens, case.num_kv_heads, case.head_size, generator=generator)
    if not case.quantized:
        return _Content(tuple(tokens.to(DTYPES[case.dtype])), (None, None), tables, num_blocks)
    scales = random_scales(case, (num_tokens, case.num_kv_heads), generator)
    codes = [
        quantize(side, 1.0 if scale is None else scale, case.kv_cache_dtype)
        for side, scale in zip(tokens, scales, strict=True)
    ]
    return _Content(codes, scales, tables, num_blocks)


@functools.lru_cache(maxsize=8)
def _answer(case: GatherCacheCase) -> torch.Tensor:
    content, sides = _content(case), []
    for codes, scale in zip(content.codes, content.scales, strict=True):
        if not case.quantized:
            sides.append(codes)
        else:
            sides.append(dequantize(codes, 1.0 if scale is None else scale).to(DTYPES[case.dtype]))
    raw = torch.stack([side.flatten().view(torch.uint8) for side in sides])
    return torch.nn.functional.pad(raw, (0, -raw.shape[1] % 16), value=UNWRITTEN)


CASES = by_name(
    GatherCacheCase("small", num_kv_heads=2, head_size=64, seq_lens=(1, 17, 0, 16, 5, 40)),
    GatherCacheCase("prefix", num_kv_heads=8, head_size=128, seq_lens=(300, 45)),
    GatherCacheCase("nhd", num_kv_heads=4, head_size=80, seq_lens=(33, 1, 9), dtype="bfloat16", layout="nhd"),
    GatherCacheCase("hnd", num_kv_heads=3, head_size=96, seq_lens=(33, 1, 7), dtype="float32", layout="hnd"),
    GatherCacheCase("int8", 2, 64, (1, 17, 0, 16, 5, 40), kv_cache_dtype="int8", scales="token"),
    GatherCacheCase("fp8", 4, 80, (33, 1, 9), "bfloat16", "nhd", kv_cache_dtype="fp8_e4m3"),
    GatherCacheCase("nvfp4", 4, 80, (33, 1, 9), "bfloat16", "nhd", kv_cache_dtype="nvfp4"),
)
