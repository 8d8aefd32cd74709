"""Random kernels with sizes as parameters, near to right, each perhaps with slips.

What is proved of one has to hold for it: the PTX machine runs it at small random sizes and must find nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.proof.family import Family
from workbench.proof.proving import HIGHEST, ProofAttempt, attempt
from workbench.proof.solver import Effort
from workbench.proof.witness import FINDINGS
from workbench.toolchain import CompiledKernel, compile_cuda_module

HERE = Path(__file__).parent
TILE = 64
EFFORT = 1_000_000


@dataclass(frozen=True)
class RandomKernel:
    """A kernel with its launch; ``seed`` makes it again."""

    seed: int
    source: str
    grid: tuple[str, ...]
    block: tuple[int, ...]
    facts: Any

    @property
    def args(self) -> dict[str, str]:
        """Arguments of the family."""
        return {"out": "float32[n, m]", "x": "float32[n, m]", "y": "float32[n]", "index": "int32[n]"}


class Writer:
    """Draws one kernel. ``names`` are integers in scope, by how large they may be."""

    def __init__(self, seed: int):
        self.seed, self.draw = seed, random.Random(seed)
        self.block = self.draw.choice(((32,), (64,), (96,), (16, 4), (8, 8)))
        self.names = ["t", "i", "n", "m"]
        self.fresh = 0
        self.index = self.draw.random() < 0.4

    def slip(self, right: str, *wrong: str, odds: float = 0.12) -> str:
        return self.draw.choice(wrong) if self.draw.random() < odds else right

    def number(self) -> str:
        return str(self.draw.choice((0, 1, 1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 63, 64, 100)))

    def integer(self, depth: int = 2) -> str:
        if depth == 0 or self.draw.random() < 0.3:
            return self.draw.choice([*self.names, self.number()])
        one, other = self.integer(depth - 1), self.integer(depth - 1)
        power = self.draw.choice((1, 2, 4, 8, 32))
        return self.draw.choice((
            f"({one} + {other})", f"({one} - {other})", f"({one} * {self.number()})", f"({one} / {power})",
            f"({one} % {power})", f"({one} & {power * 2 - 1})", f"((unsigned)({one}) >> {self.draw.randint(1, 5)})",
            f"({one} << {self.draw.randint(1, 3)})", f"min({one}, {other})", f"max({one}, {other})",
            f"({one} ^ {power})", f"({one} < {other} ? {one} : {self.number()})", f"({one} | {power})",
        ))  # fmt: skip

    def variable(self, value: str, kind: str = "int") -> tuple[str, str]:
        self.fresh += 1
        name = f"v{self.fresh}"
        self.names.append(name)
        return name, f"{kind} {name} = {value};"

    def body(self, depth: int = 0) -> str:
        count = self.draw.randint(1, 3 if depth else 4)
        return "\n".join(self.statement(depth) for _ in range(count))

    def statement(self, depth: int) -> str:
        makers = [self.rows, self.rows, self.flat, self.shared, self.let]
        if depth < 2:
            makers += [self.guarded, self.loop, self.loop]
        if depth == 0:
            makers += [self.barrier, self.exchange, self.exchange, self.leave]
        elif self.draw.random() < 0.1:
            makers += [self.barrier]
        return self.draw.choice(makers)(depth)

    def let(self, depth: int) -> str:
        return self.variable(self.integer())[1]

    def barrier(self, depth: int) -> str:
        return self.slip("__syncthreads();", "__syncwarp();", odds=0.2)

    def leave(self, depth: int) -> str:
        return (
            f"if ({self.integer(1)} {self.draw.choice(('>=', '>', '=='))} {self.draw.choice(('n', 'm', '40'))}) return;"
        )

    def value(self) -> str:
        return "0.5f * (threadIdx.x + 100 * threadIdx.y + 1000 * blockIdx.x + 7000 * blockIdx.y)"

    def rows(self, depth: int) -> str:
        """A row and a column, with the checks that it takes."""
        row = self.draw.choice(("(int)blockIdx.y", "(int)blockIdx.x", "i / m", "i", self.integer(1), "index[i % n]"))
        column = self.draw.choice(("t", "i", "i % m", self.integer(1)))
        if "index" in row and not self.index:
            row = "i"
        checks = [self.slip("c >= 0", "c >= -1", odds=0.05), self.slip("c < m", "c <= m", "c < n", odds=0.1)]
        checks += [self.slip("r >= 0", "true", odds=0.05), self.slip("r < n", "r <= n", "r < m", "true", odds=0.1)]
        place = self.slip("r * m + c", "c * n + r", "r * n + c", odds=0.08)
        store = self.draw.choice((f"out[{place}] = sum + {self.value()};", f"sum += x[{place}];"))
        return f"{{ int r = {row}, c = {column}; if ({' && '.join(checks)}) {store} }}"

    def flat(self, depth: int) -> str:
        total, place = self.draw.choice((("n", "y"), ("n * m", "x"), ("n * m", "out")))
        where = self.draw.choice(("i", self.integer(1), self.integer()))
        checks = f"p >= 0 && {self.slip(f'p < {total}', f'p <= {total}', odds=0.08)}"
        store = f"out[p] = sum + {self.value()};" if place == "out" else f"sum += {place}[p];"
        return f"{{ int p = {where}; if ({checks}) {store} }}"

    def shared(self, depth: int) -> str:
        where = self.draw.choice(("t", "t", self.integer(1), self.integer()))
        where = self.slip(f"({where}) & {TILE - 1}", where, f"({where}) % {TILE + 1}", odds=0.2)
        return self.draw.choice((f"tile[{where}] = sum + {self.value()};", f"sum += tile[{where}];"))

    def exchange(self, depth: int) -> str:
        """A tile that all fill and others read."""
        shift = self.draw.choice(("t ^ 1", f"{TILE - 1} - t", "t + 1", "t * 2", "t"))
        own = self.slip("t < 64", "t <= 64", odds=0.1)
        parts = [f"if ({own}) tile[t] = sum + {self.value()};", self.slip("__syncthreads();", "", "__syncwarp();")]
        parts += [f"sum += tile[({shift}) & {TILE - 1}];", self.slip("__syncthreads();", "", odds=0.3)]
        if self.draw.random() < 0.4:
            self.fresh += 1
            k = f"k{self.fresh}"
            limit = self.slip(self.draw.choice(("n", "m", "4", "(n + 7) / 8")), "t", "i", odds=0.1)
            return f"for (int {k} = 0; {k} < {limit}; {self.step(k)}) {{\n" + "\n".join(parts) + "\n}"
        return "\n".join(parts)

    def step(self, name: str) -> str:
        return self.draw.choice((f"++{name}", f"{name} += 2", f"{name} += 4"))

    def guarded(self, depth: int) -> str:
        test = f"{self.integer(1)} {self.draw.choice(('<', '<=', '==', '>'))} {self.integer(1)}"
        inner = self.inner(depth)
        other = f" else {{\n{self.inner(depth)}\n}}" if self.draw.random() < 0.3 else ""
        return f"if ({test}) {{\n{inner}\n}}{other}"

    def inner(self, depth: int) -> str:
        before = len(self.names)
        found = self.body(depth + 1)
        del self.names[before:]
        return found

    def loop(self, depth: int) -> str:
        before = len(self.names)
        self.fresh += 1
        name = f"k{self.fresh}"
        start = self.draw.choice(("0", "t", "i", "1", self.integer(1)))
        limit = self.draw.choice(("n", "m", "8", "n * m", self.integer(1)))
        step = self.draw.choice(("1", "2", "3", str(self.block[0]), "(int)(gridDim.x * blockDim.x)", "8"))
        self.names.append(name)
        inner = self.body(depth + 1)
        if self.draw.random() < 0.15:
            inner += f"\nif (sum > {self.number()}.f) break;"
        del self.names[before:]
        return f"for (int {name} = {start}; {name} < min({limit}, 500); {name} += {step}) {{\n{inner}\n}}"

    def kernel(self, name: str) -> RandomKernel:
        flat = self.block[0] * (self.block[1] if len(self.block) > 1 else 1)
        wide = (f"cdiv(m, {self.block[0]})", "n")
        grid = self.draw.choice(((f"cdiv(n, {self.block[0]})",), ("n",), ("2",), wide, (f"cdiv(n * m, {flat})",)))
        facts = {"index": self.draw.choice(("0 <= v < n", "0 <= v < n, distinct"))} if self.index else ()
        whole = "threadIdx.y * blockDim.x + threadIdx.x"
        source = (
            f'extern "C" __global__ void {name}'
            "(float* out, const float* x, const float* y, const int* index, int n, int m) {\n"
            f"__shared__ float tile[{TILE}];\nint t = {whole}, i = blockIdx.x * {flat} + t;\nfloat sum = 0.f;\n"
            f"{self.body()}\nif (i < n * m) out[i] = sum;\n}}\n"
        )
        return RandomKernel(self.seed, source, grid, self.block, facts)


def draw(seeds: range) -> list[tuple[RandomKernel, CompiledKernel]]:
    """Return the kernels of some seeds, compiled together."""
    kernels = [Writer(seed).kernel(f"kernel{seed}") for seed in seeds]
    compiled = compile_cuda_module("\n".join(one.source for one in kernels))
    return [(one, compiled[f"kernel{one.seed}"]) for one in kernels]


def proved(kernel: RandomKernel, compiled: CompiledKernel) -> ProofAttempt | None:
    """Return the proof if everything is proved, for sizes that do not wrap; no counterexample is looked for."""
    family = Family(compiled, kernel.grid, kernel.block, kernel.args, kernel.facts)
    found = attempt(family, HIGHEST, Effort(EFFORT, models=False), lambda made, failure: True)
    return found if found.proved else None


def contradiction(kernel: RandomKernel, compiled: CompiledKernel, proof: ProofAttempt, runs: int) -> str:
    """Return what the machine finds at small random sizes in a kernel that is proved, or an empty text.

    Checks with the proof have to find what others find, and give the same results.
    """
    rng = np.random.default_rng(kernel.seed)
    kinds = {kind for several in FINDINGS.values() for kind in several}
    for _ in range(runs):
        n, m = (int(one) for one in rng.choice((1, 2, 3, 7, 31, 32, 33, 40, 64, 65, 90), 2))
        index = rng.permutation(n).astype(np.int32)
        if isinstance(kernel.facts, dict) and "distinct" not in kernel.facts["index"]:
            index = rng.integers(0, n, n).astype(np.int32)
        numbers = [rng.standard_normal(size, np.float32) for size in ((n, m), (n, m), (n,))]
        grid = tuple(eval(one, {"cdiv": lambda a, b: -(-a // b), "n": n, "m": m}) for one in kernel.grid)
        kept = [one.copy() for one in numbers]
        try:
            report = wb.check_kernel(compiled, grid=grid, block=kernel.block, args=[*numbers, index, n, m])
            again = wb.check_kernel(compiled, grid=grid, block=kernel.block, args=[*kept, index, n, m], proof=proof)
        except WorkbenchError as error:
            if "deadlock" in str(error):
                return f"n = {n}, m = {m}: {error}"
            continue
        found = [one for one in report.findings if one.kind in kinds]
        if found:
            return f"n = {n}, m = {m}: {found[0].message}"
        use = again.launch.proof
        if use is None or not use.whole or report.findings != again.findings:
            return f"n = {n}, m = {m}: {use}, {report.findings}, {again.findings}"
        if not all(np.array_equal(*both, equal_nan=True) for both in zip(numbers, kept, strict=True)):
            return f"n = {n}, m = {m}: results differ with the proof"
    return ""
