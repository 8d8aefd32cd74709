"""The reference: a problem's ``Model`` in float64 on the host, and its exact results."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.analysis.exact import OnElements, result_of, ringed
from workbench.errors import ArgumentError, WorkbenchError
from workbench.judge.kernelbench.problem import KernelBenchProblem, copied, init_inputs
from workbench.judge.kernelbench.seeding import seeded
from workbench.ops.declared.arithmetic import Arithmetic
from workbench.ops.declared.contract import Contract, several_of
from workbench.ops.declared.elsewhere import Elsewhere
from workbench.ops.values import Check

_OTHER_SEED = 0x5EED


@dataclass(frozen=True)
class ReferenceAnswer:
    """The inputs of one seed, the exact results with their dtypes, and which of the input tensors it writes."""

    seed: int
    inputs: list
    results: dict[str, torch.Tensor]
    dtypes: dict[str, torch.dtype]
    written: frozenset[int]
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
        wide = any(isinstance(one, torch.Tensor) and one.dtype == torch.float64 for one in inputs.values())
        with torch.no_grad():
            return copy.deepcopy(self._wide if wide else self._model)(*inputs.values())

    def on_elements(self, inputs: list, used: set[str]) -> dict[str, torch.Tensor]:
        """Return the results on elements of a ring; ``used`` collects the operators that compute."""
        model = copy.deepcopy(self._model)
        for module in model.modules():
            for held in (module._parameters, module._buffers):
                held.update({name: ringed(one, used) for name, one in held.items()})
        with torch.no_grad(), OnElements(used):
            returned = several_of(model(*(ringed(one, used) for one in copied(inputs))))
        found = [result_of(one) for one in returned]
        return {f"out{index}" if len(found) > 1 else "out": one for index, one in enumerate(found)}

    def by_name(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Return inputs by the names of the model's parameters, or by their numbers where it has others."""
        names = [*inspect.signature(self._model.forward).parameters]
        return dict(zip(names, inputs, strict=True)) if len(names) == len(inputs) else _named(inputs)

    def drawn(self, seed: int) -> list:
        """Draw the inputs of a seed. Raises WorkbenchError if the problem fails."""
        return self._drawn(seed)

    def answer(self, seed: int) -> ReferenceAnswer:
        """Draw inputs and compute their results. Raises as `answered` does."""
        return self.answered(self._drawn(seed), seed)

    def decoy(self, answer: ReferenceAnswer) -> list:
        """Return other inputs of the same shapes, to show to a solution in place of the answer's.

        Integers and what is not a tensor stay as they are where floating-point inputs differ: host code may go by them.
        """
        drawn = self._drawn(answer.seed ^ _OTHER_SEED)
        pairs = list(zip(answer.inputs, drawn, strict=True))
        if not all(_alike(one, other) for one, other in pairs):
            return answer.inputs
        floats = any(_is_float(one) for one in answer.inputs)
        return [
            other if isinstance(one, torch.Tensor) and (_is_float(one) or not floats) else one for one, other in pairs
        ]

    def changed(self, answer: ReferenceAnswer, change: str) -> Elsewhere:
        """Return the case of an answer with its floating-point inputs changed by one of `CHANGES`."""
        return Elsewhere(_Case(self._contract, answer), change)

    def _drawn(self, seed: int) -> list:
        try:
            with seeded(seed):
                return list(self._names["get_inputs"]())
        except Exception as error:
            raise self._failed(error) from error

    def answered(self, inputs: list, seed: int) -> ReferenceAnswer:
        """Compute the results of inputs.

        Raises ArgumentError if the results are not tensors or change from call to call, WorkbenchError if the reference
        fails.
        """
        try:
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
        named = _named(copied(inputs))
        try:
            exact, arithmetic = self._contract.recorded_answer(named)
        except Exception:  # a model may mix its own dtypes with float64
            plain = dict(zip(self._contract._names(len(returned)), returned, strict=True))
            exact, arithmetic = {name: one.double() for name, one in plain.items()}, Arithmetic(exact=False)
        dtypes = {name: one.dtype for name, one in zip(exact, returned, strict=True)}
        tensors = [(one, other) for one, other in zip(inputs, after, strict=True) if isinstance(one, torch.Tensor)]
        written = frozenset(at for at, (one, other) in enumerate(tensors) if not torch.equal(one, other))
        return ReferenceAnswer(seed, inputs, exact, dtypes, written, arithmetic)

    def check(self, answer: ReferenceAnswer, found: Sequence[torch.Tensor]) -> Check:
        """Compare results with the answer's."""
        named = dict(zip(answer.results, found, strict=True))
        return self._contract.check(named, answer.results, answer.arithmetic)

    def _failed(self, error: Exception) -> WorkbenchError:
        said = next(iter(str(error).splitlines()), "")
        return WorkbenchError(f"{self._problem.path.name}: the reference fails: {type(error).__name__}: {said}")


@dataclass(frozen=True)
class _Case:
    """An answer as a case whose inputs can be changed."""

    contract: Contract
    answer: ReferenceAnswer

    @property
    def seed(self) -> int:
        return self.answer.seed

    @property
    def given(self) -> dict[str, Any]:
        return self.arguments()

    @property
    def arithmetic(self) -> Arithmetic:
        return self.answer.arithmetic

    def arguments(self) -> dict[str, Any]:
        return _named(copied(self.answer.inputs))

    def reference(self) -> dict[str, torch.Tensor]:
        return self.answer.results

    def result_types(self) -> dict[str, torch.dtype]:
        return self.answer.dtypes


def _named(inputs: Sequence[Any]) -> dict[str, Any]:
    return {f"input{index}": value for index, value in enumerate(inputs)}


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other)
    return isinstance(other, torch.Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
