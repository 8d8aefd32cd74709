"""The reference: a problem's ``Model`` in float64 on the host, and its exact results."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.errors import ArgumentError, WorkbenchError
from workbench.judge.kernelbench.problem import KernelBenchProblem, copied, init_inputs
from workbench.judge.kernelbench.seeding import seeded
from workbench.ops.declared.arithmetic import Arithmetic
from workbench.ops.declared.contract import Contract, several_of
from workbench.ops.values import Check


@dataclass(frozen=True)
class ReferenceAnswer:
    """The inputs of one seed, the exact results with their dtypes, and the inputs after the reference ran."""

    seed: int
    inputs: list
    results: dict[str, torch.Tensor]
    dtypes: dict[str, torch.dtype]
    after: list
    arithmetic: Arithmetic


class Reference:
    """A problem's model with the weights of a seed."""

    def __init__(self, problem: KernelBenchProblem, seed: int):
        self._problem, self.seed = problem, seed
        self._names = problem.namespace()
        try:
            with seeded(seed):
                self.init = init_inputs(self._names)
            with seeded(seed):
                self._model = self._names["Model"](*copied(self.init))
        except Exception as error:
            raise self._failed(error) from error
        self._wide = copy.deepcopy(self._model).double()
        self._contract = Contract(problem.path.stem, self._exact, None, (), None, None)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The weights and buffers."""
        return {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def _exact(self, **inputs: Any) -> Any:
        with torch.no_grad():
            return copy.deepcopy(self._wide)(*inputs.values())

    def answer(self, seed: int) -> ReferenceAnswer:
        """Draw inputs and compute their results.

        Raises ArgumentError if the results are not tensors or change from call to call, WorkbenchError if the reference
        fails.
        """
        try:
            with seeded(seed):
                inputs = list(self._names["get_inputs"]())
            after = copied(inputs)
            with torch.no_grad(), seeded(0):
                returned = several_of(copy.deepcopy(self._model)(*after))
            with torch.no_grad(), seeded(1):
                again = several_of(copy.deepcopy(self._model)(*copied(inputs)))
        except Exception as error:
            raise self._failed(error) from error
        if not returned or not all(isinstance(one, torch.Tensor) for one in returned):
            kinds = ", ".join(type(one).__name__ for one in returned) or "nothing"
            raise ArgumentError(
                "problem",
                f"{self._problem.path.name}: Model returns {kinds}",
                "tensors",
                "Return a tensor, or several.",
            )
        if not all(
            torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(returned, again, strict=True)
        ):
            what = f"{self._problem.path.name}: Model draws random numbers as it runs"
            raise ArgumentError(
                "problem", what, "a model whose result depends only on its inputs", "Call .eval() in it."
            )
        named = {f"input{index}": value for index, value in enumerate(copied(inputs))}
        try:
            exact, arithmetic = self._contract.recorded_answer(named)
        except Exception:  # a model may mix its own dtypes with float64
            plain = dict(zip(self._contract._names(len(returned)), returned, strict=True))
            exact, arithmetic = {name: one.double() for name, one in plain.items()}, Arithmetic(exact=False)
        dtypes = {name: one.dtype for name, one in zip(exact, returned, strict=True)}
        return ReferenceAnswer(seed, inputs, exact, dtypes, after, arithmetic)

    def check(self, answer: ReferenceAnswer, found: Sequence[torch.Tensor]) -> Check:
        """Compare results with the answer's."""
        named = dict(zip(answer.results, found, strict=True))
        return self._contract.check(named, answer.results, answer.arithmetic)

    def _failed(self, error: Exception) -> WorkbenchError:
        said = next(iter(str(error).splitlines()), "")
        return WorkbenchError(f"{self._problem.path.name}: the reference fails: {type(error).__name__}: {said}")
