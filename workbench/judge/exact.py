"""Exact column of a verdict: whether a candidate's kernels are the same computation as the reference.

It stands beside the verdict and never changes it: overflow, rounding and NaN are what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workbench.analysis.exact import ExactAnswer, NoExactRule, Side, cause_in, compared, elements
from workbench.judge.launching import Failed, RunOrder
from workbench.ops.exact_runs import drawn, reference_side
from workbench.ops.values import Config
from workbench.ops.variant import TorchVariant

EXACT = RunOrder("the usual order of warps, on elements of a ring", {"exact": True, "checks": False})

Launched = Callable[[Any, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]
"""Function that launches a candidate's kernels on a case, with some inputs replaced, and returns all tensors by name.

Raises Failed."""


def exact_answer(
    cases: Sequence[Any],
    launched: Launched,
    remember: Callable[[Side], None],
    formula: TorchVariant | None,
    config: Config,
    seconds: float,
) -> ExactAnswer:
    """Return whether a candidate's kernels are the same computation as the reference.

    ``cases`` differ in their seeds, and further ones are drawn. ``remember`` says of the candidate's side which kernels
    it has; ``formula`` is for ops whose cases have no reference in torch.
    """
    draws = [*cases[:3], *(drawn(cases[0], number + 1) for number in range(len(cases), 3))]
    reference = reference_side(draws.__getitem__, formula, config)
    reference.called = "the reference"

    def compute(number: int, given: Mapping[str, torch.Tensor], side: Side) -> dict[str, torch.Tensor]:
        names = reference.draw(0)
        try:
            found = launched(draws[number], given)
        except Failed as failure:
            raise NoExactRule(cause_in(failure.fields["message"])) from failure
        remember(side)
        return {name: elements(found[name]) for name in names}

    return compared(reference, Side(compute, reference.inputs), seconds)
