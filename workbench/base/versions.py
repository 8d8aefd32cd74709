"""Which versions a result was obtained with, and which of them decide whether it can be used again."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping

from workbench import __version__

_PACKAGES = ("torch", "triton", "nvidia-cuda-nvrtc", "numpy", "pycuda")


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of everything that takes part in a measurement, by name."""
    found = {"workbench": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def toolchain(language: str) -> str:
    """The versions that the code of a variant depends on: another compiler may make other code of the same source."""
    package = {"cuda": "nvidia-cuda-nvrtc", "triton": "triton", "torch": "torch"}[language]
    found = versions()
    return f"workbench {found['workbench']}, {package} {found.get(package, 'none')}"
