"""``prove``: a verdict on a kernel for all sizes, threads and orders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.argument_kinds import checked_kinds
from workbench.errors import ArgumentError
from workbench.launch.checking import is_kernel
from workbench.launch.loading import kernel_to_launch
from workbench.proof.execution import Execution
from workbench.proof.family import Family, size_limits
from workbench.proof.queries import Failure, Queries
from workbench.proof.solver import Effort, OutOfBudget, require_solver
from workbench.proof.specification import Specification
from workbench.proof.unknown import Unknown
from workbench.proof.verdict import PROPERTIES, PROVED, REFUTED, UNKNOWN, Counterexample, Proof
from workbench.proof.witness import Values, counterexample
from workbench.ptx.parse import parse

EFFORT = 120_000_000
"""Resources of a proof, in Z3's own count: about a minute."""
_EFFORT_WITHOUT = 12_000_000
"""Resources of the trials with fewer preconditions."""
_HIGHEST = 3
"""Level of `size_limits` with the most preconditions."""


@checked_kinds
def prove(
    kernel: Any,
    *,
    grid: Any = None,
    block: Any = None,
    args: Sequence[object] | Mapping[str, object] | None = None,
    facts: Any = (),
    shared_bytes: int | str = 0,
    arch: str | None = None,
    effort: int = EFFORT,
    run: bool = True,
) -> Proof:
    """Prove that no launch of a family has an access out of bounds, a race, or a barrier that only some threads reach.

    The sizes are symbols: the proof holds for all of them, and for every order of threads and blocks::

        wb.prove(module.transpose, grid=("cdiv(cols, 32)", "cdiv(rows, 32)"), block=(32, 32),
                 args={"out": "float32[cols, rows]", "x": "float32[rows, cols]"})

    The PTX is what is proved, for one generic thread, or two of them. Arithmetic of 32 bits wraps as it does on a GPU.
    If the proof needs sizes for which it does not, these are among the preconditions of the verdict.

    Args:
        kernel: a kernel of `load_cuda` or `load_ptx`, or a CompiledKernel, such as of ``compile_triton``.
        grid: blocks, one to three numbers or formulas of sizes.
        block: threads of a block, one to three numbers; a kernel of Triton has its own.
        args: for each parameter, in order or by name, a tensor as ``"float32[rows, cols]"``, a formula of sizes, or a
            value. An integer without one is a size of its own name.
        facts: comparisons of sizes, such as ``"cols % 16 == 0"``, and mappings from tensors to facts about their
            elements v at i: ``{"index": "0 <= v < rows, distinct"}``.
        shared_bytes: dynamic shared memory in bytes, or a formula.
        arch: only for errors: what a compiled kernel was compiled for is fixed.
        effort: resources of the solver, a number that means the same on every machine.
        run: False to leave counterexamples unconfirmed; then nothing is refuted.

    Returns:
        `Proof`: .status is "proved", "refuted" (by a launch in which the machine finds it) or "unknown".

    Raises:
        ArgumentError: an argument that cannot be used.
        MissingToolError: Z3 is not installed.
    """
    require_solver()
    if not is_kernel(kernel):
        raise ArgumentError("kernel", type(kernel).__name__, "a kernel of load_cuda, or compiled", "Load it first.")
    if grid is None:
        raise ArgumentError("grid", None, "the blocks, as numbers or formulas", 'grid="cdiv(n, 256)"')
    compiled, _ = kernel_to_launch(kernel, None, arch)
    return prove_family(Family(compiled, grid, block, args, facts, shared_bytes), kernel, effort=effort, run=run)


def prove_family(family: Family, kernel: Any, *, effort: int = EFFORT, run: bool = True) -> Proof:
    """Prove a family of launches; ``kernel`` is what a run of the machine takes."""
    started = time.process_time()
    examples: list[Counterexample] = []

    def confirmed(made: Specification, failure: Failure) -> bool:
        if failure.values:
            examples.append(counterexample(made, failure, kernel, run))
        return bool(examples) and examples[-1].holds

    best = _attempt(family, _HIGHEST, effort, confirmed)
    questions, overflow, refuted = best.questions, "", bool(examples) and examples[-1].holds
    for level in range(_HIGHEST if best.proved else 0):
        fewer = _attempt(family, level, _EFFORT_WITHOUT, lambda made, failure: True)
        questions += fewer.questions
        if fewer.proved:
            best = fewer
            break
        overflow = overflow or _overflow(fewer)
    failed = {one.kind: UNKNOWN for one in best.failures}
    left = dict.fromkeys(PROPERTIES, UNKNOWN if best.unknown or refuted else PROVED)
    properties = left | failed | ({examples[-1].kind: REFUTED} if refuted else {})
    return Proof(
        family.kernel.label,
        REFUTED if refuted else PROVED if best.proved else UNKNOWN,
        best.specification.launches,
        _preconditions(best.specification),
        properties,
        tuple(examples[-1:] if refuted else examples),
        () if refuted else best.reasons,
        overflow,
        questions,
        time.process_time() - started,
    )


@dataclass
class _Attempt:
    specification: Specification
    failures: list[Failure]
    unknown: str
    questions: int

    @property
    def proved(self) -> bool:
        return not self.failures and not self.unknown

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why it is not proved, where there is no counterexample."""
        open_ones = [f"{one.text}: the solver has no answer" for one in self.failures if not one.values]
        return (*([self.unknown] if self.unknown else []), *open_ones)


def _attempt(
    family: Family, level: int, effort: int, enough: Callable[[Specification, Failure], bool]
) -> _Attempt:  # fmt: skip
    """Try to prove a family with the preconditions of a level, until a failure is ``enough``."""
    specification, budget = family.specification(size_limits(level)), Effort(effort)
    failures: list[Failure] = []
    unknown = ""
    try:
        execution = Execution(parse(family.kernel.ptx), family.kernel.name, specification, budget)
        execution.run()
        for one in Queries(execution).failures():
            failures.append(one)
            if enough(specification, one):
                break
    except Unknown as error:
        unknown = str(error)
    except OutOfBudget:
        unknown = "the effort is used up: give facts, or a larger effort="
    return _Attempt(specification, failures, unknown, budget.questions)


def _preconditions(made: Specification) -> tuple[str, ...]:
    """Return the preconditions in words: the sizes with their least values first."""
    least: dict[int | None, list[str]] = {}
    for name, size in made.sizes.items():
        atom = size.atom
        assert atom is not None
        least.setdefault(atom.low if atom.low == 1 else None, []).append(name)
    sizes = [f"{', '.join(names)} >= 1" if low == 1 else ", ".join(names) for low, names in least.items()]
    data = [f"{name}: {fact.text}" for name, fact in made.data.items()]
    return (*sizes, *dict.fromkeys(made.stated), *data)


def _overflow(attempt: _Attempt) -> str:
    """Return where 32 bits do not do without preconditions; "" unless a launch is found that surely gets there."""
    for one in attempt.failures:
        exact = not any(atom.kind in ("round", "unknown") for atom, _ in one.values)
        if one.values and exact:
            values = Values(one.values)
            sizes = ", ".join(f"{name} = {values.of(size):,}" for name, size in attempt.specification.sizes.items())
            return f"without these preconditions: {one.text} at {sizes}"
    return ""
