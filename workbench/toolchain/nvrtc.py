"""CUDA C++ to PTX and machine code with NVRTC, NVIDIA's compiler as a library: no driver, no CUDA installation.

ctypes releases the interpreter's lock while NVRTC compiles, and each call works on a program of its own, so several
threads may compile at once.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import ArgumentError, CompileError, MissingToolError
from workbench.toolchain import tools
from workbench.toolchain.source import Source

_INVALID_OPTION = 5
_COMPILATION = 6


@dataclass(frozen=True)
class Output:
    """What a CUDA compiler made of one source: ``entries`` maps each requested name to the name in the PTX."""

    ptx: str
    cubin: bytes
    log: str
    entries: dict[str, str] = field(default_factory=dict)


class _Library:
    """The functions of libnvrtc that we call, with their errors turned into exceptions."""

    def __init__(self, path: Path):
        self.path = path
        # NVRTC opens its builtins by name only; loading them first makes that succeed from any folder.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins))
        self.functions = ctypes.CDLL(str(path))
        self.functions.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.functions, name)(*arguments)
        if code:
            text = self.functions.nvrtcGetErrorString(code).decode()
            raise CompileError(f"{name} failed: {text}")

    def read(self, what: str, program: ctypes.c_void_p) -> bytes:
        """The bytes behind one of the pairs ``nvrtcGet<what>Size`` and ``nvrtcGet<what>``."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]


@functools.cache
def library() -> _Library:
    """libnvrtc, loaded once. Raises MissingToolError where there is none or it cannot be loaded."""
    path = tools.find_library(r"libnvrtc\.so\.\d[\d.]*")
    if path is None:
        raise MissingToolError(f"NVRTC, NVIDIA's CUDA compiler library, was not found. {tools.HEADERS_REMEDY}")
    try:
        return _Library(path)
    except OSError as error:
        raise MissingToolError(f"{path} cannot be loaded: {error}. {tools.HEADERS_REMEDY}") from error


@functools.cache
def version() -> str:
    """The release of NVRTC, such as ``"13.0.88"``."""
    path = library().path
    if any(folder in path.parents for folder in tools.pip_folders()):
        for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
            try:
                return importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
    match = re.search(r"\.so\.(\d+\.\d+\.\d+)$", str(path.resolve()))
    if match:
        return match[1]
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value} ({path.stat().st_size} bytes)"


@functools.cache
def architectures() -> tuple[str, ...]:
    """The architectures that NVRTC compiles for, ``("sm_75", ...)``."""
    count = ctypes.c_int()
    library().call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library().call("nvrtcGetSupportedArchs", numbers)
    return tuple(f"sm_{number}" for number in numbers)


def check_architecture(arch: str) -> None:
    """Raises ArgumentError for an architecture that NVRTC does not know."""
    if re.sub(r"(?<=\d)[af]$", "", arch) not in architectures():
        raise ArgumentError("arch", repr(arch), ", ".join(architectures()), f"NVRTC {version()} compiles for these.")


def toolkit_dirs() -> list[Path]:
    """The folders of the CUDA headers, of its C++ libraries where installed, and of our stubs for the C library's."""
    return [tools.cuda_include(), *tools.library_includes(), tools.stub_headers()]


def compile(
    source: Source, names: Sequence[str], arch: str, options: Sequence[str], include_dirs: Sequence[Path]
) -> Output:
    """Compile ``source`` for ``arch``; ``names`` are name expressions whose kernels are wanted.

    Raises CompileError with the compiler's lines.
    """
    check_architecture(arch)
    nvrtc = library()
    program = ctypes.c_void_p()
    nvrtc.call("nvrtcCreateProgram", ctypes.byref(program), source.text.encode(), source.name.encode(), 0, None, None)
    try:
        for name in names:
            nvrtc.call("nvrtcAddNameExpression", program, name.encode())
        # --ptxas-options=-v makes the log tell registers, spills and shared memory of each kernel.
        flags = [f"--gpu-architecture={arch}", "-lineinfo", "--ptxas-options=-v"]
        flags += [f"--include-path={folder}" for folder in [*include_dirs, *toolkit_dirs()]]
        flags += options
        code = nvrtc.functions.nvrtcCompileProgram(
            program, len(flags), (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
        )
        log = nvrtc.read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if code == _INVALID_OPTION:
            raise ArgumentError("options", " ".join(options), "options of NVRTC", log.strip())
        if code:
            text = nvrtc.functions.nvrtcGetErrorString(code).decode()
            log = _own_errors(log).replace(source.name, source.label)
            raise CompileError(f"NVRTC {version()} refused {source.label} ({text}):", _with_advice(log))
        entries = {}
        for name in names:
            lowered = ctypes.c_char_p()
            nvrtc.call("nvrtcGetLoweredName", program, name.encode(), ctypes.byref(lowered))
            entries[name] = (lowered.value or b"").decode()
        ptx = nvrtc.read("PTX", program).rstrip(b"\0").decode()
        return Output(ptx, nvrtc.read("CUBIN", program), log, entries)
    finally:
        nvrtc.functions.nvrtcDestroyProgram(ctypes.byref(program))


def _own_errors(log: str) -> str:
    """The log without the complaints about our own name expressions, as long as the source has errors of its own."""
    blocks = re.split(r"\n(?=\S)", log.strip())
    own = [block for block in blocks if not block.startswith("__nv_name_map")]
    kept = (
        own
        if any(re.search(r"\berror\b", block.splitlines()[0]) for block in own if "detected in" not in block)
        else blocks
    )
    return "\n".join(block.rstrip() for block in kept if "detected in the compilation" not in block)


_DEVICE_ONLY = 'NVRTC compiles device code only: move the host code out of the file, or use compiler="nvcc".'
_HOST_HEADERS = "iostream|vector|string|chrono|thread|random|fstream|algorithm"
_ADVICE = {
    'cannot open source file "(nv|cuda|cub|thrust)/': "These headers are an extra package: "
    "python -m pip install 'cuda-toolkit[cccl]>=13,<14'",
    f'cannot open source file "({_HOST_HEADERS})"': _DEVICE_ONLY,
    "<<<|a host function call|cudaMalloc|cudaMemcpy": _DEVICE_ONLY,
}


def _with_advice(log: str) -> str:
    """The log, and below it what to do about it where the cause is one of the usual ones."""
    return "\n".join([log, *dict.fromkeys(a for pattern, a in _ADVICE.items() if re.search(pattern, log))])
