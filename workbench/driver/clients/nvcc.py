"""The ``nvcc`` that PyCUDA finds beside the simulated driver: ``python -m workbench.driver.clients.nvcc``.

It implements the calls of ``pycuda.compiler``: ``--version``, ``--preprocess``, and ``--cubin``, ``--ptx`` or
``--fatbin`` of one file. The output is always PTX behind a line with the resources of its kernels (see images.py),
because the simulated driver runs PTX. NVRTC compiles, and an installed nvcc what NVRTC refuses because of host code, as
TileLang's headers have; with ``WORKBENCH_NVCC=nvcc`` it compiles everything, for options that only nvcc accepts. Any
other call builds a program with host code and goes to NVIDIA's nvcc.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.terminal import say
from workbench.driver.clients.host_programs import call_nvcc
from workbench.driver.images import image
from workbench.errors import ArgumentError, HostCodeError, MissingToolError, WorkbenchError
from workbench.toolchain import nvcc, nvrtc, tools
from workbench.toolchain.sass import parse_ptxas_log
from workbench.toolchain.source import Source, include_closure, kept

_ACTIONS = {"--version": "version", "--preprocess": "preprocess"}  # -E is for whole programs and goes to nvcc
_TARGETS = {
    "--cubin": "cubin",
    "-cubin": "cubin",
    "--ptx": "ptx",
    "-ptx": "ptx",
    "--fatbin": "fatbin",
    "-fatbin": "fatbin",
}
# Options that mean nothing to NVRTC, which has no host code, files or linker, and one target; after one dash or two.
_IGNORED = (
    "keep", "m64", "machine", "O0", "O1", "O2", "O3", "lineinfo", "c", "g", "v", "verbose", "res-usage",
    "resource-usage", "expt-relaxed-constexpr", "extended-lambda", "expt-extended-lambda",
    "allow-unsupported-compiler",
)  # fmt: skip
_IGNORED_WITH_VALUE = (
    "Xcompiler", "compiler-options", "code", "gpu-code", "ccbin", "compiler-bindir", "Xptxas", "O", "e", "entries",
    "Xlinker", "linker-options", "Xnvlink", "nvlink-options", "cudart", "cudadevrt", "t", "threads", "x", "l",
    "library", "L", "library-path", "keep-dir", "default-stream", "Werror",
)  # fmt: skip
_JOINED = re.compile(r"-[lL](?!ineinfo|to)\S")  # -lcudadevrt, -L/folder
_GENERATE_CODE = ("-gencode", "--generate-code")
_DEFAULT_ARCH = "sm_80"
_NO_FILE = Path()


@dataclass
class Command:
    """One parsed command line: the action, its file (none for the version), and the options for the compiler."""

    action: str = "compile"
    target: str = "cubin"
    file: Path = _NO_FILE
    output: Path | None = None
    arch: str = _DEFAULT_ARCH
    include_dirs: list[Path] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


def read(arguments: Sequence[str]) -> Command:
    """Parse a command line; raise ArgumentError for one without a file.

    A command line with none of the options for kernels alone (``--cubin`` and so on) builds a program.
    """
    if not any(word in _TARGETS or word in _ACTIONS for word in arguments):
        return Command("program")
    command, rest = Command(), iter(arguments)
    for word in rest:
        name, _, value = word.partition("=")
        if word in _ACTIONS:
            command.action = _ACTIONS[word]
        elif word in _TARGETS:
            command.target = _TARGETS[word]
        elif name in ("-arch", "--gpu-architecture"):
            command.arch = (value or _value(word, rest)).replace("compute_", "sm_")
        elif name in _GENERATE_CODE:
            target = re.search(r"arch=compute_(\w+)", value or _value(word, rest))
            command.arch = f"sm_{target[1]}" if target else command.arch
        elif word.startswith("-I") or name == "--include-path":
            command.include_dirs.append(Path((value if name == "--include-path" else word[2:]) or _value(word, rest)))
        elif name in ("-o", "--output-file"):
            command.output = Path(value or _value(word, rest))
        elif word in ("-D", "-U", "-include", "--define-macro", "-std"):
            long = {"-include": "--pre-include=", "-std": "--std="}.get(word, word[:2] if len(word) == 2 else "-D")
            command.options.append(long + _value(word, rest))
        elif word in ("-rdc", "--relocatable-device-code"):
            command.options.append(f"{word}={_value(word, rest)}")
        elif word.startswith("-") and name.lstrip("-") in _IGNORED_WITH_VALUE:
            value or _value(word, rest)
        elif word.startswith("-") and (name.lstrip("-") in _IGNORED or _JOINED.match(word)):
            continue
        elif word.startswith("-"):
            command.options.append(word)
        else:
            command.file = Path(word)
    if command.file == _NO_FILE and command.action != "version":
        raise ArgumentError("nvcc", " ".join(arguments), "a .cu file", "Name the file to compile.")
    return command


def _value(word: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise ArgumentError("nvcc", word, "an option with its value", "The value is missing.")
    return value


def main(arguments: Sequence[str]) -> int:
    """Run one command line, print errors to stderr, and return the exit status."""
    try:
        command = read(arguments)
        if command.action == "program":
            return call_nvcc(arguments)
        if command.action == "version":
            print(version())
        elif command.action == "preprocess":
            print(_expanded(command))
        else:
            _write(command, _compiled(command, arguments))
    except WorkbenchError as error:
        say(error, err=True)
        return 1
    return 0


def _chosen_nvcc() -> Path | None:
    """Return the installed nvcc if ``WORKBENCH_NVCC`` asks for it, None for NVRTC."""
    wanted = os.environ.get("WORKBENCH_NVCC", "nvrtc")
    if wanted not in ("nvrtc", "nvcc"):
        raise ArgumentError("WORKBENCH_NVCC", repr(wanted), "'nvrtc' or 'nvcc'", "Unset it for NVRTC.")
    return nvcc.program() if wanted == "nvcc" else None


def version() -> str:
    """Return the text of ``--version``, which names the compiler behind this nvcc.

    PyCUDA includes it in the keys of its cache, so entries of this nvcc and of a real one never mix.
    """
    real = _chosen_nvcc()
    compiler = f"nvcc {tools.program_version(real)}" if real else f"NVRTC {nvrtc.version()}"
    release = compiler.split()[1]
    major_minor = ".".join(release.split(".")[:2])
    return f"nvcc of the simulated driver: PTX by {compiler}\nCuda compilation tools, release {major_minor}, V{release}"


def _source(command: Command) -> Source:
    path = Path.cwd() / command.file
    try:
        text = path.read_text()
        # PyCUDA removes its file right after compiling, but traces and findings show its lines later.
        name = kept(text, path.name) if path.is_relative_to(tempfile.gettempdir()) else path
        return Source(text, str(name), command.file.name, path.parent)
    except OSError as error:
        raise ArgumentError("nvcc", str(path), "a file that can be read", str(error)) from error


def _folders(command: Command, source: Source) -> list[Path]:
    folders = [source.folder, *command.include_dirs]
    return [folder for folder in folders if folder is not None and folder.is_dir()]


def _expanded(command: Command) -> str:
    """Return the source and a digest of each header it includes: a text that changes when preprocessor output would."""
    source = _source(command)
    closure = include_closure(source, _folders(command, source), nvrtc.toolkit_dirs(), {})
    return "\n".join([source.text, *(f"// {name} {digest}" for name, digest in closure.digests.items())])


def _compiled(command: Command, arguments: Sequence[str]) -> bytes:
    source = _source(command)
    real = _chosen_nvcc()
    if real is not None:
        return _by_nvcc(real, command, arguments)
    options = [*_with_standard(command.options), "--pre-include=mixed_math.h"]
    try:
        output = nvrtc.compile(source, [], command.arch, options, _folders(command, source), machine_code=True)
    except HostCodeError:
        if "WORKBENCH_NVCC" in os.environ or (real := _installed()) is None:
            raise
        return _by_nvcc(real, command, arguments)
    return image(output.ptx, parse_ptxas_log(output.log))


def _installed() -> Path | None:
    try:
        return nvcc.program()
    except MissingToolError:
        return None


def _with_standard(options: Sequence[str]) -> list[str]:
    return (
        list(options) if any(option.lstrip("-").startswith("std") for option in options) else ["--std=c++17", *options]
    )


def _by_nvcc(real: Path, command: Command, arguments: Sequence[str]) -> bytes:
    """Return the image of PTX by the installed nvcc; its log of ``-cubin`` has ptxas's resource figures."""
    kept = [word for word in arguments if word not in _TARGETS and word != "--keep"]
    with tempfile.TemporaryDirectory(prefix="workbench-nvcc-") as folder:
        flags = ["-cubin", "-lineinfo", "-Xptxas", "-v", "--keep", f"--keep-dir={folder}", "-o", f"{folder}/out.cubin"]
        done = subprocess.run([str(real), *flags, *kept], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingToolError(done.stderr.strip() or f"{real} failed with status {done.returncode}")
        text = nvrtc.for_assembler(next(Path(folder).glob("*.ptx")).read_text(), arguments)
    return image(text, parse_ptxas_log(done.stderr))


def _write(command: Command, content: bytes) -> None:
    output = command.output or Path.cwd() / f"{command.file.stem}.{command.target}"
    replace_file(output, content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
