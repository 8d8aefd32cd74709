"""A problem with its reference's exact results, kept from one solution to the next.

Fitting a problem's sizes and computing its results takes longer than judging a small solution. Inputs are drawn again
after some solutions all the same: one that left its results somewhere in the file system would help few others.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.errors import ArgumentError
from workbench.judge.arguments import drawn
from workbench.judge.kernelbench.problem import KernelBenchProblem
from workbench.judge.kernelbench.reference import Reference, ReferenceAnswer

_MOST_USES = 16
"""Number of solutions that get the same weights and inputs."""


@dataclass(frozen=True)
class AnsweredProblem:
    """A problem at the sizes that it is judged at, its reference, and an answer for each seed."""

    problem: KernelBenchProblem
    reference: Reference
    answers: tuple[ReferenceAnswer, ...]


_kept: dict[object, AnsweredProblem] = {}
_uses = 0
_answering = threading.Lock()


def answered(path: Path, full: bool, seeds: int | Sequence[int]) -> AnsweredProblem:
    """Return a problem with its answers for ``seeds``, or for as many seeds as that, drawn here.

    Only the latest problem is kept, at its own sizes (``full``) or fitted ones. Raises ArgumentError for a file that is
    not a problem, or whose results are the same for every seed, so that constants would pass; WorkbenchError if the
    reference fails.
    """
    global _uses
    with _answering:
        key = path, path.read_bytes() if path.is_file() else b"", full, seeds if isinstance(seeds, int) else (*seeds,)
        if key not in _kept or _uses >= _MOST_USES:
            earlier = _kept.pop(key, None)
            _kept.clear()
            problem = earlier.problem if earlier is not None else _read(path, full)
            _kept[key] = _answered(problem, drawn(seeds) if isinstance(seeds, int) else seeds)
            _uses = 0
        _uses += 1
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
