"""Random straight-line PTX of products and sums, packed in a few kernels of one module."""

from __future__ import annotations

import random
from dataclasses import dataclass

THREADS, INPUTS, PER_KERNEL = 16, 5, 10
BYTES = {"f32": 4, "f64": 8, "f16x2": 4, "bf16x2": 4}
_REGISTERS = {"f32": "%r", "f64": "%d", "f16x2": "%r", "bf16x2": "%r"}
_WORDS = {4: "b32", 8: "b64"}
_NAMES = ("mul",) * 5 + ("add",) * 3 + ("sub",) * 3 + ("neg", "mov", "fma.rn", "mul.rn", "add.rn")
_SOURCES = {"neg": 1, "mov": 1, "fma.rn": 3}


@dataclass(frozen=True)
class Expressions:
    """A module of random expressions of one type, with how many values each kernel stores."""

    kind: str
    ptx: str
    stored: dict[str, int]


def draw_expressions(seed: int, kind: str, arch: str, count: int) -> Expressions:
    """A module of ``count`` expressions, which share inputs and nothing else."""
    draw, kernels, stored = random.Random(seed), [], {}
    for number in range(0, count, PER_KERNEL):
        name = f"k{number}"
        lines, values = [], 0
        for _ in range(min(PER_KERNEL, count - number)):
            more, values = _expression(draw, kind, 100 * len(lines) + 100, values)
            lines.append(more)
        stored[name] = values
        kernels.append(_kernel(name, kind, "\n".join(lines)))
    return Expressions(kind, f".version 8.6\n.target {arch}\n.address_size 64\n" + "\n".join(kernels), stored)


def _expression(draw: random.Random, kind: str, first: int, stored: int) -> tuple[str, int]:
    """Two to fifteen instructions on registers from ``first``; what no other uses is stored, and some of the rest."""
    prefix, size = _REGISTERS[kind], BYTES[kind]
    ftz = ".ftz" if kind in ("f32", "f16x2") and draw.random() < 0.25 else ""
    text, used, made = [], set(), list[int]()
    for number in range(first, first + draw.randint(2, 15)):
        name = draw.choice(_NAMES)
        recent = made[-6:]
        sources = [
            draw.choice(recent) if recent and draw.random() < 0.7 else draw.randrange(INPUTS)
            for _ in range(_SOURCES.get(name, 2))
        ]
        used.update(sources)
        own = "" if name in ("mov", "neg") or draw.random() < 0.1 else ftz
        sat = ".sat" if name in ("add", "sub") and kind in ("f32", "f16x2") and draw.random() < 0.1 else ""
        full = f"mov.{_WORDS[size]}" if name == "mov" else f"{name}{own}{sat}.{kind}"
        text.append(f"{full} {', '.join(f'{prefix}{each}' for each in (number, *sources))};")
        made.append(number)
    for number in made:
        if number not in used or draw.random() < 0.08:
            text.append(f"st.global.{_WORDS[size]} [%d91+{stored * size * THREADS}], {prefix}{number};")
            stored += 1
    return "\n".join(text), stored


def _kernel(name: str, kind: str, body: str) -> str:
    prefix, size = _REGISTERS[kind], BYTES[kind]
    loads = [f"ld.global.{_WORDS[size]} {prefix}{i}, [%d90+{i * size * THREADS}];" for i in range(INPUTS)]
    return "\n".join([
        f".visible .entry {name}(.param .u64 in, .param .u64 out)", "{", ".reg .b32 %r<1200>; .reg .b64 %d<1200>;",
        "mov.u32 %r99, %tid.x; ld.param.u64 %d90, [in]; ld.param.u64 %d91, [out];",
        f"mad.wide.u32 %d90, %r99, {size}, %d90; mad.wide.u32 %d91, %r99, {size}, %d91;", *loads, body, "ret;", "}",
    ])  # fmt: skip
