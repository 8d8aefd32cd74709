"""Cases of an own op at other values than they declare: larger ones, and negative ones.

A kernel may be right on every drawn input and wrong a little farther off: an exponential overflows, a masked lane of 0
wins over a row of negative numbers. An op may not be meant for such values, so its results are judged leniently. An
input or answer that is not finite in its type is not compared. An element may also be wrong by a multiple of how far
the exact answer moves when inputs change in their last place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from workbench.ops.own.problem import OwnProblem, OwnTensors
from workbench.ops.tensor_checks import real_parts
from workbench.ops.values import Check

CHANGES: Mapping[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "x100": ("100 times as large", lambda values: values * 100),
    "x10000": ("10,000 times as large", lambda values: values * 10_000),
    "negative": ("negative", lambda values: -values.abs()),
}
"""Changes of inputs by name: (description, function of the elements of each floating-point input)."""

_NUDGES = 3
_SLACK = 16.0


class Meaningless(Exception):
    """Error of changed inputs for which the reference has no answer to compare a kernel with."""


class Elsewhere:
    """A case of an own op whose inputs are changed by one of `CHANGES`."""

    def __init__(self, case: Any, change: str):
        self.contract, self.seed = case.contract, case.seed
        self._case, self._change = case, CHANGES[change][1]

    def arguments(self) -> dict[str, Any]:
        """Make the op's changed arguments, with the same values each time."""
        return self._made_from(self._case.arguments())

    def inputs(self, problem: OwnProblem, device: str = "cpu") -> OwnTensors:
        """Make fresh tensors for a run."""
        return problem.tensors(self.arguments(), self.contract.in_place, device)

    def require_meaning(self) -> None:
        """Raise `Meaningless` if no comparison with the reference makes sense on the changed inputs."""
        before = self._case.arguments()
        after = self._made_from(before)
        if all(_same(before[name], after[name]) for name in before):
            raise Meaningless("no input changes")
        if any(_finite(before[name]) and not _finite(after[name]) for name in before):
            raise Meaningless("an input is too large for its type")
        try:
            answers, usual = self._answers, self._case.reference()
        except Exception as error:
            raise Meaningless(f"the reference raises {type(error).__name__}") from error
        for name, wanted in answers[0].items():
            if _finite(usual[name]) and bool(real_parts(wanted).isnan().any()):
                raise Meaningless("the reference is not a number")
            if wanted.is_floating_point() and not bool(real_parts(wanted).isfinite().any()):
                raise Meaningless("the reference is infinite")

    def check(self, out: Mapping[str, torch.Tensor]) -> Check:
        """Compare elements whose answer is finite in the output's type, within the ordinary bounds plus a slack."""
        answer, *nudged = self._answers
        expected, slack = {}, {}
        for name, wanted in answer.items():
            got = out[name].detach().cpu()
            exact = wanted.to(torch.complex128 if wanted.is_complex() else torch.float64)
            # Beyond the output's type the answer is infinite; what a kernel has there is as good as anything else.
            comparable = real_parts(wanted.to(got.dtype)).isfinite()
            parts = torch.where(comparable, real_parts(exact), real_parts(got).to(torch.float64))
            expected[name] = torch.view_as_complex(parts.contiguous()) if wanted.is_complex() else parts
            moved = [(real_parts(one[name]).double() - real_parts(wanted).double()).abs() for one in nudged]
            slack[name] = _SLACK * torch.stack(moved).amax(0).nan_to_num(0.0, 0.0)
        return self.contract.check(out, expected, self._case.arithmetic, slack)

    @functools.cached_property
    def _answers(self) -> list[dict[str, torch.Tensor]]:
        """Exact answers: that of the changed inputs, then those of inputs moved in their last place."""
        arguments = self.arguments()
        generator = torch.Generator().manual_seed(self.seed)
        nudged = [{n: _nudged(v, generator) for n, v in arguments.items()} for _ in range(_NUDGES)]
        return [self.contract.answer(arguments), *map(self.contract.answer, nudged)]

    def _made_from(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._changed(value) for name, value in arguments.items()}

    def _changed(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
            return value
        wide = torch.view_as_complex if value.is_complex() else lambda parts: parts
        return wide(self._change(real_parts(value).double())).to(value.dtype)


def _nudged(value: Any, generator: torch.Generator) -> Any:
    """Return a tensor in float64, each element moved up or down by the relative spacing of its dtype."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    parts = real_parts(value).double()
    signs = torch.randint(0, 2, parts.shape, generator=generator) * 2 - 1
    moved = parts * (1 + signs * torch.finfo(value.dtype).eps)
    return torch.view_as_complex(moved) if value.is_complex() else moved


def _same(one: Any, other: Any) -> bool:
    return not isinstance(one, torch.Tensor) or torch.equal(real_parts(one).double(), real_parts(other).double())


def _finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(real_parts(value).double().isfinite().all())
