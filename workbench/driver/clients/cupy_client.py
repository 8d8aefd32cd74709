"""CuPy in a process with the simulated driver: kernels compiled to PTX with line numbers, over our CUDA runtime.

`workbench.driver.clients.cupy_setup` builds a CuPy that links to a shared runtime, so that it can use ours.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from workbench.analysis.watching import watched
from workbench.base.home import home_part
from workbench.driver.imports import load_beside, loaded_instead, when_imported
from workbench.toolchain.source import kept

PACKAGE = "cupy-cuda13x"
LABEL = "+workbench"
"""Suffix of the version of a wheel that `workbench.driver.clients.cupy_setup` built."""

_KERNEL = re.compile(r"__global__\s[^;{(]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")


def installed() -> str | None:
    """Return the version of CuPy for CUDA 13 in this environment, or None."""
    importlib.invalidate_caches()
    return next((one.version for one in importlib.metadata.distributions(name=PACKAGE)), None)


def run_on_simulated_driver(runtime: Path) -> None:
    """Make CuPy use this process's driver, through the CUDA runtime at this path, once it is imported."""
    when_imported("cupy", _bound_exactly, before=lambda: _prepare(runtime))
    when_imported("cupy.cuda.compiler", _compile_to_ptx)


def _prepare(runtime: Path) -> None:
    version = installed()
    if version is not None and not version.endswith(LABEL):
        warnings.warn(
            f"{PACKAGE} {version} has NVIDIA's CUDA runtime inside, which runs on NVIDIA's driver alone: its calls "
            "will end with cudaErrorNotSupported. Run once: workbench setup cupy",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip
    elif (other := loaded_instead(runtime)) is not None:
        warnings.warn(
            f"{other} is loaded in this process already, and CuPy takes it: its calls will end with "
            "cudaErrorNotSupported. Call simulated_driver() before importing CuPy",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip
    load_beside(runtime)
    os.environ["CUPY_COMPILE_WITH_PTX"] = "1"
    # With CUB, CuPy's default, NVRTC would compile CUB's headers anew for every new reduction.
    os.environ.setdefault("CUPY_ACCELERATORS", "")
    if "CUPY_CACHE_DIR" not in os.environ:
        os.environ["CUPY_CACHE_DIR"] = str(home_part("cupy"))


def _bound_exactly() -> None:
    """Give each array its own allocation under checks, because the pool's larger blocks hide overruns."""
    watch = watched()
    if watch is not None and watch.checks:
        sys.modules["cupy"].cuda.set_allocator(None)


def _compile_to_ptx() -> None:
    """Make CuPy compile with line numbers, from a kept copy of the source, because CuPy removes its own at once.

    With `backend="nvcc"` nvcc produces PTX where CuPy asks for machine code; CuPy's own option does this for NVRTC.
    """
    compiler: Any = sys.modules["cupy.cuda.compiler"]

    class Program(compiler._NVRTCProgram):
        def __init__(self, src: Any, name: Any = "default_program", *arguments: Any, **options: Any):
            text = src.decode() if isinstance(src, bytes) else src
            if (kernel := _KERNEL.search(text)) is not None:
                name = str(kept(text, f"{kernel[1]}.cu"))
            super().__init__(src, name, *arguments, **options)

        def compile(self, options: tuple[str, ...] = (), *arguments: Any, **named: Any) -> Any:
            return super().compile((*options, "-lineinfo"), *arguments, **named)

    by_nvcc = compiler.compile_using_nvcc

    @functools.wraps(by_nvcc)
    def compile_using_nvcc(source: str, options: tuple[str, ...] = (), *arguments: Any, **named: Any) -> bytes:
        if not named.get("separate_compilation"):
            named["code_type"] = "ptx"
        return by_nvcc(source, (*options, "-lineinfo"), *arguments, **named)

    compiler._NVRTCProgram, compiler.compile_using_nvcc = Program, compile_using_nvcc
