"""mbarrier, and the cp.async that arrives at one."""

from __future__ import annotations

from workbench.ptx.families import bulk, memory
from workbench.ptx.families.memory import place
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    SinglePlan,
    destination,
    elementwise,
    expect,
    opcode,
    source,
    unless_sink,
)
from workbench.ptx.machine import ADDRESS, CLUSTER_BASE, FLAGS, RELEASE, STRONG, UNORDERED, core
from workbench.ptx.operands import Operand, Refused, Register, Symbols

_MBARRIER = core.Mbarrier
# The machine assumes the semantics (.release, .acquire) unless .relaxed is written.
_IGNORED = {"release", "acquire", "relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster"}


def mbarrier(parts: list[str]) -> SinglePlan:
    """Plan ``mbarrier.operation{.noComplete}{.parity}{.sem.scope}{.shared}.b64``.

    Addresses without .shared are generic.
    """
    operation, flags = parts[1], parts[2:-1]
    expects = operation in ("arrive", "arrive_drop") and "expect_tx" in flags
    kept = [part for part in flags if part not in _IGNORED and not (expects and part == "expect_tx")]
    if kept not in ([], ["noComplete"], ["parity"]) or parts[-1] != "b64":
        raise Refused("the machine does not support this mbarrier")
    base = CLUSTER_BASE if "shared::cluster" in flags and operation not in ("init", "inval") else 0
    counts_bytes = operation in ("expect_tx", "complete_tx")
    if operation == "pending_count":
        return _pending_count
    # try_wait may sleep for a while on the hardware; a program cannot tell it from test_wait.
    name = "test_wait" if operation == "try_wait" else operation
    row = opcode(".".join(["mbarrier", name, *kept, "shared", "b64"]))
    ordered = 0 if "relaxed" in flags else RELEASE
    marks = 0 if operation in ("init", "inval") else STRONG | UNORDERED | ordered | base

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        slots: dict[int, Operand] = {}
        target: Register | None = None
        if name == "test_wait":
            target = destination(symbols, operands.pop(0), 0)
        elif operation not in ("init", "inval", "expect_tx", "complete_tx"):
            target = unless_sink(symbols, operands.pop(0), 8)
        if target is not None:
            slots[_MBARRIER.result] = target
        if name == "test_wait":
            expect(operands, 2, 3 if operation == "try_wait" else 2)  # the third is a hint on how long to sleep
            wide = not kept
            slots[_MBARRIER.operand] = source(symbols, operands[1], "b64" if wide else "b32", 8 if wide else 4)
        elif operation == "inval":
            expect(operands, 1)
        elif expects:
            expect(operands, 2)
            slots[_MBARRIER.expected] = source(symbols, operands[1], "b32", 4)
        else:
            expect(operands, *((2,) if operation == "init" or kept or counts_bytes else (1, 2)))
            if len(operands) == 2:
                slots[_MBARRIER.operand] = source(symbols, operands[1], "b32", 4)
        address = symbols.address(operands[0])
        marked = marks | place(symbols, address, slots, ADDRESS, "shared")
        raw = {_MBARRIER.may_give_up: int(operation == "try_wait"), FLAGS: marked}
        return Instruction(row, slots, (target,) if target else (), raw, address.offset, 1, 8)

    return bind


def _pending_count(symbols: Symbols, operands: list[str]) -> Instruction:
    expect(operands, 2)
    target = destination(symbols, operands[0], 4)
    return elementwise(opcode("mbarrier.pending_count.b64"), target, source(symbols, operands[1], "b64", 8))


def arrive_after_copies(parts: list[str]) -> Plan:
    """Plan ``cp.async.mbarrier.arrive{.noinc}{.shared}.b64 [address];``."""
    noinc = [part for part in parts if part == "noinc"]
    if parts[3] != "arrive" or any(part not in ("noinc", "shared", "shared::cta", "b64") for part in parts[4:]):
        raise Refused("the machine does not support this copy")
    row = opcode(".".join(["cp", "async", "mbarrier", "arrive", *noinc, "shared", "b64"]))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1)
        address = symbols.address(operands[0])
        slots: dict[int, Operand] = {}
        flags = STRONG | UNORDERED | place(symbols, address, slots, ADDRESS, "shared")
        return Instruction(row, slots, (), {FLAGS: flags}, address.offset, 1, 8)

    return bind


def copy(parts: list[str]) -> Plan:
    """Plan cp.async at an mbarrier, and bulk copies; `memory.copy` plans the other forms."""
    if "bulk" in parts[2:4]:
        return bulk.bulk(parts)
    return arrive_after_copies(parts) if parts[1:3] == ["async", "mbarrier"] else memory.copy(parts)


FAMILY = {"mbarrier": mbarrier, "cp": copy}
