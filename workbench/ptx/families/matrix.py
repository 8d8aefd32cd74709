"""Matrix products of a warp: mma.sync, and wmma, which is made of mma.

The PTX ISA leaves the fragments of wmma opaque. Here they are those of the mma instructions that ptxas makes of wmma on
sm_75 and newer (H. Ootomo and R. Yokota, *wmma_extension*, documents them for m16n16k16): a product of 16 x 16, 32 x 8
or 8 x 32 is two products of 16 x 8, for 8 x 32 with A and B exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from workbench.ptx.families import block_scale, sparse
from workbench.ptx.families.memory import place
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    destination,
    elementwise,
    expect,
    opcode,
    result,
    source,
    vector,
)
from workbench.ptx.machine import ADDRESS, FLAGS, core
from workbench.ptx.operands import Operand, Refused, Register, Symbols

_PRODUCT, _FRAGMENT = core.Product, core.Fragment
_Value = TypeVar("_Value", bound=Operand)
_DOUBLE_STEPS = {f"m16n8k{4 * steps}": steps for steps in (1, 2, 4)}


def mma(parts: list[str]) -> Plan:
    """Plan ``mma.sync.aligned.shape.row.col{.kind}{.satfinite}.D.A.B.C{.xor|.and.popc}``.

    The operands give the register counts. Compilers write the kind before the shape, too.
    """
    if "sp" in parts or any(part.startswith("sp::") for part in parts):
        return sparse.plan(parts)
    if "block_scale" in parts:
        return block_scale.plan(parts)
    if "kind::f8f6f4" in parts:
        parts = [part for part in parts if part != "kind::f8f6f4"]
        if parts[3] != "m16n8k32" or len(parts) != 10 or not {*parts[7:9]} <= {*block_scale.FACTORS}:
            raise Refused("mma with .kind::f8f6f4 takes m16n8k32 and factors of .e4m3, .e5m2, .e3m2, .e2m3, .e2m1")
    elif {*block_scale.NARROW} & {*parts}:
        raise Refused("mma with factors of 4 or 6 bits needs .kind::f8f6f4, or .block_scale and its kind")
    if parts[1:3] != ["sync", "aligned"] or parts[4:6] != ["row", "col"]:
        raise Refused("the machine supports mma.sync.aligned with A by rows and B by columns only")
    rest = parts[6:]
    if rest == ["f64"] * 4 and parts[3] in _DOUBLE_STEPS:
        return _tall_doubles(_DOUBLE_STEPS[parts[3]])
    operation = rest[4:] if rest[-1] == "popc" else []
    saturating = ["satfinite"] if rest[0] == "satfinite" else []
    row = opcode(".".join(["mma", parts[3], *operation, *saturating, *rest[len(saturating) : len(saturating) + 4]]))
    if len(rest) != len(saturating) + 4 + len(operation):
        raise Refused("the machine does not support this mma")
    width = 8 if rest[0] == "f64" else 4

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 4)
        fragments = [vector(operand) for operand in operands]
        for limit, tokens in zip((4, 4, 2, 4), fragments, strict=True):
            if len(tokens) > limit:
                raise Refused(f"{len(tokens)} registers in a fragment, where at most {limit} belong")
        d = [result(symbols, token, width) for token in fragments[0]]
        kind = "f64" if width == 8 else "f32"
        a, b, c = ([source(symbols, token, kind, width) for token in tokens] for tokens in fragments[1:])
        return _product(row.name, d, a, b, c)

    return bind


def _tall_doubles(steps: int) -> Plan:
    """Return the plan of a Hopper mma of f64: two halves of eight rows, each a chain of products of 8 x 8 x 4."""

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 4)
        fragments = [vector(operand) for operand in operands]
        for wanted, tokens in zip((4, 2 * steps, steps, 4), fragments, strict=True):
            if len(tokens) != wanted:
                raise Refused(f"{len(tokens)} registers for a fragment of {wanted}")
        d = [result(symbols, token, 8) for token in fragments[0]]
        a, b, c = ([source(symbols, token, "f64", 8) for token in tokens] for tokens in fragments[1:])
        sums: list[list[Operand]] = [c[:2], c[2:]]
        pieces = []
        for step in range(steps):
            last = step == steps - 1
            targets = [d[:2], d[2:]] if last else [[symbols.temporary(8) for _ in range(2)] for _ in range(2)]
            pieces += [_Product(targets[i], [a[2 * step + i]], [b[step]], sums[i]) for i in range(2)]
            sums = [[*target] for target in targets]
        name = "mma.m8n8k4.f64.f64.f64.f64"
        return [_product(name, *piece) for piece in pieces[:-2]] + _in_order(symbols, name, pieces[-2:])

    return bind


def _product(
    name: str, d: Sequence[Register], a: Sequence[Operand], b: Sequence[Operand], c: Sequence[Operand]
) -> Instruction:
    slots = {
        first + i: operand
        for first, fragment in ((_PRODUCT.d, d), (_PRODUCT.a, a), (_PRODUCT.b, b), (_PRODUCT.c, c))
        for i, operand in enumerate(fragment)
    }
    return Instruction(opcode(name), slots, tuple(d))


# ---- wmma ----

_SHAPES = {
    "m16n16k16": ("f16", "bf16", "s8", "u8"), "m32n8k16": ("f16", "bf16", "s8", "u8"),
    "m8n32k16": ("f16", "bf16", "s8", "u8"), "m16n16k8": ("tf32",), "m8n8k4": ("f64",), "m8n8k32": ("s4", "u4"),
    "m8n8k128": ("b1",),
}  # fmt: skip
_SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}  # integers: s32
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "s32": 32,
    "f64": 64,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
_REPEATED = 255


class Fragment(NamedTuple):
    """Layout of a fragment's elements in registers (see core/matrices/matrix_memory.cpp).

    ``places`` has the row and column that each bit of a register's number adds.
    """

    places: tuple[tuple[int, int], ...]
    parts: int
    bits: int
    step: int
    by_row: bool
    leading: int

    @property
    def registers(self) -> int:
        """Number of registers that hold the fragment."""
        return 1 << len(self.places)


def _extents(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def fragment(role: str, shape: str, type_name: str, layout: str) -> Fragment:
    """Return the fragment of one operand, with ``role`` a, b, c or d.

    Raises Refused for a combination that PTX does not have.
    """
    factors = _SHAPES.get(shape, ())
    sums = {total for factor in factors for total in _SUMS.get(factor, ("s32",))}
    if type_name not in (factors if role in "ab" else sums) or layout not in ("row", "col"):
        raise Refused(f"wmma has no {role.upper()} of .{type_name} in .{shape}")
    m, n, k = _extents(shape)
    exchanged = (m, n) == (8, 32)
    bits = _BITS[type_name]
    parts = max(1, 32 // bits)
    if role in "ab":
        rows, reach = (m if role == "a" else n), 4 * parts
        inner = [(0, reach)] if k > reach else []
        if (role == "a") != exchanged:  # the left factor of mma: rows in pairs of eight, then along k
            outer = [[(8, 0)], [(16, 0)]]
            places = (outer[0] if rows > 8 else []) + inner + (outer[1] if rows > 16 else [])
        else:
            places = inner + ([(8, 0)] if rows > 8 else [])
        if type_name == "f16":  # always eight registers
            places += [(_REPEATED, 0)] * (3 - len(places))
        by_row = layout == ("row" if role == "a" else "col")
        if bits < 8 and not by_row:
            raise Refused("wmma takes factors of less than a byte with A by rows and B by columns only")
        leading = {"arow": k, "acol": m, "brow": n, "bcol": k}[role + layout]
        return Fragment(tuple(places), parts, bits, parts, by_row, leading)
    places = [(0, 1)] if parts == 1 else []
    if max(m, n) > 8:
        places += [(8, 0), (0, 8) if (m, n) == (16, 16) else (16, 0)]
    return Fragment(tuple(places), parts, bits, 2, (layout == "row") != exchanged, n if layout == "row" else m)


def wmma(parts: list[str]) -> Plan:
    """Plan wmma.load, wmma.store and wmma.mma."""
    if parts[1] == "mma":
        return _wmma_product(parts)
    role, layout, shape, type_name = parts[2], parts[5], parts[6], parts[-1]
    space = parts[7].split("::")[0] if len(parts) == 9 else "generic"
    roles = {"load": "abc", "store": "d"}.get(parts[1], "")
    if role not in roles or parts[3:5] != ["sync", "aligned"] or space not in ("generic", "global", "shared"):
        raise Refused("the machine does not support this wmma")
    shaped = fragment(role, shape, type_name, layout)
    width = 8 if type_name == "f64" else 4
    row = opcode(f"wmma.{parts[1]}.{space}.b{8 * width}")
    is_load = parts[1] == "load"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2, 3)
        data, where = operands[:2] if is_load else (operands[1], operands[0])
        tokens = vector(data)
        if len(tokens) != shaped.registers:
            raise Refused(f"{len(tokens)} registers for a fragment of {shaped.registers}")
        kind = "f64" if width == 8 else "f32"
        targets = [destination(symbols, token, width) for token in tokens] if is_load else []
        values: Sequence[Operand] = targets or [source(symbols, token, kind, width) for token in tokens]
        slots: dict[int, Operand] = dict(enumerate(values, _FRAGMENT.data))
        address = symbols.address(where)
        flags = place(symbols, address, slots, ADDRESS, space)
        raw = {FLAGS: flags}
        if len(operands) == 3:
            slots[_FRAGMENT.stride] = source(symbols, operands[2], "u32", 4)
        rows, columns = (sum(each[i] << 8 * bit for bit, each in enumerate(shaped.places)) for i in (0, 1))
        raw |= {
            _FRAGMENT.rows: rows, _FRAGMENT.columns: columns, _FRAGMENT.by_row: int(shaped.by_row),
            _FRAGMENT.parts: shaped.parts, _FRAGMENT.bits: shaped.bits, _FRAGMENT.leading: shaped.leading,
            _FRAGMENT.step: shaped.step,
        }  # fmt: skip
        access = shaped.bits * shaped.parts * (shaped.step // shaped.parts if shaped.by_row else 1)
        size = access // 8 if shaped.by_row else shaped.bits // 8
        return Instruction(row, slots, tuple(targets), raw, address.offset, len(values), size)

    return bind


def _wmma_product(parts: list[str]) -> Plan:
    operation = parts[2:4] if parts[3] == "popc" else []
    rest = parts[2 + len(operation) :]
    if rest[:2] != ["sync", "aligned"]:
        raise Refused("the machine does not support this wmma")
    layouts, shape, types = rest[2:4], rest[4], [part for part in rest[5:] if part not in ("satfinite", "rn")]
    if len(types) == 2:  # PTX does not spell out f16 factors
        types = [types[0], "f16", "f16", types[1]]
    saturating = ["satfinite"] if "satfinite" in rest else []
    if saturating and types[0] != "s32":
        raise Refused("wmma of floating point with .satfinite, which is deprecated in PTX: leave out .satfinite")
    d, a, b, c = (fragment(*each) for each in zip("dabc", [shape] * 4, types, ["row", *layouts, "row"], strict=True))
    m, n, k = _extents(shape)
    tiles = 2 if max(m, n) > 8 else 1
    name = f"m16n8k{k}" if tiles == 2 else shape
    row = opcode(".".join(["mma", name, *operation, *saturating, *types]))
    width = 8 if types[0] == "f64" else 4

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 4)
        kind = "f64" if width == 8 else "f32"
        fragments: list[list[str]] = []
        for shaped, operand in zip((d, a, b, c), operands, strict=True):
            tokens = vector(operand)
            if len(tokens) != shaped.registers:
                raise Refused(f"{len(tokens)} registers for a fragment of {shaped.registers}")
            fragments.append(tokens[: 1 << sum(row != _REPEATED for row, _ in shaped.places)])
        results = [destination(symbols, token, width) for token in fragments[0]]
        left, right, added = ([source(symbols, t, kind, width) for t in tokens] for tokens in fragments[1:])
        if (m, n) == (8, 32):
            left, right = right, left
        pieces = [
            _Product(
                _piece(results, i, tiles),
                _piece(left, i, tiles if m != n else 1),
                _piece(right, i, tiles if m == n else 1),
                _piece(added, i, tiles),
            )
            for i in range(tiles)
        ]
        return _in_order(symbols, row.name, pieces)

    return bind


class _Product(NamedTuple):
    d: list[Register]
    a: list[Operand]
    b: list[Operand]
    c: list[Operand]


def _piece(values: list[_Value], tile: int, tiles: int) -> list[_Value]:
    size = len(values) // tiles
    return values[(tile % tiles) * size : (tile % tiles + 1) * size]


def _in_order(symbols: Symbols, name: str, pieces: list[_Product]) -> list[Instruction]:
    """Return one mma after the other.

    A result that a later mma still reads as a factor goes to a temporary register first.
    """
    moves: list[Instruction] = []
    for i, (d, *_) in enumerate(pieces):
        later = [operand for piece in pieces[i + 1 :] for operand in (*piece.a, *piece.b, *piece.c)]
        for j, target in enumerate(d):
            if any(operand is target for operand in later):
                d[j] = symbols.temporary(target.width)
                moves.append(elementwise(opcode(f"mov.b{8 * target.width}"), target, d[j]))
    return [_product(name, *piece) for piece in pieces] + moves


def movmatrix(parts: list[str]) -> Plan:
    """Plan ``movmatrix.sync.aligned.m8n8.trans.b16 d, a;``."""
    if parts[1:] != ["sync", "aligned", "m8n8", "trans", "b16"]:
        raise Refused("the machine does not support this movmatrix")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], 4)
        return elementwise(opcode("movmatrix.trans"), target, source(symbols, operands[1], "b32", 4))

    return bind


FAMILY = {"mma": mma, "wmma": wmma, "movmatrix": movmatrix}
