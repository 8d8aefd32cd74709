"""Conditions on the lanes of a warp, such as ``s > 1e30 and lane == 3``, parsed for the core."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workbench.errors import ArgumentError
from workbench.launch.debug.register_types import OPERATIONS, read_as
from workbench.ptx.machine import core

_OP = core.ConditionOp
Row = tuple[object, int, float, int]
"""A step of the core: what it does, a slot, and a number as the sum of a float and an integer."""

_REGISTER = re.compile(r"%([A-Za-z_$][\w$]*\d[\w$]*|p\d+)")
_STAND_IN = "register_of_ptx_"
_BINARY = {
    ast.Add: _OP.add, ast.Sub: _OP.subtract, ast.Mult: _OP.multiply, ast.Div: _OP.divide,
    ast.FloorDiv: _OP.floor_divide, ast.Mod: _OP.modulo, ast.BitAnd: _OP.bit_and, ast.BitOr: _OP.bit_or,
    ast.BitXor: _OP.bit_xor, ast.LShift: _OP.shift_left, ast.RShift: _OP.shift_right,
}  # fmt: skip
_COMPARED = {
    ast.Lt: _OP.less, ast.LtE: _OP.less_equal, ast.Gt: _OP.greater, ast.GtE: _OP.greater_equal,
    ast.Eq: _OP.equal, ast.NotEq: _OP.not_equal,
}  # fmt: skip
_OF_ONE = {"isnan": _OP.is_nan, "isinf": _OP.is_inf, "abs": _OP.absolute}
_OF_TWO = {"min": _OP.minimum, "max": _OP.maximum}
_PLACES = {"lane": _OP.lane, "warp": _OP.warp, "block": _OP.block}
_CONSTANTS = {"nan": float("nan"), "inf": float("inf"), "NAN": float("nan"), "INFINITY": float("inf")}
_MOST_DEPTH: int = core.CONDITION_DEPTH
_ALLOWED = (
    "comparisons, and, or, not and arithmetic of registers (%f3), variables, lane, warp, block, thread, threadIdx.x, "
    "blockIdx.x, isnan(), isinf(), abs(), min(), max(), and f32(%r3) and the like"
)


@dataclass(frozen=True, slots=True)
class RegisterAt:
    """A register as a condition reads it at an instruction."""

    slot: int
    type: str


Lookup = Callable[[str], RegisterAt]
"""Returns the register of a name; raises ArgumentError where none has a value."""


@dataclass(frozen=True)
class LaneCondition:
    """A parsed condition; `rows` binds its names to the slots of one instruction."""

    text: str
    tree: ast.expr
    block: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def names(self) -> list[str]:
        """Names of registers and variables in it, in order."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        known = {*_PLACES, *_OF_ONE, *_OF_TWO, *_CONSTANTS, *OPERATIONS, "thread", "threadIdx", "blockIdx"}
        return list(dict.fromkeys(_name(node) for node in nodes if node.id not in known))

    def rows(self, lookup: Lookup) -> list[Row]:
        """Return the steps of the core for it."""
        return [*_Compiler(self, lookup).of(self.tree)]


def parse_condition(text: str, block: tuple[int, int, int], grid: tuple[int, int, int]) -> LaneCondition:
    """Parse a condition for blocks and grids of these shapes. Raises ArgumentError for text that is none."""
    stood_in = _REGISTER.sub(lambda found: _STAND_IN + found[1].replace("$", "_dollar_"), text)
    stood_in = stood_in.replace("&&", " and ").replace("||", " or ")
    stood_in = re.sub(r"!(?!=)", " not ", stood_in).strip()
    try:
        tree = ast.parse(stood_in, mode="eval").body
    except SyntaxError as error:
        at = (error.offset or 1) - 1
        raise _refused(text, f"what stands at {stood_in[at : at + 12]!r} does not parse") from None
    condition = LaneCondition(text, tree, block, grid)
    rows = condition.rows(lambda name: RegisterAt(0, "f32"))
    if _depth(rows) > _MOST_DEPTH:
        raise _refused(text, f"it needs more than {_MOST_DEPTH} values at a time")
    return condition


def _refused(text: str, reason: str) -> ArgumentError:
    return ArgumentError("condition", repr(text), _ALLOWED, f"Write it otherwise: {reason}.")


def _name(node: ast.Name) -> str:
    if node.id.startswith(_STAND_IN):
        return "%" + node.id.removeprefix(_STAND_IN).replace("_dollar_", "$")
    return node.id


def _depth(rows: list[Row]) -> int:
    depth = most = 0
    for op, *_ in rows:
        if op < _OP.add:
            depth += 1
        elif op not in (_OP.negate, _OP.absolute, _OP.invert, _OP.is_nan, _OP.is_inf):
            depth -= 1
        most = max(most, depth)
    return most


def _number(value: float) -> Row:
    if isinstance(value, int):
        high = value >> 62 << 62 if abs(value) >> 62 else 0
        return (_OP.number, 0, float(high), value - high)
    return (_OP.number, 0, float(value), 0)


class _Compiler:
    def __init__(self, condition: LaneCondition, lookup: Lookup):
        self.condition, self.lookup = condition, lookup

    def of(self, node: ast.expr) -> Iterator[Row]:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                yield _number(value)
            case ast.Name(id=name) if name in _PLACES:
                yield (_PLACES[name], 0, 0.0, 0)
            case ast.Name(id=name) if name in _CONSTANTS:
                yield _number(_CONSTANTS[name])
            case ast.Name(id="thread"):
                yield from self._thread()
            case ast.Name():
                yield self._register(_name(node))
            case ast.Attribute(value=ast.Name(id="threadIdx" | "blockIdx" as which), attr="x" | "y" | "z" as axis):
                yield from self._coordinate(which, "xyz".index(axis))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                yield from (*self.of(left), *self.of(right), _step(_BINARY[type(op)]))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield from (*self.of(operand), _step(_OP.negate))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from (*self.of(operand), _step(_OP.invert))
            case ast.BoolOp(op=op, values=values):
                yield from self.of(values[0])
                for part in values[1:]:
                    yield from (*self.of(part), _step(_OP.both if isinstance(op, ast.And) else _OP.either))
            case ast.Compare():
                yield from self._compared(node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                yield from self._called(name, args)
            case _:
                raise _refused(self.condition.text, f"{ast.unparse(node)!r} is none of these")

    def _compared(self, node: ast.Compare) -> Iterator[Row]:
        sides = [node.left, *node.comparators]
        for number, op in enumerate(node.ops):
            if type(op) not in _COMPARED:
                raise _refused(self.condition.text, f"{ast.unparse(node)!r} is no comparison of numbers")
            yield from (*self.of(sides[number]), *self.of(sides[number + 1]), _step(_COMPARED[type(op)]))
            if number:
                yield _step(_OP.both)

    def _called(self, name: str, args: list[ast.expr]) -> Iterator[Row]:
        if name in _OF_ONE and len(args) == 1:
            yield from (*self.of(args[0]), _step(_OF_ONE[name]))
        elif name in _OF_TWO and len(args) == 2:
            yield from (*self.of(args[0]), *self.of(args[1]), _step(_OF_TWO[name]))
        elif name in OPERATIONS and len(args) == 1 and isinstance(args[0], ast.Name):
            yield (OPERATIONS[name], self.lookup(_name(args[0])).slot, 0.0, 0)
        else:
            raise _refused(self.condition.text, f"there is no {name}() of {len(args)} values")

    def _register(self, name: str) -> Row:
        found = self.lookup(name)
        return (OPERATIONS[read_as(found.type)], found.slot, 0.0, 0)

    def _thread(self) -> Iterator[Row]:
        yield from (_step(_OP.warp), _number(32), _step(_OP.multiply), _step(_OP.lane), _step(_OP.add))

    def _coordinate(self, which: str, axis: int) -> Iterator[Row]:
        in_block = which == "threadIdx"
        shape = self.condition.block if in_block else self.condition.grid
        yield from self._thread() if in_block else (_step(_OP.block),)
        for size in shape[:axis]:
            yield from (_number(size), _step(_OP.floor_divide))
        yield from (_number(shape[axis]), _step(_OP.modulo))


def _step(op: object) -> Row:
    return (op, 0, 0.0, 0)
