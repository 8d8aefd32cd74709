"""Instructions over a whole warp or block: shfl, vote, match, redux, mma, barriers, fences; and control flow."""

from __future__ import annotations

from workbench.ptx.instruction import Instruction, Plan, destination, expect, opcode, source, vector
from workbench.ptx.machine import MEMBER_SLOT
from workbench.ptx.operands import Frame, Operand, Refused, Symbols
from workbench.ptx.parse import TYPE_SIZES


def shfl(parts: list[str]) -> Plan:
    if parts[1] != "sync" or parts[-1] != "b32":
        raise Refused("only shfl.sync works on sm_70 and newer")
    row = opcode(f"shfl.{parts[2]}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 5)
        names = [part.strip() for part in operands[0].split("|")]
        target = destination(symbols, names[0], 4)
        slots: dict[int, Operand] = {0: target, MEMBER_SLOT: source(symbols, operands[4], "b32", 4)}
        for i in (1, 2, 3):
            slots[i] = source(symbols, operands[i], "b32", 4)
        return _with_predicate(symbols, Instruction(row, slots, (target,)), names)

    return bind


def _with_predicate(symbols: Symbols, instruction: Instruction, names: list[str]) -> Instruction:
    predicate = destination(symbols, names[1], 0) if len(names) > 1 else None
    if predicate is None:
        instruction.raw[4] = -1
    else:
        instruction.slots[4] = predicate
        instruction.destinations += (predicate,)
    return instruction


def vote(parts: list[str]) -> Plan:
    if parts[1] != "sync":
        raise Refused("only vote.sync works on sm_70 and newer")
    row = opcode(f"vote.{parts[2]}")
    width = 4 if parts[2] == "ballot" else 0

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        target = destination(symbols, operands[0], width)
        slots: dict[int, Operand] = {
            0: target,
            1: source(symbols, operands[1].lstrip("! "), "pred", 0),
            MEMBER_SLOT: source(symbols, operands[2], "b32", 4),
        }
        return Instruction(row, slots, (target,), {5: -1 if operands[1][0] == "!" else 0})

    return bind


def match(parts: list[str]) -> Plan:
    type_name = parts[-1]
    row, size = opcode(f"match.{parts[1]}.{type_name}"), TYPE_SIZES[type_name]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        names = [part.strip() for part in operands[0].split("|")]
        target = destination(symbols, names[0], 4)
        slots: dict[int, Operand] = {
            0: target,
            1: source(symbols, operands[1], type_name, size),
            MEMBER_SLOT: source(symbols, operands[2], "b32", 4),
        }
        return _with_predicate(symbols, Instruction(row, slots, (target,)), names)

    return bind


def redux(parts: list[str]) -> Plan:
    operation, kind = parts[2], parts[-1]
    if operation in ("add", "and", "or", "xor"):
        kind = "b32"
    row = opcode(f"redux.{operation}.{kind}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        target = destination(symbols, operands[0], 4)
        member = source(symbols, operands[2], "b32", 4)
        return Instruction(row, {0: target, 1: source(symbols, operands[1], "b32", 4), MEMBER_SLOT: member}, (target,))

    return bind


def activemask(parts: list[str]) -> Plan:
    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        target = destination(symbols, operands[0], 4)
        return Instruction(opcode("activemask"), {0: target}, (target,))

    return bind


def elect(parts: list[str]) -> Plan:
    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        names = [part.strip() for part in operands[0].split("|")]
        target = destination(symbols, names[0], 4)
        slots: dict[int, Operand] = {MEMBER_SLOT: source(symbols, operands[1], "b32", 4)}
        instruction = Instruction(opcode("elect.sync"), slots)
        if target is None:
            instruction.raw[0] = -1
        else:
            slots[0], instruction.destinations = target, (target,)
        return _with_predicate(symbols, instruction, names)

    return bind


def mma(parts: list[str]) -> Plan:
    """``mma.sync.aligned.shape.row.col{.satfinite}.D.A.B.C``; the fragments' register counts come from the operands."""
    if parts[1:3] != ["sync", "aligned"] or "sp" in parts or parts[4:6] != ["row", "col"] or "satfinite" in parts:
        raise Refused("the machine does not know this mma")
    row = opcode(".".join(["mma", parts[3], *parts[-4:]]))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 4)
        slots: dict[int, Operand] = {}
        for first, limit, operand in zip((0, 4, 9, 11), (4, 4, 2, 4), operands, strict=True):
            tokens = vector(operand)
            if len(tokens) > limit:
                raise Refused(f"{len(tokens)} registers in a fragment")
            for i, token in enumerate(tokens):
                slots[first + i] = destination(symbols, token, 4) if first == 0 else source(symbols, token, "f32", 4)
        targets = tuple(slots[i] for i in range(len(vector(operands[0]))))
        return Instruction(row, slots, targets, {MEMBER_SLOT: -1})

    return bind


def barrier(parts: list[str]) -> Plan:
    """bar and barrier, for the block (``.cta``) and for the warp."""
    kept = [part for part in parts[1:] if part not in ("cta", "aligned")]
    if kept == ["warp", "sync"]:

        def bind_warp(symbols: Symbols, operands: list[str]) -> Instruction:
            return Instruction(opcode("bar.warp.sync"), {MEMBER_SLOT: source(symbols, operands[0], "b32", 4)})

        return bind_warp
    if kept[0] == "cluster":
        raise Refused("clusters are out of the machine's scope")
    if kept[0] == "red":
        return _reducing_barrier(kept)
    if kept not in (["sync"], ["arrive"]):
        raise Refused("the machine does not know this barrier")
    row, imm = opcode(f"bar.{kept[0]}"), 1 if kept[0] == "arrive" else 0

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1, 2)
        slots: dict[int, Operand] = {1: source(symbols, operands[0], "b32", 4)}
        raw = {}
        if len(operands) == 2:
            slots[2] = source(symbols, operands[1], "b32", 4)
        else:
            raw[2] = -1
        return Instruction(row, slots, (), raw, imm)

    return bind


def _reducing_barrier(kept: list[str]) -> Plan:
    operation = kept[1]
    row = opcode(f"bar.red.{operation}")
    imm = {"popc": 2, "and": 3, "or": 4}[operation]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3, 4)
        target = destination(symbols, operands[0], 4 if operation == "popc" else 0)
        predicate = operands[-1]
        slots: dict[int, Operand] = {
            0: target,
            1: source(symbols, operands[1], "b32", 4),
            3: source(symbols, predicate.lstrip("! "), "pred", 0),
        }
        raw = {5: -1 if predicate[0] == "!" else 0}
        if len(operands) == 4:
            slots[2] = source(symbols, operands[2], "b32", 4)
        else:
            raw[2] = -1
        return Instruction(row, slots, (target,), raw, imm)

    return bind


def branch(parts: list[str]) -> Plan:
    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1)
        return Instruction(opcode("bra"), {}, target=operands[0])

    return bind


def leave(parts: list[str]) -> Plan:
    """ret of a function goes back to its caller; at the level of the kernel it ends the thread, as exit does."""
    is_return = parts[0] == "ret"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        if is_return and symbols.in_function:
            return Instruction(opcode("ret"), {0: Frame()})
        return Instruction(opcode("exit"), {})

    return bind


_PROTOTYPE = "an indirect call (through a function pointer or a virtual function)"


def call(parts: list[str]) -> Plan:
    """``call{.uni} (result), name, (arguments);`` calls.py lays out what it takes."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        results = operands.pop(0) if operands[0][0] == "(" else "()"
        if not 1 <= len(operands) <= 2 or operands[0][0] == "%":
            raise Refused(_PROTOTYPE)
        arguments = operands[1] if len(operands) == 2 else "()"
        names = [[part.strip() for part in text[1:-1].split(",") if part.strip()] for text in (results, arguments)]
        places = tuple(tuple(symbols.local[name] for name in group) for group in names)
        return Instruction(opcode("call"), {0: Frame()}, target=operands[0], call=places)

    return bind


def trap(parts: list[str]) -> Plan:
    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("trap"), {})

    return bind


def fence(parts: list[str]) -> Plan:
    """Memory is sequentially consistent already. Proxy and cluster fences come with features that are out of scope."""
    if "proxy" in parts or "mbarrier_init" in parts:
        raise Refused("proxy and mbarrier fences are out of the machine's scope")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("fence"), {})

    return bind


def nothing(parts: list[str]) -> Plan:
    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("nop"), {})

    return bind


def out_of_scope(parts: list[str]) -> Plan:
    raise Refused(
        "warp-group mma, tensor memory, mbarriers, clusters are out of the machine's scope: compile for sm_80 or sm_89"
    )


FAMILY = {
    "shfl": shfl, "vote": vote, "match": match, "redux": redux, "activemask": activemask, "elect": elect, "mma": mma,
    "bar": barrier, "barrier": barrier, "bra": branch, "call": call, "ret": leave, "exit": leave, "trap": trap,
    "brkpt": trap, "membar": fence, "fence": fence, "nanosleep": nothing, "griddepcontrol": nothing, "pmevent": nothing,
    "setmaxnreg": nothing, "wgmma": out_of_scope, "mbarrier": out_of_scope, "clusterlaunchcontrol": out_of_scope,
    "mapa": out_of_scope, "getctarank": out_of_scope, "tcgen05": out_of_scope, "tensormap": out_of_scope,
}  # fmt: skip
