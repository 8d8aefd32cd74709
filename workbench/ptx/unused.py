"""Loads whose values reach nothing in some threads of a block, as Triton's do.

Where a tensor has fewer elements than a block has threads, Triton lets the surplus ones repeat what others do: they
load and compute the same, and a guard made of the thread's number keeps them from storing it. One of them may then load
what another has stored already, which no barrier prevents and which changes nothing: to the checks it is no access.

Each register has the guards under which what is made of it takes effect (in a store), or effects that no guard keeps (a
branch, an address). A load is unused in a lane where all those guards are false; where its value passes through an
instruction that other lanes take part in (a vote, a product of matrices), in a warp where they are false in every lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement, parse_number

_NAME = re.compile(r"[%A-Za-z_$][\w$]*(?:\.[xyz])?")
# What makes a result of its operands and does nothing else, in one lane.
_PURE = frozenset(
    re.findall(
        r"\w+",
        """
        abs add addc and bfe bfi bfind bmsk brev clz copysign cos cvt cvta dp2a dp4a div ex2 fma fns lg2 lop3 mad mad24
        madc max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub
        subc szext tanh testp xor""",
    )
)
_OF_A_WARP = _PURE | {"match", "mma", "movmatrix", "redux", "shfl", "vote"}  # the same in one warp
_EFFECTS = frozenset(("st", "red"))  # nothing where their guard is false
_Known = tuple[np.ndarray, np.ndarray]  # of every thread: a value, and whether it is known
_Guards = frozenset[tuple[str, bool]] | None  # None: effects that no guard keeps


def unused_loads(body: Iterable[object], block: tuple[int, int, int]) -> dict[int, np.ndarray]:
    """By a load's offset in the PTX: for each warp a mask of the lanes in which the value reaches nothing.

    Without loads that are used in every lane.
    """
    statements = [item for item in body if type(item) is Statement]
    if not any(one.guard and _head(one) in _EFFECTS for one in statements):
        return {}
    threads = _Threads(statements, block)
    found: dict[int, np.ndarray] = {}
    for pure in (_PURE, _OF_A_WARP):
        for place, guards in _needs(statements, pure).items():
            if not guards:
                continue
            unused = np.logical_and.reduce([threads.always_false(*guard) for guard in guards])
            if pure is _OF_A_WARP:
                unused = unused.all(axis=1, keepdims=True)
            masks = (unused * (1 << np.arange(32))).sum(axis=1)
            if masks.any():
                found[place] = found.get(place, 0) | masks
    return found


def _head(statement: Statement) -> str:
    return statement.opcode.partition(".")[0]


def _needs(statements: Sequence[Statement], pure: frozenset[str]) -> dict[int, _Guards]:
    """Of every load, by its offset: the guards under which its value takes effect, what is ``pure`` being none."""
    uses = [(one, _head(one), *_accesses(one)) for one in statements]
    needs: dict[str, _Guards] = {}
    changed = True
    while changed:
        changed = False
        for one, head, written, read in reversed(uses):
            own = frozenset(((one.guard, one.negated),)) if one.guard else None
            through = _union(needs, written) if head in pure else own if head in _EFFECTS else None
            names = [*read, one.guard] if one.guard else read
            for name in names:
                known = needs.get(name, frozenset())
                new = None if known is None or through is None else known | through
                if new != known:
                    needs[name], changed = new, True
    return {one.start: _union(needs, written) for one, head, written, _ in uses if head == "ld"}


def _union(needs: Mapping[str, _Guards], names: Iterable[str]) -> _Guards:
    together: frozenset[tuple[str, bool]] = frozenset()
    for name in names:
        found = needs.get(name, frozenset())
        if found is None:
            return None
        together |= found
    return together


def _accesses(statement: Statement) -> tuple[list[str], list[str]]:
    """The names that a statement writes and reads; what is no pure operation and no load writes none."""
    operands = split_operands(statement.operands)
    if not operands or _head(statement) not in _OF_A_WARP | {"ld"}:
        return [], _NAME.findall(statement.operands)
    return _NAME.findall(operands[0]), [name for text in operands[1:] for name in _NAME.findall(text)]


class _Threads:
    """What registers hold in each thread of a block, as far as it follows from the thread's number."""

    def __init__(self, statements: Iterable[Statement], block: tuple[int, int, int]):
        count = block[0] * block[1] * block[2]
        number = np.arange(-(-count // 32) * 32, dtype=np.int64)
        self._all = np.ones(len(number), bool)
        self._values: dict[str, _Known] = {
            "%tid.x": (number % block[0], self._all),
            "%tid.y": (number // block[0] % block[1], self._all),
            "%tid.z": (number // block[0] // block[1], self._all),
            "%laneid": (number % 32, self._all),
        }
        self._made: dict[str, Statement | None] = {}  # None: written in several places
        for one in statements:
            for name in _accesses(one)[0]:
                self._made[name] = one if name not in self._made and one.guard is None else None

    def always_false(self, guard: str, negated: bool) -> np.ndarray:
        """For each warp and lane whether the guard is known to be false."""
        value, known = self._value(guard)
        return (known & (value == int(negated))).reshape(-1, 32)

    def _value(self, text: str) -> _Known:
        if text not in self._values:
            unknown = np.zeros_like(self._values["%laneid"][0]), ~self._all
            self._values[text] = unknown  # for what depends on itself
            number, made = parse_number(text), self._made.get(text)
            if number is not None and not isinstance(number, float):
                self._values[text] = unknown[0] + number, self._all
            elif made is not None:
                self._values[text] = self._result(made) or unknown
        return self._values[text]

    def _result(self, statement: Statement) -> _Known | None:
        name, kind = statement.opcode.split(".")[0], statement.opcode.rsplit(".", 1)[-1]
        operands = split_operands(statement.operands)[1:]
        if kind not in ("pred", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64"):
            return None
        bits = 1 if kind == "pred" else int(kind[1:])
        form = statement.opcode.removesuffix(f".{kind}")
        operation = _OPERATIONS.get(form)
        if operation is None or bits == 64 or len(operands) != operation.__code__.co_argcount:
            return None
        mask = (1 << bits) - 1
        values = [self._value(operand) for operand in operands]
        inputs = [value & mask for value, _ in values]
        if kind[0] == "s":
            inputs = [value - ((value >> (bits - 1)) << bits) for value in inputs]
        made = np.asarray(operation(*inputs)).astype(np.int64) & mask
        known = np.logical_and.reduce([known for _, known in values])
        if name in ("and", "or"):  # one side can decide
            decides = 0 if name == "and" else mask
            sides = [known & (value & mask == decides) for value, known in values]
            made = np.where(sides[0] | sides[1], decides, made)
            known = known | sides[0] | sides[1]
        return made, known


# By the opcode without its type. Operands are integers of the type's width, less than 64 bits.
_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "mov": lambda a: a,
    "not": lambda a: ~a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "shl": lambda a, b: np.where(b < 32, a << np.minimum(b, 31), 0),
    "shr": lambda a, b: a >> np.minimum(b, 31),
    "setp.eq": lambda a, b: a == b,
    "setp.ne": lambda a, b: a != b,
    "setp.lt": lambda a, b: a < b,
    "setp.le": lambda a, b: a <= b,
    "setp.gt": lambda a, b: a > b,
    "setp.ge": lambda a, b: a >= b,
}
