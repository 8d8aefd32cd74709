"""Random PTX, each instruction of which is judged by the exact model of its meaning in tests/ptx.

A text is a list of instructions over a few registers: what one writes others read. Each stores its result, so that it
can be judged by the very operands that it had.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from ptx_float_cases import NAN
from ptx_integer_cases import Case
from ptx_support import BITS, EDGES, REGISTERS, WIDTHS, module, round_float, signed
from test_semantics import agrees

from fuzz.forms import SET_UP, draw_case
from workbench import ptx
from workbench.errors import WorkbenchError

POOL, THREADS, SLOT = 6, 64, 8  # registers of a width; threads; bytes of a value in memory
MOVES = {"h": "b16", "r": "b32", "d": "b64"}
_IMMEDIATE = {"u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64"}
# Their operands are registers in the grammar, or a number there would mean something else.
_NO_IMMEDIATE = (
    "cvt",
    "mov",
    "add.cc",
    "sub.cc",
    "mad.lo.cc",
    "mad.hi.cc",
    "addc",
    "subc",
    "and.b32 %r50",
    "copysign",
    "slct.f",
    "slct.ftz.f",
)


# ---- values ----


def value(kind: str, draw: random.Random) -> int:
    """A bit pattern of a type: a special one, one near a power of two, a small number, or any."""
    width = {"pred": 1}.get(kind) or BITS[REGISTERS[kind]]
    choice = draw.random()
    if kind.endswith("x2") and kind[:-2] in WIDTHS:
        half = kind[:-2]
        return value(half, draw) << WIDTHS[half] | value(half, draw)
    if kind in WIDTHS and choice < 0.8:
        if choice < 0.3:
            return draw.choice(EDGES[kind])
        if choice < 0.6:
            number = draw.choice((draw.gauss(0, 4), draw.gauss(0, 1e5), draw.randint(-9, 9) / 2))
            return round_float(Fraction(number), kind)
        top = draw.choice(EDGES[kind])
        return (top + draw.randint(-2, 2)) % (1 << width)
    if choice < 0.3:
        return ((1 << draw.randrange(width + 1)) + draw.randint(-1, 1)) % (1 << width)
    if choice < 0.5:
        return draw.randint(-70, 70) % (1 << width)
    return draw.getrandbits(width)


def immediate(kind: str, draw: random.Random) -> tuple[str, int]:
    """A number as PTX spells it, and its bits."""
    bits = value(kind, draw)
    if kind == "f32":
        return f"0f{bits:08X}", bits
    if kind == "f64":
        return f"0d{bits:016X}", bits
    width = int(kind[1:])
    if kind[0] == "s":
        return str(signed(bits, width)), bits
    return (hex(bits) if draw.random() < 0.5 else str(bits)), bits


# ---- texts ----


@dataclass(frozen=True)
class Step:
    """One instruction of a text. Operands are registers, or the bits of an immediate with its spelling; ``guard`` is
    a predicate, with "!" where it is negated, or ""; if it ``jumps``, a branch skips the instruction."""

    case: Case
    destination: str
    sources: tuple[str, ...]
    immediates: tuple[int | None, ...]
    guard: str
    jumps: bool

    def text(self, number: int = 0) -> str:
        names = {"d0": self.destination} | {f"s{i}": name for i, name in enumerate(self.sources)}
        text = self.case.instruction.format(**names)
        if not self.guard:
            return text
        if self.jumps:
            opposite = self.guard[1:] if self.guard.startswith("!") else "!" + self.guard
            return f"@{opposite} bra OVER{number}; {text} OVER{number}:"
        return " ".join(f"@{self.guard} {part.strip()};" for part in text.split(";") if part.strip())


@dataclass(frozen=True)
class Text:
    """A kernel: its registers' first values (by register, one for each thread) and its instructions."""

    steps: tuple[Step, ...]
    values: dict[str, list[int]]
    threads: int

    def ptx(self) -> str:
        lines = [
            "mov.u32 %r60, %tid.x;", "ld.param.u64 %d60, [in];", "ld.param.u64 %d61, [out];",
            f"mad.wide.u32 %d60, %r60, {SLOT}, %d60;", f"mad.wide.u32 %d61, %r60, {SLOT}, %d61;", *SET_UP,
        ]  # fmt: skip
        for i, register in enumerate(self.values):
            at = f"[%d60+{SLOT * THREADS * i}]"
            if register[1] == "p":
                lines += [f"ld.global.b32 %r59, {at};", f"setp.ne.u32 {register}, %r59, 0;"]
            else:
                lines.append(f"ld.global.{MOVES[register[1]]} {register}, {at};")
        for i, step in enumerate(self.steps):
            at, register = f"[%d61+{SLOT * THREADS * i}]", step.destination
            lines.append(step.text(i))
            if register[1] == "p":
                lines += [f"selp.u32 %r59, 1, 0, {register};", f"st.global.b32 {at}, %r59;"]
            else:
                lines.append(f"st.global.{MOVES[register[1]]} {at}, {register};")
        return module("steps", ".param .u64 in, .param .u64 out, .param .u64 scratch", "\n".join(lines))


def draw_text(seed: int, count: int) -> Text:
    """A text of so many instructions."""
    draw = random.Random(seed)
    kinds = {
        "h": ("b16", "f16", "bf16", "s16"), "r": ("b32", "f32", "f32", "f16x2", "bf16x2", "s32"),
        "d": ("b64", "f64", "f64", "s64"), "p": ("pred",),
    }  # fmt: skip
    values = {}
    for prefix, choices in kinds.items():
        for i in range(1, POOL + 1):
            kind = draw.choice(choices)
            values[f"%{prefix}{i}"] = [value(kind, draw) for _ in range(THREADS)]
    steps = []
    while len(steps) < count:
        case = draw_case(draw)
        sources, immediates = [], []
        kept = draw.randrange(len(case.sources))  # at least one operand is a register
        takes_numbers = not case.instruction.startswith(_NO_IMMEDIATE)
        for i, kind in enumerate(case.sources):
            if i != kept and takes_numbers and kind in _IMMEDIATE and draw.random() < 0.3:
                name, number = immediate(kind, draw)
            else:
                name, number = f"%{REGISTERS[kind]}{draw.randint(1, POOL)}", None
            sources.append(name)
            immediates.append(number)
        prefix = REGISTERS[case.destination]
        target = f"%{prefix}{draw.randint(1, POOL)}"
        several = case.instruction.count(";") > 1
        if several and target in sources:
            continue  # it would change an operand on the way
        guard = ""
        if draw.random() < 0.2:
            guard = draw.choice(("", "!")) + f"%p{draw.randint(1, POOL)}"
        if several and guard.lstrip("!") == target:
            continue
        steps.append(Step(case, target, tuple(sources), tuple(immediates), guard, draw.random() < 0.3))
    return Text(tuple(steps), values, draw.choice((THREADS, THREADS, 40, 7)))


@dataclass(frozen=True)
class Wrong:
    """One thread's result of one instruction that is not what the model says."""

    text: Text
    step: Step
    operands: tuple[int, ...]
    got: int
    expected: object

    def __str__(self) -> str:
        expected = (
            "a NaN" if self.expected is NAN else hex(self.expected) if isinstance(self.expected, int) else self.expected
        )
        return f"{self.step.text()} of {', '.join(map(hex, self.operands))} gives {self.got:#x}, not {expected}"


def run(text: Text, **options) -> np.ndarray:
    """The results: [instructions, threads] words."""
    inputs = np.array(list(text.values.values()), np.uint64)
    out = np.zeros((len(text.steps), THREADS), np.uint64)
    ptx.Program(text.ptx())["steps"].launch(1, text.threads, [inputs, out, np.zeros(2 * THREADS, np.uint64)], **options)
    return out


def judge(text: Text, **options) -> Wrong | None:
    """The first result that is wrong. Raises WorkbenchError where the machine does not run the text."""
    results = run(text, **options)
    values = {register: list(row) for register, row in text.values.items()}
    for step, row in zip(text.steps, results.tolist(), strict=True):
        before = values[step.destination]
        guard = values[step.guard.lstrip("!")] if step.guard else None
        case = step.case
        for thread, got in enumerate(row[: text.threads]):
            operands = tuple(
                values[name][thread] if number is None else number
                for name, number in zip(step.sources, step.immediates, strict=True)
            )
            if guard is not None and bool(guard[thread]) == step.guard.startswith("!"):
                if got != before[thread]:
                    return Wrong(text, step, operands, got, before[thread])
                continue
            expected = case.expected(*operands)
            if not agrees(got, expected, case.destination):
                return Wrong(text, step, operands, got, expected)
        values[step.destination] = row
    return None


def still_wrong(text: Text, **options) -> Wrong | None:
    try:
        return judge(text, **options)
    except WorkbenchError:
        return None


def shrink(wrong: Wrong, **options) -> Wrong:
    """The wrong instruction alone with its operands as inputs, or as few of the text as still show it."""
    names = [name for name in wrong.step.sources if name.startswith("%")]
    values = {
        name: [bits] * THREADS for name, bits in zip(wrong.step.sources, wrong.operands, strict=True) if name in names
    }
    values.setdefault(wrong.step.destination, [0] * THREADS)
    if wrong.step.guard:
        values = wrong.text.values | values
    alone = still_wrong(replace(wrong.text, steps=(wrong.step,), values=values), **options)
    if alone is not None:
        return alone
    i = 0
    while i < len(wrong.text.steps):
        steps = wrong.text.steps[:i] + wrong.text.steps[i + 1 :]
        smaller = still_wrong(replace(wrong.text, steps=steps), **options) if steps else None
        wrong, i = (smaller, i) if smaller is not None else (wrong, i + 1)
    return wrong


def refused(text: Text) -> str:
    """The instructions that the machine does not take, one by one, with its words."""
    told = []
    for step in text.steps:
        try:
            run(replace(text, steps=(step,)))
        except WorkbenchError as error:
            told.append(f"{step.text()}: {error}")
    return "\n".join(told)


def opcode(case: Case) -> str:
    """The instruction's name with its forms."""
    return re.match(r"\S+", case.instruction)[0]
