"""An op that is declared by a description: a function that checks a run's tensors and returns the problem.

Its cases know the answer, so that there is no reference. Its problem is a value of its own, with the sizes that rules
and tuned tables name, its layout, dtype and features.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from types import GenericAlias, ModuleType
from typing import Any, get_type_hints

import torch

from workbench.errors import ArgumentError
from workbench.ops import tuned
from workbench.ops.installed import installed
from workbench.ops.library_op import Call, LibraryOp
from workbench.ops.op import Op
from workbench.ops.tensors.checks import check_apart, check_devices
from workbench.ops.tensors.run_tensors import MADE, RunTensors
from workbench.ops.values import Case
from workbench.ops.variant import Variant

_TENSORS = (torch.Tensor, torch.Tensor | None)


@dataclass(eq=False)
class OpDescription:
    """The `workbench.ops.library_op.OpContract` of a described op. See `workbench.ops.declared.op.op` for the fields.

    Raises ArgumentError for a name in ``in_place``, ``outputs`` or ``labels`` that is no field of the tensors.
    """

    name: str
    function: Callable[..., Any]
    tensors: type[RunTensors]
    in_place: tuple[str, ...]
    like: str | Callable[[Any], torch.Tensor]
    make: Callable[[Any], RunTensors | None] | None
    outputs: tuple[str, ...]
    labels: Mapping[str, str]

    def __post_init__(self) -> None:
        known = [one.name for one in fields_of(self.tensors)]
        for argument in ("in_place", "outputs", "labels"):
            for one in getattr(self, argument):
                if one not in known:
                    remedy = f"Name fields of {self.tensors.__name__}."
                    raise ArgumentError(argument, repr(one), ", ".join(known), remedy)
        self.like = self.like or known[0]
        self._kinds = get_type_hints(self.tensors)
        self.arguments = {one.name: one for one in fields_of(self.tensors) if MADE not in one.metadata}
        hints = get_type_hints(self.function)
        self.options = {
            one.name: one.replace(annotation=hints[one.name])
            for one in inspect.signature(self.function).parameters.values()
            if one.kind == inspect.Parameter.KEYWORD_ONLY
        }
        shown = {one: self.labels.get(one, one) for one in self.arguments}
        self._plain = {shown[one]: one for one in self.arguments if self._kinds[one] in _TENSORS}
        self._written = {shown[one] for one in self.in_place}
        self._schema = torch.library.infer_schema(self._prototype(), mutates_args=self.in_place)

    def __reduce__(self) -> tuple:
        return OpDescription, tuple(getattr(self, one.name) for one in fields(self))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields of the tensors that are given, then the options of the description."""
        return (*self.arguments, *self.options)

    def _prototype(self) -> Callable[..., Any]:
        """Return a function with the signature of torch's op."""

        def usual(one: Field) -> Any:
            return inspect.Parameter.empty if one.default is MISSING else one.default

        takes = [(name, self._kinds[name], usual(one)) for name, one in self.arguments.items()]
        takes += [(one.name, one.annotation, one.default) for one in self.options.values()]
        takes += [("variant", str, "auto"), ("config", str | None, None)]
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=default)
            for name, kind, default in takes
        ]

        def prototype(*values: Any) -> Any:
            raise NotImplementedError

        count = len(self.outputs)
        result = None if not count else torch.Tensor if count == 1 else GenericAlias(tuple, (torch.Tensor,) * count)
        vars(prototype)["__signature__"] = inspect.Signature(parameters, return_annotation=result)
        return prototype

    def kinds(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return nothing: there is one schema for all arguments."""
        return ()

    def schema(self, arguments: Mapping[str, Any], outputs: int | None) -> str:
        """Return the schema of the fields' types."""
        return self._schema

    def of(self, arguments: Mapping[str, Any]) -> RunTensors:
        """Return the tensors of a run on these arguments, without those that are made for it."""
        return self.tensors(**{name: one for name, one in arguments.items() if name in self.arguments})

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Check the written tensors for shared memory, describe the problem, and make the missing tensors."""
        t = self.of(arguments)
        if self.in_place:
            check_apart({label: getattr(t, one) for label, one in self._plain.items()}, self._written)
        problem = self.function(t, **{name: one for name, one in arguments.items() if name in self.options})
        like = getattr(t, self.like) if isinstance(self.like, str) else self.like(t)
        return Call(problem, self._made(t), like, not like.numel())

    def _made(self, t: RunTensors) -> RunTensors:
        return (None if self.make is None else self.make(t)) or t

    def returned(self, tensors: RunTensors) -> tuple[torch.Tensor, ...]:
        """Return the fields that are named as outputs."""
        return tuple(getattr(tensors, one) for one in self.outputs)

    def fake(self, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the outputs for torch's fake tensors, which have no elements."""
        return self.returned(self._made(self.of(arguments))) if self.outputs else ()

    def check_devices(self, tensors: RunTensors) -> None:
        """Raise ArgumentError unless all are on the device of the first."""
        given = [(label, getattr(tensors, one)) for label, one in self._plain.items()]
        check_devices(*given[0], **dict(given[1:]))


class DescribedOp(Op):
    """An op that is declared by a description.

    ``op(query, cache, layout="x", variant="...")`` takes the fields of its tensors that are given, and the options of
    the description; `run` takes the tensors.
    """

    def __init__(self, description: OpDescription, namespace: str, backward: Callable[..., Any] | None):
        self.description, self.namespace, self.backward = description, namespace, backward
        super().__init__(description.name, (), {}, self.__call__)
        self._library_op = LibraryOp(self, description, namespace, backward)
        self.library_op()

    def __call__(
        self, *args: Any, variant: str = "auto", config: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Run a variant on these arguments; returns the tensors named as outputs."""
        options = {name: kwargs.pop(name) for name in self.description.options if name in kwargs}
        return self.run(self.description.tensors(*args, **kwargs), variant=variant, config=config, **options)

    def run(
        self, tensors: Any, *, variant: str = "auto", config: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Run a variant on tensors of which those are given that are not made for a run; returns the outputs.

        Raises:
            ArgumentError: what the description says; tensors on several devices, or memory of two that one writes.
            UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
        """
        self.check(tensors)
        given = {name: getattr(tensors, name) for name in self.description.arguments}
        usual = {name: one.default for name, one in self.description.options.items()}
        return self._library_op(given | usual | options, variant, config)

    def __reduce__(self) -> tuple:
        if installed(self.name) is self:
            return installed, (self.name,)
        own = tuple(replace(one) for one in self.variants)  # without kernels that they remember
        return _restored, (self.description, self.namespace, self.backward, own, dict(self.cases))

    def bare(self) -> Callable[[], DescribedOp]:
        """Return a function that makes the op without variants and gradients, in another process."""
        return functools.partial(_restored, self.description, self.namespace, None, (), dict(self.cases))

    @property
    def module(self) -> ModuleType | None:
        """The module of the description, unless an installed package has it."""
        here = installed(self.name) is not self
        return sys.modules.get(self.description.function.__module__) if here else None

    def library_op(self) -> Any:
        """Return the ``torch.library.CustomOpDef``, for `torch.library.opcheck`.

        After the op's arguments it takes a variant's name and a configuration as JSON, or None.
        """
        return self._library_op.of({})

    def add(self, *given: Variant | Case) -> None:
        """Add variants and cases, in this order; one of the same name is replaced."""
        for one in given:
            if isinstance(one, Variant):
                self.variants = (*(other for other in self.variants if other.name != one.name), one)
            else:
                self.cases = {**self.cases, one.name: one}
        tuned.forget()

    def check(self, tensors: Any) -> None:
        """Raise ArgumentError unless all are on one device; tensors in lists are the description's to check."""
        self.description.check_devices(tensors)


def _restored(
    description: OpDescription,
    namespace: str,
    backward: Callable[..., Any] | None,
    variants: Sequence[Variant],
    cases: Mapping[str, Case],
) -> DescribedOp:
    """Make an op that came from another process."""
    op = DescribedOp(description, namespace, backward)
    op.add(*variants, *cases.values())
    return op


def fields_of(tensors: type[RunTensors]) -> tuple[Field, ...]:
    """Return the fields of a dataclass of tensors. Raises ArgumentError for any other class."""
    if not (isinstance(tensors, type) and issubclass(tensors, RunTensors) and is_dataclass(tensors)):
        remedy = "@dataclass above class Tensors(RunTensors)."
        raise ArgumentError("tensors", repr(tensors), "a dataclass of workbench.ops.tensors.RunTensors", remedy)
    return fields(tensors)
