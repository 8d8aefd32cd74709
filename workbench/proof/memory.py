"""Accesses to memory: which array, at which offset, under which condition, between which barriers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from workbench.base.element_types import PTX_BYTES
from workbench.proof.access import AccessMode, Hazard, ThreadAccess
from workbench.proof.conditions import FALSE, TRUE, Predicate, both, negation
from workbench.proof.state import State, Value
from workbench.proof.terms import Term, quotient, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

_ADDRESS = re.compile(r"\[\s*([^\s+\-\],]+)\s*(?:([+-])\s*(-?\w+)\s*)?\]")
_MAP_BYTES = 128
_STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")


def is_pointer(value: Term) -> bool:
    """Return True for a term that has an address in it."""
    return any(atom.kind == "pointer" for atom in value.deps)


Place = tuple[Predicate, str, Term]
"""An array and an offset in it, and the condition under which they are meant."""


def arrays_of(statement: Statement, address: Term) -> Iterator[Place]:
    """Yield the arrays into which an address may lead, each with its condition and the offset.

    Raises Unknown for an address that does not come from one array.
    """
    for key, factor in address.parts.items():
        for atom in key:
            if atom.kind == "choice" and any(one.kind == "pointer" for one in atom.deps):
                if len(key) != 1 or factor != 1:
                    break
                condition, one, other = atom.args
                rest = address - Term({key: 1})
                for when, value in ((condition, one), (negation(condition), other)):
                    for further, base, offset in arrays_of(statement, rest + value):
                        if both(when, further) != FALSE:
                            yield both(when, further), base, offset
                return
    bases = [key for key in address.parts if any(atom.kind == "pointer" for atom in key)]
    if len(bases) != 1 or len(bases[0]) != 1 or address.parts[bases[0]] != 1:
        raise Unknown(statement, "an address that does not come from one argument or array")
    yield TRUE, bases[0][0].name, address - Term({bases[0]: 1})


def address_of(thread: Thread, statement: Statement, operand: str, state: State) -> Term:
    """Return the address that ``[register + number]`` stands for. Raises Unknown for one that is not known."""
    found = _ADDRESS.fullmatch(operand.strip())
    if found is None:
        raise Unknown(statement, "an address that is not a register plus a number")
    value = thread.value(statement, found[1], state)
    if not isinstance(value, Term) or not is_pointer(value):
        raise Unknown(statement, _origin(thread, value))
    if PTX_BYTES.get(thread.graph.types.get(found[1], ""), 8) < 8 and has_64_bits(thread, value):
        raise Unknown(statement, "an address of 64 bits in a register of 32")
    offset = int(found[3], 0) * (-1 if found[2] == "-" else 1) if found[3] else 0
    return value + offset


def _origin(thread: Thread, value: Value) -> str:
    """Return where an address comes from that leads into no argument that is known."""
    for atom in value.deps if isinstance(value, Term) else ():
        if atom.kind == "load":
            array = atom.name.removeprefix("%")
            return f"an address that lies in memory, in {array}: where it leads is not known; pass that array itself"
        held = next((one.name for one in thread.entry.parameters if atom.name.startswith(f"{one.name}+")), "")
        if held:
            return f"an address inside the structure {held}: how large its array is is not known; pass the array itself"
    return "an address that was computed from values of memory or in a way that is not modelled"


def window(thread: Thread, space: str) -> Term:
    """Return what ``cvta`` adds to an address of a state space, so that it becomes a generic one."""
    generic = space.partition("::")[0] in ("shared", "local", "const")
    return thread.specification.arena.atom("window", space, (), 0, 1 << 60) if generic else term(0)


def has_64_bits(thread: Thread, value: Term) -> bool:
    """Return True for an address of which 32 bits are too few: of global memory, or a generic one."""
    bases = [atom.name for atom in value.deps if atom.kind == "pointer"]
    return any(atom.kind == "window" for atom in value.deps) or any(_space(thread, one) == "global" for one in bases)


def _space(thread: Thread, base: str) -> str:
    variable = thread.graph.variables.get(base[1:]) if base.startswith("%") else None
    return "global" if variable is None else variable.space


def places_of(thread: Thread, statement: Statement, operand: str, state: State, space: str) -> list[Place]:
    """Return the places that an operand may mean, of an instruction for a state space, or for generic addresses ("").

    Raises Unknown for an address that is not known, or of another space.
    """
    found = []
    for when, base, offset in arrays_of(statement, address_of(thread, statement, operand, state)):
        own = _space(thread, base)
        offset = offset if space else offset - window(thread, own)
        if (space and space != own) or any(atom.kind == "window" for key in offset.parts for atom in key):
            name = base.removeprefix("%")
            raise Unknown(statement, f"an address in {name}, in {own} memory, that is not of the instruction's space")
        found.append((when, base, offset))
    return found


def space_in(statement: Statement) -> str:
    """Return the state space that an opcode names, or an empty text."""
    parts = [one.partition("::")[0] for one in statement.opcode.split(".")]
    return next((one for one in parts if one in ("global", "shared", "local", "const")), "")


def accesses(
    thread: Thread, statement: Statement, operand: str, width: int, state: State, guard: Predicate, mode: AccessMode
) -> list[ThreadAccess]:  # fmt: skip
    """Return, and record, what one operand of a statement accesses, an access for each array that it may be.

    ``width`` is the size of the access in bytes, the mode's space as in `places_of`.
    """
    state.touched = True
    try:
        places = places_of(thread, statement, operand, state, mode.space)
    except Unknown:
        if thread.exact:
            raise
        return []
    return accesses_at(thread, statement, places, width, state, guard, mode)


def accesses_at(
    thread: Thread, statement: Statement, places: Sequence[Place], width: int, state: State, guard: Predicate,
    mode: AccessMode,
) -> list[ThreadAccess]:  # fmt: skip
    """Return, and record, accesses to places in arrays, each under its condition."""
    writes, strong, copy, proxy, landing, clipped, align, _, values = mode
    if writes and any(_space(thread, base) == "const" for _, base, _ in places):
        raise Unknown(statement, "a write to constant memory")
    found = []
    for when, base, offset in places:
        path = both(state.path, guard, when)
        if path != FALSE:
            one = ThreadAccess(
                statement, base, offset, width, path, writes, strong, _in_block(statement), copy, state.epochs,
                state.lane_epochs, thread.rounds, *thread.times(state, copy=copy), landing, proxy, clipped,
                align, values,
            )  # fmt: skip
            found.append(one)
            thread.record(one)
            if writes and not proxy and base.startswith("%") and not _without_fence(thread, statement):
                state.unfenced |= {statement.start}
            if writes:
                _end_maps(state, one)
            for condition, pending in state.pending:
                if pending.base == base and (writes or pending.writes) and not (copy and not writes):
                    thread.endanger(Hazard(one, pending, condition))
    return found


def _in_block(statement: Statement) -> bool:
    """Return True for an operation that is atomic only for threads of a block, or of a cluster, which is one block."""
    return any(one in ("cta", "cluster") for one in statement.opcode.split("."))


def _end_maps(state: State, access: ThreadAccess) -> None:
    """Forget the tensor maps of which a thread may write some bytes."""
    for base, offset in [one for one in state.maps if one[0] == access.base]:
        apart = access.offset - offset
        low, high = apart.bounds
        misses = (low is not None and low >= _MAP_BYTES) or (high is not None and high + access.width <= 0)
        filled_in = access.statement.opcode.startswith("tensormap.replace") and not apart.parts
        if not misses and not filled_in:
            del state.maps[base, offset]


def _without_fence(thread: Thread, statement: Statement) -> bool:
    """Return True for an ``mbarrier.init`` of Triton, which leaves out the fence behind it: as in the checks."""
    return thread.specification.repeats and statement.opcode.startswith("mbarrier.init")


def move(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute a load, a store or an atomic operation."""
    parts = statement.opcode.split(".")
    name = parts[0]
    if any(one.startswith("shared::cluster") or one == "async" for one in parts) or name == "multimem":
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    matrix = name in ("ldmatrix", "stmatrix")
    count = next((int(one[1:]) for one in parts if one in ("v2", "v4", "v8")), 1)
    size = 16 if matrix else PTX_BYTES.get(parts[-1])
    if not size:
        raise Unknown(statement, f"the type of {statement.opcode} is not modelled")
    first = name in ("st", "red", "stmatrix")
    atomic = name in ("atom", "red")
    values = _stored(thread, statement, operands[1], state) if name == "st" else ()
    found = accesses(
        thread, statement, operands[0 if first else 1], size * count, state, guard,
        AccessMode(writes=first or atomic, strong=atomic or any(one in _STRONG for one in parts),
                   space=space_in(statement), values=values),
    )  # fmt: skip
    for one in found if values else ():
        thread.keep(one, values)
    if first:
        return
    for place, register in destinations(thread, operands[0]):
        value: Value = None
        if name == "ld" and len(found) == 1:
            value = _loaded(thread, found[0], place * size, parts[-1], state)
            value = in_register(thread, statement, register, value, parts[-1], state)
        thread.assign(statement, state, register, value, guard)


def destinations(thread: Thread, operand: str) -> list[tuple[int, str]]:
    """Return the registers that an operand names, each with its place in a vector; ``_`` takes a place as well."""
    names = [one.strip() for one in operand.strip().strip("{}").split(",")]
    return [(place, name) for place, name in enumerate(names) if name in thread.graph.types]


def _stored(thread: Thread, statement: Statement, operand: str, state: State) -> tuple[Value, ...]:
    """Return what a store writes, element by element."""
    return tuple(thread.value(statement, element, state) for element in operand.strip().strip("{}").split(","))


def _loaded(thread: Thread, access: ThreadAccess, shift: int, kind: str, state: State) -> Value:
    """Return the value of an integer that was loaded; None for any."""
    size = PTX_BYTES[kind]
    if kind[0] not in "bsu" or size > 8 or "x" in kind:
        return None
    signed = kind[0] == "s" or size >= 4
    found = element(thread, access, access.offset + shift, size, signed=signed)
    if found is not None:
        return found
    low, high = _limits(size, signed)
    if access.base.startswith("%") and is_shared(thread, access.base):
        return thread.shared_value(access, shift, size, (low, high), state.landed)
    return thread.fresh(access.statement, f"loaded{shift}", low, high) if size < 4 else None


def element(thread: Thread, access: ThreadAccess, offset: Term, size: int, *, signed: bool) -> Term | None:
    """Return an integer that an access finds in memory that does not change; None for any other."""
    fact = thread.specification.data.get(access.base)
    if fact is not None and fact.size == size:  # an element as the fact has it, whose bits may be read otherwise
        signed = fact.signed
    if any(factor % size for factor in offset.parts.values()) or not thread.constant(access):
        return None
    place = quotient(offset, size)
    given = fact.value(place) if fact is not None and fact.size == size and (fact.signed or size >= 4) else None
    if given is not None:  # the access is in bounds, which is proved of all of them
        return given
    low, high = _limits(size, signed)
    return thread.specification.arena.atom("load", access.base, (place, size, size < 4 and signed), low, high)


def _limits(size: int, signed: bool) -> tuple[int, int]:
    return (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)


def in_register(thread: Thread, statement: Statement, register: str, value: Value, kind: str, state: State) -> Value:
    """Return a value of a type as a register holds it: a wider one has it extended by zeros, or by its sign."""
    size = PTX_BYTES[kind]
    if not isinstance(value, Term) or PTX_BYTES.get(thread.graph.types.get(register.strip(), ""), size) <= size:
        return value
    return thread.integer(statement, value, kind[0] == "s", 8 * size, state)


def is_shared(thread: Thread, base: str) -> bool:
    """Return True for an array in shared memory."""
    variable = thread.graph.variables.get(base.removeprefix("%"))
    return variable is not None and variable.space == "shared"


def parameter(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute a load of a parameter of the kernel. Raises Unknown for an address that a register holds."""
    found = _ADDRESS.fullmatch(operands[1].strip())
    place = {one.name: i for i, one in enumerate(thread.entry.parameters)}.get(found[1]) if found else None
    if found is None or place is None:
        raise Unknown(statement, "a parameter that an index chooses")
    declared, value = thread.entry.parameters[place], thread.specification.arguments[place]
    kind = statement.opcode.rpartition(".")[2]
    size, start = PTX_BYTES[kind], int(found[3] or 0)
    for i, register in destinations(thread, operands[0]):
        offset = start + i * size
        whole = value is not None and offset == 0 and size == declared.size
        held: Value = value if whole else None
        if held is None and kind[0] in "bsu" and size <= 8:  # the same for all threads
            low, high = -(1 << 8 * size - 1), (1 << 8 * size - 1) - 1
            held = thread.specification.arena.atom("unknown", f"{declared.name}+{offset}.{size}", (), low, high)
        held = in_register(thread, statement, register, held, kind, state)
        thread.assign(statement, state, register, held, guard)


def size_of(thread: Thread, base: str) -> Term | None:
    """Return the bytes of an array, or None if they are unknown."""
    tensor = thread.specification.tensors.get(base)
    if tensor is not None:
        return tensor.count * tensor.element
    variable = thread.graph.variables.get(base.removeprefix("%"))
    if variable is None:
        return None
    if variable.external and variable.space == "shared":
        return thread.specification.shared_bytes
    return term(variable.size) if variable.size else None
