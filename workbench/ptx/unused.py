"""Loads whose values reach nothing in some threads of a block, as Triton's do.

If a tensor has fewer elements than a block has threads, Triton lets the surplus threads repeat the work of others: they
load and compute the same, and a guard made of the thread's number keeps them from storing it. One of them may then load
what another has stored already, which no barrier prevents and which changes nothing. To the checks such a load is no
access.

For each register this module finds the threads in which its value takes effect: in a store whose guard is not known to
be false there, in an address, or in an instruction that threads execute together. A branch takes effect where the code
that depends on it does: the values made, and the effects, between it and the place where its ways meet again (control
dependence, as J. Ferrante et al. define it in *The program dependence graph and its use in optimization*, 1987). A
shuffle passes on the use that the lanes that read from a lane make of it. A set of threads is an integer with a bit for
each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Label, Statement, parse_number

_NAME = re.compile(r"[%A-Za-z_$][\w$]*(?:\.[xyz])?")
# Instructions that make a result of one lane's operands and do nothing else.
PURE = frozenset(
    re.findall(
        r"\w+",
        """
        abs add addc and bfe bfi bfind bmsk brev clz copysign cos cvt cvta dp2a dp4a div ex2 fma fns lg2 lop3 mad mad24
        madc max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub
        subc szext tanh testp xor""",
    )
)
_OF_A_WARP = frozenset(("match", "mma", "movmatrix", "redux", "shfl", "vote"))  # results of all lanes' operands
_EFFECTS = frozenset(("st", "red"))  # without effect in lanes where their guard is false
_LEAVES = frozenset(("ret", "exit", "trap"))
_LOCAL, _CARRY = "local memory", "the carry flag"  # registers too: stores write the one, loads read it
_Known = tuple[np.ndarray, np.ndarray]  # for every thread a value, and True if it is known


class _Use(NamedTuple):
    """A statement as a flow of values.

    It makes ``written`` from ``read`` in the threads of ``active``; with ``effect`` it uses ``read`` in itself.
    """

    statement: Statement
    written: Sequence[str]
    read: Sequence[str]
    active: int
    effect: bool
    shared_by_warp: bool


def unused_loads(body: Iterable[object], block: tuple[int, int, int]) -> dict[int, np.ndarray]:
    """Return, by a load's offset in the PTX, a mask per warp of the lanes in which the value reaches nothing.

    Loads that are used in every lane are left out.
    """
    items = [item for item in body if type(item) is Statement or type(item) is Label]
    statements = [item for item in items if type(item) is Statement]
    if not any(one.guard and _head(one) in _EFFECTS for one in statements):
        return {}
    threads = _Threads(statements, block)
    idle = {one.start: threads.always_false(one.guard, one.negated) for one in statements if one.guard}
    if not any(idle[one.start] for one in statements if one.guard and _head(one) in _EFFECTS):
        return {}
    uses = [_use(one, threads.all & ~idle.get(one.start, 0)) for one in statements]
    effective = _effective(uses, _regions(items), threads.all)
    found = {}
    for use in uses:
        if _head(use.statement) == "ld":
            unused = threads.all
            for name in use.written:
                unused &= ~effective.get(name, 0)
            if unused:
                found[use.statement.start] = _by_warp(unused, threads.all).astype(np.int64)
    return found


def _head(statement: Statement) -> str:
    return statement.opcode.partition(".")[0]


def _use(statement: Statement, active: int) -> _Use:
    head, operands = _head(statement), split_operands(statement.operands)
    if head in ("ld", "st") and ".local" in statement.opcode and operands:
        first, rest = (_NAME.findall(text) for text in (operands[0], ",".join(operands[1:])))
        written, read = ([_LOCAL], [*first, *rest]) if head == "st" else (first, [*rest, _LOCAL])
        return _Use(statement, written, read, active, False, False)
    if not operands or head not in PURE | _OF_A_WARP | {"ld"}:
        return _Use(statement, [], _NAME.findall(statement.operands), active, not _jumps(statement), False)
    written, read = _NAME.findall(operands[0]), _NAME.findall(",".join(operands[1:]))
    if ".cc" in statement.opcode:
        written.append(_CARRY)
    if head in ("addc", "subc", "madc"):
        read.append(_CARRY)
    return _Use(statement, written, read, active, head == "ld", head in _OF_A_WARP)


def _jumps(statement: Statement) -> bool:
    """Return True if a statement only chooses the next one."""
    return _head(statement) in _LEAVES - {"trap"} or (_head(statement) == "bra" and bool(statement.operands))


def _effective(uses: Sequence[_Use], regions: dict[int, Sequence[int]], everyone: int) -> dict[str, int]:
    """Return the threads in which each register's value takes effect."""
    effective: dict[str, int] = {}
    exchange = _Exchange(everyone)
    places = {use.statement.start: use for use in uses}
    changed = True

    def mark(name: str, threads: int) -> None:
        nonlocal changed
        known = effective.get(name, 0)
        if threads & ~known:
            effective[name], changed = known | threads, True

    def outcome(use: _Use) -> int:
        made = 0
        for name in use.written:
            made |= effective.get(name, 0)
        return made

    while changed:
        changed = False
        for use in reversed(uses):
            made, guard = outcome(use), use.statement.guard
            through = use.active if use.effect else made & use.active
            if use.shared_by_warp:
                through = exchange.sources(use.statement, through)
            if through:
                for name in use.read:
                    mark(name, through)
            if guard is None:
                continue
            mark(guard, made | (use.active if use.effect and not use.written else 0))
            for start in regions.get(use.statement.start, ()):  # statements that the branch decides about
                one = places[start]
                mark(guard, one.active if one.effect and not one.written else outcome(one))
    return effective


def _regions(items: Sequence[Statement | Label]) -> dict[int, Sequence[int]]:
    """Return the statements that each conditional branch or exit decides about; all are given by their offsets."""
    blocks: list[list[Statement]] = [[]]
    labels: dict[str, int] = {}
    for item in items:
        if isinstance(item, Label):
            if blocks[-1]:
                blocks.append([])
            labels[item.name] = len(blocks) - 1
            continue
        blocks[-1].append(item)
        if _head(item) in _LEAVES | {"bra", "brx"}:
            blocks.append([])
    end = len(blocks)
    following: list[list[int]] = []
    for number, block in enumerate(blocks):
        last = block[-1] if block else None
        head = _head(last) if last else ""
        targets = []
        if head == "bra" and last:
            targets = [labels.get(last.operands.strip(), end)]
        elif head in _LEAVES:
            targets = [end]
        elif head == "brx":
            targets = list(labels.values())
        if not targets or (last and last.guard):
            targets.append(number + 1)
        following.append(targets)
    meets = _post_dominators(following, end)
    regions: dict[int, Sequence[int]] = {}
    for number, block in enumerate(blocks):
        if block and block[-1].guard and len(set(following[number])) > 1:
            inside = _reached(following, following[number], meets[number])
            regions[block[-1].start] = [one.start for i in sorted(inside) if i < end for one in blocks[i]]
    return regions


def _reached(following: Sequence[Sequence[int]], begin: Iterable[int], stop: int) -> set[int]:
    found: set[int] = set()
    work = list(begin)
    while work:
        number = work.pop()
        if number == stop or number in found:
            continue
        found.add(number)
        if number < len(following):
            work += following[number]
    return found


def _post_dominators(following: Sequence[Sequence[int]], end: int) -> list[int]:
    """Return each block's immediate post-dominator: the first block that every way from it to the end passes.

    K. Cooper, T. Harvey and K. Kennedy, *A simple, fast dominance algorithm*, 2001, on the reversed graph. A block from
    which no way leads to the end gets the end.
    """
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for number, targets in enumerate(following):
        for target in targets:
            before[target].append(number)
    order = list(_postorder(before, end))
    rank = {number: i for i, number in enumerate(order)}
    meets: dict[int, int] = {end: end}

    def common(a: int, b: int) -> int:
        while a != b:
            while rank[a] < rank[b]:
                a = meets[a]
            while rank[b] < rank[a]:
                b = meets[b]
        return a

    changed = True
    while changed:
        changed = False
        for number in reversed(order[:-1]):
            found: int | None = None
            for target in following[number]:
                if target in meets:
                    found = target if found is None else common(found, target)
            if found is not None and meets.get(number) != found:
                meets[number], changed = found, True
    return [meets.get(number, end) for number in range(end)]


def _postorder(edges: Sequence[Sequence[int]], start: int) -> Iterator[int]:
    seen, stack = {start}, [(start, iter(edges[start]))]
    while stack:
        number, rest = stack[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            stack.pop()
            yield number
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))


def _by_warp(threads: int, everyone: int) -> np.ndarray:
    return np.frombuffer(threads.to_bytes(everyone.bit_length() // 8, "little"), np.uint32)


class _Exchange:
    """Lanes whose operands reach given lanes' results of an instruction that a warp executes together."""

    def __init__(self, everyone: int):
        self._everyone = everyone
        lanes = np.arange(everyone.bit_length()) % 32
        self._low = {step: _bits(lanes & step == 0) for step in (1, 2, 4, 8, 16)}
        self._lane = lanes

    def sources(self, statement: Statement, threads: int) -> int:
        """Return the threads whose operands make the results of ``threads``."""
        if threads in (0, self._everyone):
            return threads
        mode = statement.opcode.split(".")[2:3]
        operands = split_operands(statement.operands)
        if _head(statement) == "shfl" and len(operands) == 5 and parse_number(operands[3]) == 31:
            step = parse_number(operands[2])
            if isinstance(step, int) and mode[0] in ("bfly", "up", "down"):
                return threads | self._moved(mode[0], step & 31, threads)
        found = np.where(_by_warp(threads, self._everyone) != 0, np.uint32(0xFFFFFFFF), np.uint32(0))
        return int.from_bytes(found.tobytes(), "little")

    def _moved(self, mode: str, step: int, threads: int) -> int:
        if mode == "down":  # lane i reads lane i + step
            return (threads & _bits(self._lane + step < 32)) << step
        if mode == "up":
            return (threads & _bits(self._lane >= step)) >> step
        for bit, low in self._low.items():
            if step & bit:
                threads = (threads & low) << bit | (threads >> bit) & low
        return threads


def _bits(flags: np.ndarray) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class _Threads:
    """Values of registers in each thread of a block, as far as they follow from the thread's number."""

    def __init__(self, statements: Iterable[Statement], block: tuple[int, int, int]):
        count = block[0] * block[1] * block[2]
        number = np.arange(-(-count // 32) * 32, dtype=np.int64)
        self._all = np.ones(len(number), bool)
        self.all = _bits(self._all)
        self._values: dict[str, _Known] = {
            "%tid.x": (number % block[0], self._all),
            "%tid.y": (number // block[0] % block[1], self._all),
            "%tid.z": (number // block[0] // block[1], self._all),
            "%laneid": (number % 32, self._all),
        }
        self._made: dict[str, Statement | None] = {}  # None: written in several places
        for one in statements:
            for name in _use(one, 0).written:
                self._made[name] = one if name not in self._made and one.guard is None else None

    def always_false(self, guard: str | None, negated: bool) -> int:
        """Return the threads in which the guard is known to be false."""
        value, known = self._value(guard or "")
        return _bits(known & (value == int(negated)))

    def _value(self, text: str) -> _Known:
        if text not in self._values:
            unknown = np.zeros_like(self._values["%laneid"][0]), ~self._all
            self._values[text] = unknown  # ends the recursion for a register that depends on itself
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
