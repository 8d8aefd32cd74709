"""Triton on sm_100 and sm_120: the ops' variants; on sm_120a products of small factors with block scales."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from example_ops import OPS
from sampling import long_if

import workbench as wb
from workbench.launch.sim import Simulator
from workbench.toolchain.triton_aot import reachable

ARCH = "sm_120a"
VARIANTS = [(op.name, variant.name) for op in OPS.values() for variant in op.variants if variant.language == "triton"]
EVERY_RUN = {
    ("causal_attention", "triton_flash"),
    ("contiguous_attention", "triton_online_softmax"),
    ("paged_attention", "triton_grouped"),
}
# Triton 3.7 has its fence before the cp.async of a later stage has landed, which the next product reads.
TRITONS_OWN = {("causal_attention_backward", "triton_flash", "sm_100"): "missing fence.proxy.async"}
PRODUCTS = {"sm_100": ("tcgen05.mma", "mma.sync"), "sm_120": ("mma.sync",)}
M, N, K = 32, 64, 256


@pytest.mark.parametrize("arch", PRODUCTS)
@pytest.mark.parametrize(("op", "variant"), [long_if(one not in EVERY_RUN, *one, id=" ".join(one)) for one in VARIANTS])
def test_a_triton_variant(op: str, variant: str, arch: str, judge) -> None:
    made = OPS[op].variant(variant)
    fields = {"layout": "nhd"} if "nhd" in made.layouts[:1] else {}
    case = OPS[op].case(None, **fields, **({"kv_cache_dtype": "nvfp4"} if made.needs else {}))
    config = made.default_config(case.problem(arch=arch))
    verdict = judge(made, config, case, checks=True, arch=arch)
    assert verdict.check is not None, verdict
    assert verdict.check.ok, verdict
    known = TRITONS_OWN.get((op, variant, arch))
    assert [one for one in verdict.findings if known is None or known not in one] == []
    problem = case.problem(config, arch=arch)
    for step, kernel in zip(made.steps, made.kernels(config, problem, arch, machine_code=False), strict=True):
        assert f".target {arch}a" in kernel.ptx
        written = "".join(function.src for function in reachable(step.function))
        assert any(word in kernel.ptx for word in PRODUCTS[arch]) == ("tl.dot(" in written), kernel.name


@triton.jit
def product(a, b, out, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + k + ks[None, :])
        right = tl.load(b + columns[None, :] * K + k + ks[:, None])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit
def scaled_product(
    a, of_a, b, of_b, out, N, K, A: tl.constexpr, B: tl.constexpr, RUN: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    # a [M, K], b [N, K]: codes, of e2m1 two in a byte. of_a [M, K / RUN], of_b [N, K / RUN].
    PACK_A: tl.constexpr = 2 if A == "e2m1" else 1
    PACK_B: tl.constexpr = 2 if B == "e2m1" else 1
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    runs = tl.arange(0, BK // RUN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * (K // PACK_A) + k // PACK_A + tl.arange(0, BK // PACK_A)[None, :])
        right = tl.load(b + columns[None, :] * (K // PACK_B) + k // PACK_B + tl.arange(0, BK // PACK_B)[:, None])
        scale_a = tl.load(of_a + rows[:, None] * (K // RUN) + k // RUN + runs[None, :])
        scale_b = tl.load(of_b + columns[:, None] * (K // RUN) + k // RUN + runs[None, :])
        total = tl.dot_scaled(left, scale_a, A, right, scale_b, B, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


def run(kernel, args: list, instruction: str, **constants: object) -> torch.Tensor:
    out = torch.zeros(M, N)
    args = [*args, out, N, K]
    made = wb.compile(kernel, args=args, kwargs={"BM": 32, "BN": 32, "BK": 128, **constants}, arch=ARCH)
    assert instruction in made.ptx
    report = Simulator(arch=ARCH).launch(made, (M // 32, N // 32), 128, args, checks=True)
    assert not report.findings
    return out


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        long_if(True, torch.float16, "m16n8k16.row.col.f32.f16.f16.f32", id="f16"),
        long_if(True, torch.float8_e4m3fn, "m16n8k32.row.col.f32.e4m3.e4m3.f32", id="e4m3"),
    ],
)
def test_a_product(dtype: torch.dtype, instruction: str) -> None:
    draw = torch.Generator().manual_seed(4)
    a, b = (torch.randn(rows, K, generator=draw).to(dtype) for rows in (M, N))
    torch.testing.assert_close(run(product, [a, b], instruction), a.float() @ b.float().T, rtol=1e-4, atol=1e-3)


def factors(kind: str, rows: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [rows, K] in bytes, and their values."""
    if kind == "e2m1":
        codes = torch.randint(0, 256, (rows, K // 2), generator=draw, dtype=torch.uint8)
        halves = torch.stack([codes & 15, codes >> 4], -1).reshape(rows, K).long()
        return codes, torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[halves & 7] * (1 - 2 * (halves >> 3))
    values = torch.randn(rows, K, generator=draw).to({"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind])
    return values.view(torch.uint8), values.float()


def scales(run: int, rows: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Powers of two for runs of 32, as MX has them; E4M3 for runs of 16, as NVFP4 has them; and their values."""
    if run == 32:
        codes = torch.randint(120, 134, (rows, K // run), generator=draw, dtype=torch.uint8)
        return codes, 2.0 ** (codes.float() - 127)
    values = (torch.rand(rows, K // run, generator=draw) * 4).to(torch.float8_e4m3fn)
    return values, values.float()


@pytest.mark.parametrize(
    ("a", "b", "length", "instruction"),
    [
        pytest.param("e4m3", "e4m3", 32, "mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0", id="mxfp8"),
        long_if(True, "e5m2", "e4m3", 32, "scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0", id="mxfp8 of two types"),
        long_if(True, "e2m1", "e2m1", 32, "scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", id="mxfp4"),
        long_if(True, "e4m3", "e2m1", 32, "m16n8k16.row.col.f32.bf16.bf16.f32", id="mxfp8 and mxfp4"),
        pytest.param("e2m1", "e2m1", 16, "mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", id="nvfp4"),
    ],
)
def test_a_product_with_block_scales(a: str, b: str, length: int, instruction: str) -> None:
    draw = torch.Generator().manual_seed(5)
    (left, x), (right, y) = factors(a, M, draw), factors(b, N, draw)
    (of_a, p), (of_b, q) = scales(length, M, draw), scales(length, N, draw)
    got = run(scaled_product, [left, of_a, right, of_b], instruction, A=a, B=b, RUN=length)
    wide = [v.double() * s.double().repeat_interleave(length, 1) for v, s in ((x, p), (y, q))]
    exact, size = wide[0] @ wide[1].T, wide[0].abs() @ wide[1].abs().T
    assert ((got - exact).abs() <= K * 2.0**-24 * size).all()
