"""Exact column of a verdict: whether a candidate's kernels are the same computation as the reference.

It stands beside the verdict and never changes it: overflow, rounding and NaN are what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.analysis.exact import (
    ExactAnswer,
    NoExactRule,
    OnElements,
    RingTensor,
    agreement,
    elements,
    opcodes_of,
    part_of,
    raw,
    roundings_of,
    unseen_by,
)
from workbench.errors import WorkbenchError
from workbench.judge.launching import Failed, RunOrder
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.tensors.run_tensors import place_of
from workbench.ops.variant import TorchVariant

EXACT = RunOrder("the usual order of warps, on elements of a ring", {"exact": True, "checks": False})


@dataclass(frozen=True)
class Sides:
    """Two programs that are compared: a candidate's kernels, and torch for ops whose cases have no reference in torch.

    ``run`` launches the ``kernels`` on a case and returns its tensors by name; ``formula`` is a variant of the op in
    plain torch, and ``problem`` what both solve.
    """

    run: Callable[[Any], Mapping[str, torch.Tensor]]
    kernels: Sequence[object]
    problem: Any
    formula: TorchVariant | None

    def reference(self, case: Any, used: set[str]) -> dict[str, torch.Tensor]:
        """Return the reference's results on elements, by name; ``used`` collects the operators that compute."""
        if isinstance(case, DeclaredCase):
            with OnElements(used):
                return _of_declared(case, used)
        if self.formula is None:
            raise NoExactRule("the op has no variant in plain torch")
        tensors = case.inputs(self.problem)
        with OnElements(used):
            return _of_formula(self.formula, self.problem, tensors, used)


def exact_answer(cases: Sequence[Any], sides: Sides) -> str:
    """Return the answer in words."""
    used: set[str] = set()
    try:
        wanted = sides.reference(cases[0], used)
        opcodes = opcodes_of(sides.kernels)
        draws = _draws(cases, sides, wanted)
        found = agreement(draws, part_of(opcodes, used), roundings_of(opcodes))
        packed = [] if isinstance(cases[0], DeclaredCase) else _bytes_of(cases[0].inputs(sides.problem))
        if found.same is False and packed:
            reason = f"results differ, and the reference computes with the bytes of {packed[0]} as plain numbers"
            return str(ExactAnswer.without(reason))
        return str(replace(found, unseen=unseen_by(used)))
    except Failed as failure:
        return str(ExactAnswer.without(_cause(failure.fields["message"])))
    except (NoExactRule, WorkbenchError) as error:
        return str(ExactAnswer.without(str(error)))
    except Exception as error:  # the reference is the op's: what it does with elements is not foreseen
        return str(ExactAnswer.without(f"the reference fails on elements: {type(error).__name__}: {error}"))


def _bytes_of(tensors: Any) -> list[str]:
    """Return the names of tensors of bytes, whose numbers, such as NVFP4's, a reference makes of parts of a byte."""
    return [name for name, one in vars(tensors).items() if isinstance(one, torch.Tensor) and one.dtype == torch.uint8]


def _cause(message: str) -> str:
    _, _, cause = message.partition("no answer of exact comparison: ")
    return cause or message


def _draws(
    cases: Sequence[Any], sides: Sides, first: Mapping[str, torch.Tensor]
) -> Iterator[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]:
    """Yield the outputs of the candidate and of the reference for two draws or more of the inputs."""
    for number in range(3):
        case = cases[number] if number < len(cases) else cases[0].override(seed=cases[0].seed + 7919 * (number + 1))
        wanted = first if number == 0 else sides.reference(case, set())
        found = sides.run(case)
        yield {name: elements(found[name]) for name in wanted}, wanted


def _of_declared(case: DeclaredCase, used: set[str]) -> dict[str, torch.Tensor]:
    given = {
        name: RingTensor.of(one, used) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in case.arguments().items()
    }
    answer = case.contract.answer(given, exact=False)
    return {name: raw(one) if isinstance(one, RingTensor) else elements(one) for name, one in answer.items()}


def _of_formula(formula: TorchVariant, problem: Any, tensors: Any, used: set[str]) -> dict[str, torch.Tensor]:
    judged = {place_of(one)[0] for one in tensors.judged().values()}
    made: dict[tuple, RingTensor] = {}  # fields may be one tensor
    outputs: dict[str, RingTensor] = {}
    for name, one in vars(tensors).items():
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            place = place_of(one)
            ring = made.setdefault((place, one.shape, one.stride()), RingTensor.of(one, used))
            setattr(tensors, name, ring)
            if place[0] in judged and all(ring is not other for other in outputs.values()):
                outputs[name] = ring
    if not outputs:
        raise NoExactRule("its outputs are no floats")
    formula.compute(problem, tensors)
    return {name: raw(one) for name, one in outputs.items()}
