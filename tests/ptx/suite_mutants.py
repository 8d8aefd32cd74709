"""Mutants of the suite's kernels, derived from their source: each lacks one thing that keeps it right.

A mutant is one edit of one place in a kernel or in a function that it uses. All mutants of a file are compiled at once,
each in a namespace of its own, with ``#line`` so that findings name the lines of the unchanged file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from suite_sample import Sample, function_lines, functions, source_lines

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout
from workbench.toolchain import compile_cuda_module

RACES = {"shared race", "warp race", "global race"}
# What each class of mutants does, and which kinds of findings count as having noticed it. "wrong value" stands for a
# mutant that breaks no rule of the machine, and that only its result gives away.
EXPECTED = {
    "no barrier": {"uninitialised shared read"} | RACES,
    "no warp barrier": {"warp race"},
    "no named barrier": {"deadlock"},
    "no fence": {"shared race", "global race"},
    "no commit": {"cp.async data read before wait"},
    "no wait": {"cp.async data read before wait"},
    "no atomic": RACES,
    "no volatile": {"global race", "timeout"},
    "no bound": {"out-of-bounds", "absent lane", "barrier misuse"},
    "bound off by one": {"out-of-bounds", "absent lane", "barrier misuse"},
    "loop off by one": {
        "out-of-bounds",
        "uninitialised shared read",
        "global race",
        "deadlock",
        "timeout",
        "wrong value",
    },
    "lanes off by one": {"out-of-bounds", "absent lane", "deadlock", "timeout", "wrong value"} | RACES,
    "mask too narrow": {"absent lane"},
    "mask too wide": {"absent lane"},
}
SPINS = 400_000  # warp instructions, far more than any kernel of the suite needs at these sizes

PRELUDE = """
#define plain_atomicAdd(p, v) [&] { auto* q_ = (p); auto old_ = *q_; *q_ = old_ + (v); return old_; }()
#define plain_atomicExch(p, v) [&] { auto* q_ = (p); auto old_ = *q_; *q_ = (v); return old_; }()
#define plain_atomicCAS(p, c, v) [&] { auto* q_ = (p); auto old_ = *q_; if (old_ == (c)) *q_ = (v); return old_; }()
"""


@dataclass(frozen=True)
class Mutant:
    """``before`` in columns ``start`` to ``end`` of line ``line`` (from 1) of the sample's file becomes ``after``."""

    sample: Sample
    kind: str
    line: int
    start: int
    end: int
    after: str
    number: int  # among the mutants of the file
    twin: int  # among those of the kernel that would have the same name

    @property
    def entry(self) -> str:
        return f"{self.sample.kernel}_m{self.number}"

    @property
    def text(self) -> str:
        """What the edited line becomes."""
        line = source_lines(self.sample.path)[self.line - 1]
        return line[: self.start] + self.after + line[self.end :]

    @property
    def name(self) -> str:
        """The kernel, the class and the edit: it does not change with lines elsewhere."""
        return name_of(self.sample, self.kind, self.line, self.start, self.end, self.after, self.twin)


def name_of(sample: Sample, kind: str, n: int, start: int, end: int, after: str, twin: int = 0) -> str:
    before = source_lines(sample.path)[n - 1][start:end]
    edit = f": {before} -> {after}" if after.strip(";") else ""
    return f"{sample.kernel}: {kind}{edit}" + (f" ({twin + 1})" if twin else "")


STATEMENTS = {
    "no barrier": r"__syncthreads\(\);",
    "no warp barrier": r"__syncwarp\(\);",
    "no named barrier": r"barrier_(?:sync|arrive)\([^;{]*\);",
    "no fence": r"__threadfence(?:_block)?\(\);",
    "no commit": r"commit_copies\(\);",
    "no wait": r"wait_copies<\d>\(\);",
}
COMPARISON = re.compile(r"(?P<left>[\w\[\]+*/%.& -]*[\w\]]) (?P<how><|>=) (?P<right>\w[\w+*/%. -]*)")
Edit = tuple[str, int, int, str]


def _parameters(sample: Sample) -> set[str]:
    """Names of the kernel's scalar parameters: its bounds."""
    lines, place = source_lines(sample.path), function_lines(sample.path, sample.kernel)
    head = " ".join(lines[n - 1] for n in place).split("(", 1)[1].split(")")[0]
    return {name for kind, name in re.findall(r"(int) (\w+)(?=,|$)", head) if kind}


def _comparisons(line: str, bounds: set[str]) -> Iterator[Edit]:
    for found in COMPARISON.finditer(line):
        left, how, right = (
            found["left"].split("return ")[-1].split("&& ")[-1].strip(),
            found["how"],
            found["right"].strip(),
        )
        start, end = found.start() + found["left"].rindex(left), found.start("right") + len(right)
        header = re.match(r".*\bfor \(", line[:start])
        if header and line[:start].count(";", header.end()) == 1:
            if how == "<" and not right.isdigit():
                yield "loop off by one", start, end, f"{left} <= {right}"
            continue
        if how == "<":
            always, wider = "true", f"{left} <= {right}"
        else:
            always, wider = (
                ("false", f"{left} > {right}") if "return" in line[end:] else ("true", f"{left} >= {right} - 1")
            )
        words = set(re.findall(r"\w+", line if right == "0" else right))  # 0 is a bound beside one from above
        if bounds & words:
            yield "no bound", start, end, always
            yield "bound off by one", start, end, wider
        else:
            yield "lanes off by one", start, end, wider


def _masks(line: str) -> Iterator[Edit]:
    for found in re.finditer(r"__\w+_sync\((\w+)", line):
        mask = found[1]
        if mask.startswith("0x"):
            yield "mask too narrow", *found.span(1), hex(int(mask, 16) >> 1)
            if mask != "0xffffffff":
                yield "mask too wide", *found.span(1), hex(int(mask, 16) << 1 | 1)
        else:
            yield "mask too wide", *found.span(1), "0xffffffff"


def _edits(line: str, bounds: set[str]) -> Iterator[Edit]:
    line = line.split("//")[0]
    for kind, pattern in STATEMENTS.items():
        for found in re.finditer(pattern, line):
            yield kind, *found.span(), ";"
    yield from _comparisons(line, bounds)
    yield from _masks(line)
    for found in re.finditer(r"\batomic\w+(?=\()", line):
        yield "no atomic", *found.span(), f"plain_{found[0]}"
    for found in re.finditer(r"\bvolatile (?!\()", line):
        yield "no volatile", *found.span(), ""


def lines_of(sample: Sample) -> set[int]:
    """The line numbers at which a finding in this kernel may stand."""
    return {n for place in functions(sample.path, sample.kernel) for n in place}


def mutants(samples: tuple[Sample, ...]) -> list[Mutant]:
    found: list[Mutant] = []
    counts: dict[object, int] = {}

    def count(what: object) -> int:
        counts[what] = counts.get(what, -1) + 1
        return counts[what]

    for sample in samples:
        bounds, lines = _parameters(sample), source_lines(sample.path)
        for n in (n for place in functions(sample.path, sample.kernel) for n in place):
            if lines[n - 1].startswith(("extern", "__device__")) and not lines[n - 1].endswith("}"):
                continue
            for kind, start, end, after in _edits(lines[n - 1], bounds):
                twin = count(name_of(sample, kind, n, start, end, after))
                found.append(Mutant(sample, kind, n, start, end, after, count(sample.file), twin))
    return found


def untouched(samples: tuple[Sample, ...]) -> list[Mutant]:
    """Each kernel as it is, in the dress of a mutant: what the harness itself does to it must not matter."""
    return [Mutant(sample, "untouched", 1, 0, 0, "", 100_000 + i, 0) for i, sample in enumerate(samples)]


def _translation_unit(group: list[Mutant]) -> str:
    path = group[0].sample.path
    lines = source_lines(path)
    kernels = {
        name: function_lines(path, name) for line in lines for name in re.findall(r'^extern "C".* (\w+)\(', line)
    }
    out = [line for line in lines if line.startswith("#include")] + [PRELUDE]
    for mutant in group:
        hidden = {n for name, place in kernels.items() if name != mutant.sample.kernel for n in place}
        out += [f"namespace m{mutant.number} {{", f'#line 1 "{path}"']
        for n, line in enumerate(lines, 1):
            text = "" if n in hidden or line.startswith("#include") else mutant.text if n == mutant.line else line
            out.append(
                text.replace(f" {mutant.sample.kernel}(", f" {mutant.entry}(") if text.startswith("extern") else text
            )
        out.append("}")
    return "\n".join(out)


def build(group: list[Mutant]) -> ptx.Program:
    """The program that holds all mutants of one file."""
    module = compile_cuda_module(_translation_unit(group), arch="sm_80")
    return ptx.Program.from_text(next(iter(module.kernels.values())).ptx)


def stopped(error: KernelFault | KernelTimeout) -> str:
    """The kind of a fault that ended the launch."""
    return "timeout" if isinstance(error, KernelTimeout) else str(error).split(": ")[1].split(" at ")[0]
