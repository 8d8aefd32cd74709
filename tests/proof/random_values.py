"""Random PTX whose registers are compared: the machine's values with those that a proof has for them.

A thread stores registers of 32 and of 64 bits, also in each round of a loop, and marks where it was. The terms and
paths that `workbench.proof.execution` has at the same stores are evaluated for that thread and round.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import workbench as wb
from workbench.proof.access import ThreadAccess
from workbench.proof.conditions import Predicate
from workbench.proof.execution import Execution
from workbench.proof.family import Family
from workbench.proof.graph import head
from workbench.proof.solver import Effort
from workbench.proof.state import State
from workbench.proof.terms import Atom, Term
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement

BLOCKS, THREADS, ROUNDS = 2, 40, 9
NUMBERS = (0, 1, 2, 3, 5, 7, 8, 12, 31, 32, 33, 100, 255, 4096, 65535, 2**31 - 1)
_HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 marks, .param .u64 x, .param .u32 n, .param .u32 m, .param .u64 w)
{{
.reg .pred %p<99>; .reg .b16 %h<99>; .reg .b32 %r<99>; .reg .b64 %rd<99>; .reg .b64 %a<9>; .reg .b32 %s<9>;
ld.param.u64 %a0, [out]; cvta.to.global.u64 %a0, %a0; ld.param.u64 %a1, [marks]; ld.param.u64 %a2, [x];
ld.param.u32 %r0, [n]; ld.param.u32 %r1, [m]; ld.param.u64 %rd0, [w];
mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %s0, %ntid.x;
mad.lo.s32 %r4, %r3, %s0, %r2; mul.wide.s32 %a3, %r4, 4; add.s64 %a3, %a2, %a3; ld.global.nc.u32 %r5, [%a3];
mul.wide.s32 %a4, %r4, {step}; add.s64 %a4, %a0, %a4;
mul.wide.s32 %a5, %r4, {marked}; add.s64 %a5, %a1, %a5;
{body}
ret;
}}
"""


@dataclass
class Program:
    """A random kernel: ``stores`` are its places with stores, each with a slot for every round."""

    seed: int
    text: str = ""
    stores: int = 0


class _Writer:
    def __init__(self, seed: int):
        self.draw, self.program = random.Random(seed), Program(seed)
        self.count = {"r": 6, "rd": 1, "h": 0, "p": 0}
        self.known: dict[str, list[str]] = {"r": [f"%r{i}" for i in range(6)], "rd": ["%rd0"], "h": [], "p": []}
        self.lines: list[str] = []

    def new(self, kind: str) -> str:
        name = f"%{kind}{self.count[kind]}"
        self.count[kind] += 1
        return name

    def number(self) -> int:
        return self.draw.choice(NUMBERS) * self.draw.choice((1, 1, 1, -1))

    def operand(self, kind: str, *, numbers: bool = True) -> str:
        if not self.known[kind] or (numbers and self.draw.random() < 0.3):
            return str(self.number() if kind != "h" else self.draw.choice((0, 1, 3, 255)))
        several = self.known[kind]
        return self.draw.choice(several[-4:] if self.draw.random() < 0.6 else several)

    def operation(self) -> tuple[str, str]:
        """Return an instruction without its result's name, and the kind of that."""
        one, draw = self.operand, self.draw
        kind = draw.choice(("r", "r", "r", "rd"))
        bits = 32 if kind == "r" else 64
        s, u, b = f"s{bits}", f"u{bits}", f"b{bits}"
        sign = draw.choice((s, u))
        count = draw.choice((0, 1, 2, 3, 5, 8, 31))
        x, y = one(kind, numbers=False), one(kind)
        start = draw.randint(0, 24)
        wide = draw.choice(("s32", "u32"))
        small = draw.choice((1, 2, 3, 7, 8, 12, 32, 100))
        return draw.choice((
            (f"add.{sign} {{}}, {x}, {y};", kind), (f"sub.{sign} {{}}, {x}, {y};", kind),
            (f"mul.lo.{sign} {{}}, {x}, {y};", kind), (f"mad.lo.{sign} {{}}, {x}, {y}, {one(kind)};", kind),
            (f"mul.hi.{draw.choice(('s32', 'u32'))} {{}}, {one('r', numbers=False)}, {one('r')};", "r"),
            (f"mul.wide.{wide} {{}}, {one('r', numbers=False)}, {one('r')};", "rd"),
            (f"mad.wide.{wide} {{}}, {one('r', numbers=False)}, {one('r')}, {one('rd')};", "rd"),
            (f"shl.{b} {{}}, {x}, {count};", kind), (f"shr.{sign} {{}}, {x}, {count};", kind),
            (f"and.{b} {{}}, {x}, {draw.choice((y, 1, 7, 15, 48, -8, -2))};", kind),
            (f"or.{b} {{}}, {x}, {draw.choice((y, 1, 7, 64))};", kind),
            (f"xor.{b} {{}}, {x}, {draw.choice((y, 1, 3, 16, -1))};", kind),
            (f"not.{b} {{}}, {x};", kind), (f"neg.{s} {{}}, {x};", kind), (f"abs.{s} {{}}, {x};", kind),
            (f"min.{sign} {{}}, {x}, {y};", kind), (f"max.{sign} {{}}, {x}, {y};", kind),
            (f"div.{sign} {{}}, {x}, {small};", kind), (f"rem.{sign} {{}}, {x}, {small};", kind),
            (f"and.b32 %s1, {one('r', numbers=False)}, 1023; and.b32 %s2, {one('r', numbers=False)}, 15; "
             f"add.s32 %s2, %s2, {draw.choice((1, 2, 7))}; {draw.choice(('div', 'rem'))}.{wide} {{}}, %s1, %s2;", "r"),
            (f"bfe.{wide} {{}}, {one('r', numbers=False)}, {start}, {draw.randint(1, 31 - start)};", "r"),
            (f"selp.{b} {{}}, {x}, {y}, {one('p')};" if self.known["p"] else f"mov.{b} {{}}, {x};", kind),
            (f"cvt.u64.u32 {{}}, {one('r', numbers=False)};", "rd"),
            (f"cvt.s64.s32 {{}}, {one('r', numbers=False)};", "rd"),
            (f"cvt.u32.u64 {{}}, {one('rd', numbers=False)};", "r"),
            (f"cvt.u16.u32 {{}}, {one('r', numbers=False)};", "h"),
            (f"cvt.{draw.choice(('u', 's'))}32.{draw.choice(('u', 's'))}16 {{}}, {one('h', numbers=False)};"
             if self.known["h"] else f"mov.b32 {{}}, {one('r')};", "r"),
            (f"cvt.s32.s8 {{}}, {one('r', numbers=False)};", "r"),
        ))  # fmt: skip

    def condition(self) -> tuple[str, str]:
        draw = self.draw
        kind = draw.choice(("r", "r", "rd"))
        bits = 32 if kind == "r" else 64
        sign = draw.choice("su")
        relation = draw.choice(("lt", "le", "gt", "ge", "eq", "ne"))
        x, y = self.operand(kind, numbers=False), self.operand(kind)
        if self.known["p"] and draw.random() < 0.4:
            p, q = draw.choice(self.known["p"]), draw.choice(self.known["p"])
            some = (
                f"setp.{relation}.{draw.choice(('and', 'or'))}.{sign}{bits} {{}}, {x}, {y}, {p};",
                f"and.pred {{}}, {p}, {q};", f"or.pred {{}}, {p}, {q};", f"xor.pred {{}}, {p}, {q};",
                f"not.pred {{}}, {p};", f"mov.pred {{}}, {p};",
            )  # fmt: skip
            return draw.choice(some), "p"
        return f"setp.{relation}.{sign}{bits} {{}}, {x}, {y};", "p"

    def straight(self, count: int) -> None:
        """Write instructions, some under a guard that changes an older register."""
        for _ in range(count):
            text, kind = self.condition() if self.draw.random() < 0.2 else self.operation()
            if kind != "p" and self.known["p"] and self.known[kind] and self.draw.random() < 0.12:
                old = self.draw.choice(self.known[kind])
                guard = self.draw.choice(("@", "@!")) + self.draw.choice(self.known["p"])
                first, _, last = text.rpartition("; ") if "; " in text else ("", "", text)
                self.lines.append(f"{first}; {guard} {last.format(old)}" if first else f"{guard} {text.format(old)}")
                continue
            name = self.new(kind)
            self.lines.append(text.format(name))
            self.known[kind].append(name)

    def store(self, turn: str = "") -> None:
        """Write the stores of two registers, in the slot of this round, and the mark."""
        slot = self.program.stores
        self.program.stores += 1
        narrow, wide = self.draw.choice(self.known["r"][6:] or self.known["r"]), self.draw.choice(self.known["rd"])
        if turn:
            self.lines.append(f"mul.wide.u32 %a6, {turn}, 16; add.s64 %a6, %a4, %a6;")
            self.lines.append(f"mul.wide.u32 %a7, {turn}, 4; add.s64 %a7, %a5, %a7;")
        else:
            self.lines.append("mov.b64 %a6, %a4; mov.b64 %a7, %a5;")
        at = slot * ROUNDS
        self.lines.append(f"st.global.b32 [%a6+{at * 16}], {narrow}; st.global.b64 [%a6+{at * 16 + 8}], {wide};")
        self.lines.append(f"st.global.b32 [%a7+{at * 4}], 1;")

    def branch(self, turn: str = "") -> None:
        """Write a branch, whose ways change a register each."""
        if not self.known["p"]:
            return
        label = f"$J{len(self.lines)}"
        old = self.draw.choice(self.known["r"][6:] or ["%r0"])
        self.lines.append(f"@{self.draw.choice(self.known['p'])} bra {label};")
        self.lines.append(f"add.s32 {old}, {self.operand('r')}, {self.number()};")
        if self.draw.random() < 0.5:
            self.store(turn)
        other = f"$E{len(self.lines)}"
        self.lines += [f"bra {other};", f"{label}:", f"sub.s32 {old}, {old}, {self.operand('r')};", f"{other}:"]

    def loop(self) -> None:
        """Write a loop of one to eight rounds, as a parameter says: its registers step, turn, or follow each other."""
        draw, place = self.draw, len(self.lines)
        step, ring, turn, last, wide = (self.new("r") for _ in range(5))
        far = self.new("rd")
        size = draw.choice((2, 3, 4))
        self.lines += [
            f"and.b32 %s4, {draw.choice(('%r0', '%r1', '%r5', '%r2'))}, 7; mov.b32 %s5, 0;",
            f"mov.b32 {step}, {self.operand('r')}; mov.b32 {ring}, {draw.randrange(size)}; mov.b32 {turn}, 0;",
            f"mov.b32 {last}, {self.operand('r')}; mov.b32 {wide}, {draw.choice((0, 1))};",
            f"mov.b64 {far}, {self.operand('rd')};",
            f"$L{place}:",
        ]
        before = {kind: list(several) for kind, several in self.known.items()}
        self.known["r"] += [step, ring, turn, last, wide]
        self.known["rd"].append(far)
        self.straight(draw.randint(1, 4))
        if draw.random() < 0.3:
            self.branch("%s5")
        self.store("%s5")
        fresh = self.known["r"][-1]
        by = draw.choice(("1", "4", "-3", "%r0", "%r2", "2147483647"))
        at, to = self.new("p"), self.new("p")
        self.lines += [
            f"mov.b32 {last}, {draw.choice((fresh, step, turn))};",
            f"add.s32 {step}, {step}, {by};",
            f"add.s64 {far}, {far}, {draw.choice(('8', '-16', '%rd0'))};",
            f"setp.eq.s32 {at}, {ring}, {size - 1}; add.s32 {ring}, {ring}, 1; selp.b32 {ring}, 0, {ring}, {at};",
            f"{draw.choice(('xor.b32', 'sub.s32'))} {wide}, "
            + draw.choice((f"{wide}, 1;", f"{wide}, {self.draw.choice(('1', '%r2'))};")),
            f"and.b32 {turn}, %s5, {draw.choice((1, 3))};",
            f"add.s32 %s5, %s5, 1; setp.le.s32 {to}, %s5, %s4; @{to} bra $L{place};",
        ]
        for kind in ("r", "rd", "h", "p"):  # defined in each round: used behind it, too
            self.known[kind] = before[kind] + [one for one in self.known[kind] if one not in before[kind]][:4]

    def written(self) -> Program:
        self.straight(self.draw.randint(3, 9))
        for _ in range(self.draw.randint(1, 2)):
            self.draw.choice((self.branch, self.loop, self.loop))()
            self.straight(self.draw.randint(1, 4))
            self.store()
        if not self.program.stores:
            self.store()
        slots = self.program.stores * ROUNDS
        self.program.text = _HEAD.format(body="\n".join(self.lines), step=slots * 16, marked=slots * 4)
        return self.program


class Recording(Execution):
    """An execution that keeps what it knows at each store."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.values: dict[ThreadAccess, Any] = {}
        self.rules: set[str] = set()

    def assign(self, statement: Statement, state: State, register: str, value: Any, guard: Predicate) -> None:
        if value is not None:
            self.rules.add(head(statement))
        super().assign(statement, state, register, value, guard)

    def _step(self, statement: Statement, name: str, state: State) -> None:
        super()._step(statement, name, state)
        if name == "st" and self.accesses:
            operands = split_operands(statement.operands)
            self.values[self.accesses[-1]] = (operands[0], self.value(statement, operands[1], state))

    def stores(self) -> Iterator[tuple[str, Any, ThreadAccess]]:
        """Yield the place, the value and the access of each store that counts: not of trials."""
        for access in self.accesses:
            if access in self.values:
                yield *self.values[access], access


class Known:
    """Values of atoms for one thread. Raises KeyError for what may be anything."""

    def __init__(self, atoms: Mapping[str, int], rounds: Mapping[Atom, int], x: np.ndarray):
        self.atoms, self.rounds, self.x = atoms, rounds, x

    def of(self, value: Term) -> int:
        return sum(factor * math.prod(map(self.atom, key)) for key, factor in value.parts.items())

    def atom(self, one: Atom) -> int:
        args = one.args
        if one.kind == "round":
            return self.rounds[one]
        if one.kind in ("param", "tid", "ctaid"):
            return self.atoms[one.name]
        if one.kind == "load":
            return int(self.x[self.of(args[0])])
        if one.kind == "bit":
            return self.of(args[0]) >> args[1] & 1
        if one.kind == "quotient":
            return self.of(args[0]) // args[1]
        if one.kind == "ratio":
            top, below = self.of(args[0]), self.of(args[1])
            return top // below if top >= 0 and below >= 1 else 0
        if one.kind == "flag":
            return int(self.holds(args[0]))
        if one.kind == "choice":
            return self.of(args[1] if self.holds(args[0]) else args[2])
        raise KeyError(one)

    def holds(self, one: Predicate) -> bool:
        parts = one.parts
        if one.kind in ("less", "zero"):
            value = self.of(parts[0])
            return value < 0 if one.kind == "less" else value == 0
        if one.kind == "not":
            return not self.holds(parts[0])
        if one.kind in ("and", "or"):
            return (all if one.kind == "and" else any)([self.holds(part) for part in parts])
        return one.kind == "true"


@dataclass
class Compared:
    """Numbers of registers that were compared, and of those that may hold anything; instructions that gave a value."""

    registers: int = 0
    opaque: int = 0
    rules: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def compare(seeds: Sequence[int], launches: int = 3) -> Compared:
    """Compare the registers of random programs."""
    found = Compared()
    for seed in seeds:
        _compare(_Writer(seed).written(), launches, found)
        if found.wrong:
            break
    return found


def _compare(program: Program, launches: int, found: Compared) -> None:
    kernel = wb.load_ptx(program.text, device="sim").kernel
    slots = program.stores * ROUNDS
    threads = BLOCKS * THREADS
    args = {"out": f"uint64[{threads}, {slots}, 2]", "marks": f"int32[{threads}, {slots}]", "x": f"int32[{threads}]"}
    made = Family(kernel.compiled, BLOCKS, THREADS, args).specification()
    execution = Recording(Family(kernel.compiled, BLOCKS, THREADS, args).module, "kernel", made, Effort(50_000_000))
    execution.run()
    found.rules |= execution.rules
    rng = np.random.default_rng(program.seed)
    for _ in range(launches):
        out, marks = np.zeros((threads, slots, 2), np.uint64), np.zeros((threads, slots), np.int32)
        n, m = (_number(rng, 32) for _ in range(2))
        w = _number(rng, 64)
        x = np.array([_number(rng, 32) for _ in range(threads)]).astype(np.int32)
        kernel(BLOCKS, THREADS, out, marks, x, n, m, w)
        here = _Here(program, {"n": n, "m": m, "w": w}, x, out, marks)
        for place, value, access in execution.stores():
            if place.startswith("[%a6+"):
                here.check(int(place[5:-1]), value, access, found)


def _number(rng: Any, bits: int) -> int:
    if rng.random() < 0.6:
        return int(rng.integers(0, 90))
    half = 1 << bits - 1
    return int(rng.choice((half - 1, -half, -1, half - 33, 1 << bits - 6, int(rng.integers(-half, half)))))


@dataclass
class _Here:
    program: Program
    sizes: Mapping[str, int]
    x: np.ndarray
    out: np.ndarray
    marks: np.ndarray

    def check(self, offset: int, value: Any, access: ThreadAccess, found: Compared) -> None:
        path, rounds = access.path, access.rounds
        slot, bits = offset // 16 // ROUNDS, 64 if offset % 16 else 32
        counters = [one.atom for one in rounds if one.atom is not None]
        turns = [one.constant for one in rounds if one.constant is not None]
        for thread in range(BLOCKS * THREADS):
            for turn in turns or range(ROUNDS if counters else 1):
                if not self.marks[thread, slot * ROUNDS + turn]:
                    continue
                known = Known(
                    {**self.sizes, "threadIdx.x": thread % THREADS, "blockIdx.x": thread // THREADS},
                    dict.fromkeys(counters, turn), self.x,
                )  # fmt: skip
                held = int(self.out[thread, slot * ROUNDS + turn, offset % 16 // 8]) % (1 << bits)
                where = f"seed {self.program.seed}, thread {thread}, round {turn}, {self.sizes}, at {offset}"
                try:
                    if not known.holds(path):
                        found.wrong.append(f"{where}: a path that is not taken: {path}\n{self.program.text}")
                except KeyError:
                    found.opaque += 1
                if not isinstance(value, Term):
                    found.opaque += 1
                    continue
                try:
                    mine = known.of(value) % (1 << bits)
                except KeyError:
                    found.opaque += 1
                    continue
                found.registers += 1
                if mine != held:
                    found.wrong.append(f"{where}: {held}, not {mine}: {value}\n{self.program.text}")
                if found.wrong:
                    return
