"""Types of registers, from the instructions that use them."""

from __future__ import annotations

import numpy as np

from workbench.ptx.machine import core

_TYPES = {
    *("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32", "pred"),
    *("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"),
}
_PAIRS = {"f16": "f16x2", "bf16": "bf16x2"}
_WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32")
"""Types of which a register can be NaN."""

OPERATIONS = {
    "f16": core.ConditionOp.f16, "bf16": core.ConditionOp.bf16, "f32": core.ConditionOp.f32,
    "f64": core.ConditionOp.f64, "s16": core.ConditionOp.s16, "u16": core.ConditionOp.u16,
    "s32": core.ConditionOp.s32, "u32": core.ConditionOp.u32, "s64": core.ConditionOp.s64,
    "u64": core.ConditionOp.u64, "pred": core.ConditionOp.predicate,
}  # fmt: skip
"""The core's ways to read a register, by its type."""

_SAME = {
    "b16": "s16", "b32": "s32", "b64": "u64", "s8": "s16", "u8": "u16", "tf32": "f32", "f16x2": "u32",
    "bf16x2": "u32",
}  # fmt: skip


def read_as(type_name: str) -> str:
    """Return the type as which a condition reads a register of a type."""
    return _SAME.get(type_name, type_name)


def result_and_source_types(opcode: str) -> tuple[str, str]:
    """Return the types of an instruction's results and sources, "" where its name does not tell."""
    name, *parts = opcode.split(".")
    types = [part for part in parts if part in _TYPES]
    if name in ("setp", "testp", "vote", "elect"):
        return "pred", types[-1] if types else ""
    if not types:
        return "", ""
    if name in ("cvt", "slct", "set") and len(types) > 1:
        return types[0], types[1]
    if name in ("mma", "wgmma"):
        return (types[0], "") if types[0] not in _PAIRS else (_PAIRS[types[0]], "")
    if name in ("mul", "mad") and "wide" in parts:
        return _WIDER.get(types[-1], ""), types[-1]
    if name in ("popc", "clz", "bfind"):
        return "u32", types[-1]
    return types[-1], types[-1]


def as_array(content: bytes, slot: int, type_name: str, width: int) -> np.ndarray:
    """Return the 32 lanes of a register: booleans, numbers, or (32, 2) for two halves.

    A bf16 comes as float32, which holds it.
    """
    if width == 0:
        mask = int.from_bytes(content[slot : slot + 4], "little")
        return np.array([mask >> lane & 1 for lane in range(32)], bool)
    raw = content[slot : slot + 32 * width]
    if type_name in ("bf16", "bf16x2"):
        halves = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        values = halves.view(np.float32)
        return values.reshape(32, 2) if type_name == "bf16x2" else values
    if type_name == "f16x2":
        return np.frombuffer(raw, np.float16).reshape(32, 2).copy()
    kind = {"f": "f", "s": "i", "u": "u", "t": "f", "b": "u"}[type_name[0]]
    return np.frombuffer(raw, f"{kind}{width}").copy()
