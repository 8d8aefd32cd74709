"""An op as one of torch's: ``torch.compile`` sees one node, autograd uses the op's backward."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from workbench.errors import ArgumentError
from workbench.ops.dispatch import run
from workbench.ops.op import Op
from workbench.ops.tensors.run_tensors import RunTensors

_numbers = itertools.count(1)
_taken: set[str] = set()


class Call(NamedTuple):
    """A call of an op, described: the problem to solve and its tensors.

    ``like`` is a tensor on the device that solves it; ``nothing`` is True if there is nothing to do.
    """

    problem: Any
    tensors: RunTensors
    like: torch.Tensor
    nothing: bool


class OpContract(Protocol):
    """Interface of an op's arguments: their names and schema, and the problem of a call with them."""

    name: str
    in_place: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""

    def kinds(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a key that is equal for arguments of one schema."""

    def schema(self, arguments: Mapping[str, Any], outputs: int | None) -> str:
        """Return the ``torch.library`` schema of such arguments, followed by a variant and a configuration."""

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Return the problem and the tensors of a call. Raises ArgumentError for arguments that cannot be used."""

    def returned(self, tensors: RunTensors) -> tuple[torch.Tensor, ...]:
        """Return the outputs among the tensors of a call."""

    def fake(self, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the outputs of a call as torch's fake tensors, without elements."""


class LibraryOp:
    """The ``torch.library`` op of an op, one for each schema; ``namespace`` is that under ``torch.ops``.

    ``backward`` gives gradients: ``(gradient of each output, each output, **arguments)`` -> those of the tensor
    arguments; one that takes a ``variant`` gets that, too.
    """

    def __init__(
        self,
        op: Op,
        contract: OpContract,
        namespace: str,
        backward: Callable[..., Any] | None = None,
    ):
        self._op, self._contract, self._namespace, self._backward = op, contract, namespace, backward
        self._registered: dict[tuple[str, ...], Any] = {}

    def __call__(self, arguments: Mapping[str, Any], variant: str, config: Mapping[str, Any] | None) -> Any:
        """Run it. Returns a tensor, a tuple of them, or None."""
        return self.of(arguments)(*arguments.values(), variant, config_text(config))

    def of(self, arguments: Mapping[str, Any], outputs: int | None = None) -> Any:
        """Return the ``torch.library.CustomOpDef`` for arguments of these types; ``outputs`` is their number, if known.

        Registering it cannot be traced by ``torch.compile``.
        """
        kinds = self._contract.kinds(arguments)
        if kinds not in self._registered:
            self._registered[kinds] = self._register(self._contract.schema(arguments, outputs))
        return self._registered[kinds]

    def _register(self, schema: str) -> Any:
        """Register an op under a new name: a graph may still hold the op of an older declaration."""
        name = full = f"{self._namespace}::{self._contract.name}"
        while name in _taken:
            name = f"{full}_{next(_numbers)}"
        _taken.add(name)
        made = custom_op(name, self._run, mutates_args=self._contract.in_place, schema=schema)
        made.register_fake(self._fake)
        if self._backward is not None:
            made.register_autograd(self._gradients, setup_context=self._keep)
        return made

    def _bound(self, values: Sequence[Any]) -> tuple[dict[str, Any], str, str | None]:
        """Return the arguments by name, the variant and the configuration; torch leaves out defaults."""
        names = self._contract.parameters
        behind = list(values[len(names) :])
        variant, config = behind + ["auto", None][len(behind) :]
        return dict(zip(names, values, strict=False)), variant, config

    def _run(self, *values: Any) -> Any:
        arguments, variant, config = self._bound(values)
        call = self._contract.call(arguments)
        wanted = None if config is None else json.loads(config)
        run(self._op, call.problem, call.tensors, call.like, variant, wanted, nothing=call.nothing)
        return _as_returned(self._contract.returned(call.tensors))

    def _fake(self, *values: Any) -> Any:
        arguments, _, _ = self._bound(values)
        return _as_returned(self._contract.fake(arguments))

    def _keep(self, ctx: Any, inputs: tuple, output: Any) -> None:
        """Keep the tensors from which the gradients are computed."""
        arguments, ctx.variant, _ = self._bound(inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*(v for v in (*arguments.values(), *outputs) if isinstance(v, torch.Tensor)))
        ctx.others = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
        ctx.names, ctx.count = tuple(arguments), len(inputs)

    def _gradients(self, ctx: Any, *gradients: torch.Tensor) -> tuple:
        """Return the gradient of each argument, None for those without one. Raises ArgumentError for another number."""
        saved = list(ctx.saved_tensors)
        arguments = {name: ctx.others[name] if name in ctx.others else saved.pop(0) for name in ctx.names}
        assert self._backward is not None  # or it is not registered
        told = {"variant": ctx.variant} if "variant" in inspect.signature(self._backward).parameters else {}
        found = self._backward(*gradients, *saved, **arguments, **told)
        several = tuple(found) if isinstance(found, tuple | list) else (found,)
        wanted = [name for name in arguments if name not in ctx.others]
        if len(several) != len(wanted):
            remedy = "Return None for an argument without one."
            what = f"{len(several)} gradients"
            raise ArgumentError("backward", what, f"{len(wanted)}, of {', '.join(wanted)}", remedy)
        by_name = dict(zip(wanted, several, strict=True))
        return (*(by_name.get(name) for name in arguments), *[None] * (ctx.count - len(arguments)))


def config_text(config: Mapping[str, Any] | None) -> str | None:
    """Return a configuration as the text that passes through torch's op."""
    return None if config is None else json.dumps(dict(config), default=lambda value: value.item())


def _as_returned(outputs: tuple) -> Any:
    return None if not outputs else outputs[0] if len(outputs) == 1 else outputs


def custom_op(
    name: str, function: Callable[..., Any] | None = None, *, mutates_args: Iterable[str], schema: str | None = None
) -> Any:
    """Declare a `torch.library.custom_op`, also as a decorator, whose first call does not load torch's compiler.

    Torch keeps its compiler away from what an op does, and imports it for that: eight hundred modules, two seconds.
    Where nothing has imported it there is nothing to keep away.
    """
    if function is None:
        return functools.partial(custom_op, name, mutates_args=mutates_args, schema=schema)
    made = torch.library.custom_op(name, function, mutates_args=mutates_args, schema=schema)
    kernels = getattr(made, "_backend_fns", {})  # torch's own, each with the function that it guards
    kernels.update({device: _guarded_when_loaded(kernel) for device, kernel in kernels.items()})
    return made


def _guarded_when_loaded(guarded: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(guarded, "__wrapped__", guarded)

    @functools.wraps(guarded)
    def kernel(*values: Any, **options: Any) -> Any:
        return (guarded if "torch._dynamo" in sys.modules else plain)(*values, **options)

    return kernel
