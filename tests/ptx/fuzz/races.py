"""Races of every class, planted in random kernels with and without what orders the two accesses.

Counts which the checks find, and whom they accuse without reason.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuzz.statements import Scope, Writer
from workbench import ptx
from workbench.toolchain import compile_cuda_module

HERE = Path(__file__).parent
PAIRS = ("write, read", "read, write", "write, write", "atomic, read", "read, atomic", "atomic, write", "write, atomic")
ELEMENTS = 8192  # words of global memory
WAIT = 'asm volatile("cp.async.wait_all;" ::: "memory");'


@dataclass(frozen=True, order=True)
class Kind:
    """A class of races: where, between whom, the two accesses, and what would order them."""

    memory: str
    between: str
    pair: str
    order: str


KINDS = (
    *(
        Kind(memory, between, pair, order)
        for memory in ("shared", "global")
        for between, order in (("lanes of a warp", "__syncwarp()"), ("warps of a block", "__syncthreads()"))
        for pair in PAIRS
    ),
    *(Kind("global", "blocks", pair, "another place") for pair in PAIRS),
    Kind("shared", "warps of a block", "write, read", "__syncthreads(), not __syncwarp()"),
    Kind("global", "warps of a block", "write, read", "__syncthreads(), not __threadfence()"),
    Kind("shared", "lanes of a warp", "write, read", "__syncwarp(), not a shuffle"),
    Kind("shared", "warps of a block", "read, write", "__syncthreads() at a loop's end"),
    Kind("global", "warps of a block", "write, read", "__threadfence() before a flag"),
    Kind("global", "blocks", "write, read", "__threadfence() before a flag"),
    Kind("global", "blocks", "write, read", "__syncthreads() before a fence and a flag"),
    Kind("shared", "warps of a block", "copy, read", "cp.async.wait_all before __syncthreads()"),
    Kind("shared", "warps of a block", "copy, read", "__syncthreads() after cp.async.wait_all"),
    Kind("shared", "lanes of a warp", "copy, read", "__syncwarp() after cp.async.wait_all"),
    Kind("global", "a thread", "copy, write", "cp.async.wait_all before the write"),
    Kind("global", "lanes of a warp", "copy, write", "__syncwarp() after cp.async.wait_all"),
    Kind("global", "warps of a block", "copy, write", "cp.async.wait_all before __syncthreads()"),
    Kind("global", "warps of a block", "copy, write", "__syncthreads() after cp.async.wait_all"),
)  # fmt: skip


class Planter:
    """Writes the two kernels of a class and a seed: the right one and the one with the race."""

    def __init__(self, kind: Kind, seed: int):
        self.kind, self.draw = kind, random.Random(f"{kind} {seed}")
        lanes = kind.between == "lanes of a warp"
        self.threads = 32 * self.draw.choice((1, 2, 3) if lanes else (2, 3, 4, 8))
        wide = "atomic" not in kind.pair and "copy" not in kind.pair
        self.type = self.draw.choice(("u8", "u16", "u32", "u64", "uint4") if wide else ("u32", "u64"))
        self.writer = Writer(self.draw, self.threads, {"u32": ["a", "b"], "f32": ["x"]}, in_kernel=False)
        self.partner = self.draw.choice(self._partners())

    def _partners(self) -> tuple[str, ...]:
        if self.kind.between == "lanes of a warp":
            k = self.draw.randint(1, 31)
            return f"t ^ {k}", f"(t / 32 * 32 + (t + {k}) % 32)", "t / 32 * 32 + 31 - t % 32"
        k = self.draw.randrange(32, self.threads, 32)
        return (f"(t + {k}) % {self.threads}",) * 2 + ((f"{self.threads - 1} - t",) if self.threads % 64 == 0 else ())

    def noise(self) -> str:
        """Arithmetic, and now and then an exchange that is in order, in a place of its own."""
        lines = [
            f"{self.draw.choice('ab')} = {self.writer.expression('u32', Scope('', False))};"
            for _ in range(self.draw.randint(0, 3))
        ]
        if self.draw.random() < 0.4:
            lines += ["__syncthreads();", "other[t] = a;", "__syncthreads();", f"b ^= other[{self.partner}];"]
        return "\n".join(lines)

    def access(self, what: str, index: str, first: bool) -> str:
        """One access to element ``index`` of ``data``; a first write and a second one store different values."""
        value = f"(a | 1) * {3 if first else 5}"
        if what == "atomic":
            return f"atomic{self.draw.choice(('Add', 'Xor'))}(&data[{index}], ({self.type})(t + {7 if first else 9}));"
        if what == "write":
            number = f"t * {2 if first else 4} + {1 if first else 100}"
            if self.type == "uint4":
                return f"data[{index}] = make_uint4({number}, {value}, {number}, {value});"
            return f"data[{index}] = ({self.type})({number});"
        if self.type == "uint4":
            return f"sum += data[{index}].{self.draw.choice('xz')};"
        if self.type in ("u32", "u64") and self.draw.random() < 0.3:  # a part of the element
            return f"sum += ((const u16*)data)[({index}) * {2 if self.type == 'u32' else 4}];"
        return f"sum += (u32)data[{index}];"

    def pair(self) -> tuple[str, str]:
        """The first access and the second."""
        one, two = self.kind.pair.split(", ")
        own, other = "t", self.partner
        if self.draw.random() < 0.3:
            own, other = other, own
        if self.kind.between != "blocks" and one in ("write", "atomic") and self.draw.random() < 0.2 and two == "read":
            # One writes, all read.
            lanes = self.kind.between == "lanes of a warp"
            own, other, who = ("t / 32", "t / 32", "t % 32 == 0") if lanes else ("0", "0", "t == 0")
            first = f"if ({who}) {{ {self.access(one, own, True)} }}"
        elif self.draw.random() < 0.2:
            first = f"if (a != 12345u) {{ {self.access(one, own, True)} }}"
        else:
            first = self.access(one, own, True)
        return first, self.access(two, other, False)

    def body(self, faulty: bool) -> str:
        order = self.kind.order
        noise = [self.noise(), self.noise()]
        special = {
            "copy, write": self.source_of_copy, "copy": self.copy, "loop's end": self.loop, "before a flag": self.flag,
            "a fence and a flag": self.last_block,
        }  # fmt: skip
        for words, write in special.items():
            if self.kind.pair.startswith(words) or order.endswith(words):
                return noise[0] + "\n" + write(faulty)
        first, second = self.pair()
        if self.kind.between == "blocks":
            place = "data" if faulty else f"data + {self.threads}"
            moved = f"auto* place = {place};\n{{ auto* data = place;\n{second} }}"
            return f"if (block == 0) {{\n{first}\n}} else {{\n{noise[0]}\n{moved}\n}}"
        right, _, wrong = order.partition(", not ")
        middle = (
            {"": "", "a shuffle": "b += __shfl_xor_sync(~0u, a, 1);"}.get(wrong, f"{wrong};") if faulty else f"{right};"
        )
        quiet = noise[1] if "syncthreads" not in noise[1] else "a += 3;"
        between = [middle, quiet] if self.draw.random() < 0.5 else [quiet, middle]
        return "\n".join((noise[0], first, *between, second))

    def loop(self, faulty: bool) -> str:
        part = ".x" if self.type == "uint4" else ""
        write = self.access("write", "t", True).replace("t *", "i + t *")
        lines = [
            write,
            "__syncthreads();",
            f"sum += (u32)data[{self.partner}]{part};",
            "" if faulty else "__syncthreads();",
        ]
        return "\n".join(["for (u32 i = 0; i < 3; ++i) {", *lines, "}"])

    def flag(self, faulty: bool) -> str:
        fence = "" if faulty else "__threadfence();"
        mine, theirs = ("block == 0", "block == 1") if self.kind.between == "blocks" else ("t == 0", "t == 32")
        one = "t == 0 && " if self.kind.between == "blocks" else ""
        read = "data[0].x" if self.type == "uint4" else "(u32)data[0]"
        return (
            f"if ({one}{mine}) {{\n{self.access('write', '0', True)}\n{fence}\natomicExch(out + 1000, 1u);\n}}\n"
            f"if ({one}{theirs}) {{\nwhile (atomicAdd(out + 1000, 0u) == 0u) {{}}\n{fence}\nsum += {read};\n}}"
        )

    def last_block(self, faulty: bool) -> str:
        barrier = "" if faulty else "__syncthreads();"
        read = "data[i].x" if self.type == "uint4" else "(u32)data[i]"
        return (
            f"__shared__ u32 last;\n{self.access('write', f'block * {self.threads} + t', True)}\n{barrier}\n"
            "if (t == 0) { __threadfence(); last = atomicAdd(out + 1000, 1u) == gridDim.x - 1; }\n__syncthreads();\n"
            f"if (last) {{ for (u32 i = t; i < gridDim.x * {self.threads}; i += {self.threads}) sum += {read}; }}"
        )

    def wait_and_barrier(self, faulty: bool) -> tuple[str, str]:
        wait, barrier = WAIT, "__syncwarp();" if "warp()" in self.kind.order else "__syncthreads();"
        if self.kind.between == "a thread":
            barrier = ""
        if faulty:
            wait, barrier = ("", barrier) if self.kind.order.startswith("cp.async") else (wait, "")
        return wait, barrier

    def copied(self, to: str, source: str) -> str:
        """A cp.async of element ``t``."""
        size = {"u32": 4, "u64": 8}[self.type]
        return (
            f'asm volatile("cp.async.ca.shared.global [%0], [%1], {size};" :: '
            f'"r"((u32)__cvta_generic_to_shared({to} + t)), "l"((const {self.type}*){source} + t) : "memory");'
        )

    def copy(self, faulty: bool) -> str:
        wait, barrier = self.wait_and_barrier(faulty)
        return f"{self.copied('data', 'in')}\n{wait}\n{barrier}\nsum += (u32)data[{self.partner}];"

    def source_of_copy(self, faulty: bool) -> str:
        """A copy, and a write to its source; what the copy brings is read at the end."""
        wait, barrier = self.wait_and_barrier(faulty)
        write = self.access("write", "t" if self.kind.between == "a thread" else self.partner, False)
        return (
            f"__shared__ {self.type} copied[{self.threads}];\n{self.copied('copied', 'data')}\n"
            f"{wait}\n{barrier}\n{write}\n{WAIT}\n__syncthreads();\nsum += (u32)copied[{self.partner}];"
        )

    def source(self, name: str, faulty: bool) -> str:
        state = self.draw.getstate()
        body = self.body(faulty)
        self.draw.setstate(state)  # both kernels draw the same
        data = f"{self.type}* data = ({self.type}*)memory;"
        if self.kind.memory == "shared":
            data = (
                f"__shared__ {self.type} data[{self.threads}];\n"
                f"for (u32 i = t; i < sizeof(data) / 4; i += {self.threads}) ((u32*)data)[i] = i * 77u;"
            )
        return (
            f'extern "C" __global__ void {name}(u32* memory, u32* out, const u32* in) {{\n'
            "const u32 t = threadIdx.x, block = blockIdx.x;\n"
            f"__shared__ u32 other[{self.threads}];\nother[t] = t;\n{data}\n"
            "u32 a = in[t], b = in[t + 1], sum = 0; f32 x = 0.5f;\n__syncthreads();\n"
            f"{body}\n{self.last_look()}\n"
            f"out[block * {self.threads} + t] = a ^ b ^ sum;\n}}\n"
        )

    def last_look(self) -> str:
        """Shared memory that nobody reads any more is not written either."""
        part = ".y" if self.type == "uint4" else ""
        return f"__syncthreads();\nsum ^= (u32)data[t]{part};" if self.kind.memory == "shared" else ""

    @property
    def blocks(self) -> int:
        return 3 if self.kind.between == "blocks" else 1


@dataclass(frozen=True)
class Outcome:
    """What the checks said to one pair of kernels: the race's message or "" where it was missed, and false alarms."""

    kind: Kind
    seed: int
    found: str
    false_alarm: str
    right: str
    wrong: str


def outcomes(planted: Sequence[tuple[Kind, int]]) -> list[Outcome]:
    """For each class and seed, all compiled at once."""
    planters = [Planter(kind, seed) for kind, seed in planted]
    sources = [(p.source(f"right{i}", False), p.source(f"wrong{i}", True)) for i, p in enumerate(planters)]
    text = '#include "words.cuh"\n' + "\n".join(part for both in sources for part in both)
    compiled = compile_cuda_module(text, include_dirs=[HERE])
    program = ptx.Program(next(iter(compiled.kernels.values())).ptx)
    found = []
    for i, (planter, (kind, seed)) in enumerate(zip(planters, planted, strict=True)):
        right, wrong = (_messages(program[name], planter) for name in (f"right{i}", f"wrong{i}"))
        found.append(Outcome(kind, seed, wrong, right, *sources[i]))
    return found


def _messages(kernel: ptx.PtxKernel, planter: Planter) -> str:
    """The first finding, in both orders of warps and copies, as ``workbench.check_kernel`` looks; "" if none."""
    for last_warp_first in (False, True):
        memory = np.arange(ELEMENTS, dtype=np.uint32) * np.uint32(2654435761)
        arrays = [memory, np.zeros(ELEMENTS, np.uint32), np.arange(9, ELEMENTS + 9, dtype=np.uint32)]
        report = kernel.launch(
            planter.blocks, planter.threads, arrays, checks=True, last_warp_first=last_warp_first,
            copies_early=last_warp_first, seconds_limit=20,
        )  # fmt: skip
        if report.findings:
            return report.findings[0].message
    return ""


def count(kinds: Iterable[Kind], seeds: Iterable[int]) -> tuple[Counter[Kind], list[Outcome]]:
    """How many races of each class were found, and all outcomes."""
    seen = outcomes([(kind, seed) for seed in seeds for kind in kinds])
    return Counter(one.kind for one in seen if one.found), seen
