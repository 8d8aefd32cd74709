"""Random kernels with sizes as parameters, near to right, each perhaps with slips.

What is proved of one has to hold for it: the PTX machine runs it at small random sizes and must find nothing.
"""

from __future__ import annotations

import math
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
EFFORT = 1_500_000
SHAPES = ("rows", "sums", "tiled", "gathers", "staged", "grid_stride")
"""Kernels near to common ones; others are drawn statement by statement."""


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
        self.block = self.draw.choice(((32,), (64,), (96,), (16, 4), (8, 8), (32, 2)))
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
            f"({one} / {self.draw.choice((3, 5, 7, 12))})", f"({one} % {self.draw.choice((3, 5, 7, 12))})",
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
        makers = [self.rows, self.rows, self.flat, self.shared, self.let, self.wide, self.counted]
        if depth < 2:
            makers += [self.guarded, self.loop, self.loop]
        if depth == 0:
            makers += [self.barrier, self.exchange, self.exchange, self.leave, self.shuffled, self.several]
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

    def wide(self, depth: int) -> str:
        """A place with 64 bits, in guards of both sizes."""
        row = self.draw.choice(("blockIdx.y", "blockIdx.x", "i", "t"))
        column = self.draw.choice(("t", "i", "threadIdx.x"))
        checks = (
            f"{self.slip(f'{row} < n', f'{row} <= n', odds=0.05)} && {self.slip(f'{column} < m', 'true', odds=0.05)}"
        )
        place = self.slip(f"(long long){row} * m + {column}", f"(long long){column} * n + {row}", odds=0.1)
        store = self.draw.choice((f"out[p] = sum + {self.value()};", "sum += x[p];"))
        return f"if ({checks}) {{ long long p = {place}; {store} }}"

    def counted(self, depth: int) -> str:
        """An atomic operation, or one that is not, on elements that threads share."""
        where = self.draw.choice(("t % 7", "i % n", "blockIdx.x", "0"))
        add = self.slip("atomicAdd(&out[p], 1.f);", "out[p] += sum + 1.f;", odds=0.15)
        return f"{{ int p = {where}; if (p < n * m) {add} }}"

    def shuffled(self, depth: int) -> str:
        """A sum over the warp, of which one lane writes."""
        count = (math.prod(self.block) + 31) // 32
        writer = self.slip("t % 32 == 0", "t % 16 == 0", odds=0.15)
        return (
            "for (int s = 16; s > 0; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);\n"
            f"if ({writer}) tile[(t / 32) & {TILE - 1}] = sum;\n{self.slip('__syncthreads();', '', odds=0.2)}\n"
            f"sum = 0.f;\nfor (int w = 0; w < {count}; ++w) sum += tile[w];\n"
            f"{self.slip('__syncthreads();', '', odds=0.2)}"
        )

    def several(self, depth: int) -> str:
        """A branch that all threads of a block take, with a barrier, or one that only some do."""
        test = self.slip(
            self.draw.choice(("n > 3", "blockIdx.x % 2 == 0", "m < n", "(n & 1) == 0")), "t < n", odds=0.15
        )
        inner = "if (t < 64) tile[t] = sum;\n__syncthreads();\nsum += tile[(t + 1) & 63];\n__syncthreads();"
        return f"if ({test}) {{\n{inner}\n}}"

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
        flat = math.prod(self.block)
        if self.draw.random() < 0.5:
            shape = self.draw.choice(SHAPES)
            self.block = self.draw.choice(((32,), (64,), (96,))) if shape != "tiled" else (8, 8)
            grid, body = getattr(Shaped(self), shape)()
        else:
            wide = (f"cdiv(m, {self.block[0]})", "n")
            grid = self.draw.choice(((f"cdiv(n, {self.block[0]})",), ("n",), ("2",), wide, (f"cdiv(n * m, {flat})",)))
            body = f"{self.body()}\nif (i < n * m) out[i] = sum;"
        facts = {"index": self.draw.choice(("0 <= v < n", "0 <= v < n, distinct"))} if self.index else ()
        flat = math.prod(self.block)
        whole = "threadIdx.y * blockDim.x + threadIdx.x"
        source = (
            f'extern "C" __global__ void {name}'
            "(float* out, const float* x, const float* y, const int* index, int n, int m) {\n"
            f"__shared__ __align__(16) float tile[{TILE}];\nint t = {whole}, i = blockIdx.x * {flat} + t;\n"
            f"float sum = 0.f;\n{body}\n}}\n"
        )
        return RandomKernel(self.seed, source, grid, self.block, facts)


class Shaped:
    """Kernels near to common ones, each with a few choices and slips; a function returns grid and body."""

    def __init__(self, writer: Writer):
        self.writer, self.draw, self.slip = writer, writer.draw, writer.slip
        self.threads = writer.block[0]

    def rows(self) -> tuple[tuple[str, ...], str]:
        """A row for each block, whose columns its threads go over."""
        row = self.slip("(int)blockIdx.x", "(int)blockIdx.x + 1", odds=0.05)
        place = self.draw.choice(("r * m + c", "(long long)r * m + c", "(size_t)r * m + c"))
        step = self.slip(str(self.threads), str(self.threads // 2), odds=0.1)
        limit = self.slip("m", "m + 1", "n", odds=0.08)
        extra = self.draw.choice(("", "if (c % 2 == 0) ", "if (c & 4) ", "if (c / 3 < m - 1) "))
        store = self.draw.choice((f"{extra}out[p] = x[p] * 2.f + c;", f"{extra}sum += x[p];"))
        last = self.slip("t == 0", "t <= 1", odds=0.1)
        end = f"if ({last}) out[(long long)blockIdx.x * m] = sum + t;" if "sum" in store else ""
        return (
            "n",
        ), f"int r = {row};\nfor (int c = t; c < {limit}; c += {step}) {{ auto p = {place}; {store} }}\n{end}"

    def sums(self) -> tuple[tuple[str, ...], str]:
        """A tree over shared memory."""
        start = "64" if self.threads > 64 else str(self.threads)
        own = self.slip(f"if (t < {TILE}) ", "", odds=0.1)
        inside = self.slip("__syncthreads();", "", "__syncwarp();", odds=0.15)
        other = self.slip("t + s", "t + s + 1", odds=0.1)
        parts = [f"{own}tile[t] = i < n ? y[i] : 0.f;", self.slip("__syncthreads();", "", odds=0.1)]
        parts += [f"for (int s = {start} / 2; s > 0; s >>= 1) {{ if (t < s) tile[t] += tile[{other}]; {inside} }}"]
        where = self.slip("blockIdx.x", "0", "blockIdx.x / 2", odds=0.15)
        parts += [f"if (t == 0) out[{where}] = tile[0] + {self.writer.value()};"]
        return (f"cdiv(n, {self.threads})",), "\n".join(parts)

    def tiled(self) -> tuple[tuple[str, ...], str]:
        """A tile of 8 x 8 elements, read in one direction and written in the other."""
        parts = ["int r = blockIdx.y * 8 + threadIdx.y, c = blockIdx.x * 8 + threadIdx.x;"]
        there = self.slip("r < n && c < m", "r <= n && c < m", "r < n", odds=0.1)
        parts += [f"if ({there}) tile[threadIdx.y * 8 + threadIdx.x] = x[(long long)r * m + c];"]
        parts += [self.slip("__syncthreads();", "", "__syncwarp();", odds=0.15)]
        back = self.slip("r < n && c < m", "c < m", odds=0.1)
        seen = self.draw.choice(("threadIdx.x * 8 + threadIdx.y", "(threadIdx.y ^ 1) * 8 + threadIdx.x", "63 - t"))
        parts += [
            f"if ({back}) out[{self.slip('(long long)r * m + c', '(long long)c * n + r', odds=0.1)}] = tile[{seen}];"
        ]
        return ("cdiv(m, 8)", "cdiv(n, 8)"), "\n".join(parts)

    def gathers(self) -> tuple[tuple[str, ...], str]:
        """Rows that an index names, read or written."""
        self.writer.index = True
        column = f"int c = blockIdx.x * {self.threads} + t, r = blockIdx.y;"
        there = self.slip("c < m", "c <= m", odds=0.08)
        one, other = "(long long)index[r] * m + c", "(long long)r * m + c"
        store = self.draw.choice(
            (f"out[{other}] = x[{one}];", f"out[{one}] = x[{other}];", f"atomicAdd(&out[{one}], 1.f);")
        )
        return (f"cdiv(m, {self.threads})", "n"), f"{column}\nif ({there}) {store}"

    def staged(self) -> tuple[tuple[str, ...], str]:
        """Copies of ``cp.async`` into halves of shared memory by 32 threads, of any number of tiles."""
        self.writer.block, self.threads = (32,), 32
        tiles = self.draw.choice(("m / 32", "n", "(m + 31) / 32"))
        wait = self.slip("1", "2", odds=0.15)
        first, second = self.slip("__syncthreads();", "", odds=0.15), self.slip("__syncthreads();", "", odds=0.15)
        inside = self.slip("at < n * m", "true", odds=0.05)
        copy = (
            "auto copy = [&](int k) { int at = (k * (int)gridDim.x + (int)blockIdx.x) * 32 + t;\n"
            f'if (at >= 0 && {inside}) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" '
            ':: "r"((unsigned)__cvta_generic_to_shared(&tile[(k & 1) * 32 + t])), "l"(x + at) : "memory"); };'
        )
        commit = 'asm volatile("cp.async.commit_group;" ::: "memory");'
        body = [copy, f"int tiles = {tiles};", "copy(0);", commit, "for (int k = 0; k < tiles; ++k) {"]
        body += [
            "if (k + 1 < tiles) copy(k + 1);",
            commit,
            f'asm volatile("cp.async.wait_group {wait};" ::: "memory");',
        ]
        body += [first, f"sum += tile[(k & 1) * 32 + {self.draw.choice(('t', '31 - t', '(t ^ 3)'))}];", second, "}"]
        return ("n",), "\n".join([*body, "if (i < n * m) out[i] = sum;"])

    def grid_stride(self) -> tuple[tuple[str, ...], str]:
        """All elements, by any number of blocks."""
        step = self.slip(
            f"(int)gridDim.x * {self.threads}", f"(int)gridDim.x * {self.threads // 2}", str(self.threads), odds=0.1
        )
        limit = self.slip("n * m", "n * m + 1", odds=0.08)
        part = self.draw.choice(("x[k]", "y[k / m]", "y[k % n]", "x[k] + (k % 3)"))
        store = self.slip("out[k]", "out[k / 2]", odds=0.08)
        return (self.draw.choice(("2", "n", f"cdiv(n, {self.threads})")),), (
            f"for (int k = i; k < {limit}; k += {step}) {store} = {part} + k;"
        )


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
