"""Sessions over small launches, and all that a session can see of one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.launch.debug import DebugSession
from workbench.ptx.tensor_map import TensorMap

HERE = Path(__file__).parent
PTX_TESTS = HERE.parents[1] / "ptx"


@functools.cache
def module(name: str, arch: str = "sm_80", folder: Path = HERE) -> Any:
    return wb.load_cuda(folder / name, device="sim", arch=arch)


def line_of(text: str) -> int:
    """The line of softmax.cu with this text."""
    lines = (HERE / "softmax.cu").read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if text in line)


def softmax(**options: Any) -> DebugSession:
    torch.manual_seed(0)
    x, y = torch.randn(4, 100), torch.zeros(4, 100)
    return wb.debug(module("softmax.cu").softmax, grid=4, block=64, args=(y, x, 100), **options)


@wb.op
def softmax_op(x):
    return x.softmax(1)


softmax_op.case("wide", x=wb.randn(3, 100))
softmax_op.cuda(
    "softmax.cu", kernel="softmax", sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]}, grid="rows", block=64,
    args={"y": "out"},
)  # fmt: skip


@triton.jit
def row_softmax(y, x, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * cols + at, weights / tl.sum(weights, 0), mask=at < cols)


def in_triton(**options: Any) -> DebugSession:
    torch.manual_seed(0)
    x, y = torch.randn(3, 200), torch.zeros(3, 200)
    return wb.debug(row_softmax, grid=(3,), args=(y, x, 200), kwargs={"BLOCK": 256}, **options)


@triton.jit
def tile_product(c, a, b, K: tl.constexpr):
    m, n, k = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * 64 + n[None, :])
    tl.store(c + m[:, None] * 64 + n[None, :], tl.dot(left, right))


def in_tensor_memory(**options: Any) -> DebugSession:
    torch.manual_seed(0)
    a, b = torch.randn(128, 32, dtype=torch.float16), torch.randn(32, 64, dtype=torch.float16)
    args = torch.zeros(128, 64), a, b
    return wb.debug(tile_product, grid=(1,), args=args, kwargs={"K": 32}, arch="sm_100a", **options)


def hopper(name: str, **options: Any) -> DebugSession:
    """A kernel of the machine's own tests: bulk copies, a ring with wgmma, a cluster."""
    torch.manual_seed(0)
    kernel = module("cuda_hopper.cu", "sm_90a", PTX_TESTS)[name]
    if name == "doubled":
        return wb.debug(kernel, grid=2, block=256, args=(torch.zeros(1024), torch.randn(1024)), **options)
    if name == "row_sums":
        return wb.debug(kernel, grid=8, block=32, args=(torch.zeros(2), torch.randn(2, 512), 512), **options)
    a, b = (torch.randn(rows, 128, dtype=torch.float16) for rows in (64, 8))
    maps = TensorMap.of(a, (64, 64), swizzle=128), TensorMap.of(b, (8, 64), swizzle=128)
    return wb.debug(kernel, grid=1, block=160, args=(*maps, torch.zeros(64, 8), 2), **options)


def ring(name: str, **options: Any) -> DebugSession:
    """Mbarriers that warps of a block hand stages over with, or with copies that arrive by themselves."""
    torch.manual_seed(0)
    kernel = module("cuda_mbarrier.cu", "sm_80", PTX_TESTS)[name]
    if name == "ring":
        return wb.debug(kernel, grid=1, block=96, args=(torch.randn(160), torch.zeros(64), 5), **options)
    return wb.debug(kernel, grid=1, block=64, args=(torch.randn(128), torch.zeros(32)), **options)


def atomics(**options: Any) -> DebugSession:
    out, given = torch.zeros(256, dtype=torch.int32), torch.arange(64, dtype=torch.int32)
    kernel = module("cuda_atomics.cu", "sm_80", PTX_TESTS).last_block_reads
    return wb.debug(kernel, grid=3, block=64, args=(out, given), **options)


def calls(**options: Any) -> DebugSession:
    """Device functions, with local memory and recursion."""
    out = torch.zeros(64, dtype=torch.int32)
    return wb.debug(module("cuda_calls.cu", "sm_80", PTX_TESTS).recursion, grid=1, block=3, args=(out,), **options)


def seen(session: DebugSession) -> tuple[Any, ...]:
    """All state of a launch: arrays, and of each block that runs its memory, registers, warps and copies."""
    debugger = session._control.debugger
    found: list[Any] = [session.index, session._current]
    found += [np.asarray(session.memory.array(name)).tobytes() for name in session.memory.arrays]
    for block in debugger.blocks:
        found += [debugger.shared(block), debugger.tensor_memory(block), debugger.barriers(block)]
        found += [debugger.copies(block)]
        warps = debugger.warps(block)
        found += [warps]
        for warp in range(len(warps)):
            found += [debugger.registers(block, warp), debugger.local(block, warp)]
    return tuple(found)
