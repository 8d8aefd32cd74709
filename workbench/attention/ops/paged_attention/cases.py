"""Named inputs with a known answer, after the geometries of real models.

Inputs that tell kernels apart (uniform ones in ±1/sqrt(head_size) do not: a kernel that ignores K passes on them):

* query, keys and values are N(0, 1);
* *needles*: in each sequence and KV head, one key points along the query of one of its query heads, strongly enough
  to take most of that head's weight; the needles stand on the last token, the first one and in between, so that
  skipping any token, or reading another head, shows however long the sequence is;
* lengths are unequal and lie on, before and after page boundaries;
* pages are shuffled over the cache, with free pages in between; every slot that no token owns holds NaN, and unused
  entries of the block table are -1.

The *logical* content depends on the case alone, never on page size or layout.

**Error bound.** Per sequence, in the maximum norm over ``[num_heads, head_size]``:

    max |out - reference| <= factor * max |same_precision - reference| + 1e-5

where the reference is float64, ``same_precision`` is torch's own softmax(QK)V in the case's dtype on the same tokens,
and factor is 2 (4 for a quantized cache). One norm per sequence, because the outputs of a long sequence are smaller
than those of a short one and would hide behind them. (The rule is that of FlashAttention's tests.) The reference and
the bound take the cache's quantized values as given: they judge the kernel, not the quantization.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats.layouts import to_paged
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, LARGEST, dequantize, quantize
from workbench.attention.ops.cache_case import cache_row_bytes, check_nvfp4, in_pages, shuffled_tables
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import AnsweredSequences, by_name
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.paged_attention.reference import attend_all
from workbench.errors import ArgumentError

SCALES = ("tensor", "head", "token")
FAMILIES = ("needles", "zero_query", "one_hot_value", "large_scores")
_LARGE = 32.0  # scores of several hundred: exp of them overflows fp32 unless the maximum is subtracted


@dataclass(frozen=True)
class DecodeStep(AnsweredSequences):
    """One decode step, however its cache is stored. Lengths are in tokens; ``seq_lens`` has one entry per sequence.

    ``family`` is "needles" (above), "zero_query" (the answer is the mean of V), "one_hot_value" (V of token t is the
    unit vector t mod head_size, so that the output shows the weights) or "large_scores" (exp would overflow).
    ``scales`` of a quantized cache: one per "tensor", per KV "head", or per "token" and head.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    seq_lens: tuple[int, ...]
    dtype: str = "float16"
    layout: str = "x"
    family: str = "needles"
    seed: int = 0
    kv_cache_dtype: str = "auto"
    scales: str = "head"
    alibi: bool = False
    sliding_window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_lens", tuple(self.seq_lens))
        if self.num_heads % self.num_kv_heads:
            raise ArgumentError(
                "num_heads", self.num_heads, f"a multiple of num_kv_heads = {self.num_kv_heads}", "Change either."
            )
        self._check_choices(dtype=DTYPES, family=FAMILIES, kv_cache_dtype=("auto", *CACHE_DTYPES), scales=SCALES)
        check_nvfp4(self)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``llama-3-8b 4x512 float16``."""
        extra = [self.kv_cache_dtype] if self.kv_cache_dtype != "auto" else []
        extra += [feature for feature in self.features if feature not in CACHE_DTYPES]
        return " ".join([self.name, f"{self.num_seqs}x{self.max_seq_len}", self.dtype, *extra])

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the case asks for beyond plain attention, and how its cache is quantized."""
        return tuple(
            name
            for name, wanted in (
                ("alibi", self.alibi),
                ("sliding_window", self.sliding_window is not None),
                ("soft_cap", self.soft_cap is not None),
                ("sinks", self.sinks),
                (self.kv_cache_dtype, self.kv_cache_dtype != "auto"),
                ("token_scales", self.kv_cache_dtype != "auto" and self.scales == "token"),
            )
            if wanted
        )

    def _resized(self, num_seqs: int, context: int, seed: int) -> tuple[int, ...]:
        """Draw lengths between half the context and all of it; the first is all of it."""
        generator = torch.Generator().manual_seed(seed + 2)
        low = max(1, context // 2)
        others = torch.randint(low, context + 1, (num_seqs - 1,), generator=generator).tolist()
        return (context, *others)

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float64 answer, ``[num_seqs, num_heads, head_size]``, and the bound of each sequence."""
        return _answers(self)


@dataclass(frozen=True)
class PagedAttentionCase(DecodeStep):
    """One decode step over a paged cache with all its inputs."""

    _problem = PagedAttentionProblem

    def minimum_bytes(self, problem: PagedAttentionProblem) -> int:
        """Return the bytes that must cross memory once.

        They are those of K and V of every token (and of their scales, if each has its own), query, output, lengths and
        used table entries.
        """
        vectors = 2 * self.num_seqs * self.num_heads * self.head_size * DTYPES[self.dtype].itemsize
        cache = 2 * self.total_tokens * self.num_kv_heads * cache_row_bytes(self, problem)
        entries = sum(math.ceil(length / problem.page) for length in self.seq_lens)
        scales = 8 * self.total_tokens * self.num_kv_heads if "token_scales" in problem.features else 0
        return cache + scales + vectors + 4 * (entries + self.num_seqs)

    def inputs(self, problem: PagedAttentionProblem, device: str | torch.device = "cpu") -> PagedAttentionTensors:
        """Return fresh tensors for the problem's page size and layout; ``out`` is NaN everywhere."""
        content = _content(self)
        generator = torch.Generator().manual_seed(self.seed + 1)
        tables, num_blocks = shuffled_tables(self.seq_lens, problem.page, generator)
        key_cache, value_cache = to_paged(
            content.keys,
            content.values,
            tables,
            num_blocks=num_blocks,
            block_size=problem.page,
            layout=problem.layout,
        )

        def place(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.to(device, copy=True)

        return PagedAttentionTensors(
            query=place(content.query),
            key_cache=place(key_cache),
            value_cache=place(value_cache),
            block_tables=place(tables),
            seq_lens=place(torch.tensor(self.seq_lens, dtype=torch.int32)),
            scale=self.head_size**-0.5,
            out=torch.full_like(content.query, float("nan"), device=device),
            alibi_slopes=place(content.alibi_slopes),
            sliding_window=self.sliding_window,
            soft_cap=self.soft_cap,
            sinks=place(content.sinks),
            k_scale=place(self._placed(content.k_scales, tables, problem.page, num_blocks)),
            v_scale=place(self._placed(content.v_scales, tables, problem.page, num_blocks)),
        )

    def _placed(
        self, scales: tuple[torch.Tensor, ...], tables: torch.Tensor, page: int, num_blocks: int
    ) -> torch.Tensor | None:
        """Return the scales of all sequences as the op takes them; those per token lie in pages, NaN in free slots."""
        if self.kv_cache_dtype == "auto":
            return None
        if self.scales != "token":
            return scales[0][0, : 1 if self.scales == "tensor" else None]
        return in_pages(torch.cat(scales), tables, self.seq_lens, page, num_blocks)


@dataclass(frozen=True)
class _Content:
    """Content of a case, without pages and layout.

    For each sequence keys and values are ``[tokens, num_kv_heads, head_size]``, and scales ``[tokens, num_kv_heads]``,
    or ``[1, num_kv_heads]`` where they are not per token.
    """

    query: torch.Tensor
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    alibi_slopes: torch.Tensor | None
    sinks: torch.Tensor | None
    k_scales: tuple[torch.Tensor, ...]
    v_scales: tuple[torch.Tensor, ...]


@functools.lru_cache(maxsize=4)
def _content(case: DecodeStep) -> _Content:
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    dtype = DTYPES[case.dtype]
    query = normal(len(case.seq_lens), case.num_heads, case.head_size)
    keys, values = [], []
    for q, length in zip(query, case.seq_lens, strict=True):
        key, value = normal(2, length, case.num_kv_heads, case.head_size)
        if case.family == "one_hot_value":
            tokens = torch.arange(length)
            value = torch.nn.functional.one_hot(tokens % case.head_size, case.head_size).float()
            value = value[:, None].expand(-1, case.num_kv_heads, -1)
        plant_needles(q, key, generator)
        keys.append(key)
        values.append(value)
    if case.family == "zero_query":
        query = torch.zeros_like(query)
    elif case.family == "large_scores":
        query = query * _LARGE
    heads = torch.arange(1, case.num_heads + 1)
    of_heads = (0.02 + 0.01 * torch.rand(2, case.num_kv_heads, generator=generator)).float()
    k_scales, v_scales = (
        tuple(_scales(one, scale, case) for one in tokens)
        for tokens, scale in zip((keys, values), of_heads, strict=True)
    )
    return _Content(
        query=query.to(dtype),
        keys=tuple(_stored(key, scale, case) for key, scale in zip(keys, k_scales, strict=True)),
        values=tuple(_stored(value, scale, case) for value, scale in zip(values, v_scales, strict=True)),
        alibi_slopes=2.0 ** (-8.0 * heads / case.num_heads) if case.alibi else None,
        sinks=normal(case.num_heads) if case.sinks else None,
        k_scales=k_scales,
        v_scales=v_scales,
    )


def _scales(tokens: torch.Tensor, of_heads: torch.Tensor, case: DecodeStep) -> torch.Tensor:
    """Return the scales of one sequence's tokens.

    A scale per token maps the token's largest element to the largest value that the cache stores.
    """
    if case.kv_cache_dtype == "auto" or case.scales == "head":
        return of_heads[None]
    if case.scales == "tensor":
        return of_heads[None, :1].expand(1, case.num_kv_heads)
    return tokens.abs().amax(-1) / LARGEST[case.kv_cache_dtype]


def _stored(tokens: torch.Tensor, scales: torch.Tensor, case: DecodeStep) -> torch.Tensor:
    """Return tokens ``[tokens, num_kv_heads, head_size]`` as cache elements, quantized if the case says so.

    Those of NVFP4 are rows of bytes.
    """
    if case.kv_cache_dtype == "auto":
        return tokens.to(DTYPES[case.dtype])
    if case.kv_cache_dtype == "nvfp4":
        return quantize(tokens, scales, "nvfp4")
    largest = LARGEST[case.kv_cache_dtype]
    scaled = (tokens / scales[..., None]).clamp(-largest, largest)
    return (scaled.round() if case.kv_cache_dtype == "int8" else scaled).to(CACHE_DTYPES[case.kv_cache_dtype])


def _read(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the float64 values of codes ``[tokens, num_kv_heads, head_size]``, or of rows of NVFP4."""
    if codes.dtype == torch.uint8:  # exact in float32 without their scale, a product of two and five bits
        codes = dequantize(codes, 1.0)
    return codes.double() * scales.double()[..., None]


def plant_needles(query: torch.Tensor, key: torch.Tensor, generator: torch.Generator) -> None:
    """Point one key per KV head along a query head of its group, with a score of about 2 above all others together.

    It is in turn the key of the last token, the first, an inner one and the one before last. query
    ``[num_heads, head_size]``, key ``[tokens, num_kv_heads, head_size]``.
    """
    length, num_kv_heads, head_size = key.shape
    if length == 0:
        return
    group = query.shape[0] // num_kv_heads
    score = math.log(length) + 2.5  # the others sum to about length * exp(1/2)
    for kv_head in range(num_kv_heads):
        inner = int(torch.randint(length, (1,), generator=generator))
        token = (length - 1, 0, inner, max(length - 2, 0))[kv_head % 4]
        direction = query[kv_head * group + int(torch.randint(group, (1,), generator=generator))]
        key[token, kv_head] = direction * (score * math.sqrt(head_size) / direction.square().sum())


@functools.lru_cache(maxsize=64)
def _answers(case: DecodeStep) -> tuple[torch.Tensor, torch.Tensor]:
    content = _content(case)
    quantized = case.kv_cache_dtype != "auto"
    keys, values = (
        [_read(one, scale) if quantized else one for one, scale in zip(*pair, strict=True)]
        for pair in ((content.keys, content.k_scales), (content.values, content.v_scales))
    )
    options = {
        "scale": case.head_size**-0.5,
        "alibi_slopes": content.alibi_slopes,
        "sliding_window": case.sliding_window,
        "soft_cap": case.soft_cap,
        "sinks": content.sinks,
    }
    exact = attend_all(content.query, keys, values, **options)
    same_precision = attend_all(content.query, keys, values, dtype=DTYPES[case.dtype], **options)
    error = (same_precision.double() - exact).abs().flatten(1).amax(1)
    return exact, (4 if quantized else 2) * error + 1e-5


_PAGE_EDGES = (1, 15, 16, 17, 63, 64, 65, 129)

CASES = by_name(
    PagedAttentionCase("small", num_heads=8, num_kv_heads=2, head_size=64, seq_lens=_PAGE_EDGES),
    PagedAttentionCase("llama-2-7b", num_heads=32, num_kv_heads=32, head_size=128, seq_lens=(300, 1, 127, 65)),
    PagedAttentionCase("llama-3-8b", num_heads=32, num_kv_heads=8, head_size=128, seq_lens=(300, 1, 127, 65)),
    PagedAttentionCase("llama-3-70b", num_heads=64, num_kv_heads=8, head_size=128, seq_lens=(257, 33)),
    PagedAttentionCase(
        "zero-query",
        num_heads=8,
        num_kv_heads=4,
        head_size=64,
        seq_lens=(0, 1, 32, 33, 128),
        dtype="float32",
        family="zero_query",
    ),
    PagedAttentionCase(
        "one-hot-value",
        num_heads=8,
        num_kv_heads=8,
        head_size=64,
        seq_lens=(1, 0, 64, 63, 97),
        dtype="bfloat16",
        family="one_hot_value",
    ),
    PagedAttentionCase(
        "large-scores",
        num_heads=8,
        num_kv_heads=2,
        head_size=64,
        seq_lens=(100, 1, 64, 31),
        dtype="float32",
        family="large_scores",
    ),
)
