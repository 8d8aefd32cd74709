"""CuTe DSL in a process with the simulated driver: its compiled host code over our CUDA runtime.

Each function that the host code calls is looked up in the libraries that CUTE_DSL_LIBS names. Its own library there
contains NVIDIA's static runtime, so ours comes before it. CuTe DSL assembles in its own process; with line information
the machine code keeps its PTX, which the driver runs.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from workbench.base.home import home_part
from workbench.driver.imports import when_imported


def run_on_simulated_driver(runtime: Path) -> None:
    """Make CuTe DSL use this process's driver, through the CUDA runtime at this path, once it is imported."""
    when_imported("cutlass", before=lambda: _prepare(runtime.with_name("libcute_dsl_calls.so")))


def _prepare(calls: Path) -> None:
    found = os.environ.get("CUTE_DSL_LIBS") or _own_library()
    if found is None or str(calls) in found:
        return
    os.environ["CUTE_DSL_LIBS"] = os.pathsep.join([str(calls), found])
    os.environ["CUTE_DSL_LINEINFO"] = "1"
    if "CUTE_DSL_CACHE_DIR" not in os.environ:
        os.environ["CUTE_DSL_CACHE_DIR"] = str(home_part("cute_dsl"))  # apart from what was compiled for a GPU


def _own_library() -> str | None:
    """Return the path of CuTe DSL's runtime library, that for CUDA 13 if there are several, or None."""
    spec = importlib.util.find_spec("nvidia_cutlass_dsl")
    folders = (spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("**/lib/libcute_dsl_runtime.so")]
    return str(max(found)) if found else None
