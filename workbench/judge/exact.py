"""Exact column of a verdict: whether a candidate's kernels are the same computation as the reference.

It stands beside the verdict and never changes it: overflow, rounding and NaN are what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from workbench.analysis.exact import (
    ExactAnswer,
    ExactNames,
    Explanation,
    NoExactRule,
    Part,
    Programs,
    RingTensor,
    agreement,
    cause_in,
    elements,
    explained,
    is_float,
    opcodes_of,
    part_of,
    roundings_of,
    unseen_by,
)
from workbench.base.busy import OwnDeadline
from workbench.errors import WorkbenchError
from workbench.judge.launching import Failed, RunOrder
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.exact_runs import bytes_of, drawn, results_of_formula, results_of_reference
from workbench.ops.tensors.inputs import Input
from workbench.ops.tensors.run_tensors import place_of
from workbench.ops.variant import TorchVariant

EXACT = RunOrder("the usual order of warps, on elements of a ring", {"exact": True, "checks": False})

_LAUNCHES, SECONDS = 300, 15.0
"""Limits of the explanation of a difference."""


@dataclass(frozen=True)
class Sides:
    """Two programs that are compared: a candidate's kernels, and torch for ops whose cases have no reference in torch.

    ``run`` launches the ``kernels`` on a case, with some of its tensors replaced, and returns all by name; ``formula``
    is a variant of the op in plain torch, and ``problem`` what both solve. ``constants`` are the numbers in the kernels
    and their arguments, and ``seconds`` the time for the explanation of a difference.
    """

    run: Callable[[Any, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]
    kernels: Sequence[object]
    problem: Any
    formula: TorchVariant | None
    constants: Sequence[float] = ()
    seconds: float = SECONDS

    def reference(
        self, case: Any, used: set[str], replaced: Mapping[str, RingTensor] = MappingProxyType({})
    ) -> dict[str, torch.Tensor]:
        """Return the reference's results on elements, by name; ``used`` collects the operators that compute."""
        if isinstance(case, DeclaredCase):
            return results_of_reference(case, used, replaced)
        if self.formula is None:
            raise NoExactRule("the op has no variant in plain torch")
        return results_of_formula(self.formula, self.problem, case.inputs(self.problem), used, replaced)

    def inputs(self, case: Any) -> dict[str, torch.Tensor]:
        """Return the floats among a case's inputs, by name."""
        if isinstance(case, DeclaredCase):
            return {name: one for name, one in case.arguments().items() if is_float(one)}
        tensors = case.inputs(self.problem)
        judged = {place_of(one)[0] for one in tensors.judged().values()}
        return {name: one for name, one in vars(tensors).items() if is_float(one) and place_of(one)[0] not in judged}


@dataclass(frozen=True)
class InWords:
    """Answer of an exact comparison in one line, and what it says of a difference, a line each."""

    answer: str
    difference: Sequence[str] = ()


def exact_answer(cases: Sequence[Any], sides: Sides) -> InWords:
    """Return the answer in words."""
    difference: Sequence[str] = ()
    used: set[str] = set()
    try:
        wanted = sides.reference(cases[0], used)
        opcodes = opcodes_of(sides.kernels)
        part, three = part_of(opcodes, used), _three(cases)
        found = agreement(_draws(three, sides, wanted), part, roundings_of(opcodes))
        packed = [] if isinstance(cases[0], DeclaredCase) else bytes_of(cases[0].inputs(sides.problem))
        if found.same is False and packed:
            reason = f"results differ, and the reference computes with the bytes of {packed[0]} as plain numbers"
            found = ExactAnswer.without(reason)
        elif found.same is False:
            explanation = _difference(three, sides, part)
            if explanation.rounded:
                found = replace(found, same=True, reason=explanation.rounded)
            else:
                difference = explanation.lines
        found = replace(found, unseen=unseen_by(used))
    except Failed as failure:
        found = ExactAnswer.without(cause_in(failure.fields["message"]))
    except (NoExactRule, WorkbenchError) as error:
        found = ExactAnswer.without(str(error))
    except Exception as error:  # the reference is the op's: what it does with elements is not foreseen
        found = ExactAnswer.without(f"the reference fails on elements: {type(error).__name__}: {error}")
    return InWords(str(found), difference)


def _difference(cases: Sequence[Any], sides: Sides, part: Part) -> Explanation:
    """Return a difference in words; the cause where there are none."""
    case = cases[0]
    programs = Programs(
        lambda given: {name: elements(one) for name, one in sides.run(case, given).items() if is_float(one)},
        lambda given: sides.reference(case, set(), given),
        _LAUNCHES,
        OwnDeadline(sides.seconds),
    )
    try:
        return explained(programs, [sides.inputs(one) for one in cases], part, _names(case, sides.constants))
    except Exception as error:  # what the programs do with changed inputs is not foreseen, and changes no answer
        return Explanation([f"no explanation: {type(error).__name__}: {error}"])


def _names(case: Any, constants: Sequence[float]) -> ExactNames:
    """Return the names of a case's sizes for the axes of its inputs."""
    if not isinstance(case, DeclaredCase):
        return ExactNames(constants)
    given = {name: one.shape for name, one in case.given.items() if isinstance(one, Input)}
    return ExactNames(
        constants, axes={n: [size if isinstance(size, str) else "" for size in one] for n, one in given.items()}
    )


def _three(cases: Sequence[Any]) -> list[Any]:
    """Return three cases that differ in their seeds."""
    return [*cases[:3], *(drawn(cases[0], number + 1) for number in range(len(cases), 3))]


def _draws(
    cases: Sequence[Any], sides: Sides, first: Mapping[str, torch.Tensor]
) -> Iterator[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]:
    """Yield the outputs of the candidate and of the reference for draws of the inputs."""
    for number, case in enumerate(cases):
        wanted = first if number == 0 else sides.reference(case, set())
        found = sides.run(case, {})
        yield {name: elements(found[name]) for name in wanted}, wanted
