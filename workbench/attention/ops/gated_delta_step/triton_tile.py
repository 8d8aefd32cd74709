# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of a state's columns, read and written once: in Triton.

The steps are those of ``cuda_src/gated_delta_step_columns.cu``.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gated_delta_step.problem import ARGUMENTS, RESTRICTIONS, GatedDeltaProblem
from workbench.attention.ops.gated_delta_step.reference import EPSILON
from workbench.attention.ops.rules import rules
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, TritonStep, TritonVariant, cdiv, next_power_of_2


@triton.jit
def gated_delta_step(
    output,  # [num_seqs, heads, VALUE_SIZE]
    query,  # [num_seqs, heads / GROUP, KEY_SIZE]
    key,  # as query
    value,  # [num_seqs, heads, VALUE_SIZE]
    decay,  # [num_seqs, heads, DECAYS] fp32
    beta,  # [num_seqs, heads] fp32
    states,  # [num_slots, heads, KEY_SIZE, VALUE_SIZE] fp32, slots slot_stride apart
    slots,  # [num_seqs], -1 for zeros
    new_slots,  # [num_seqs], -1 for nowhere
    scale,
    slot_stride,
    KEY_SIZE: tl.constexpr,
    KEY_PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    DECAYS: tl.constexpr,  # KEY_SIZE or 1
    EPSILON: tl.constexpr,
    TILE: tl.constexpr,  # columns
):
    """Compute a step for a tile of columns of one head of one sequence."""
    head, seq = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row, column = tl.arange(0, KEY_PADDED), tl.program_id(0) * TILE + tl.arange(0, TILE)
    of_row, of_column = row < KEY_SIZE, column < VALUE_SIZE
    place = seq * tl.num_programs(1) + head

    # 1. Load query and key, and divide them by their lengths.
    in_keys = (place // GROUP) * KEY_SIZE + row
    q = tl.load(query + in_keys, mask=of_row, other=0.0).to(tl.float32)
    k = tl.load(key + in_keys, mask=of_row, other=0.0).to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q) + EPSILON) * scale)
    k = k * tl.rsqrt(tl.sum(k * k) + EPSILON)

    # 2. Load the tile of the state, which decays.
    in_state = (head * KEY_SIZE + row)[:, None] * VALUE_SIZE + column[None, :]
    slot, new_slot = tl.load(slots + seq).to(tl.int64), tl.load(new_slots + seq).to(tl.int64)
    inside = of_row[:, None] & of_column[None, :]
    state = tl.load(states + slot * slot_stride + in_state, mask=inside & (slot >= 0), other=0.0)
    if DECAYS == 1:
        state *= tl.exp(tl.load(decay + place))
    else:
        state *= tl.exp(tl.load(decay + place * KEY_SIZE + row, mask=of_row, other=0.0))[:, None]

    # 3. Correct it by a share of the error in the new key's value.
    v = tl.load(value + place * VALUE_SIZE + column, mask=of_column, other=0.0).to(tl.float32)
    error = (v - tl.sum(state * k[:, None], axis=0)) * tl.load(beta + place)
    state += k[:, None] * error[None, :]

    # 4. Read it with the query, and store both.
    answer = tl.sum(state * q[:, None], axis=0)
    tl.store(output + place * VALUE_SIZE + column, answer.to(output.dtype.element_ty), mask=of_column)
    tl.store(states + new_slot * slot_stride + in_state, state, mask=inside & (new_slot >= 0))


def _types(problem: GatedDeltaProblem) -> dict[str, str]:
    scalar = f"*{ELEMENT_TYPES[problem.dtype].triton}"
    own = dict.fromkeys(("output", "query", "key", "value"), scalar)
    numbers = dict.fromkeys(("decay", "beta", "states"), "*fp32") | dict.fromkeys(("slots", "new_slots"), "*i32:4")
    return own | numbers | {"scale": "fp32", "slot_stride": "i64:4"}


def _constexprs(config: Config, problem: GatedDeltaProblem) -> dict[str, Any]:
    return {
        "KEY_SIZE": problem.key_size,
        "KEY_PADDED": next_power_of_2(problem.key_size),
        "VALUE_SIZE": problem.value_size,
        "GROUP": problem.group,
        "DECAYS": problem.decays,
        "EPSILON": EPSILON,
    }


def default_config(problem: GatedDeltaProblem) -> dict:
    """Return tiles of 32 columns on four warps."""
    return {"TILE": min(32, max(8, next_power_of_2(problem.value_size))), "num_warps": 4, "num_stages": 1}


VARIANT = TritonVariant(
    op="gated_delta_step",
    name="triton_tile",
    idea="a program per tile of a state's columns: loaded once, corrected, read by the query, stored once",
    steps=(
        TritonStep(
            function=gated_delta_step,
            grid=lambda config, problem: (
                cdiv(problem.value_size, config["TILE"]),
                problem.num_value_heads,
                problem.num_seqs,
            ),
            types=_types,
            constexprs=_constexprs,
            arguments=ARGUMENTS,
        ),
    ),
    space={"TILE": (8, 16, 32, 64, 128), "num_warps": (1, 2, 4, 8), "num_stages": (1,)},
    restrictions=rules(
        *RESTRICTIONS,
        ("registers", "TILE * next_power_of_2(key_size) <= 128 * 32 * num_warps", "128 elements of the state a thread"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    features=("key_decay",),
    defaults=default_config,
)
