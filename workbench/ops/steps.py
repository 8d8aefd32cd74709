"""Kernels that run after a variant's first one: a reduction of partial results, for instance.

A variant is one idea, but not always one kernel. Those that follow the first are declared in the variant's ``then``,
take the same configuration and problem, and find what the first one left in ``tensors.workspace``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.ops.values import Config, Launch


@dataclass(frozen=True, eq=False, kw_only=True)
class CudaStep:
    """One more kernel of a variant's .cu file, compiled with the variant's macros."""

    kernel: str | Callable[[Config, Any], str]
    """The name of the ``extern "C"`` kernel, or a C++ name expression, which may depend on (config, problem)."""
    resources: Callable[[Config, Any], tuple[int, int]]
    """(config, problem) -> (threads per block, dynamic shared memory in bytes)."""
    launcher: Callable[[Config, Any, Any], Launch]
    """(config, problem, tensors) -> Launch."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TritonStep:
    """A ``@triton.jit`` function with what it takes; the fields are those of `TritonVariant`."""

    function: Any
    signature: Callable[[Any], Mapping[str, str]]
    constexprs: Callable[[Config, Any], Mapping[str, Any]]
    launcher: Callable[[Config, Any, Any], Launch]
    options: Callable[[Config, Any], Mapping[str, int]] = lambda config, problem: {"num_warps": 4, "num_stages": 1}
    """(config, problem) -> num_warps and num_stages."""

    def compile(self, config: Config, problem: Any, arch: str, *, machine_code: bool):
        """Compile ahead of time, without a GPU."""
        from workbench.toolchain import compile_triton

        types = {name: kind.partition(":") for name, kind in self.signature(problem).items()}
        return compile_triton(
            self.function,
            {name: kind for name, (kind, _, _) in types.items()},
            dict(self.constexprs(config, problem)),
            arch=arch,
            attributes={name: int(multiple) for name, (_, _, multiple) in types.items() if multiple},
            machine_code=machine_code,
            **self.options(config, problem),
        )
