"""``workbench setup nvcc``: nvcc from pip, in the version of the CUDA toolkit whose headers are installed."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable

from workbench.driver.clients import library_headers
from workbench.driver.clients.pip import pip
from workbench.errors import MissingToolError
from workbench.toolchain import tools


def install(say: Callable[[str], object] = print) -> str:
    """Install nvcc into this environment, unless it has one already, and fetch the headers of cuBLAS and cuRAND.

    Returns the version of nvcc. Raises MissingToolError if pip fails.
    """
    version = _install(say)
    library_headers.fetch(say)
    return version


def _install(say: Callable[[str], object]) -> str:
    if (present := tools.pip_nvcc()) is not None:
        say(f"{present} is installed")
        return tools.program_version(present)
    package = f"cuda-toolkit[nvcc]=={importlib.metadata.version('cuda-toolkit')}"
    say(f"installing {package}: 99 MB")
    pip("install", package, needs="nvcc needs a package index")
    importlib.invalidate_caches()
    tools.look_again()
    if (program := tools.pip_nvcc()) is None:
        raise MissingToolError(f"pip installed {package}, which does not contain the program nvcc.")
    return tools.program_version(program)
