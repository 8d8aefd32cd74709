"""Compilation of CUDA C++ with an installed nvcc, for sources with host code and for other versions of CUDA."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbench.base.demangle import demangle, normalised
from workbench.errors import ArgumentError, CompileError, MissingToolError
from workbench.ptx.parse import parse
from workbench.toolchain import tools
from workbench.toolchain.nvrtc import Output, for_assembler
from workbench.toolchain.source import Source

_REMEDY = 'Get it with "workbench setup nvcc", or set CUDA_HOME for an installed CUDA toolkit, or use compiler="nvrtc".'


def program() -> Path:
    """Return nvcc's path: that of CUDA_HOME or CUDA_PATH, else pip's, else the one on PATH, else /usr/local/cuda's.

    Raises MissingToolError without any.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        folder = Path(os.environ.get(variable) or "/nonexistent")
        if os.access(folder / "bin" / "nvcc", os.X_OK) and not tools.is_drivers(folder):
            return folder / "bin" / "nvcc"
    found = tools.pip_nvcc() or tools.installed("nvcc")
    if found is None and os.access("/usr/local/cuda/bin/nvcc", os.X_OK):
        found = Path("/usr/local/cuda/bin/nvcc")
    if found is None:
        raise MissingToolError(f"nvcc was not found. {_REMEDY}")
    return found


def assembler() -> Path:
    """Return the ptxas beside nvcc, as new as the compilers that come with it, or else Triton's.

    Raises MissingToolError without any.
    """
    try:
        beside = program().resolve().with_name("ptxas")
        return beside if beside.is_file() else tools.find_program("ptxas")
    except MissingToolError:
        return tools.find_program("ptxas")


def version() -> str:
    """Return the release of nvcc, such as ``"13.0.88"``."""
    return tools.program_version(program())


def toolkit_dirs() -> list[Path]:
    """Return the folder of nvcc's own headers, if it exists; in cache keys nvcc's version stands for its content."""
    return [path for path in [program().resolve().parent.parent / "include"] if path.is_dir()]


def compile(
    source: Source,
    names: Sequence[str],
    arch: str,
    options: Sequence[str],
    include_dirs: Sequence[Path],
    *,
    machine_code: bool,
) -> Output:
    """Compile ``source`` for ``arch``; ``names`` are kernels, whose templates are instantiated.

    Without ``machine_code`` compilation ends at the PTX.

    Raises CompileError with the compiler's messages, ArgumentError for an architecture that nvcc does not know.
    """
    nvcc = program()
    if shutil.which("g++") is None and shutil.which("c++") is None:
        raise MissingToolError('nvcc needs a host compiler and there is no g++. Install one, or use compiler="nvrtc".')
    with tempfile.TemporaryDirectory(prefix="workbench-nvcc-") as folder:
        file = Path(folder) / "unit.cu"
        file.write_text(_unit(source, names))
        target = [*_CUBIN, "--keep", f"--keep-dir={folder}"] if machine_code else ["-ptx"]
        output = Path(folder) / ("unit.cubin" if machine_code else "unit.ptx")
        log = _run([nvcc, *target, *(f"-I{path}" for path in include_dirs), *options], file, output, arch, source)
        ptx = for_assembler(next(Path(folder).glob("unit*.ptx")).read_text(), options)
        cubin = output.read_bytes() if machine_code else b""
    return Output(ptx, cubin, log, _entries(ptx, names))


def assemble(
    ptx: str, source: Source, names: Sequence[str], arch: str, options: Sequence[str], include_dirs: Sequence[Path]
) -> Output:
    """Assemble ``ptx``, which `compile` produced from the other arguments, to machine code.

    Raises CompileError with the assembler's messages.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-nvcc-") as folder:
        file, output = Path(folder) / "unit.ptx", Path(folder) / "unit.cubin"
        file.write_text(ptx)
        log = _run([program(), *_CUBIN, *options], file, output, arch, source)
        return Output(ptx, output.read_bytes(), log, _entries(ptx, names))


_CUBIN = ("-cubin", "-Xptxas", "-v")


def _run(command: Sequence[object], file: Path, output: Path, arch: str, source: Source) -> str:
    """Run nvcc on ``file``, and return its log with the name of ``source`` in place of the file's."""
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise ArgumentError("arch", repr(arch), "sm_ and a number, such as sm_80", "Name a real architecture.")
    command = [*command, f"-arch={arch}", "-lineinfo", "-o", output, file]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=file.parent, check=False)
    log = (done.stderr + done.stdout).replace(str(file), source.name).replace(source.name, source.label)
    if done.returncode != 0:
        if "gpu-architecture" in log or "Unsupported gpu architecture" in log:
            raise ArgumentError("arch", repr(arch), f"what nvcc {version()} compiles for", log.strip())
        raise CompileError(f"nvcc {version()} refused {source.label}:", log.strip())
    return log


def _unit(source: Source, names: Sequence[str]) -> str:
    """Return the source under its own file name, followed by a use of each template, which instantiates it."""
    lines = [f'#line 1 "{source.name}"', source.text]
    for index, name in enumerate(name for name in names if "<" in name):
        lines += [
            f'#line {index + 1} "name expression"',
            f"void *workbench_use_{index}() {{ return (void *)&{name}; }}",
        ]
    return "\n".join(lines) + "\n"


def _entries(ptx: str, names: Sequence[str]) -> dict[str, str]:
    """Return the PTX entry of each name: the one that is spelled the same, else the only one of that function."""
    entries = list(parse(ptx).entries)
    found = {}
    for name in names:
        exact = [entry for entry in entries if entry == name or normalised(demangle(entry)) == normalised(name)]
        base = normalised(name).split("<")[0]
        same = exact or [entry for entry in entries if normalised(demangle(entry)).split("<")[0] == base]
        if len(same) == 1:
            found[name] = same[0]
    return found
