"""A pytest plugin: nbval's kernels are processes of `warm.python`."""

from __future__ import annotations

from typing import Any

import nbval.kernel

import warm


class WarmKernels(nbval.kernel.KernelManager):
    """Starts a kernel as a fork of what has imported its packages."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command with another Python."""
        _, *words = super().format_kernel_cmd(extra_arguments)
        return [*warm.python(), *words]


def pytest_configure(config: Any) -> None:
    """Exchange the class that nbval uses."""
    nbval.kernel.KernelManager = WarmKernels
