"""Declarations that variants of both languages share: tunables, rules, sizes, grid, arguments, workspace."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared.contract import Contract, Remade
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.expressions import FUNCTIONS, Expression, Names
from workbench.ops.identity import stated
from workbench.ops.tensors.inputs import Input
from workbench.ops.tensors.layout import strides_read
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.variant import Config, Restriction

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Default of a mapping that a declaration leaves out."""

REMEMBERED = 256
"""Entries at which a variant clears one of its caches."""


class Tunables(NamedTuple):
    """Values of each tunable, rules of the legal configurations, and the untuned configuration; see `Declaration`."""

    space: Mapping[str, tuple]
    rules: tuple[Expression, ...]
    default: Mapping[str, Any] | None

    @classmethod
    def of(cls, contract: Contract, tune: Any, where: Any, default: Mapping[str, Any] | None) -> Tunables:
        """Parse and validate a declaration. Raises ArgumentError that names the argument at fault."""
        if not isinstance(tune, Mapping):
            remedy = 'tune={"NUM_THREADS": (64, 128, 256)}'
            raise ArgumentError("tune", type(tune).__name__, "a mapping from tunables to their values", remedy)
        space = {}
        for name, values in tune.items():
            if not isinstance(name, str) or not name.isidentifier() or name in FUNCTIONS or name in contract.parameters:
                remedy = "A tunable is a name that neither an argument nor a function of expressions has."
                raise ArgumentError("tune", repr(name), "a name of its own", remedy)
            values = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
            if not values or len(set(values)) < len(values):
                raise ArgumentError(f"tune[{name!r}]", values, "one or more different values", "Correct it.")
            space[name] = values
        rules = tuple(Expression.of(f"where[{index}]", rule) for index, rule in enumerate(listed(where)))
        for name in default or {}:
            if name not in space:
                raise ArgumentError("default", repr(name), ", ".join(space) or "no tunable", "Name a tunable.")
        return cls(space, rules, default)


@dataclass(frozen=True, eq=False)
class Declaration(Remade):
    """Tunables, rules and sizes of one variant.

    Attributes:
        contract: contract of the op.
        variant: name of the variant.
        space: values of each tunable.
        rules: expressions that hold for every legal configuration.
        sizes: function of some of the op's arguments and outputs that returns a mapping of named numbers.
        default: the untuned configuration; None stands for the first legal one.
        workspace: descriptions of tensors through which kernels pass values to each other.
        contiguous: arguments that are copied for the kernels unless they are contiguous.
    """

    contract: Contract
    variant: str
    space: Mapping[str, tuple]
    rules: tuple[Expression, ...]
    sizes: Callable | None
    default: Mapping[str, Any] | None
    workspace: Mapping[str, Input]
    contiguous: tuple[str, ...] = ()
    _found: dict[DeclaredProblem, Mapping[str, Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        contract: Contract,
        variant: str,
        tunables: Tunables,
        sizes: Callable | None,
        workspace: Mapping[str, Any] | None,
        contiguous: Any = (),
    ) -> Declaration:
        """Parse and validate a declaration. Raises ArgumentError that names the argument at fault."""
        if sizes is not None and not callable(sizes):
            remedy = 'sizes=lambda x: {"rows": x.shape[0]}'
            raise ArgumentError("sizes", type(sizes).__name__, "a function of the op's arguments", remedy)
        for name, part in (workspace or {}).items():
            if not isinstance(part, Input):
                remedy = 'workspace={"partial": wb.full(0, "blocks")}'
                raise ArgumentError(f"workspace[{name!r}]", type(part).__name__, "a description of a tensor", remedy)
        copied = _copied(contract, contiguous)
        space, rules, default = tunables
        return cls(contract, variant, space, rules, sizes, default, dict(workspace or {}), copied)

    def _fixed(self, problem: DeclaredProblem) -> Mapping[str, Any]:
        """Return the problem's arguments and outputs, and the sizes that follow from them."""
        if problem not in self._found:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            self._found[problem] = self._find_fixed(self.lying(problem))
        return self._found[problem]

    def lying(self, problem: DeclaredProblem) -> dict[str, Any]:
        """Return the problem's arguments and outputs as the kernels get them, contiguous where that is declared."""
        known = problem.known
        for name in self.contiguous:
            kind = known[name]
            if isinstance(kind, TensorType) and not kind.is_contiguous():
                known[name] = TensorType.contiguous(kind.dtype, kind.shape)
        return known

    def strides_read(
        self, config: Config, problem: DeclaredProblem, expressions: Iterable[Expression]
    ) -> Mapping[str, Any]:
        """Return for each tensor the dimensions whose strides the sizes, rules or ``expressions`` of a launch read."""

        def names(known: dict[str, Any]) -> Names:
            return Names(config, self.space, self._find_fixed(known))

        rules = [rule for rule in self.rules if not self.takes_config(rule)]
        return strides_read(self.lying(problem), names, [*rules, *expressions])

    def _find_fixed(self, known: dict[str, Any]) -> Mapping[str, Any]:
        if self.sizes is None:
            return known
        wanted = inspect.signature(self.sizes).parameters
        for name in wanted:
            if name not in known:
                remedy = "The function is called with arguments and outputs of the op, by name."
                raise ArgumentError("sizes", f"a function of {name!r}", ", ".join(known), remedy)
        try:
            named = self.sizes(**{name: known[name] for name in wanted})
        except Exception as error:
            got = ", ".join(f"{name} {known[name]}" for name in wanted)
            what = f"{type(error).__name__}: {error}, for {got}"
            raise ArgumentError("sizes", what, "a function that gives named numbers", "Correct it.") from error
        if not isinstance(named, Mapping):
            remedy = 'sizes=lambda x: {"rows": x.shape[0]}'
            raise ArgumentError("sizes", f"returns {type(named).__name__}", "a mapping of names", remedy)
        return {**known, **named}

    def names(self, config: Config, problem: DeclaredProblem) -> Names:
        """Return the names that a launch's expressions may use, with their values."""
        return Names(config, self.space, self._fixed(problem))

    def restrictions(self) -> tuple[Restriction, ...]:
        """Return the rules as restrictions of the variant's space."""
        return tuple(
            Restriction.of(rule.where, rule, known=_whole if self.takes_config(rule) else self.names)
            for rule in self.rules
        )

    def takes_config(self, rule: Expression) -> bool:
        """Return True if a rule reads the whole configuration, and nothing of the problem."""
        return rule.names == ("config",) and "config" not in (*self.space, *self.contract.parameters)

    @property
    def full_default(self) -> dict[str, Any] | None:
        """Declared default, with the first value of each tunable that it leaves out; None if nothing was declared."""
        if self.default is None:
            return None
        return {name: self.default.get(name, values[0]) for name, values in self.space.items()}

    def make_workspace(self, config: Config, problem: DeclaredProblem, tensors: DeclaredTensors) -> SimpleNamespace:
        """Make fresh tensors through which the kernels of a run pass values to each other."""
        names = self.names(config, problem)
        device = next((one.device for one in tensors.members() if isinstance(one, torch.Tensor)), "cpu")
        made = {}
        for name, part in self.workspace.items():
            kind = part.type(names)
            made[name] = torch.full(kind.shape, part.bounds[0] if part.kind == "full" else 0.0, device=device).to(
                getattr(torch, kind.dtype)
            )
        return SimpleNamespace(**made)

    def fields(self, idea: str, statement: str, parts: Iterable[Any]) -> dict[str, Any]:
        """Return the fields of an own variant; ``statement`` is the text of everything else that was declared."""
        return {
            "op": self.contract.name,
            "name": self.variant,
            "idea": idea,
            "space": self.space,
            "restrictions": self.restrictions(),
            "layouts": ("any",),
            "dtypes": AnyDtype(),
            "workspace": self.make_workspace if self.workspace else None,
            "declared": self,
            "stated": self.stated + statement,
            "parts": tuple(parts),
        }

    @property
    def stated(self) -> str:
        """Text of everything that was declared here."""
        parts = (self.space, [rule.text for rule in self.rules], self.sizes, self.default)
        copied = (self.contiguous,) if self.contiguous else ()
        return stated((*parts, {name: part.to_dict() for name, part in self.workspace.items()}, *copied))


def _whole(config: Config, problem: DeclaredProblem) -> Mapping[str, Any]:
    return {"config": config}


def _copied(contract: Contract, given: Any) -> tuple[str, ...]:
    """Return the arguments that ``contiguous=`` names; True names all of them."""
    if isinstance(given, bool):
        return contract.parameters if given else ()
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in contract.parameters:
            allowed = f"True, or of {', '.join(contract.parameters)}"
            raise ArgumentError("contiguous", repr(name), allowed, "Name arguments that are copied for the kernels.")
    return names


class AnyDtype(tuple):
    """A collection that contains every dtype: a declared op's kernels are compiled for the dtypes of their tensors."""

    def __contains__(self, dtype: object) -> bool:
        return True


def listed(where: Any) -> list:
    """Return one rule or several as a list."""
    return list(where) if isinstance(where, Sequence) and not isinstance(where, str) else [where]


@dataclass(frozen=True, eq=False)
class LaunchSize:
    """Grid or block size of up to three dimensions, as expressions."""

    where: str
    parts: tuple[Expression, ...]

    @classmethod
    def of(cls, where: str, given: Any) -> LaunchSize:
        """Parse one expression or up to three; messages call them ``where``."""
        several = list(given) if isinstance(given, tuple | list) else [given]
        if not 1 <= len(several) <= 3:
            raise ArgumentError(where, several, "one to three numbers or expressions", "Kernels have three dimensions.")
        names = [where] if len(several) == 1 else [f"{where}[{index}]" for index in range(len(several))]
        return cls(where, tuple(Expression.of(name, one) for name, one in zip(names, several, strict=True)))

    def __call__(self, names: Mapping[str, Any]) -> tuple[int, ...]:
        found: list[Any] = []
        for part in self.parts:
            value = part(names)
            found += value if isinstance(value, tuple | list) else [value]
        for value in found:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                what = f"{value!r} of {', '.join(part.text for part in self.parts)}"
                raise ArgumentError(self.where, what, "whole numbers", "Use // or cdiv().")
        return tuple(found)

    @property
    def text(self) -> str:
        """Text of the expressions, separated by commas."""
        return ", ".join(part.text for part in self.parts)

    @property
    def names(self) -> set[str]:
        """Names that the expressions read."""
        return {name for part in self.parts for name in part.names}


def arguments_for(
    kernel: str, parameters: Sequence[str], given: Any, where: str = "args"
) -> tuple[tuple[str, Expression], ...]:
    """Return (parameter, expression) for each parameter of a kernel, in the kernel's order.

    ``given`` lists the arguments by position or maps them by name. A parameter that a mapping leaves out, or all of
    them if ``given`` is None, get the value of their own name. Raises ArgumentError that names a parameter without an
    argument, or an argument without a parameter.
    """
    listed = ", ".join(parameters)
    if given is None:
        given = tuple(parameters)
    if isinstance(given, Mapping):
        for name in given:
            if name not in parameters:
                raise ArgumentError(f"{where}[{name!r}]", f"a parameter {name!r}", listed, f"{kernel} has these.")
        given = tuple(given.get(name, name) for name in parameters)
    if isinstance(given, str):
        given = (given,)
    if len(given) != len(parameters):
        if len(given) < len(parameters):
            what = f"{len(given)} arguments; {parameters[len(given)]!r} has none"
        else:
            what = f"{len(given)} arguments; {given[len(parameters)]!r} is one too many"
        raise ArgumentError(where, what, f"{len(parameters)}: {listed}", f"{kernel} takes these, in this order.")
    return tuple((name, Expression.of(f"{where}[{name!r}]", one)) for name, one in zip(parameters, given, strict=True))


def argument_value(expression: Expression, names: Names, tensors: DeclaredTensors, workspace: Iterable[str]) -> Any:
    """Return the value that a launch passes: a tensor if the expression names one, else the expression's value."""
    if expression.is_name and expression.names[0] in workspace:
        return tensors.by_name(expression.names[0])
    value = expression(names)
    if isinstance(value, str):
        raise ArgumentError(expression.where, repr(value), "a tensor's name or a number", "Kernels take no text.")
    if isinstance(value, TensorType):
        if not expression.is_name:
            raise ArgumentError(expression.where, repr(expression.text), "a tensor's name or a number", "Correct it.")
        return tensors.by_name(expression.names[0])
    return value


def check_used(variant: str, space: Mapping[str, tuple], text: str, read: Iterable[str], always: Sequence[str]) -> None:
    """Raise ArgumentError for a tunable that neither the source nor an expression uses, and that ``always`` lacks."""
    words, read = set(re.findall(r"\w+", text)), set(read)
    for name in space:
        if name not in words and name not in read and name not in always:
            remedy = f"Nothing of {variant} reads it: every value would give the same kernel. Correct its name."
            raise ArgumentError("tune", repr(name), "tunables that the kernel or its launch uses", remedy)
