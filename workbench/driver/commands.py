"""Commands under ``workbench setup``: install packages that pip alone cannot install."""

from __future__ import annotations

import click

from workbench.base.command_group import CommandGroup
from workbench.base.terminal import say


@click.group(cls=CommandGroup)
def setup() -> None:
    """Install what pip alone cannot."""


@setup.command("pycuda")
def setup_pycuda() -> None:
    """Build PyCUDA without a CUDA installation, and install it into this environment."""
    from workbench.driver.clients.pycuda_setup import install

    install(say)


@setup.command("cupy")
def setup_cupy() -> None:
    """Install a CuPy for CUDA 13 that also runs on the simulated driver into this environment."""
    from workbench.driver.clients.cupy_setup import install

    say(f"CuPy {install(say)}")


@setup.command("nvcc")
def setup_nvcc() -> None:
    """Install nvcc, the compiler of CUDA programs: 99 MB by pip; fetch the headers of cuBLAS and cuRAND."""
    from workbench.driver.clients.nvcc_setup import install

    say(f"nvcc {install(say)}")


@setup.command("gpu")
def setup_gpu() -> None:
    """Compile the simulated cuda device of the installed torch; otherwise it is compiled on first use."""
    from workbench.driver.torch_device.library import prepare

    say(f"ready: {prepare(say)}")
