"""Times of matrix products on the PTX machine: mma of each kind, wgmma, products for sm_90a and sm_100a, tile moves.

Everything runs on one core, in turn with torch's float32 product, so that times per multiply-add can be compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks import block_scaled
from workbench import ptx
from workbench.base.home import cuda_sources
from workbench.errors import WrongResultError
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda_module
from workbench.tuning.bench.results import in_turn

SIZE = 512
# Instructions per iteration and iterations, of mma and wgmma: enough to hide that a launch finds cold caches.
_UNROLLED, _LOOPS, _CHAINED, _CHAINS = 16, 5000, 4, 500
_MOVE_LOOPS = 1250
_COLUMNS, _DEPTH = 128, 16
_SWIZZLED_TILE = 2 << 61 | 1 << 46 | 64 << 32  # a descriptor of tcgen05 for rows of 128 bytes at the begin
# (name, shape, types) of mma instructions, all with fragments of the same size.
_MMAS = (
    ("mma, f16", "m16n8k16", "f32.f16.f16.f32"),
    ("mma, bf16", "m16n8k16", "f32.bf16.bf16.f32"),
    ("mma, tf32", "m16n8k8", "f32.tf32.tf32.f32"),
    ("mma, e4m3", "m16n8k32", "f32.e4m3.e4m3.f32"),
    ("mma, s8", "m16n8k32", "s32.s8.s8.s32"),
)
# Moves of 512 bytes by a warp: name, instruction, and what follows eight of them.
MOVED = "ld.shared.v4"
_MOVES = (
    (MOVED, "ld.shared.v4.b32 {%d0, %d1, %d2, %d3}, [%s];", ""),
    ("ldmatrix.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d0, %d1, %d2, %d3}, [%s];", ""),
    ("ldmatrix.x4.trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%d0, %d1, %d2, %d3}, [%s];", ""),
    ("stmatrix.x4", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%s], {%d0, %d1, %d2, %d3};", ""),
    (
        "cp.async of 16 bytes, eight in a group",
        "cp.async.cg.shared.global [%s], [%g], 16;",
        "cp.async.commit_group; cp.async.wait_group 2;",
    ),
)


def _loop(declarations: str, body: str, times: int, arch: str = "sm_90a") -> str:
    return f"""
.version 8.0
.target {arch}
.address_size 64
.visible .entry products(.param .u64 out, .param .u64 in)
{{
.reg .pred %p, %t; .reg .b32 %i; .reg .b64 %o; {declarations}
mov.u32 %i, 0;
setp.eq.u32 %t, %i, 0;
AGAIN:
{body}
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {times};
@%p bra AGAIN;
ld.param.u64 %o, [out]; st.global.u32 [%o], %i;
ret;
}}
"""


def _mma(shape: str, types: str) -> str:
    a, b, d = "{%a0, %a1, %a2, %a3}", "{%b0, %b1}", "{%d0, %d1, %d2, %d3}"
    one = f"mma.sync.aligned.{shape}.row.col.{types} {d}, {a}, {b}, {d};\n"
    return _loop(".reg .b32 %d<4>, %a<4>, %b<2>;", one * _UNROLLED, _LOOPS)


def _wgmma() -> str:
    registers = _COLUMNS // 2
    d = ", ".join(f"%d{i}" for i in range(registers))
    swizzled = 1 << 62 | 64 << 32 | 1 << 16
    declarations = f".reg .b32 %d<{registers}>; .reg .b64 %a, %b; .shared .align 1024 .b8 tiles[32768];\n"
    declarations += f"mov.u32 %i, tiles; mov.b64 %a, {swizzled}; mov.b64 %b, {swizzled | 8192 >> 4};"
    shape = f"m64n{_COLUMNS}k{_DEPTH}"
    one = f"wgmma.mma_async.sync.aligned.{shape}.f32.f16.f16 {{{d}}}, %a, %b, %t, 1, 1, 0, 0;\n"
    fences = "wgmma.fence.sync.aligned;\n{}wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
    return _loop(declarations, fences.format(one * _CHAINED), _CHAINS)


def _tcgen05() -> str:
    """Return a kernel of one warp that multiplies 128 x 128 x 64 in a chain of four, again and again."""
    declarations = (
        ".reg .b32 %tm, %s, %l; .reg .b64 %a, %b; .reg .pred %one, %over;\n"
        ".shared .align 1024 .b8 tiles[32768]; .shared .align 8 .b64 done; .shared .align 4 .b32 where;\n"
        "mov.u32 %s, done; mov.u32 %l, %laneid; setp.eq.u32 %one, %l, 0; @%one mbarrier.init.shared.b64 [%s], 1;\n"
        "mov.u32 %l, where; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%l], 128;\n"
        "bar.sync 0; ld.shared.b32 %tm, [where];"
        f"mov.b64 %a, {_SWIZZLED_TILE}; mov.b64 %b, {_SWIZZLED_TILE | 16384 >> 4};"
    )
    descriptor = 1 << 4 | _COLUMNS >> 3 << 17 | 128 >> 4 << 24
    one = "@%one tcgen05.mma.cta_group::1.kind::f16 [%tm], %a, %b, {}, {};\nadd.u64 %a, %a, 2; add.u64 %b, %b, 2;\n"
    chain = one.format(descriptor, 0) + one.format(descriptor, 1) * (_CHAINED - 1)
    body = (
        f"{chain}sub.u64 %a, %a, {2 * _CHAINED}; sub.u64 %b, %b, {2 * _CHAINED};\n"
        "@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%s];\nand.b32 %l, %i, 1;\n"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %over, [%s], %l; @!%over bra WAIT;"
    )
    return _loop(declarations, body, _CHAINS, "sm_100a")


def measure(rounds: int) -> dict[str, tuple[float, int]]:
    """Measure (seconds, multiply-adds) of each instruction, of torch's product, and of ours without and with checks.

    The fastest of ``rounds`` counts.

    Raises:
        WrongResultError: if our product differs from torch's.
    """
    import numpy as np
    import torch

    torch.set_num_threads(1)
    out = np.zeros(1, np.uint32), np.zeros(512, np.uint8)
    runs: dict[str, tuple[Callable[[], object], int, int]] = {}

    def add(what: str, text: str, threads: int, count: int, work: int) -> None:
        kernel = ptx.Program.from_text(text)["products"]
        runs[what] = (lambda: kernel.launch(1, threads, list(out), threads=1)), count, work

    for what, shape, types in _MMAS:
        add(what, _mma(shape, types), 32, _LOOPS * _UNROLLED, 16 * 8 * int(shape.split("k")[1]))
    add(f"wgmma m64n{_COLUMNS}k{_DEPTH}, four in a chain", _wgmma(), 128, _CHAINS * _CHAINED, 64 * _COLUMNS * _DEPTH)
    add("tcgen05.mma 128 x 128 x 64, f16", _tcgen05(), 32, _CHAINS, 128 * _COLUMNS * _DEPTH * _CHAINED)
    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE).half() for _ in range(2))
    c, wide = torch.zeros(SIZE, SIZE), (a.float(), b.float().T.contiguous())
    compiled = compile_cuda_module(cuda_sources() / "matmul_wgmma.cu", arch="sm_90a").kernels["matmul_wgmma"]
    kernel = ptx.Program.from_text(compiled.ptx)["matmul_wgmma"]
    maps = [TensorMap.of(one, (64, 64), swizzle=128) for one in (a, b)]
    grid = SIZE // 64, SIZE // 64

    def product(**options: Any) -> None:
        report = kernel.launch(grid, 160, [c, *maps, SIZE, SIZE], shared_bytes=4 * 16384, threads=1, **options)
        error = (c - wide[0] @ wide[1]).abs().max().item()
        if report.findings or error > 1e-2:
            raise WrongResultError(f"matmul_wgmma: an error of {error}, {len(report.findings)} findings")

    def scaled_product(a: block_scaled.BlockScaled, b: block_scaled.BlockScaled, exact: torch.Tensor) -> None:
        error = (block_scaled.multiply(a, b, threads=1)[0] - exact).abs().max().item()
        if error > 1e-2:
            raise WrongResultError(f"matmul_{a.kind}: an error of {error}")

    runs["torch"] = (lambda: wide[0] @ wide[1]), 1, SIZE**3
    runs[f"fp16 product of {SIZE}^3 for sm_90a"] = product, 1, SIZE**3
    runs[f"fp16 product of {SIZE}^3 for sm_90a, all checks"] = (lambda: product(checks=True)), 1, SIZE**3
    for kind in block_scaled.FORMATS:
        factors = [block_scaled.quantize(kind, one.float())[0] for one in (a, b)]
        exact = (factors[0].values() @ factors[1].values().T).float()
        run = functools.partial(scaled_product, *factors, exact)
        runs[f"{kind} product of {SIZE}^3 for sm_100a"] = run, 1, SIZE**3
    taken = in_turn({what: run for what, (run, _, _) in runs.items()}, rounds)
    return {what: (min(taken[what]) / count, work) for what, (_, count, work) in runs.items()}


def measure_moves(rounds: int) -> dict[str, float]:
    """Measure the seconds of each instruction that brings tiles to or from shared memory; ``MOVED`` is the baseline.

    The fastest of ``rounds`` counts.
    """
    import numpy as np

    declarations = (
        ".reg .b32 %d<4>, %s; .reg .b64 %g, %l; .shared .align 16 .b8 tile[512];\n"
        "mov.u32 %s, %laneid; shl.b32 %s, %s, 4; cvt.u64.u32 %l, %s; ld.param.u64 %g, [in]; add.u64 %g, %g, %l;\n"
        "mov.u32 %d0, tile; add.u32 %s, %s, %d0;"
    )
    arguments = [np.zeros(1, np.uint32), np.zeros(512, np.uint8)]
    runs: dict[str, Callable[[], object]] = {}
    for what, instruction, after in _MOVES:
        body = (instruction * 8 + after) * (_UNROLLED // 8)
        kernel = ptx.Program.from_text(_loop(declarations, body, _MOVE_LOOPS))["products"]
        runs[what] = functools.partial(kernel.launch, 1, 32, arguments, threads=1)
        runs[f"{what}, all checks"] = functools.partial(kernel.launch, 1, 32, arguments, threads=1, checks=True)
    taken = in_turn(runs, rounds)
    return {what: min(seconds) / (_MOVE_LOOPS * _UNROLLED) for what, seconds in taken.items()}
