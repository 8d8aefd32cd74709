"""Versions that a result was obtained with, and those that decide if it can be used again."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping

__version__ = "0.2.0"
"""The version of the package."""

_PACKAGES = ("torch", "triton", "nvidia-cuda-nvrtc", "numpy", "pycuda")


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions of everything that takes part in a measurement, by name."""
    found = {"workbench": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def toolchain(language: str) -> str:
    """Return the versions that a variant's code depends on: another compiler may make other code of the same source."""
    package = {"cuda": "nvidia-cuda-nvrtc", "triton": "triton", "torch": "torch"}[language]
    found = versions()
    return f"workbench {found['workbench']}, {package} {found.get(package, 'none')}"
