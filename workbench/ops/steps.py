"""The kernels of a variant, in the order in which they run: what each is compiled with, and how it is launched.

An argument of a launch is declared once. Names and order are those of the kernel's own parameters, in the CUDA C++
source or in the Triton function, and what a parameter gets is found by its name: among the ``arguments`` of the step,
else as an attribute of the tensors, of their workspace or of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.errors import ArgumentError
from workbench.ops.values import Config

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

Size = Callable[[Config, Any], tuple[int, ...]]
"""(config, problem) -> blocks of a grid, or threads of a block, in up to three dimensions."""
Arguments = dict[str, Callable[[Config, Any, Any], Any]]
"""Parameter -> (config, problem, tensors) -> what is passed."""


class LaunchShape(NamedTuple):
    """Part of a launch that no tensor changes: blocks, threads of a block, dynamic shared memory in bytes."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0


_NOTHING = object()


def passed(step: CudaStep | TritonStep, parameters: Iterable[str], config: Config, problem: Any, tensors: Any) -> tuple:
    """Return the argument of a launch for each parameter. Raises ArgumentError for an undeclared one."""
    values, given, own = [], step.arguments, vars(tensors)  # in a loop that every launch waits for
    for name in parameters:
        if name in given:
            values.append(given[name](config, problem, tensors))
        elif name in own:
            values.append(own[name])
        else:
            value = getattr(own.get("workspace"), name, _NOTHING)
            value = getattr(problem, name, _NOTHING) if value is _NOTHING else value
            if value is _NOTHING:
                known = ", ".join((*given, *own))
                remedy = "Name a tensor, a size of the problem, or one of arguments= so."
                raise ArgumentError(
                    f"{step.name(config, problem)}()",
                    f"a parameter {name!r}",
                    f"one that is declared, as {known}",
                    remedy,
                )
            values.append(value)
    return tuple(values)


@dataclass(frozen=True, eq=False, kw_only=True)
class CudaStep:
    """A kernel of a variant's .cu file, compiled with the variant's macros."""

    kernel: str | Callable[[Config, Any], str]
    """The name of the ``extern "C"`` kernel, or a C++ name expression, which may depend on (config, problem)."""
    grid: Size
    block: Size = lambda config, problem: (config["NUM_THREADS"],)
    shared_bytes: Callable[[Config, Any], int] = lambda config, problem: 0
    """(config, problem) -> dynamic shared memory in bytes."""
    arguments: Arguments = field(default_factory=dict)

    def name(self, config: Config, problem: Any) -> str:
        """Return the kernel's name, or name expression, for a configuration."""
        return self.kernel(config, problem) if callable(self.kernel) else self.kernel

    def threads(self, config: Config, problem: Any) -> int:
        """Return the number of threads of a block."""
        return math.prod(self.block(config, problem))

    def shape(self, config: Config, problem: Any) -> LaunchShape:
        """Return the shape of the kernel's launches."""
        return LaunchShape(self.grid(config, problem), self.block(config, problem), self.shared_bytes(config, problem))


TRITON_OPTIONS = {"num_warps": 4, "num_stages": 3}
"""Options that Triton compiles with if a configuration does not say."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TritonStep:
    """A ``@triton.jit`` function with its arguments."""

    function: Any
    grid: Size
    types: Callable[[Any], Mapping[str, str]]
    """problem -> Triton types by parameter, e.g. ``{"out": "*fp16", "scale": "fp32"}``, of others too. ``"i64:16"``
    promises that the value is a multiple of 16; a pointer is one of 16 bytes unless ``"*i32:1"``."""
    constexprs: Callable[[Config, Any], Mapping[str, Any]] = lambda config, problem: {}
    """(config, problem) -> values of constexprs by parameter, those of other functions too, beside the tunables."""
    arguments: Arguments = field(default_factory=dict)
    options: Callable[[Config, Any], Mapping[str, int]] = lambda config, problem: {
        name: config.get(name, usual) for name, usual in TRITON_OPTIONS.items()
    }
    """(config, problem) -> num_warps and num_stages."""

    def name(self, config: Config, problem: Any) -> str:
        """Return the name of the function."""
        return self.function.__name__

    def constants(self, config: Config, problem: Any) -> dict[str, Any]:
        """Return the values of the function's constexpr parameters."""
        known = self.constexprs(config, problem)
        tunables = config.keys() - self.arguments.keys()
        return {
            name: known[name] if name in known else config[name]
            for name in self.function.arg_names
            if name in known or name in tunables
        }

    def signature(self, config: Config, problem: Any) -> dict[str, str]:
        """Return the types of the parameters that a launch passes. Raises ArgumentError for one without a type."""
        constants, types = self.constants(config, problem), self.types(problem)
        wanted = [name for name in self.function.arg_names if name not in constants]
        for name in wanted:
            if name not in types:
                remedy = "Declare its type, or its value as a constexpr."
                raise ArgumentError(
                    f"{self.name(config, problem)}()", f"a parameter {name!r}", ", ".join(types), remedy
                )
        return {name: types[name] for name in wanted}

    def compile(self, config: Config, problem: Any, arch: str, *, machine_code: bool) -> CompiledKernel:
        """Compile ahead of time, without a GPU."""
        from workbench.toolchain import compile_triton

        types = {name: kind.partition(":") for name, kind in self.signature(config, problem).items()}
        return compile_triton(
            self.function,
            {name: kind for name, (kind, _, _) in types.items()},
            self.constants(config, problem),
            arch=arch,
            attributes={name: int(multiple) for name, (_, _, multiple) in types.items() if multiple},
            machine_code=machine_code,
            **self.options(config, problem),
        )

    def parameters(self, constants: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that a launch passes: those of the function that are not constexprs."""
        return tuple(name for name in self.function.arg_names if name not in constants)

    def shape(self, config: Config, problem: Any) -> LaunchShape:
        """Return the shape of the function's launches; Triton knows its shared memory by itself."""
        return LaunchShape(self.grid(config, problem), (32 * self.options(config, problem)["num_warps"],))
