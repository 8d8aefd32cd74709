"""An own op as one of torch's: ``torch.compile`` sees one node, autograd what ``backward`` says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.dispatch import arch_of, check_name, choose, device_of, table_of
from workbench.ops.library_op import custom_op
from workbench.ops.own.contract import Contract, several_of
from workbench.ops.own.problem import Problem, Tensors
from workbench.ops.own.tensor_type import TensorType

if TYPE_CHECKING:
    from workbench.ops.own.op import OwnOp

NAMESPACE = "workbench_own"
_KINDS = {torch.Tensor | TensorType: "Tensor", bool: "bool", int | torch.SymInt: "SymInt", float: "float", str: "str"}
_KINDS |= {type(None): "Tensor?"}
_numbers = itertools.count(1)
_taken: set[str] = set()


class TorchOp:
    """The ``torch.library`` op of an own op, registered when it is first called: then the types are known."""

    def __init__(self, op: OwnOp, contract: Contract, backward: Callable | None):
        self._op, self._contract, self._backward = op, contract, backward
        self._registered: dict[tuple[str, ...], Any] = {}

    def __call__(self, arguments: Mapping[str, Any], variant: str, config: Mapping[str, Any] | None) -> Any:
        """Run it. Returns what the reference returns: a tensor, a tuple of them, or None."""
        text = None if config is None else json.dumps(dict(config))
        return self.library_op(arguments)(*arguments.values(), variant, text)

    def library_op(self, arguments: Mapping[str, Any], outputs: int | None = None) -> Any:
        """The ``torch.library.CustomOpDef`` for arguments of these types (of a case's problem, too).

        Registering it cannot be traced by ``torch.compile``: cases do it when they are declared.
        """
        kinds = tuple(_torch_type(name, value) for name, value in arguments.items())
        if kinds not in self._registered:
            if outputs is None:
                outputs = len(Problem.of(self._contract, arguments).outputs)
            self._registered[kinds] = self._register(dict(zip(arguments, kinds, strict=True)), outputs)
        return self._registered[kinds]

    def _register(self, kinds: Mapping[str, str], outputs: int) -> Any:
        """An op of a name of its own: one of an older declaration may be in a graph that somebody holds."""
        written = self._contract.in_place
        given = [f"Tensor(a{i}!) {n}" if n in written else f"{kind} {n}" for i, (n, kind) in enumerate(kinds.items())]
        returned = {0: "()", 1: "Tensor"}.get(outputs, f"({', '.join(['Tensor'] * outputs)})")
        name = self._contract.name
        while name in _taken:
            name = f"{self._contract.name}_{next(_numbers)}"
        _taken.add(name)
        made = custom_op(
            f"{NAMESPACE}::{name}",
            self._run,
            mutates_args=written,
            schema=f"({', '.join([*given, 'str variant', 'str? config'])}) -> {returned}",
        )
        made.register_fake(self._fake)
        if self._backward is not None:
            made.register_autograd(self._gradients, setup_context=self._keep)
        return made

    def _bound(self, values: Sequence[Any]) -> tuple[dict[str, Any], str, str | None]:
        *given, variant, config = values
        return dict(zip(self._contract.parameters, given, strict=True)), variant, config

    def _run(self, *values: Any) -> Any:
        arguments, variant, config = self._bound(values)
        first = next((value for value in arguments.values() if isinstance(value, torch.Tensor)), torch.empty(0))
        problem = Problem.of(self._contract, arguments, arch_of(first))
        wanted = None if config is None else json.loads(config)
        outputs = {name: kind.empty(first.device) for name, kind in problem.outputs}
        tensors = Tensors(arguments, outputs, self._contract.in_place)
        if not any(one.numel() for one in tensors.out.values()):  # no rule of a launch need hold for nothing
            check_name(self._op, variant)
            return _as_returned(tuple(outputs.values()))
        chosen, chosen_config = choose(self._op, problem, variant, wanted, device=table_of(first))
        chosen.run(chosen_config, problem, tensors, device_of(chosen, first))
        return _as_returned(tuple(outputs.values()))

    def _fake(self, *values: Any) -> Any:
        arguments, _, _ = self._bound(values)
        returned = self._contract.function(**{name: _stand_in(value) for name, value in arguments.items()})
        made = (torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in several_of(returned))
        return _as_returned(tuple(made))

    def _keep(self, ctx: Any, inputs: tuple, output: Any) -> None:
        arguments, _, _ = self._bound(inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*(v for v in (*arguments.values(), *outputs) if isinstance(v, torch.Tensor)))
        ctx.others = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}

    def _gradients(self, ctx: Any, *gradients: torch.Tensor) -> tuple:
        saved = list(ctx.saved_tensors)
        arguments = {
            name: ctx.others[name] if name in ctx.others else saved.pop(0) for name in self._contract.parameters
        }
        assert self._backward is not None  # or it is not registered
        found = self._backward(*gradients, *saved, **arguments)
        several = (None,) if found is None else several_of(found)
        wanted = [name for name in arguments if name not in ctx.others]
        if len(several) != len(wanted):
            remedy = "Return None for an argument without one."
            what = f"{len(several)} gradients"
            raise ArgumentError("backward", what, f"{len(wanted)}, of {', '.join(wanted)}", remedy)
        by_name = dict(zip(wanted, several, strict=True))
        return (*(by_name.get(name) for name in arguments), None, None)


def _as_returned(outputs: tuple) -> Any:
    return None if not outputs else outputs[0] if len(outputs) == 1 else outputs


def _stand_in(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _torch_type(name: str, value: Any) -> str:
    for kind, text in _KINDS.items():
        if isinstance(value, kind):
            return text
    allowed = "a tensor, a number, a bool, a string or None"
    raise ArgumentError(name, type(value).__name__, allowed, "Pass one of these.")
