# mypy: allow-untyped-defs, allow-incomplete-defs
"""A program for a tile of channels: in Triton.

The steps are those of ``cuda_src/conv_step_vectors.cu``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.conv_step.problem import ARGUMENTS, RESTRICTIONS, ConvProblem
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rules import rules
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import TritonStep, TritonVariant, cdiv, next_power_of_2


@triton.jit
def conv_step(
    output,  # [num_seqs, CHANNELS]
    inputs,  # [num_seqs, CHANNELS]
    weight,  # [WIDTH, CHANNELS]
    states,  # [num_slots, WIDTH - 1, CHANNELS], slots slot_stride apart
    slots,  # [num_seqs], -1 for zeros
    new_slots,  # [num_seqs], -1 for nowhere
    slot_stride,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,  # channels of a program
):
    """Compute a step for a tile of channels of one sequence."""
    seq = tl.program_id(1).to(tl.int64)
    channel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    exists = channel < CHANNELS
    slot, new_slot = tl.load(slots + seq).to(tl.int64), tl.load(new_slots + seq).to(tl.int64)
    total = tl.zeros([TILE], dtype=tl.float32)
    for place in tl.static_range(WIDTH):
        # 1. Load the inputs, from the oldest on.
        if place < WIDTH - 1:
            in_state = states + slot * slot_stride + place * CHANNELS + channel
            x = tl.load(in_state, mask=exists & (slot >= 0), other=0.0)
        else:
            x = tl.load(inputs + seq * CHANNELS + channel, mask=exists, other=0.0)

        # 2. Sum.
        w = tl.load(weight + place * CHANNELS + channel, mask=exists, other=0.0)
        total += x.to(tl.float32) * w.to(tl.float32)

        # 3. Store all but the oldest one place earlier.
        if place > 0:
            in_state = states + new_slot * slot_stride + (place - 1) * CHANNELS + channel
            tl.store(in_state, x, mask=exists & (new_slot >= 0))

    # 4. Apply SiLU, and store the output.
    answer = total / (1.0 + tl.exp(-total))
    tl.store(output + seq * CHANNELS + channel, answer.to(output.dtype.element_ty), mask=exists)


def default_config(problem: ConvProblem) -> dict:
    """Return tiles of 256 channels on two warps."""
    tile = min(256, max(32, next_power_of_2(problem.channels)))
    return {"TILE": tile, "num_warps": 2 if tile >= 128 else 1, "num_stages": 1}


VARIANT = TritonVariant(
    op="conv_step",
    name="triton_vectors",
    idea="a program for a tile of channels: their inputs loaded once, summed, and stored one place earlier",
    steps=(
        TritonStep(
            function=conv_step,
            grid=lambda config, problem: (cdiv(problem.channels, config["TILE"]), problem.num_seqs),
            types=lambda problem: {
                **dict.fromkeys(("output", "inputs", "weight", "states"), f"*{ELEMENT_TYPES[problem.dtype].triton}"),
                **dict.fromkeys(("slots", "new_slots"), "*i32:4"),
                "slot_stride": f"i64:{16 // problem.itemsize}",
            },
            constexprs=lambda config, problem: {"CHANNELS": problem.channels, "WIDTH": problem.width},
            arguments=ARGUMENTS,
        ),
    ),
    space={"TILE": (32, 64, 128, 256, 512, 1024), "num_warps": (1, 2, 4), "num_stages": (1,)},
    restrictions=rules(
        *RESTRICTIONS,
        ("every thread has work", "32 * num_warps <= TILE and TILE <= 16 * 32 * num_warps", "1 to 16 channels"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
)
