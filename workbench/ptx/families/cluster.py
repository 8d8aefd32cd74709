"""Instructions between the blocks of a cluster: mapa, getctarank, barrier.cluster, st.async and red.async."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families import mbarrier, memory, warp
from workbench.ptx.families.memory import place
from workbench.ptx.families.refused import ASYNC_IN_GLOBAL
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    destination,
    elementwise,
    expect,
    opcode,
    source,
    vector,
)
from workbench.ptx.machine import ADDRESS, CLUSTER_BASE, FLAGS, RELEASE, core
from workbench.ptx.operands import Operand, Refused, Symbols

_STORE = core.AsyncStore


def mapa(parts: list[str]) -> Plan:
    """Plan ``mapa{.shared::cluster}.type d, a, rank;``."""
    row, size = opcode(f"mapa.{parts[-1]}"), PTX_BYTES[parts[-1]]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        target = destination(symbols, operands[0], size)
        address, rank = source(symbols, operands[1], parts[-1], size), source(symbols, operands[2], "b32", 4)
        return elementwise(row, target, address, rank)

    return bind


def getctarank(parts: list[str]) -> Plan:
    """Plan ``getctarank{.shared::cluster}.type d, a;``."""
    row, size = opcode(f"getctarank.{parts[-1]}"), PTX_BYTES[parts[-1]]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], 4)
        return elementwise(row, target, source(symbols, operands[1], parts[-1], size))

    return bind


def barrier(parts: list[str]) -> Plan:
    """Plan ``barrier.cluster``; `warp.barrier` plans the other barriers."""
    if parts[1] != "cluster":
        return warp.barrier(parts)
    row = opcode(f"barrier.cluster.{parts[2]}")
    flags = 0 if "relaxed" in parts else RELEASE

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(row, {}, (), {FLAGS: flags})

    return bind


def store(parts: list[str]) -> Plan:
    """Plan ``st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], value, [mbar];``."""
    if parts[1] != "async":
        return memory.store(parts)
    if "global" in parts or "mmio" in parts:
        raise Refused(ASYNC_IN_GLOBAL)
    type_name, elements = parts[-1], next((int(part[1:]) for part in parts if part in ("v2", "v4")), 1)
    size = PTX_BYTES[type_name]
    row = opcode(f"st.async.b{8 * size}")
    if size * elements > 16:
        raise Refused("more than 16 bytes in one access")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        values = vector(operands[1])
        if len(values) != elements:
            raise Refused(f"{len(values)} values for {elements} elements")
        found = (source(symbols, token, type_name, size) for token in values)
        slots: dict[int, Operand] = dict(enumerate(found, _STORE.data))
        address, counted = symbols.address(operands[0]), symbols.address(operands[2])
        flags = CLUSTER_BASE | place(symbols, address, slots, ADDRESS, "shared")
        if place(symbols, counted, slots, _STORE.mbarrier, "shared") and (counted.base.width != 4 or counted.offset):
            raise Refused("an mbarrier whose address is not a 32-bit register")
        return Instruction(row, slots, (), {FLAGS: flags}, address.offset, elements, size)

    return bind


def reduction(parts: list[str]) -> Plan:
    """Plan ``red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbar];``."""
    if parts[1] != "async":
        return memory.atomic(parts)
    if "shared::cluster" not in parts:
        raise Refused(ASYNC_IN_GLOBAL)
    reduce = memory.atomic(["red", "relaxed", "cluster", "shared::cluster", *parts[-2:]])
    complete = mbarrier.mbarrier(["mbarrier", "complete_tx", "shared::cluster", "b64"])

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 3)
        reduced = reduce(symbols, operands[:2])
        assert isinstance(reduced, Instruction)  # a vector would be a list
        return [reduced, complete(symbols, [operands[2], str(PTX_BYTES[parts[-1]])])]

    return bind


FAMILY = {
    "mapa": mapa, "getctarank": getctarank, "barrier": barrier, "bar": barrier, "st": store, "red": reduction,
}  # fmt: skip
