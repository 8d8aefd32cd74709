# mypy: allow-untyped-defs, allow-incomplete-defs
"""A program for a few blocks, whose halves change places with pairs at every stage: in Triton.

The steps are those of ``cuda_src/rotate_heads_butterflies.cu``; the compiler chooses registers and lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rotate_heads.problem import ARGUMENTS, RotationProblem
from workbench.attention.ops.rules import rules
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import TritonStep, TritonVariant, cdiv


@triton.jit
def rotate_heads(
    out,  # [num_tokens, WIDTH]
    heads,  # [num_tokens, WIDTH], tokens token_stride apart
    num_tokens,
    token_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # elements that are rotated together
    STAGES: tl.constexpr,  # log2(BLOCK)
    SCALE: tl.constexpr,  # 1 / sqrt(BLOCK)
    TILE: tl.constexpr,  # elements of a program
):
    """Rotate the blocks of a tile."""
    # 1. Load.
    element = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    token = element // WIDTH
    exists = token < num_tokens
    loaded = tl.load(heads + token * token_stride + element % WIDTH, mask=exists, other=0.0)
    x = tl.reshape(loaded.to(tl.float32), [TILE // BLOCK, BLOCK])

    # 2. and 3. Butterflies: the highest bit of an index becomes the lowest, so that all stages are alike.
    for _ in tl.static_range(STAGES):
        a, b = tl.split(tl.permute(tl.reshape(x, [TILE // BLOCK, 2, BLOCK // 2]), [0, 2, 1]))
        x = tl.reshape(tl.join(a + b, a - b), [TILE // BLOCK, BLOCK])

    # 4. Scale, and store.
    answer = tl.reshape(x, [TILE]) * SCALE
    tl.store(out + element, answer.to(out.dtype.element_ty), mask=exists)


def default_config(problem: RotationProblem) -> dict:
    """Return tiles of 512 elements on two warps."""
    return {"TILE": 512, "num_warps": 2, "num_stages": 1}


VARIANT = TritonVariant(
    op="rotate_heads",
    name="triton_butterflies",
    idea="a program for a few blocks: halves are added and subtracted, and change places with pairs at every stage",
    steps=(
        TritonStep(
            function=rotate_heads,
            grid=lambda config, problem: (cdiv(problem.num_elements, config["TILE"]),),
            types=lambda problem: {
                **dict.fromkeys(("out", "heads"), f"*{ELEMENT_TYPES[problem.dtype].triton}"),
                "num_tokens": "i32",
                "token_stride": f"i64:{16 // problem.itemsize}",
            },
            constexprs=lambda config, problem: {
                "WIDTH": problem.num_heads * problem.head_size,
                "BLOCK": problem.block,
                "STAGES": problem.block.bit_length() - 1,
                "SCALE": problem.block**-0.5,
            },
            arguments=ARGUMENTS,
        ),
    ),
    space={"TILE": (128, 256, 512, 1024, 2048), "num_warps": (1, 2, 4), "num_stages": (1,)},
    restrictions=rules(
        ("whole blocks", "TILE % block == 0"),
        ("every thread has work", "32 * num_warps <= TILE and TILE <= 32 * 32 * num_warps", "1 to 32 elements"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
)
