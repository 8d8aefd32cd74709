"""Exact column of a verdict: whether a candidate's kernels are the same computation as the reference.

It stands beside the verdict and never changes it: overflow, rounding and NaN are what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from workbench.analysis.exact import (
    ExactAnswer,
    NoExactRule,
    RingTensor,
    agreement,
    elements,
    opcodes_of,
    part_of,
    raw,
)
from workbench.errors import WorkbenchError
from workbench.judge.launching import Failed, RunOrder
from workbench.ops.declared.case import DeclaredCase

EXACT = RunOrder("the usual order of warps, on elements of a ring", {"exact": True, "checks": False})


def exact_answer(
    cases: Sequence[Any], run: Callable[[Any], Mapping[str, torch.Tensor]], kernels: Sequence[object]
) -> str:
    """Return the answer in words; ``run`` launches the candidate's ``kernels`` on a case and returns its outputs."""
    first = cases[0]
    if not isinstance(first, DeclaredCase):
        return str(ExactAnswer.without("the op is not one of wb.op, whose references run on elements"))
    used: set[str] = set()
    try:
        wanted = [_reference(case, used) for case in cases[:1]]
        part = part_of(opcodes_of(kernels), used)
        return str(agreement(_draws(cases, run, wanted[0]), part))
    except Failed as failure:
        return str(ExactAnswer.without(_cause(failure.fields["message"])))
    except (NoExactRule, WorkbenchError) as error:
        return str(ExactAnswer.without(str(error)))
    except Exception as error:  # the reference is the op's: what it does with elements is not foreseen
        return str(ExactAnswer.without(f"the reference fails on elements: {type(error).__name__}: {error}"))


def _cause(message: str) -> str:
    _, _, cause = message.partition("no answer of exact comparison: ")
    return cause or message


def _draws(
    cases: Sequence[Any], run: Callable[[Any], Mapping[str, torch.Tensor]], first: Mapping[str, torch.Tensor]
) -> Iterator[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]:
    """Yield the outputs of the candidate and of the reference for two draws or more of the inputs."""
    used: set[str] = set()
    for number in range(3):
        case = cases[number] if number < len(cases) else cases[0].override(seed=cases[0].seed + 7919 * (number + 1))
        wanted = first if number == 0 else _reference(case, used)
        found = run(case)
        yield {name: elements(found[name]) for name in wanted}, wanted


def _reference(case: DeclaredCase, used: set[str]) -> dict[str, torch.Tensor]:
    """Return the reference's results on elements, by name."""
    given = {
        name: RingTensor.of(one, used) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in case.arguments().items()
    }
    answer = case.contract.answer(given, exact=False)
    return {name: raw(one) if isinstance(one, RingTensor) else elements(one) for name, one in answer.items()}
