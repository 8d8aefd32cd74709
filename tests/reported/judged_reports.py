"""Own ops with kernels after public reports, rebuilt small, for the judge: of each a right one and a wrong one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import workbench as wb


@triton.jit
def largest(out, x, cols, RIGHT: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, 128)
    if RIGHT:
        values = tl.load(x + row * cols + at, mask=at < cols, other=float("-inf"))
    else:
        values = tl.load(x + row * cols + at, mask=at < cols)
    tl.store(out + row, tl.max(values, 0))


@triton.jit
def capped(out, x, n, RIGHT: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    s = tl.load(x + at, mask=at < n, other=0.0) / 50
    if RIGHT:  # near 0 the difference loses digits, which rows of one small element show
        near = s * (1 + s * s * (-1 / 3 + s * s * (2 / 15 - s * s * 17 / 315)))
        y = tl.where(tl.abs(s) < 0.125, near, 1 - 2 / (tl.exp(2 * s) + 1))
    else:
        y = (tl.exp(s) - tl.exp(-s)) / (tl.exp(s) + tl.exp(-s))
    tl.store(out + at, 50 * y, mask=at < n)


@triton.jit
def summed(out, x, rows, RIGHT: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    total = tl.zeros((64,), tl.float32 if RIGHT else tl.bfloat16)
    for row in range(rows):
        total = (total + tl.load(x + row * 512 + at)).to(total.dtype)
    tl.store(out + at, total)


def variants(op: object, kernel: object, **launch: object) -> None:
    for right in (0, 1):
        op.triton(kernel, name=("wrong", "right")[right], constexprs={"RIGHT": right}, **launch)


def scores(scale: float):
    return lambda generator: torch.randn(300, generator=generator) * scale


# Masked lanes are 0, and the maximum of no negative row. https://github.com/triton-lang/triton/issues/9917,
# https://github.com/vllm-project/vllm/pull/9014, https://github.com/flagos-ai/FlagGems/issues/3716
row_max = wb.op(lambda x: x.amax(-1), name="reported_row_max")
row_max.case("negative", x=wb.rand(4, 100, low=-2, high=-1))
row_max.case("around 0", x=wb.rand(4, 100, low=-1, high=1))
variants(row_max, largest, grid="x.shape[0]", args=("out", "x", "x.shape[1]"))

# inf / inf where scores are large. https://github.com/vllm-project/vllm/pull/56579,
# https://github.com/NVIDIA/FasterTransformer/issues/43
soft_cap = wb.op(lambda x: 50 * torch.tanh(x / 50), name="reported_soft_cap")
soft_cap.case("large", x=scores(5000))
soft_cap.case("small", x=scores(1))
variants(soft_cap, capped, grid="cdiv(x.numel(), 256)", args=("out", "x", "x.numel()"))

# A sum kept in bfloat16 between turns. https://github.com/linkedin/Liger-Kernel/pull/950,
# https://github.com/karpathy/llm.c/pull/476, https://github.com/vllm-project/vllm/issues/15045
column_sum = wb.op(lambda x: x.sum(0), name="reported_column_sum")
for rows in (8, 64, 300):
    column_sum.case(f"{rows} rows", x=wb.rand(rows, 512, dtype="bfloat16"))
variants(column_sum, summed, grid=8, args=("out", "x", "x.shape[0]"))

OPS = {"row_max": row_max, "soft_cap": soft_cap, "column_sum": column_sum}
