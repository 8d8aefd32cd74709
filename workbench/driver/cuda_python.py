"""NVIDIA's cuda.core, and Numba over it, in a process with the simulated driver: both make PTX.

They would compile, or link with nvJitLink, to machine code, which the PTX machine does not run. PTX is what
``Program.compile`` gives here for "cubin", and what the driver's own linker gives, which they take where nvJitLink is
not of use.
"""

from __future__ import annotations

import sys
from typing import Any

from workbench.driver.imports import when_imported


def give_ptx() -> None:
    """Have cuda.core make PTX, whenever it is imported."""
    when_imported("cuda.bindings._internal.nvjitlink", _without_nvjitlink)
    when_imported("cuda.core", _compile_to_ptx)


def _without_nvjitlink() -> None:
    # Clients ask for this before they use the library, and go to the driver where it has no version.
    nvjitlink: Any = sys.modules["cuda.bindings._internal.nvjitlink"]
    nvjitlink._inspect_function_pointer = lambda name: 0


def _compile_to_ptx() -> None:
    core: Any = sys.modules["cuda.core"]

    class Program(core.Program):
        def compile(self, target_type: str, *arguments: Any, **options: Any) -> Any:
            return super().compile("ptx" if target_type == "cubin" else target_type, *arguments, **options)

    Program.__module__, Program.__doc__ = core.Program.__module__, core.Program.__doc__
    core.Program = Program
