"""Targets of ``workbench run``: the kind of program that a name stands for, and the machine code that can run."""

from __future__ import annotations

import enum
import os
import re
import shutil
from pathlib import Path

from workbench.driver.elf import Elf, is_elf, read_elf
from workbench.errors import ArgumentError, MissingToolError
from workbench.programs.children import shared_python

SOURCES = (".cu", ".cpp", ".cc", ".cxx")
_MAJOR = 13  # version of our CUDA runtime library
_RELINK = "Run the source, workbench run program.cu, or link again with -cudart shared."


class TargetKind(enum.Enum):
    """Kinds of targets, by the way they run."""

    PYTHON = "a Python file or module"
    SOURCE = "CUDA C++ to compile"
    LIBRARY = "a shared object with a main()"
    COMMAND = "a process of its own"


def kind_of(target: str, module: bool) -> TargetKind:
    """Return the kind of a target, from its suffix, its content, or the command of that name on PATH.

    Raises ArgumentError and MissingToolError for machine code that cannot run here.
    """
    path = Path(target)
    if module:
        return TargetKind.PYTHON
    if path.suffix in SOURCES:
        return TargetKind.SOURCE
    if is_elf(path):
        return _machine_code(path)
    if path.is_file():
        return TargetKind.COMMAND if _is_script(path) else TargetKind.PYTHON
    if (found := shutil.which(target)) is None:
        return TargetKind.PYTHON
    if is_elf(Path(found)):
        _machine_code(Path(found))
    return TargetKind.COMMAND


def _machine_code(path: Path) -> TargetKind:
    elf = read_elf(path)
    _check_runtime(path, elf)
    if not elf.executable:
        if "main" in elf.defined:
            return TargetKind.LIBRARY
        raise ArgumentError(
            "program", f"{str(path)!r}, which has no main()", "a program", "Run the source: workbench run program.cu."
        )
    if not os.access(path, os.X_OK):
        raise ArgumentError("program", f"{str(path)!r}, not executable", "an executable file", f"chmod +x {path}")
    if _runtimes(elf) and shared_python() is None:
        raise MissingToolError(
            f"{path} starts Python at its first CUDA call, and this Python has no shared library (libpython3.x.so). "
            "Compile and link it by 'workbench run nvcc program.cu -o program', which needs none, or use a Python that "
            "has one, such as conda's, uv's, or the system's with the package libpython3."
        )
    return TargetKind.COMMAND


def _runtimes(elf: Elf) -> list[str]:
    return [name for name in elf.needed if re.match(r"libcud(a|art)\.so", name)]


def _check_runtime(path: Path, elf: Elf) -> None:
    runtimes = [name for name in _runtimes(elf) if name.startswith("libcudart")]
    if elf.has_static_runtime and not runtimes:
        raise ArgumentError(
            "program", f"{str(path)!r}, which has NVIDIA's CUDA runtime inside", "one without",
            f"That runtime only runs on NVIDIA's driver. {_RELINK}",
        )  # fmt: skip
    if runtimes and not runtimes[0].endswith(f".so.{_MAJOR}"):
        raise ArgumentError(
            "program", f"{str(path)!r}, which needs {runtimes[0]}", f"libcudart.so.{_MAJOR}",
            f"Build it with CUDA {_MAJOR}, or run the source: workbench run program.cu.",
        )  # fmt: skip


def _is_script(path: Path) -> bool:
    """Return True if a file is an executable script for an interpreter other than Python."""
    if not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        line = file.readline(256)
    return line.startswith(b"#!") and b"python" not in line
