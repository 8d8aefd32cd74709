"""clusterlaunchcontrol: lets blocks take over the work of blocks that have not started."""

from __future__ import annotations

from workbench.ptx.families import moves
from workbench.ptx.families.memory import place
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    comparison,
    destination,
    expect,
    opcode,
    source,
    unless_sink,
    vector,
)
from workbench.ptx.machine import ASYNC_PROXY, FLAGS, core
from workbench.ptx.operands import Constant, Operand, Refused, Register, Symbols

_BULK, _FLAGS = core.Bulk, core.BulkFlags
_AXES = ("x", "y", "z")
UNKNOWN = "the machine does not support this clusterlaunchcontrol"


def control(parts: list[str]) -> Plan:
    """Plan ``clusterlaunchcontrol.try_cancel`` and ``.query_cancel``.

    An answer is four words: x, y and z of the first block, and 1, or zeros if no cluster was left.
    """
    if parts[1:3] == ["try_cancel", "async"] and parts[-1] == "b128":
        return _try_cancel(parts[3:-1])
    if parts[1:] == ["query_cancel", "is_canceled", "pred", "b128"]:
        return _is_canceled
    if parts[1] == "query_cancel" and parts[2].startswith("get_first_ctaid"):
        return _first_block(parts[2:])
    raise Refused(UNKNOWN)


def _try_cancel(modifiers: list[str]) -> Plan:
    everywhere = "multicast::cluster::all" in modifiers
    kept = [part for part in modifiers if part not in ("shared::cta", "multicast::cluster::all")]
    if kept != ["mbarrier::complete_tx::bytes"]:
        raise Refused(UNKNOWN)
    row = opcode("clusterlaunchcontrol.try_cancel")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        answer, barrier = map(symbols.address, operands)
        slots: dict[int, Operand] = {}
        place(symbols, answer, slots, _BULK.shared, "shared")
        place(symbols, barrier, slots, _BULK.mbarrier, "shared")
        flags = ASYNC_PROXY
        flags |= _FLAGS.shared_wide if slots[_BULK.shared].width == 8 else 0
        flags |= _FLAGS.barrier_wide if slots[_BULK.mbarrier].width == 8 else 0
        raw = {_BULK.shared_offset: answer.offset, _BULK.mbarrier_offset: barrier.offset, FLAGS: flags}
        return Instruction(row, slots, (), raw, int(everywhere), 1, 16)

    return bind


def _is_canceled(symbols: Symbols, operands: list[str]) -> list[Instruction]:
    expect(operands, 2)
    target, found = destination(symbols, operands[0], 0), symbols.temporary(4)
    return [
        _words(symbols, operands[1], 1, [None, found]),
        comparison(opcode("setp.ne.b32"), target, found, Constant(4, 0)),
    ]


def _words(symbols: Symbols, token: str, half: int, parts: list[Register | None]) -> Instruction:
    """Return the instruction that takes two words out of half an answer."""
    return moves.unpacking(parts, source(symbols, symbols.halves(token)[half], "b64", 8), 8)


def _first_block(parts: list[str]) -> Plan:
    if parts[1:] == ["v4", "b32", "b128"] and parts[0] == "get_first_ctaid":
        axes = None
    elif parts[1:] == ["b32", "b128"] and parts[0].partition("::")[2] in _AXES:
        axes = _AXES.index(parts[0].partition("::")[2])
    else:
        raise Refused(UNKNOWN)

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 2)
        tokens = ["_"] * 4
        if axes is None:
            tokens = vector(operands[0])
        else:
            tokens[axes] = operands[0]
        if len(tokens) != 4:
            raise Refused(f"{len(tokens)} registers, where 4 belong")
        targets = [unless_sink(symbols, token, 4) for token in tokens]
        halves = [targets[:2], targets[2:]]
        made = [_words(symbols, operands[1], i, half) for i, half in enumerate(halves) if any(half)]
        return made or [Instruction(opcode("nop"), {})]

    return bind


FAMILY = {"clusterlaunchcontrol": control}
