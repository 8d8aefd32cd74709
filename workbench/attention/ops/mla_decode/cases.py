"""Named inputs for decode over a latent cache, with a known answer.

Queries and latents are N(0, 1). In each sequence one token's key is a *needle*: it points along the query of one head,
strongly enough to take most of its weight, and stands in turn on the last token, the first and in between. Lengths lie
on, before and after page boundaries, pages are shuffled over the cache, every slot that no token owns holds NaN, and
unused entries of the block table are -1. The bound of an error is the one of `paged_attention`'s cases; reference and
bound take quantized values as given.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import fp8_latents
from workbench.attention.cache_formats.layouts import slots_of
from workbench.attention.ops.cache_case import UNWRITTEN, shuffled_tables
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.mla_decode.problem import MlaDecodeProblem, MlaDecodeTensors, features_of
from workbench.attention.ops.mla_decode.reference import absorbed
from workbench.attention.ops.named_case import AnsweredSequences, by_name
from workbench.ops import Config

FAMILIES = ("needles", "zero_query", "large_scores")
_LARGE = 32.0  # scores of several hundred: exp of them overflows fp32 unless the maximum is subtracted


@dataclass(frozen=True)
class MlaDecodeCase(AnsweredSequences):
    """One decode step over a latent cache with all its inputs. Lengths are in tokens, one of each sequence.

    ``nope_size`` is the part of the model's unabsorbed key that carries no position: the scale follows from it.
    ``family`` is "needles" (above), "zero_query" (the answer is the mean of the latents) or "large_scores" (exp would
    overflow).
    """

    num_heads: int
    latent_size: int
    rope_size: int
    seq_lens: tuple[int, ...]
    nope_size: int = 128
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    family: str = "needles"
    sinks: bool = False
    seed: int = 0
    _problem = MlaDecodeProblem

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_lens", tuple(self.seq_lens))
        self._check_choices(dtype=DTYPES, family=FAMILIES, kv_cache_dtype=("auto", fp8_latents.NAME))

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``deepseek-v3 4x512 bfloat16``."""
        kind = "" if self.kv_cache_dtype == "auto" else f" {self.kv_cache_dtype}"
        return f"{self.name} {self.num_seqs}x{self.max_seq_len} {self.dtype}{kind}"

    @property
    def layout(self) -> str:
        """The only layout."""
        return "latent"

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the problem: how the cache is quantized, sinks."""
        return features_of(self.kv_cache_dtype, sinks=self.sinks)

    @property
    def scale(self) -> float:
        """Factor of the scores: that of the unabsorbed product."""
        return float((self.nope_size + self.rope_size) ** -0.5)

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> MlaDecodeProblem:
        """Return the problem to solve; the page size is the configuration's BLOCK_SIZE."""
        return super().problem(config, arch)

    def minimum_bytes(self, problem: MlaDecodeProblem) -> int:
        """Return the bytes that must cross memory once: latents, queries, output, lengths and used table entries."""
        rows = self.num_seqs * self.num_heads * (problem.key_size + problem.latent_size)
        entries = sum(math.ceil(length / problem.page) for length in self.seq_lens)
        return self.total_tokens * problem.row_bytes + rows * problem.itemsize + 4 * (entries + self.num_seqs)

    def inputs(self, problem: MlaDecodeProblem, device: str | torch.device = "cpu") -> MlaDecodeTensors:
        """Return fresh tensors for the problem's page size; ``out`` is NaN everywhere."""
        query, rows, sinks = _content(self)
        generator = torch.Generator().manual_seed(self.seed + 1)
        tables, num_blocks = shuffled_tables(self.seq_lens, problem.page, generator)
        cache = torch.full((num_blocks * problem.page, problem.row_bytes), UNWRITTEN, dtype=torch.uint8)
        cache = cache if problem.quantized else cache.view(DTYPES[self.dtype])
        cache[slots_of(tables, self.seq_lens, problem.page)] = torch.cat([cache[:0], *rows])
        return MlaDecodeTensors(
            query=query.to(device, copy=True),
            latent_cache=cache.unflatten(0, (num_blocks, problem.page)).to(device),
            block_tables=tables.to(device),
            seq_lens=torch.tensor(self.seq_lens, dtype=torch.int32, device=device),
            scale=self.scale,
            out=torch.full_like(query[..., : self.latent_size], torch.nan, device=device).contiguous(),
            sinks=None if sinks is None else sinks.to(device, copy=True),
        )

    def _resized(self, num_seqs: int, context: int, seed: int) -> tuple[int, ...]:
        """Return lengths that fall from the whole context to half of it."""
        return tuple(context - i * (context // 2) // max(num_seqs - 1, 1) for i in range(num_seqs))

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float64 answer, ``[num_seqs, num_heads, latent_size]``, and the bound of each sequence."""
        return _answers(self)


@functools.lru_cache(maxsize=4)
def _content(case: MlaDecodeCase) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor | None]:
    """Return queries ``[num_seqs, num_heads, key_size]``, of each sequence the rows of the cache, and the sinks."""
    generator = torch.Generator().manual_seed(case.seed)
    size, dtype = case.latent_size + case.rope_size, DTYPES[case.dtype]
    query = torch.randn(case.num_seqs, case.num_heads, size, generator=generator)
    rows = []
    for seq, length in enumerate(case.seq_lens):
        tokens = torch.randn(length, size, generator=generator)
        if length:
            inner, head = (int(torch.randint(end, (1,), generator=generator)) for end in (length, case.num_heads))
            wanted = (math.log(length) + 2.5) / case.scale  # the others sum to about length * exp(size * scale**2 / 2)
            direction = query[seq, head]
            place = (length - 1, 0, inner, max(length - 2, 0))[seq % 4]
            tokens[place] = direction * ((wanted + size * case.scale / 2) / direction.square().sum())
        rows.append(tokens.to(dtype) if case.kv_cache_dtype == "auto" else fp8_latents.pack(tokens, case.latent_size))
    if case.family == "zero_query":
        query = torch.zeros_like(query)
    elif case.family == "large_scores":
        query = query * _LARGE
    sinks = torch.randn(case.num_heads, generator=generator) + 2.0 if case.sinks else None
    return query.to(dtype), tuple(rows), sinks


@functools.lru_cache(maxsize=64)
def _answers(case: MlaDecodeCase) -> tuple[torch.Tensor, torch.Tensor]:
    query, latents, sinks = _content(case)
    quantized = case.kv_cache_dtype != "auto"
    if quantized:
        latents = tuple(fp8_latents.unpack(rows, case.latent_size) for rows in latents)

    def attend_all(dtype: torch.dtype) -> torch.Tensor:
        options = {"latent_size": case.latent_size, "scale": case.scale, "sinks": sinks, "dtype": dtype}
        rows = [absorbed(q, tokens, **options) for q, tokens in zip(query, latents, strict=True)]
        return torch.stack(rows).double() if rows else query[..., : case.latent_size].double()

    exact = attend_all(torch.float64)
    error = (attend_all(DTYPES[case.dtype]) - exact).abs().flatten(1).amax(1)
    return exact, (4 if quantized else 2) * error + 1e-5


_PAGE_EDGES = (1, 63, 64, 65, 0, 129)

CASES = by_name(
    MlaDecodeCase("small", num_heads=16, latent_size=128, rope_size=32, seq_lens=_PAGE_EDGES, nope_size=32),
    MlaDecodeCase("deepseek-v3", num_heads=16, latent_size=512, rope_size=64, seq_lens=(300, 1, 65)),
    MlaDecodeCase("all-heads", num_heads=128, latent_size=512, rope_size=64, seq_lens=(70,)),
    MlaDecodeCase(
        "fp8", num_heads=16, latent_size=512, rope_size=64, seq_lens=(130, 0, 1, 64), kv_cache_dtype=fp8_latents.NAME
    ),
    MlaDecodeCase(
        "deepseek-v4", num_heads=64, latent_size=512, rope_size=0, seq_lens=(130, 1), nope_size=512, sinks=True
    ),
    MlaDecodeCase(
        "few-heads", num_heads=5, latent_size=64, rope_size=32, seq_lens=(31, 0, 200), nope_size=32, dtype="float16"
    ),
    MlaDecodeCase(
        "large-scores",
        num_heads=8,
        latent_size=128,
        rope_size=32,
        seq_lens=(100, 1, 64),
        nope_size=32,
        dtype="float16",
        family="large_scores",
    ),
    MlaDecodeCase(
        "zero-query", num_heads=4, latent_size=128, rope_size=32, seq_lens=(33, 128), nope_size=32, family="zero_query"
    ),
)
