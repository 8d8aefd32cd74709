"""ld, st, atom, red, cp.async, ldmatrix, stmatrix, and the hints that change no value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families.refused import SHAPES, WIDE_ATOMICS
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    SinglePlan,
    destination,
    elementwise,
    expect,
    opcode,
    result,
    source,
    unless_sink,
    vector,
)
from workbench.ptx.machine import (
    ACQUIRE,
    ADDRESS,
    BLOCK_SCOPE,
    CLUSTER_BASE,
    FLAGS,
    NARROW_BASE,
    OPCODES,
    RELEASE,
    STRONG,
    VOLATILE,
    WIDE_BASE,
    core,
)
from workbench.ptx.operands import Address, Constant, Operand, Refused, Symbols

_SPACES = {"global", "shared", "local", "const", "param", "shared::cta", "param::entry", "param::func"}
_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
# Flags that some of them add to STRONG.
_ORDERS = {
    "release": RELEASE, "acq_rel": RELEASE | ACQUIRE, "acquire": ACQUIRE, "volatile": VOLATILE,
}  # fmt: skip
_HINTS = {"weak", "nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "cta", "gpu", "sys", "cluster", "aligned", "unified"}


def _known(part: str) -> bool:
    return part in _HINTS or part in _STRONG or part.startswith(("L1::", "L2::"))


def place(symbols: Symbols, address: Address, slots: dict[int, Operand], slot: int, space: str) -> int:
    """Put an address' base into ``slot``; return the flag of its register width."""
    base = slots[slot] = address.base
    if base.width == 4:
        if space in ("global", "generic", "constant"):
            raise Refused("a 32-bit register as a global address")
        return NARROW_BASE
    return WIDE_BASE


def _access(parts: list[str], is_load: bool) -> SinglePlan:
    type_name = parts[-1]
    if type_name == "b128":  # two halves, in one access
        return _wide(_access([*parts[:-1], "v2", "b64"], is_load), is_load)
    if type_name not in PTX_BYTES or PTX_BYTES[type_name] == 0:
        raise Refused("the machine does not support this access")
    size, space, elements, strong = PTX_BYTES[type_name], "generic", 1, 0
    for part in parts[1:-1]:
        if part == "shared::cluster":
            strong |= CLUSTER_BASE
        elif part in _SPACES:
            space = part.split("::")[0]
        elif part in ("v2", "v4", "v8"):
            elements = int(part[1:])
        elif not _known(part):
            raise Refused(f".{part} in an access, which does not take it")
        elif part in _STRONG:
            strong |= STRONG | _ORDERS.get(part, 0)
        elif part == "cta":
            strong |= BLOCK_SCOPE
    sign = "s" if is_load and type_name[0] == "s" and size < 8 else "u"
    if space == "const" and not is_load:
        raise Refused("a store to constant memory")
    table_space = "constant" if space == "const" else space
    hinted = "L2::cache_hint" in parts

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3 if hinted else 2)
        data, where = (operands[0], operands[1]) if is_load else (operands[1], operands[0])
        tokens = vector(data)
        if len(tokens) != elements:
            raise Refused(f"{len(tokens)} values for {elements} elements")
        into = [unless_sink(symbols, token) for token in tokens] if is_load else []
        values: Sequence[Operand | None] = into or [_widened(source(symbols, token, type_name)) for token in tokens]
        widths = {value.width for value in values if value is not None}
        if len(widths) > 1 or (widths and min(widths) < size):
            raise Refused("registers of different or too small widths")
        width = widths.pop() if widths else max(size, 2)
        kind = sign if width > size else "u"
        address = symbols.address(where)
        slots: dict[int, Operand] = {}
        raw: dict[int, int] = {}
        slots.update({i: value for i, value in enumerate(values, core.Access.data) if value is not None})
        targets = tuple(register for register in into if register is not None)
        tail = f"{kind}{8 * size}/{8 * width}"
        if is_load and space == "param" and address.parameter is not None:
            offset = address.parameter.offset + address.offset
            return Instruction(opcode(f"ld.param.direct.{tail}"), slots, targets, raw, offset, elements, size)
        # Parameters of calls, unlike those of the kernel, lie in local memory.
        where_to = (
            "local" if space == "param" and (symbols.in_function or not _of_kernel(symbols, where)) else table_space
        )
        if not is_load and where_to == "param":
            raise Refused("a store to a parameter of the kernel")
        base = "shared" if strong & CLUSTER_BASE else where_to
        raw[FLAGS] = strong | place(symbols, address, slots, ADDRESS, base)
        row = opcode(f"{'ld' if is_load else 'st'}.{where_to}.{tail}")
        return Instruction(row, slots, targets, raw, address.offset, elements, size)

    return bind


def _widened(value: Operand) -> Operand:
    """Return a constant of one byte as one of two, as no register is narrower; other operands as they are."""
    return Constant(2, value.value) if isinstance(value, Constant) and value.width == 1 else value


def _wide(halves: SinglePlan, is_load: bool) -> SinglePlan:
    """Plan an access to a 128-bit register, by the plan of its two halves."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        at = 0 if is_load else 1
        low, high = symbols.halves(operands[at])
        return halves(symbols, [*operands[:at], f"{{{low}, {high}}}", *operands[at + 1 :]])

    return bind


def _of_kernel(symbols: Symbols, token: str) -> bool:
    """Return True if an address in .param space leads to the kernel's parameters; one in a register does."""
    name = token.strip("[] ").split("+")[0].split("-")[0].strip()
    return name not in symbols.local


def load(parts: list[str]) -> Plan:
    """Plan ``ld{.modifiers}{.space}{.vec}.type d, [a];``."""
    return _access(parts, True)


def store(parts: list[str]) -> Plan:
    """Plan ``st{.modifiers}{.space}{.vec}.type [a], b;`` and ``st.bulk``."""
    return _fill(parts) if parts[1] == "bulk" else _access(parts, False)


def _fill(parts: list[str]) -> Plan:
    """Plan ``st.bulk{.weak}{.shared::cta} [a], size, 0;``."""
    rest = [part for part in parts[2:] if part != "weak"]
    if rest not in ([], ["shared"], ["shared::cta"]):
        raise Refused(f".{rest[0]} in st.bulk, which takes .weak and .shared::cta")
    space = "shared" if rest else "generic"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3)
        if int(operands[2], 0):
            raise Refused(f"st.bulk of the value {operands[2]}: PTX has 0 alone")
        size = source(symbols, operands[1], "b64")
        address = symbols.address(operands[0])
        slots: dict[int, Operand] = {core.Access.data: size}
        raw = {FLAGS: place(symbols, address, slots, ADDRESS, space)}
        return Instruction(opcode(f"st.bulk.{space}.b{8 * size.width}"), slots, (), raw, address.offset, 1, 8)

    return bind


_OPERATIONS = {"add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"}
_SIGNLESS = {"add", "and", "or", "xor", "exch", "cas"}


def atomic(parts: list[str]) -> Plan:
    """Plan atom and red; the host's sequentially consistent atomics satisfy all scopes and orders."""
    # The type of a vector may stand before the operation.
    type_name = next((part for part in parts[1:] if part in PTX_BYTES), "")
    space, operation, elements = "generic", None, 1
    base = CLUSTER_BASE if "shared::cluster" in parts else 0
    for part in parts[1:]:
        if part in ("shared::cluster", type_name):
            continue
        if part in _SPACES:
            space = part.split("::")[0]
        elif part in _OPERATIONS:
            operation = part
        elif part in ("v2", "v4", "v8"):
            elements = int(part[1:])
        elif not (_known(part) or part == "noftz"):
            raise Refused(f".{part} in an atomic, which does not take it")
    if type_name == "b128" and (operation not in ("exch", "cas") or parts[0] == "red"):
        raise Refused(WIDE_ATOMICS)
    if operation is None or not type_name:
        raise Refused("the machine does not support this atomic")
    if operation in ("min", "max") and "f" in type_name and elements == 1:
        raise Refused(f"PTX has .{operation} of .{type_name} for vectors alone: use .v2 and more")
    size, kind = PTX_BYTES[type_name], type_name
    if operation in _SIGNLESS and kind[0] in "su":
        kind = f"b{kind[1:]}"
    if operation in ("exch", "cas") and kind[0] == "f":
        kind = f"b{8 * size}"
    row = opcode(f"atom.{space}.{operation}.{kind}")
    is_red, second = parts[0] == "red", operation == "cas"
    strong = STRONG | base | (BLOCK_SCOPE if "cta" in parts else 0)
    for part in parts:
        strong |= _ORDERS.get(part, 0)
    hinted = "L2::cache_hint" in parts

    def bind(symbols: Symbols, operands: list[str]) -> Instruction | list[Instruction]:
        operands = operands[:-1] if hinted else operands
        if is_red:
            operands = ["_", *operands]
        expect(operands, 4 if second else 3)
        if elements == 1:
            return one(symbols, operands, 0)
        targets, values = ["_"] * elements if is_red else vector(operands[0]), vector(operands[2])
        if len(targets) != elements or len(values) != elements:
            raise Refused(f"{len(values)} values for {elements} elements")
        return [one(symbols, [targets[i], operands[1], values[i]], i * size) for i in range(elements)]

    def one(symbols: Symbols, operands: list[str], further: int) -> Instruction:
        """Bind the atomic on one element, ``further`` bytes from the address."""
        at, slots, targets = core.Atomic, dict[int, Operand](), []
        wanted = [(operands[2], at.operand, at.operand_high)]
        if second:
            wanted.append((operands[3], at.second, at.second_high))
        for token, *columns in wanted:
            names = symbols.halves(token) if size == 16 else (token,)
            for column, name in zip(columns, names, strict=False):
                slots[column] = source(symbols, name, "b64" if size == 16 else type_name, min(size, 8))
        names = (operands[0],) if size < 16 or operands[0] == "_" else symbols.halves(operands[0])
        for column, name in zip((at.old, at.old_high), names, strict=False):
            target = unless_sink(symbols, name, min(size, 8))
            if target is not None:
                slots[column] = target
                targets.append(target)
        address = symbols.address(operands[1])
        raw = {FLAGS: strong | place(symbols, address, slots, ADDRESS, "shared" if base else space)}
        return Instruction(row, slots, tuple(targets), raw, address.offset + further, 1, size)

    return bind


def copy(parts: list[str]) -> Plan:
    """Plan cp.async and its groups; `bulk.bulk` plans the bulk forms."""
    if parts[1] != "async":
        raise Refused("the machine does not support this copy")
    if parts[2] in ("commit_group", "wait_group", "wait_all"):
        row, counted = opcode(f"cp.async.{parts[2]}"), parts[2] == "wait_group"
        fixed = -1 if parts[2] == "wait_all" else 0

        def bind_group(symbols: Symbols, operands: list[str]) -> Instruction:
            return Instruction(row, {}, imm=int(operands[0], 0) if counted else fixed)

        return bind_group
    row = opcode("cp.async")
    hinted = "L2::cache_hint" in parts

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        operands = operands[:-1] if hinted else operands
        expect(operands, 3, 4)
        to, from_ = symbols.address(operands[0]), symbols.address(operands[1])
        size = int(operands[2], 0)
        if size not in (4, 8, 16):
            raise Refused(f"a copy of {size} bytes, which may have 4, 8 or 16")
        slots: dict[int, Operand] = {}
        raw = {core.AsyncCopy.offset: to.offset, FLAGS: place(symbols, from_, slots, ADDRESS, "global")}
        raw[core.AsyncCopy.flags] = place(symbols, to, slots, core.AsyncCopy.destination, "shared")
        if len(operands) == 4:
            extra = source(symbols, operands[3], "b32")
            slots[core.AsyncCopy.ignored if extra.width == 0 else core.AsyncCopy.size] = extra
        return Instruction(row, slots, (), raw, from_.offset, 1, size)

    return bind


_ELEMENTS = {"b8": "b8", "b8x16.b6x16_p32": "b6", "b8x16.b4x16_p64": "b4"}  # in memory


def _matrix_row(parts: list[str]) -> tuple[str, int]:
    """Return the name of the row of an ldmatrix or stmatrix, and its number of registers."""
    shapes, counts = ("m8n8", "m16n16", "m8n16", "m16n8"), ("x1", "x2", "x4")  # compilers write them in either order
    shape, count = (next((part for part in parts if part in some), "") for some in (shapes, counts))
    trans = "trans" in parts
    kept = [part for part in parts[1:] if part not in (shape, count, "trans", "shared", "shared::cta")]
    if kept[:2] != ["sync", "aligned"] or not count:
        raise Refused(SHAPES)
    elements = ".".join(kept[2:])
    if shape == "m8n8" and elements == "b16":
        return parts[0] + (".trans" if trans else ""), int(count[1:])
    name = f"{parts[0]}.{shape}{'.trans' if trans else ''}.{_ELEMENTS.get(elements)}"
    if name not in OPCODES:
        raise Refused(SHAPES)
    return name, int(count[1:]) * (2 if shape == "m16n16" else 1)


def matrix(parts: list[str]) -> Plan:
    """Plan ``ldmatrix`` and ``stmatrix``, with one, two or four matrices."""
    name, count = _matrix_row(parts)
    row = opcode(name)
    if count > 4:
        raise Refused("16 x 16 matrices come one or two at a time: use .x1 or .x2")
    is_load = parts[0] == "ldmatrix"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        data, where = operands if is_load else reversed(operands)
        tokens = vector(data)
        if len(tokens) != count:
            raise Refused(f"{len(tokens)} registers, where {count} belong")
        targets = tuple(result(symbols, token, 4) for token in tokens) if is_load else ()
        values: Iterable[Operand] = targets or (source(symbols, token, "b32", 4) for token in tokens)
        slots: dict[int, Operand] = dict(enumerate(values, core.Access.data))
        address = symbols.address(where)
        raw = {FLAGS: place(symbols, address, slots, ADDRESS, "shared")}
        return Instruction(row, slots, targets, raw, address.offset, count, 16)

    return bind


def hint(parts: list[str]) -> Plan:
    """Plan prefetches and cache policies, which change no value."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(opcode("nop"), {})

    return bind


def policy(parts: list[str]) -> Plan:
    """Plan ``createpolicy``: a number for use in hints, here 0."""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        target = destination(symbols, operands[0], 8)
        return elementwise(opcode("mov.b64"), target, Constant(8, 0))

    return bind


FAMILY = {
    "ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic, "ldmatrix": matrix,
    "stmatrix": matrix, "prefetch": hint, "prefetchu": hint, "applypriority": hint, "discard": hint,
    "createpolicy": policy,
}  # fmt: skip
