"""Variants of declared ops in Triton: ``@triton.jit`` functions, with an autotuner or without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.element_types import ELEMENT_TYPES
from workbench.errors import ArgumentError
from workbench.ops.declared.contract import Contract
from workbench.ops.declared.cuda import Step
from workbench.ops.declared.launching import (
    NOTHING,
    Declaration,
    LaunchSize,
    Tunables,
    argument_value,
    arguments_for,
    check_used,
    listed,
)
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.declared.variant import DeclaredVariant
from workbench.ops.expressions import Expression
from workbench.ops.identity import stated
from workbench.ops.source_files import called_files
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.variant import TRITON_OPTIONS, Config, TritonStep, TritonVariant

_SPECIALISED = 16
"""Divisor for which Triton specialises: it compiles pointers and integers that are multiples of it as such."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredTriton(DeclaredVariant, TritonVariant):
    """A `TritonVariant` that is declared by expressions."""

    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of its declaration, without the function."""

    @property
    def declared_launch(self) -> Mapping[str, Any]:
        """Arguments of the declaration, without the function; empty if there is a step after the first."""
        return {} if self.given["then"] else self.given

    @property
    def files(self) -> tuple[Path, ...]:
        """Files and cells of its functions, and of all functions that they call."""
        return tuple(sorted({path for one in self.steps for path in called_files(one.function)}))


def triton(
    contract: Contract,
    function: Any,
    *,
    grid: Any,
    args: Any = None,
    tune: Mapping[str, Sequence] = NOTHING,
    where: Sequence = (),
    sizes: Callable | None = None,
    constexprs: Mapping[str, Any] = NOTHING,
    workspace: Mapping[str, Any] = NOTHING,
    contiguous: bool | str | Sequence[str] = (),
    then: Sequence[Step] = (),
    default: Mapping[str, Any] | None = None,
    name: str | None = None,
    idea: str = "",
) -> DeclaredTriton:
    """Declare a variant in Triton.

    ``function`` is a ``@triton.jit`` function; with ``@triton.autotune`` around it, its configurations are the space.
    ``args`` gives values to the run-time parameters, ``constexprs`` to the others. A constexpr that is not given takes
    the tunable of its own name, else its default in the function, else the size or argument of its own name. ``tune``
    may have ``num_warps`` and ``num_stages``. The other arguments are those of `cuda`.
    """
    given = {key: value for key, value in locals().items() if key not in ("contract", "function")}
    function, tune, default, configs = _without_autotuner(function, tune, default)
    name = name or function.__name__
    if configs:
        rule = Expression.of(
            "where", lambda config: any(all(config[k] == v for k, v in one.items()) for one in configs)
        )
        where = [*listed(where), rule]
    tunables = Tunables.of(contract, tune, where, default)
    declared = Declaration.of(contract, name, tunables, sizes, workspace, contiguous)
    steps = (Step(function, grid, None, args, 0, constexprs, {}), *then)
    parts = [TritonPart.of(declared, one, "" if i == 0 else f"then[{i - 1}].") for i, one in enumerate(steps)]
    read = {name for part in parts for name in part.names}
    check_used(f"{contract.name}/{name}", declared.space, "", read, tuple(TRITON_OPTIONS))
    statement = stated([(one.grid, one.args, dict(one.constexprs), dict(one.options)) for one in steps])
    return DeclaredTriton(
        **declared.fields(idea or f"{contract.name} in Triton", statement, parts),
        steps=tuple(part.triton_step(declared, main=index == 0) for index, part in enumerate(parts)),
        given=given | {"name": name},
    )


def _without_autotuner(function: Any, tune: Mapping, default: Any) -> tuple[Any, Mapping, Any, list[dict]]:
    """Return the ``@triton.jit`` function under an autotuner, the space, the default, and the configurations.

    The autotuner's configurations become the space, and its first one the default. Without an autotuner the space and
    the default stay as declared, and the list of configurations is empty.
    """
    configs = []
    while not inspect.isfunction(getattr(function, "fn", None)):
        if getattr(function, "fn", None) is None:
            remedy = "Decorate it with @triton.jit."
            raise ArgumentError("function", type(function).__name__, "a @triton.jit function", remedy)
        if hasattr(function, "configs"):
            configs = [
                {**one.kwargs, "num_warps": one.num_warps or 4, "num_stages": one.num_stages or 3}
                for one in function.configs
            ]
        elif hasattr(function, "values"):
            what = "a function with @triton.heuristics"
            remedy = 'Pass what they compute as constexprs={"EVEN": "cols % BLOCK == 0"}, and the function under them.'
            raise ArgumentError("function", what, "a @triton.jit function, with or without @triton.autotune", remedy)
        function = function.fn
    if not configs:
        return function, tune, default, []
    if tune:
        remedy = "Its configurations are the space."
        raise ArgumentError("tune", dict(tune), "no value with @triton.autotune", remedy)
    space = {name: tuple(dict.fromkeys(one[name] for one in configs)) for name in configs[0]}
    return function, space, default or configs[0], configs


@dataclass(frozen=True, eq=False)
class TritonPart:
    """One kernel function of a variant, with its launch as expressions."""

    function: Any
    grid: LaunchSize
    arguments: tuple[tuple[str, Expression], ...]
    constexprs: Mapping[str, Expression]
    options: Mapping[str, Expression]
    defaults: frozenset[str]
    """Constexprs that keep the function's own default values."""

    @classmethod
    def of(cls, declared: Declaration, one: Step, prefix: str) -> TritonPart:
        """Parse a step; messages put ``prefix`` before the names of its arguments."""
        function = one.kernel
        names = list(function.arg_names)
        constants = [parameter.name for parameter in function.params if parameter.is_constexpr]
        for key in one.constexprs:
            if key not in names:
                listed = ", ".join(constants) or "none"
                raise ArgumentError(f"{prefix}constexprs[{key!r}]", f"a parameter {key!r}", listed, "Correct the name.")
        for key in one.options:
            if key not in TRITON_OPTIONS:
                raise ArgumentError(f"{prefix}{key}", "an option", ", ".join(TRITON_OPTIONS), "Leave it out.")
        constants = [key for key in names if key in constants or key in one.constexprs]
        fixed, defaults = {}, set()
        for parameter in function.params:
            key = parameter.name
            if key in constants:
                where = f"{prefix}constexprs[{key!r}]"
                if key in one.constexprs:
                    fixed[key] = _expression(where, one.constexprs[key])
                elif parameter.has_default and key not in declared.space:
                    fixed[key] = _value(where, parameter.default)
                    defaults.add(key)
                else:
                    fixed[key] = Expression.of(where, key)
        runtime = [key for key in names if key not in constants]
        arguments = arguments_for(function.__name__, runtime, one.args, f"{prefix}args")
        options = {key: Expression.of(f"{prefix}{key}", value) for key, value in one.options.items()}
        return cls(function, LaunchSize.of(f"{prefix}grid", one.grid), arguments, fixed, options, frozenset(defaults))

    @property
    def expressions(self) -> list[Expression]:
        """Expressions that the launch evaluates."""
        arguments = [one for _, one in self.arguments]
        return [*arguments, *self.constexprs.values(), *self.options.values(), *self.grid.parts]

    @property
    def names(self) -> set[str]:
        """Names that the launch reads."""
        return {name for one in self.expressions for name in one.names}

    def triton_step(self, declared: Declaration, *, main: bool) -> TritonStep:
        """Return the variant's step, which evaluates the expressions for each launch.

        Only the ``main`` step takes ``num_warps`` and ``num_stages`` from the configuration.
        """

        def types(problem: DeclaredProblem) -> dict[str, str]:
            known = self._compiled_in(declared, problem)
            return {name: self._type(name, one, declared, problem) for name, one in self.arguments if name not in known}

        def constexprs(config: Config, problem: DeclaredProblem) -> dict[str, Any]:
            names = declared.names(config, problem)
            return self._compiled_in(declared, problem) | {name: one(names) for name, one in self.constexprs.items()}

        def options(config: Config, problem: DeclaredProblem) -> dict[str, int]:
            names = declared.names(config, problem)
            usual = {name: config.get(name, value) if main else value for name, value in TRITON_OPTIONS.items()}
            return usual | {name: one(names) for name, one in self.options.items()}

        def value_of(expression: Expression) -> Callable[[Config, DeclaredProblem, DeclaredTensors], Any]:
            return lambda config, problem, tensors: argument_value(
                expression, declared.names(config, problem), tensors, declared.workspace
            )

        return TritonStep(
            function=self.function,
            grid=lambda config, problem: (*self.grid(declared.names(config, problem)), 1, 1)[:3],
            types=types,
            constexprs=constexprs,
            arguments={name: value_of(one) for name, one in self.arguments},
            options=options,
        )

    def _compiled_in(self, declared: Declaration, problem: DeclaredProblem) -> dict[str, Any]:
        """Return the arguments that Triton's JIT takes for constants: None, and 1, which marks unit strides."""
        names = declared.names({}, problem)
        plain = (
            (name, one(names))
            for name, one in self.arguments
            if not set(one.names) & {*declared.space, *declared.workspace}
        )
        return {
            name: value
            for name, value in plain
            if value is None or (type(value) is int and value == 1 and name not in self._unspecialised)
        }

    @property
    def _unspecialised(self) -> set[str]:
        return {parameter.name for parameter in self.function.params if parameter.do_not_specialize}

    def _type(self, parameter: str, expression: Expression, declared: Declaration, problem: DeclaredProblem) -> str:
        """Return Triton's type of an argument, with the divisibility that its JIT would find in the value."""
        if expression.is_name and expression.names[0] in declared.workspace:
            return f"*{ELEMENT_TYPES[declared.workspace[expression.names[0]].dtype].triton}"
        if set(expression.names) & set(declared.space):
            return "i32"  # known for each configuration only: compiled for any value
        value = expression(declared.names({}, problem))
        if isinstance(value, TensorType):
            element = ELEMENT_TYPES.get(value.dtype)
            if element is None or not element.triton:
                allowed = ", ".join(one.name for one in ELEMENT_TYPES.values() if one.triton)
                raise ArgumentError(expression.where, value.dtype, allowed, "Triton has no such type.")
            return f"*{element.triton}" + ("" if value.aligned else ":1")
        if isinstance(value, bool):
            return "i1"
        if isinstance(value, float):
            return "fp32"
        if isinstance(value, int):
            kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
            promised = value % _SPECIALISED == 0 and parameter not in self._unspecialised
            return f"{kind}:{_SPECIALISED}" if promised else kind
        allowed = "a tensor, a number or a bool"
        raise ArgumentError(expression.where, type(value).__name__, allowed, f"{parameter} cannot have this type.")


def _expression(where: str, given: Any) -> Expression:
    """Return the expression given for a constexpr; a value of one of Triton's own types stays as it is."""
    if isinstance(given, str | bool | int | float) or given is None or callable(given):
        return Expression.of(where, given)
    return _value(where, given)


def _value(where: str, given: Any) -> Expression:
    """Return an expression that always has one value, such as ``tl.float32`` or a text."""
    value = given.value if type(given).__name__ == "constexpr" else given
    return Expression(where, value, (), lambda names: value)
