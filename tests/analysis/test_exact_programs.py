"""Exact comparison: programs that compute the same agree in every element, planted faults do not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from workbench.analysis.exact import (
    ExactAnswer,
    NoExactRule,
    RingTensor,
    agreement,
    elements,
    opcodes_of,
    part_of,
    raw,
    roundings_of,
    unseen_by,
)
from workbench.analysis.exact.elements import MODULUS, NOTHING, UNDEFINED, P, Q
from workbench.errors import KernelFault
from workbench.launch.sim import Simulator, machine_kernel
from workbench.toolchain import compile_cuda_module, compile_triton

SOURCE = Path(__file__).with_name("exact_programs.cu").read_text()
ROWS, COLUMNS, M, N, K = 12, 98, 48, 40, 72
EPS = 1e-5


@functools.cache
def kernels(text: str = SOURCE) -> Mapping[str, object]:
    return compile_cuda_module(text, arch="sm_80").kernels


def inputs(name: str, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if name.startswith("matmul"):
        return [torch.randn(M, K, generator=generator), torch.randn(K, N, generator=generator)]
    return [torch.randn(ROWS, COLUMNS, generator=generator)]


def launched(name: str, given: list[torch.Tensor], text: str = SOURCE) -> torch.Tensor:
    return launched_on(Simulator(), name, given, kernels(text)[name], exact=True)


def launched_on(device, name: str, given: list[torch.Tensor], kernel, **options) -> torch.Tensor:
    shape = (M, N) if name.startswith("matmul") else ROWS if name in ("log_sum", "compensated") else (ROWS, COLUMNS)
    out = torch.zeros(shape)
    grid, block = {"matmul_tiled": ((N // 8, M // 8), (8, 8)), "matmul_split": ((M, 3), N)}.get(
        name, ((M, N) if name.startswith("matmul") else (ROWS, 1 if name == "compensated" else 32))
    )
    scalars = [np.float32(EPS)] if "norm" in name else []
    device.launch(kernel, grid, block, [out, *given, *scalars], **options)
    return out


REFERENCES: Mapping[str, Callable] = {
    "matmul": lambda a, b: a @ b,
    "softmax": lambda x: torch.softmax(x, -1),
    "log": lambda x: torch.logsumexp(x, -1),
    "rms": lambda x: torch.nn.functional.rms_norm(x, (COLUMNS,), eps=EPS),
    "layer": lambda x: torch.nn.functional.layer_norm(x, (COLUMNS,), eps=EPS),
    "silu": torch.nn.functional.silu,
    "compensated": lambda x: x.flip(-1).sum(-1),
}


def compared(name: str, text: str = SOURCE, reference: Callable | None = None) -> ExactAnswer:
    """A kernel and its reference in torch, on draws from seeds."""
    program, used = reference or REFERENCES[name.partition("_")[0]], set()

    def draws() -> Iterator[tuple[dict, dict]]:
        for seed in range(3):
            given = inputs(name, seed)
            wanted = program(*(RingTensor.of(one, used) for one in given))
            yield {"out": elements(launched(name, given, text))}, {"out": raw(wanted)}

    program(*(RingTensor.of(one, used) for one in inputs(name, 0)))
    return agreement(draws(), part_of(opcodes_of([machine_kernel(kernels(text)[name])]), used))


SAME = [
    "matmul_plain", "matmul_tiled", "matmul_split", "matmul_half", "softmax_plain", "softmax_online", "softmax_library",
    "log_sum",
    "rms_norm", "layer_norm", "silu", "compensated",
]  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_computation_agrees(name: str) -> None:
    found = compared(name)
    assert found.same, str(found)
    assert (found.compared, found.draws) == (found.elements, 2)


FAULTS = {
    # kernel: (right, wrong), ...
    "matmul_tiled": [
        ("first < K;", "first + 8 < K;"),
        ("tile_b[k + 1][x]", "tile_b[k][x]"),
        ("tile_a[y][k] * tile_b[k][x]", "tile_a[y][k] * tile_b[k][first == 64 ? x ^ 1 : x]"),
        ("tile_b[y][x] = b[", "if (first != 24) tile_b[y][x] = b["),
        ("even + odd", "even + odd * 1.0001f"),
    ],
    "matmul_split": [
        ("blockIdx.y * part + part; ++k", "blockIdx.y * part + part + (blockIdx.y < 2); ++k"),
        ("blockIdx.y * part + part; ++k", "blockIdx.y * part + part - 1; ++k"),
        ("atomicAdd(c + row * N + column, sum)", "if (blockIdx.y < 2) atomicAdd(c + row * N + column, sum)"),
    ],
    "softmax_online": [
        ("sum * exp2f(most - higher) + exp2f", "sum + exp2f"),
        ("added * exp2f(other - higher)", "added"),
        ("apart = 16; apart; apart /= 2) {", "apart = 16; apart > 1; apart /= 2) {"),
        ("i < COLUMNS; i += 32) {\n    const float value", "i < COLUMNS - 1; i += 32) {\n    const float value"),
        ("1.4426950408889634f", "1.4426f"),
        ("(1.f / sum)", "(1.f / (sum + 1e-6f))"),
    ],
    "rms_norm": [
        ("(1.f / COLUMNS) + eps", "(1.f / COLUMNS)"),
        ("(1.f / COLUMNS)", "(1.f / (COLUMNS - 1))"),
        ("float sum = 0;\n  for (int i = lane", "float sum = lane == 3 ? 1e-5f * x[3] : 0;\n  for (int i = lane"),
        ("* scale;\n}", "* (i == 97 ? 1.f : scale);\n}"),
    ],
    "layer_norm": [
        ("- mean * mean + eps", "- mean * mean"),
        ("const float mean = total(sum) / COLUMNS", "const float mean = sum / COLUMNS"),
        ("squares += x", "if (i) squares += x"),
    ],
    "silu": [("half * value + half", "half * value + 0.499f * half")],
    "compensated": [("i < COLUMNS; ++i) {\n    const float", "i < COLUMNS - 1; ++i) {\n    const float")],
    "log_sum": [("most + __logf(sum)", "most + __logf(sum) * 1.001f"), ("- most);", "- 1.0001f * most);")],
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "right", "wrong"), [(name, *one) for name, all_ in FAULTS.items() for one in all_])
def test_planted_faults_are_told(name: str, right: str, wrong: str) -> None:
    begin = 0 if right.startswith("1.44") else SOURCE.index(f"void {name}(")
    assert right in SOURCE[begin:]
    found = compared(name, SOURCE[:begin] + SOURCE[begin:].replace(right, wrong, 1))
    assert found.same is False, str(found)
    assert "first out[" in found.reason


def test_what_is_no_fault_agrees() -> None:
    begin = SOURCE.index("void softmax_online(")
    text = SOURCE[:begin] + SOURCE[begin:].replace(
        "higher = fmaxf(most, value)", "higher = i == 97 ? most : fmaxf(most, value)", 1
    )
    assert compared("softmax_online", text).same  # any number cancels


LIBRARY = r"""
extern "C" __global__ void library(float* y, const float* x) {
  const float a = x[threadIdx.x];
  y[threadIdx.x] = FUNCTION;
}
"""
FUNCTIONS: Mapping[str, tuple[Callable, int]] = {  # of libdevice, and the part that is compared
    "expf(a)": (torch.exp, P),
    "expm1f(a)": (torch.expm1, P),
    "logf(a)": (torch.log, Q),
    "log2f(a)": (torch.log2, Q),
    "log1pf(a)": (torch.log1p, Q),
    "tanhf(a)": (torch.tanh, P),
    "0.5f * a * (1 + erff(0.70710678f * a))": (torch.nn.functional.gelu, P),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("fast", [False, True], ids=["accurate", "fast"])
def test_functions_of_the_library(function: str, fast: bool) -> None:
    text = LIBRARY.replace("FUNCTION", function)
    options = ("--use_fast_math",) if fast else ()
    kernel = compile_cuda_module(text, arch="sm_80", options=options).kernels["library"]
    x = torch.cat(
        [torch.randn(251, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 3e38, 200, 1e-39])]
    )
    reference, part = FUNCTIONS[function]
    out = torch.zeros(256)
    Simulator().launch(kernel, 1, 256, [out, x], exact=True)
    _agree(elements(out), raw(reference(RingTensor.of(x))), part)


@triton.jit
def functions_in_triton(y, x, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    a = tl.load(x + place)
    tl.store(y + place, tl.log(a))
    tl.store(y + SIZE + place, libdevice.tanh(a))
    tl.store(y + 2 * SIZE + place, libdevice.exp(a))
    tl.store(y + 3 * SIZE + place, tl.erf(a))


def test_functions_of_the_library_in_triton() -> None:
    kernel = compile_triton(functions_in_triton, {"y": "*fp32", "x": "*fp32"}, {"SIZE": 128}, num_warps=1)
    x, out = torch.randn(128, generator=torch.Generator().manual_seed(1)), torch.zeros(4, 128)
    Simulator().launch(kernel, 1, 32, [out, x], exact=True)
    for found, function in zip(elements(out), (torch.log, torch.tanh, torch.exp, torch.erf), strict=True):
        _agree(found, raw(function(RingTensor.of(x))), Q if function is torch.log else P)


def _agree(found: torch.Tensor, wanted: torch.Tensor, part: int) -> None:
    symbols = wanted >= MODULUS
    assert int(symbols.sum()) < 16
    assert torch.equal(found[symbols], wanted[symbols])
    assert torch.equal(found[~symbols] % part, wanted[~symbols] % part)


def test_a_function_that_is_not_known_has_no_answer() -> None:
    kernel = compile_cuda_module(LIBRARY.replace("FUNCTION", "powf(a, x[7])"), arch="sm_80").kernels["library"]
    with pytest.raises(KernelFault, match=r"no answer of exact comparison: no rule for cvt\.rzi\.f32\.f32"):
        Simulator().launch(kernel, 1, 256, [torch.zeros(256), torch.rand(256)], exact=True)


# ---- the comparison itself


def made(*values: int) -> dict[str, torch.Tensor]:
    return {"out": torch.tensor(values)}


def test_a_difference_in_one_draw_alone_is_not_reported() -> None:
    same, other = (made(1, 2), made(1, 2)), (made(1, 2), made(1, 3))
    assert agreement(iter([same, same])).draws == 2
    once = agreement(iter([same, other, same]))
    assert once.same
    assert once.draws == 3
    twice = agreement(iter([other, same, other]))
    assert twice.same is False
    assert "first out[1] (draws 0 and 2)" in str(twice)


def test_undefined_elements_are_not_compared() -> None:
    one = (made(1, UNDEFINED, 3), made(1, 2, 3))
    found = agreement(iter([one, one]))
    assert found.same
    assert (found.compared, found.elements) == (2, 3)
    most, none = made(UNDEFINED, UNDEFINED, 3), made(1, 2, 3)
    assert agreement(iter([(most, most)] * 2)).same is None
    assert agreement(iter([(none, most)] * 2)).same is None
    found = agreement(iter([(most, none)] * 2))
    assert found.same is False
    assert "2 elements are undefined, such as inf - inf, where the reference's are not" in str(found)


def test_what_the_reference_does_not_write_must_not_be_written() -> None:
    wanted = made(NOTHING, NOTHING, 3)
    assert agreement(iter([(made(NOTHING, UNDEFINED, 3), wanted)] * 2)).same
    found = agreement(iter([(made(NOTHING, 2, 3), wanted)] * 2))
    assert "one element differs, first out[1]" in str(found)


def test_a_difference_behind_a_rounding_is_no_answer() -> None:
    other = (made(1, 2), made(1, 3))
    roundings = roundings_of(["cvt.s32.f32", "cvt.f32.s32", "cvt.relu.e4m3x2.f16x2", "cvt.bf16.f32", "cvt.u32.u16"])
    assert roundings == ["cvt.relu.e4m3x2.f16x2", "cvt.s32.f32"]
    found = agreement(iter([other, other]), "P", roundings)
    assert found.same is None
    assert "it rounds floats (cvt.relu.e4m3x2.f16x2, cvt.s32.f32)" in str(found)
    same = (made(1, 2), made(1, 2))
    assert agreement(iter([same, same]), "P", roundings).same


def test_sizes_may_depend_on_the_seed() -> None:
    found = agreement(iter([(made(1, 2), made(1, 2)), (made(1, 2, 3), made(1, 2, 3))]))
    assert found.same
    assert (found.compared, found.elements) == (2, 2)


def test_a_second_exponential_is_blind_to_what_lies_before_the_first() -> None:
    """It is said in the answer where the reference has both."""
    used: set[str] = set()
    x = RingTensor.of(torch.randn(4, 9), used)
    seen, capped = (
        [raw(torch.softmax(one, -1)) % P for one in scores]
        for scores in ((x, 1.01 * x), (30 * torch.tanh(x / 30), 30 * torch.tanh(1.01 * x / 30)))
    )
    assert not torch.equal(*seen)
    assert torch.equal(*capped)
    unseen = unseen_by(used)
    assert unseen == "what lies before tanh where an exponential follows"
    assert f"; not seen: {unseen})" in str(ExactAnswer(True, "", 3, 3, 2, 0.5, unseen))
    assert not unseen_by(["tanh", "mul"])


def test_only_the_part_that_an_exponential_leaves_is_compared() -> None:
    draw = (made(5, 7), made(5 + P, 7))
    assert agreement(iter([draw, draw]), "P").same
    assert agreement(iter([draw, draw]), "whole").same is False
    assert part_of(["fma.f32", "mma.m16n8k8"], ["matmul"]) == "whole"
    assert part_of(["fma.f32", "ex2.approx.f32"], ["matmul"]) == "P"
    assert part_of(["lg2.approx.f32"], ["matmul"]) == "P"
    assert part_of(["lg2.approx.f32"], ["log"]) == "logarithm"


ONE_ELEMENT = r"""
extern "C" __global__ void weight(float* out, const float4* x) {
  const int row = blockIdx.x * 256 + threadIdx.x;
  const float4 v = x[row];
  const float most = fmaxf(v.x, v.y), first = __expf(v.x - most), second = __expf(v.y - most);
  out[row] = __fdividef(first, first + second) WRONG;
}
"""


@pytest.mark.parametrize(
    ("wrong", "values"),
    [("+ 1e-3f * v.z", P), ("* __expf(v.z - v.w)", Q)],  # a power of 2 has Q values alone
    ids=["a term too much", "a wrong exponent"],
)
def test_a_single_wrong_element_passes_as_often_as_computed(wrong: str, values: int) -> None:
    """Each thread of one launch is a draw of a kernel with a single output, which is wrong."""
    draws = 256 * 4000
    x = torch.randn(draws, 4, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(draws)
    kernel = compile_cuda_module(ONE_ELEMENT.replace("WRONG", wrong), arch="sm_80").kernels["weight"]
    Simulator().launch(kernel, draws // 256, 256, [out, x], exact=True)
    passes = elements(out) % P == raw(torch.softmax(RingTensor.of(x[:, :2]), -1))[:, 0] % P
    assert _within(passes[:10_000], 1 / values)
    assert _within(passes, 1 / values)
    assert _within(passes.view(-1, 2).all(1), 1 / values**2)
    reported = passes[: draws // 3 * 3].view(-1, 3).sum(1) < 2  # differs in two of up to three draws
    computed = agreement(iter([(made(1), made(1))] * 2)).passes
    assert computed == pytest.approx(3 / Q**2)  # the less favourable of the two
    assert _within(~reported, 3 / values**2)


def _within(passes: torch.Tensor, chance: float) -> bool:
    """Return True if a count is within three of its standard deviations."""
    expected = len(passes) * chance
    return abs(int(passes.sum()) - expected) <= 3 * math.sqrt(expected)


# ---- torch in the ring


def test_an_operator_without_a_rule_is_named() -> None:
    x = RingTensor.of(torch.randn(3))
    with pytest.raises(NoExactRule, match=r"torch\.lgamma"):
        torch.lgamma(x)
    with pytest.raises(NoExactRule, match="roundings"):
        x.to(torch.int32)


def test_the_bits_of_floats_are_moved_and_nothing_else() -> None:
    x = RingTensor.of(torch.randn(4, 3).half())
    moved = x.view(torch.int16)[[2, 0]].view(torch.float16)
    assert torch.equal(raw(moved), raw(x)[[2, 0]])
    with pytest.raises(NoExactRule, match="of floats' bits"):
        x.view(torch.int16) + 1
    with pytest.raises(NoExactRule, match="parts of floats"):
        x.view(torch.uint8)


def test_results_go_where_elements_lie() -> None:
    x, out = RingTensor.of(torch.randn(3)), RingTensor.of(torch.full((3,), math.nan))
    out.copy_(x + 1)
    assert torch.equal(raw(out), (raw(x) + 1) % MODULUS)
    with pytest.raises(NoExactRule, match="empty_like"):
        torch.empty(3).copy_(x)


def test_a_tiny_bound_is_there_for_zero_alone() -> None:
    x = RingTensor.of(torch.tensor([0.0, -0.3, 5.0]))
    found = raw(x.clamp(min=torch.finfo(torch.float32).tiny))
    assert torch.equal(found[1:], raw(x)[1:])
    assert int(found[0]) != 0


@pytest.mark.parametrize("causal", [False, True])
def test_attention_written_out_and_torchs_own(causal: bool) -> None:
    q, k, v = (RingTensor.of(torch.randn(2, 3, 5, 8)) for _ in range(3))
    scores = q @ k.transpose(-1, -2) / math.sqrt(8)
    if causal:
        scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    out = torch.einsum("bhij,bhjd->bhid", weights, v) / weights.sum(-1, keepdim=True)
    own = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1 / math.sqrt(8))
    assert out.dtype == torch.float32
    assert out.shape == own.shape
    found = agreement(iter([({"out": raw(out)}, {"out": raw(own)})] * 2))
    assert found.same


def _standard(x: torch.Tensor, dim: int) -> torch.Tensor:
    away = x - x.mean(dim, keepdim=True)
    return away * torch.rsqrt((away * away).mean(dim, keepdim=True) + EPS)


WRITTEN_OUT: Mapping[str, tuple[Callable, Callable]] = {
    "norm": (lambda x, w: torch.norm(x, p=2, dim=1, keepdim=True), lambda x, w: (x * x).sum(1, keepdim=True).sqrt()),
    "norm of all": (lambda x, w: torch.linalg.norm(x), lambda x, w: (x * x).sum().sqrt()),
    "vector_norm": (lambda x, w: torch.linalg.vector_norm(x, 1, (0, 2)), lambda x, w: x.abs().sum((0, 2))),
    "largest": (lambda x, w: x.norm(math.inf, 1), lambda x, w: x.abs().amax(1)),
    "normalize": (
        lambda x, w: torch.nn.functional.normalize(x),
        lambda x, w: x / torch.norm(x, dim=1, keepdim=True).clamp_min(1e-12),
    ),
    "group_norm": (
        lambda x, w: torch.nn.functional.group_norm(x, 2, w),
        lambda x, w: _standard(x.view(4, 2, 15), 2).view(4, 6, 5) * w.view(1, 6, 1),
    ),
    "batch_norm": (
        lambda x, w: torch.nn.functional.batch_norm(x, w, w * w, bias=w),
        lambda x, w: ((x.mT - w) / torch.sqrt(w * w + EPS) + w).mT,
    ),
    "leaky_relu": (lambda x, w: torch.nn.functional.leaky_relu(x, 0.5), lambda x, w: torch.where(x > 0, x, 0.5 * x)),
    "elu": (lambda x, w: torch.nn.functional.elu(x), lambda x, w: torch.where(x > 0, x, torch.exp(x) - 1)),
    "softsign": (lambda x, w: torch.nn.functional.softsign(x), lambda x, w: x / (1 + x.abs())),
    "hardtanh": (lambda x, w: torch.nn.functional.hardtanh(x), lambda x, w: x.clamp(-1, 1)),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_an_operator_and_what_it_is_written_out(name: str) -> None:
    x, w = (RingTensor.of(torch.randn(shape, generator=torch.Generator().manual_seed(3))) for shape in ((4, 6, 5), 6))
    own, formula = (raw(one(x, w)) for one in WRITTEN_OUT[name])
    assert own.shape == formula.shape
    known = (own < UNDEFINED) & (formula < UNDEFINED)
    assert torch.equal(own[known] % P, formula[known] % P)
    assert bool(known.any())


def test_norms_without_a_rule_are_named() -> None:
    x = RingTensor.of(torch.randn(3, 3))
    with pytest.raises(NoExactRule, match=r"the order 2 of a matrix"):
        torch.linalg.norm(x, 2)
    with pytest.raises(NoExactRule, match="running statistics"):
        torch.nn.functional.batch_norm(x, x[0], x[1], training=True)
