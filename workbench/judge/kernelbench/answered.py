"""A problem with its reference's exact results, kept from one solution to the next.

Fitting a problem's sizes and computing its results takes longer than judging a small solution. A solution never sees
the inputs (`workbench.judge.kernelbench.replay`), so that all get the same.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.errors import ArgumentError
from workbench.judge.arguments import drawn
from workbench.judge.kernelbench.problem import SMALL, KernelBenchProblem
from workbench.judge.kernelbench.reference import Reference, ReferenceAnswer
from workbench.ops.declared.elsewhere import CHANGES, Elsewhere, Meaningless


@dataclass(frozen=True)
class AnsweredProblem:
    """A problem at the sizes that it is judged at, its reference, and an answer for each seed."""

    problem: KernelBenchProblem
    reference: Reference
    answers: tuple[ReferenceAnswer, ...]

    @functools.cached_property
    def small(self) -> SmallProblem:
        """The problem at sizes that are small enough to change its inputs in many ways."""
        fitted = self.problem.fitted(SMALL)
        reference = Reference(fitted, drawn(1)[0])
        answer = reference.answer(self.answers[-1].seed)
        changed = {name: reference.changed(answer, name) for name in CHANGES}
        return SmallProblem(
            fitted, reference, answer, {name: one for name, one in changed.items() if _has_meaning(one)}
        )


@dataclass(frozen=True)
class SmallProblem:
    """A problem at small sizes, and the cases of its answer with changed inputs, by the names of their changes."""

    problem: KernelBenchProblem
    reference: Reference
    answer: ReferenceAnswer
    changed: Mapping[str, Elsewhere]


def _has_meaning(case: Elsewhere) -> bool:
    try:
        case.require_meaning()
    except Meaningless:
        return False
    return True


_kept: dict[object, AnsweredProblem] = {}
_answering = threading.Lock()


def answered(path: Path, full: bool, seeds: int | Sequence[int]) -> AnsweredProblem:
    """Return a problem with its answers for ``seeds``, or for as many seeds as that, drawn here.

    Only the latest problem is kept, at its own sizes (``full``) or fitted ones. Raises ArgumentError for a file that is
    not a problem, or whose results are the same for every seed, so that constants would pass; WorkbenchError if the
    reference fails.
    """
    with _answering:
        key = path, path.read_bytes() if path.is_file() else b"", full, seeds if isinstance(seeds, int) else (*seeds,)
        if key not in _kept:
            _kept.clear()
            _kept[key] = _answered(_read(path, full), drawn(seeds) if isinstance(seeds, int) else seeds)
        return _kept[key]


def _read(path: Path, full: bool) -> KernelBenchProblem:
    found = KernelBenchProblem.read(path)
    return found if full else found.fitted()


def _answered(problem: KernelBenchProblem, seeds: Sequence[int]) -> AnsweredProblem:
    reference = Reference(problem, drawn(1)[0])
    answers = tuple(reference.answer(seed) for seed in seeds)
    other = answers[1] if len(answers) > 1 else reference.answer(drawn(1)[0])
    if all(torch.equal(answers[0].results[name], other.results[name]) for name in other.results):
        what = f"{problem.path.name}, whose answer is the same for every seed"
        raise ArgumentError("problem", what, "one whose results depend on random inputs", "Constants would pass.")
    return AnsweredProblem(problem, reference, answers)
