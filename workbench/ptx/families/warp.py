"""Instructions over a whole warp or block: shfl, vote, match, redux, barriers, fences; and control flow."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families.memory import place
from workbench.ptx.families.refused import INDIRECT_CALL, OLD_SYNC
from workbench.ptx.instruction import (
    Instruction,
    InstructionStep,
    Plan,
    comparison,
    destination,
    elementwise,
    expect,
    opcode,
    predicate,
    result,
    source,
    unless_sink,
)
from workbench.ptx.machine import ADDRESS, BLOCK_SCOPE, FLAGS, MEMBER, core
from workbench.ptx.operands import Constant, Frame, Operand, Refused, Symbols

_EXCHANGE, _BARRIER = core.Exchange, core.Barrier


def shfl(parts: list[str]) -> Plan:
    """Plan ``shfl.sync.mode.b32 d{|p}, a, b, c, members;``."""
    if parts[1] != "sync" or parts[-1] != "b32":
        raise Refused(OLD_SYNC)
    row = opcode(f"shfl.{parts[2]}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 5)
        names = [part.strip() for part in operands[0].split("|")]
        target = result(symbols, names[0], 4)
        slots: dict[int, Operand] = {_EXCHANGE.result: target, MEMBER: source(symbols, operands[4], "b32", 4)}
        columns = (_EXCHANGE.value, _EXCHANGE.lane, _EXCHANGE.control)
        for column, token in zip(columns, operands[1:4], strict=True):
            slots[column] = source(symbols, token, "b32", 4)
        return _with_predicate(symbols, Instruction(row, slots, (target,)), names)

    return bind


def _with_predicate(symbols: Symbols, instruction: Instruction, names: list[str]) -> Instruction:
    told = unless_sink(symbols, names[1], 0) if len(names) > 1 else None
    if told is not None:
        instruction.slots[_EXCHANGE.predicate] = told
        instruction.destinations += (told,)
    return instruction


def vote(parts: list[str]) -> Plan:
    """Plan ``vote.sync.mode d, {!}p, members;``; CUB writes ``vote.mode.sync``, which ptxas takes too."""
    if "sync" not in parts[1:3]:
        raise Refused(OLD_SYNC)
    mode = parts[2] if parts[1] == "sync" else parts[1]
    row = opcode(f"vote.{mode}")
    width = 4 if mode == "ballot" else 0

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        target = result(symbols, operands[0], width)
        voted, negated = predicate(symbols, operands[1])
        member = source(symbols, operands[2], "b32", 4)
        slots: dict[int, Operand] = {_EXCHANGE.result: target, _EXCHANGE.value: voted, MEMBER: member}
        return Instruction(row, slots, (target,), negated)

    return bind


def match(parts: list[str]) -> Plan:
    """Plan ``match.any|all.sync.type d{|p}, a, members;``."""
    type_name = parts[-1]
    row, size = opcode(f"match.{parts[1]}.{type_name}"), PTX_BYTES[type_name]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        names = [part.strip() for part in operands[0].split("|")]
        target = result(symbols, names[0], 4)
        slots: dict[int, Operand] = {
            _EXCHANGE.result: target,
            _EXCHANGE.value: source(symbols, operands[1], type_name, size),
            MEMBER: source(symbols, operands[2], "b32", 4),
        }
        return _with_predicate(symbols, Instruction(row, slots, (target,)), names)

    return bind


def redux(parts: list[str]) -> Plan:
    """Plan ``redux.sync.op.type d, a, members;``."""
    operation, kind = parts[2], parts[-1]
    if operation in ("add", "and", "or", "xor"):
        kind = "b32"
    row = opcode(".".join(["redux", operation, *parts[3:-1], kind]))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        target = result(symbols, operands[0], 4)
        member = source(symbols, operands[2], "b32", 4)
        value = source(symbols, operands[1], "b32", 4)
        return Instruction(row, {_EXCHANGE.result: target, _EXCHANGE.value: value, MEMBER: member}, (target,))

    return bind


def activemask(parts: list[str]) -> Plan:
    """Plan ``activemask.b32 d;``."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        target = destination(symbols, operands[0], 4)
        return elementwise(opcode("activemask"), target)

    return bind


def elect(parts: list[str]) -> Plan:
    """Plan ``elect.sync d|p, members;``."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        names = [part.strip() for part in operands[0].split("|")]
        target = unless_sink(symbols, names[0], 4)
        slots: dict[int, Operand] = {MEMBER: source(symbols, operands[1], "b32", 4)}
        instruction = Instruction(opcode("elect.sync"), slots)
        if target is not None:
            slots[_EXCHANGE.result], instruction.destinations = target, (target,)
        return _with_predicate(symbols, instruction, names)

    return bind


def barrier(parts: list[str]) -> Plan:
    """Plan bar and barrier, for the block (``.cta``) and for the warp."""
    kept = [part for part in parts[1:] if part not in ("cta", "aligned")]
    if kept == ["warp", "sync"]:

        def bind_warp(symbols: Symbols, operands: list[str]) -> Instruction:
            return Instruction(opcode("bar.warp.sync"), {MEMBER: source(symbols, operands[0], "b32", 4)})

        return bind_warp
    if kept[0] == "red":
        return _reducing_barrier(kept)
    if kept not in (["sync"], ["arrive"]):
        raise Refused("the machine does not support this barrier")
    row, imm = opcode(f"bar.{kept[0]}"), core.Meeting[kept[0]]
    apart = int(parts[0] == "barrier" and "aligned" not in parts)  # threads may arrive from different places

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1, 2)
        slots: dict[int, Operand] = {_BARRIER.number: source(symbols, operands[0], "b32", 4)}
        if len(operands) == 2:
            slots[_BARRIER.threads] = source(symbols, operands[1], "b32", 4)
        return Instruction(row, slots, (), {_BARRIER.unaligned: apart}, imm)

    return bind


def _reducing_barrier(kept: list[str]) -> Plan:
    operation = kept[1]
    row = opcode(f"bar.red.{operation}")
    imm = core.Meeting[operation]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3, 4)
        target = destination(symbols, operands[0], 4 if operation == "popc" else 0)
        voted, negated = predicate(symbols, operands[-1])
        number = source(symbols, operands[1], "b32", 4)
        slots: dict[int, Operand] = {_BARRIER.result: target, _BARRIER.number: number, _BARRIER.vote: voted}
        if len(operands) == 4:
            slots[_BARRIER.threads] = source(symbols, operands[2], "b32", 4)
        return Instruction(row, slots, (target,), {_BARRIER.unaligned: 0} | negated, imm)

    return bind


def branch(parts: list[str]) -> Plan:
    """Plan ``bra{.uni} label;``."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1)
        return Instruction(opcode("bra"), {}, target=operands[0])

    return bind


def indexed_branch(parts: list[str]) -> Plan:
    """Plan ``brx.idx index, table;`` as one comparison and branch after the other; an index outside the table traps."""
    if parts[1:] not in (["idx"], ["idx", "uni"]):
        raise Refused("the machine does not support this branch")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction | InstructionStep]:
        expect(operands, 2)
        index, targets = source(symbols, operands[0], "b32", 4), symbols.branch_targets.get(operands[1])
        if targets is None:
            raise Refused(f"the table {operands[1]}, which no .branchtargets lists")
        made: list[Instruction | InstructionStep] = []
        for i, target in enumerate(targets):
            hit = symbols.temporary(0)
            made.append(comparison(opcode("setp.eq.b32"), hit, index, Constant(4, i)))
            branch = InstructionStep.of(Instruction(opcode("bra"), {}, target=target))
            branch.guard = hit
            made.append(branch)
        return [*made, Instruction(opcode("trap"), {})]

    return bind


def leave(parts: list[str]) -> Plan:
    """Plan ret and exit.

    ret in a function goes back to its caller; in the kernel itself it ends the thread, as exit does.
    """
    is_return = parts[0] == "ret"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        if is_return and symbols.in_function:
            return Instruction(opcode("ret"), {core.Call.frame: Frame()})
        return Instruction(opcode("exit"), {})

    return bind


def call(parts: list[str]) -> Plan:
    """Plan ``call{.uni} (result), name, (arguments);``.

    A call through a register has the register in the name's place, and a prototype at the end. calls.py lays out the
    arguments and results.
    """

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        results = operands.pop(0) if operands[0][0] == "(" else "()"
        slots: dict[int, Operand] = {core.Call.frame: Frame()}
        prototype = symbols.prototypes.get(operands[-1]) if len(operands) > 1 else None
        if operands[0][0] == "%":
            slots[core.Call.target] = source(symbols, operands[0], "b64", 8)
            operands = operands[: -1 if prototype else None]
            if prototype is None:
                raise Refused(INDIRECT_CALL)
        if not 1 <= len(operands) <= 2:
            raise Refused(f"{len(operands)} operands, where 1 or 2 belong")
        arguments = operands[1] if len(operands) == 2 else "()"
        names = [[part.strip() for part in text[1:-1].split(",") if part.strip()] for text in (results, arguments)]
        back, into = (tuple(symbols.local[name] for name in group) for group in names)
        return Instruction(opcode("call"), slots, target=operands[0], call=(back, into), prototype=prototype)

    return bind


def trap(parts: list[str]) -> Plan:
    """Plan trap, and brkpt, as no debugger waits for it."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("trap"), {})

    return bind


def fence(parts: list[str]) -> Plan:
    """Plan a fence. Memory is sequentially consistent already: a fence only changes the order that the checks record.

    See core/checks/clocks.hpp. Among the fences between proxies, the checks know those of the async proxy and of tensor
    maps, and the one for new mbarriers.
    """
    name = "fence.mbarrier_init" if parts[1] == "mbarrier_init" else "fence"
    if parts[1] == "proxy":
        name = "fence.proxy.async" if parts[2].startswith("async") else "nop"
    if parts[1] == "proxy" and parts[2].startswith("tensormap"):
        return _map_fence(parts[3])
    row = opcode(name)
    flags = BLOCK_SCOPE if "cta" in parts else 0

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(row, {}, (), {FLAGS: flags})

    return bind


def _map_fence(semantics: str) -> Plan:
    """Plan ``fence.proxy.tensormap::generic.release.scope`` and ``...acquire.scope [address], 128``."""
    row = opcode(f"fence.proxy.tensormap.{semantics}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        if semantics == "release":
            return Instruction(row, {})
        expect(operands, 2)
        address = symbols.address(operands[0])
        slots: dict[int, Operand] = {}
        flags = place(symbols, address, slots, ADDRESS, "generic")
        return Instruction(row, slots, (), {FLAGS: flags}, address.offset)

    return bind


def nothing(parts: list[str]) -> Plan:
    """Plan an instruction that changes no value and orders nothing that the checks know."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("nop"), {})

    return bind


def dependency(parts: list[str]) -> Plan:
    """Plan griddepcontrol: launches run one after the other; the checks know which threads wait for the one before."""
    row = opcode(".".join(parts))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(row, {})

    return bind


FAMILY = {
    "shfl": shfl, "vote": vote, "match": match, "redux": redux, "activemask": activemask, "elect": elect,
    "bar": barrier, "barrier": barrier, "bra": branch, "brx": indexed_branch,
    "call": call, "ret": leave, "exit": leave, "trap": trap,
    "brkpt": trap, "membar": fence, "fence": fence, "nanosleep": nothing, "griddepcontrol": dependency,
    "pmevent": nothing,
}  # fmt: skip
