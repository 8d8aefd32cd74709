# mypy: allow-untyped-defs, allow-incomplete-defs
"""One pass over each window, a program for a tile of its elements: in Triton.

The steps are those of ``cuda_src/pool_windows_online.cu``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.pool_windows.problem import PoolProblem
from workbench.attention.ops.rules import rules
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import TritonStep, TritonVariant, cdiv, next_power_of_2


@triton.jit
def pool_windows(
    out,  # [num_windows, HEAD_SIZE]
    values,  # [num_windows, WINDOW, HEAD_SIZE]
    gates,  # as values
    position_bias,  # [WINDOW, HEAD_SIZE] fp32
    HEAD_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,  # elements of a program
):
    """Pool a tile of the elements of one window."""
    window = tl.program_id(0).to(tl.int64)
    element = tl.program_id(1) * TILE + tl.arange(0, TILE)
    exists = element < HEAD_SIZE
    highest = tl.full([TILE], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE], dtype=tl.float32)
    acc = tl.zeros([TILE], dtype=tl.float32)
    for token in range(WINDOW):
        # 1. Load a token's elements and gates.
        place = (window * WINDOW + token) * HEAD_SIZE + element
        value = tl.load(values + place, mask=exists, other=0.0).to(tl.float32)
        gate = tl.load(gates + place, mask=exists, other=0.0).to(tl.float32)
        gate += tl.load(position_bias + token * HEAD_SIZE + element, mask=exists, other=0.0)

        # 2. Rescale what was summed under the old maximum; tokens that are left out keep it at minus infinity.
        new = tl.maximum(highest, gate)
        base = tl.where(new == float("-inf"), 0.0, new)
        shrink, weight = tl.exp(highest - base), tl.exp(gate - base)
        highest = new

        # 3. Accumulate.
        total = total * shrink + weight
        acc = acc * shrink + weight * value

    # 4. Store.
    answer = acc / tl.where(total > 0.0, total, 1.0)
    tl.store(out + window * HEAD_SIZE + element, answer.to(out.dtype.element_ty), mask=exists)


def default_config(problem: PoolProblem) -> dict:
    """Return tiles of 128 elements on one warp."""
    return {"TILE": min(128, max(32, next_power_of_2(problem.head_size))), "num_warps": 1, "num_stages": 1}


VARIANT = TritonVariant(
    op="pool_windows",
    name="triton_online",
    idea="a program for a tile of a window's elements: maximum, weights and sum in one pass over its tokens",
    steps=(
        TritonStep(
            function=pool_windows,
            grid=lambda config, problem: (problem.num_windows, cdiv(problem.head_size, config["TILE"])),
            types=lambda problem: {
                **dict.fromkeys(("out", "values", "gates"), f"*{ELEMENT_TYPES[problem.dtype].triton}"),
                "position_bias": "*fp32",
            },
            constexprs=lambda config, problem: {"HEAD_SIZE": problem.head_size, "WINDOW": problem.window},
        ),
    ),
    space={"TILE": (32, 64, 128, 256, 512), "num_warps": (1, 2, 4), "num_stages": (1,)},
    restrictions=rules(("every thread has work", "TILE >= 32 * num_warps")),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
)
