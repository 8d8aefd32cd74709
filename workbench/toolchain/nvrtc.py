"""Compilation of CUDA C++ with NVRTC, NVIDIA's compiler as a library, without a driver or a CUDA installation.

Every program is compiled in a process of its own (see :mod:`workbench.toolchain.nvrtc_library`); several threads may
compile at once. This process loads the library only to ask for its version and architectures.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import ArgumentError, CompileError, HostCodeError, MissingToolError
from workbench.ptx.parse import without_contraction
from workbench.toolchain import nvcc_names, nvrtc_client, tools
from workbench.toolchain.nvrtc_library import SUCCESS, Library
from workbench.toolchain.source import Source

_INVALID_OPTION = 5


def for_assembler(ptx: str, options: Sequence[str]) -> str:
    """Return PTX with a last line that repeats ``--fmad=false``, if the compiler gives that option to ptxas.

    The compiler's own products and sums have ``.rn`` then, but those in inline PTX, as for halves, do not.
    """
    return without_contraction(ptx) if keeps_rounding(options) else ptx


def keeps_rounding(options: Sequence[str]) -> bool:
    """Return True if a compiler's options forbid contraction."""
    given = re.findall(r"-fmad[= ](true|false)\b", " ".join(options))
    return bool(given) and given[-1] == "false"


@dataclass(frozen=True)
class Output:
    """Output of a CUDA compiler for one source; ``entries`` maps each requested name to the kernel's name in the PTX.

    ``cubin`` is empty if no machine code was asked for; then ``log`` has no resource figures.
    """

    ptx: str
    cubin: bytes
    log: str
    entries: dict[str, str] = field(default_factory=dict)


@functools.cache
def library() -> Library:
    """Load libnvrtc, once; raise MissingToolError if there is none or it cannot be loaded."""
    path = tools.find_library(r"libnvrtc\.so\.\d[\d.]*")
    if path is None:
        raise MissingToolError(f"NVRTC, NVIDIA's CUDA compiler library, was not found. {tools.HEADERS_REMEDY}")
    try:
        return Library(str(path))
    except OSError as error:
        raise MissingToolError(f"{path} cannot be loaded: {error}. {tools.HEADERS_REMEDY}") from error


@functools.cache
def version() -> str:
    """Return the release of NVRTC, such as ``"13.0.88"``."""
    path = Path(library().path)
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
    """Return the architectures that NVRTC compiles for, ``("sm_75", ...)``."""
    count = ctypes.c_int()
    library().call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library().call("nvrtcGetSupportedArchs", numbers)
    return tuple(f"sm_{number}" for number in numbers)


def check_architecture(arch: str) -> None:
    """Raise ArgumentError for an architecture that NVRTC does not know."""
    if re.sub(r"(?<=\d)[af]$", "", arch) not in architectures():
        raise ArgumentError("arch", repr(arch), ", ".join(architectures()), f"NVRTC {version()} compiles for these.")


def toolkit_dirs() -> list[Path]:
    """Return the folders of CUDA's headers, of its C++ libraries if installed, and of our stubs for the C library."""
    return [tools.cuda_include(), *tools.library_includes(), tools.stub_headers()]


def compile(
    source: Source,
    names: Sequence[str],
    arch: str,
    options: Sequence[str],
    include_dirs: Sequence[Path],
    *,
    machine_code: bool,
) -> Output:
    """Compile ``source`` for ``arch``; ``names`` are the name expressions of the kernels to instantiate.

    Without ``machine_code`` compilation ends at the PTX, which is the same as with it.

    Raises CompileError with the compiler's messages, or with the signal that ended it; CompileTimeout at the limit of
    :func:`workbench.toolchain.nvrtc_client.compile_limit`; ArgumentError for an unknown architecture or option.
    """
    check_architecture(arch)
    if machine_code:
        # --ptxas-options=-v adds registers, spills and shared memory of each kernel to the log.
        flags = [f"--gpu-architecture={arch}", "-lineinfo", "--ptxas-options=-v"]
    else:
        # For a virtual architecture NVRTC runs no assembler.
        flags = [f"--gpu-architecture={arch.replace('sm_', 'compute_')}", "-lineinfo"]
    flags += [f"--include-path={folder}" for folder in [*include_dirs, *toolkit_dirs()]]
    flags += nvcc_names.options_for(source, include_dirs, options)
    flags += options
    request = {"text": source.text, "name": source.name, "names": list(names), "flags": flags}
    answer = nvrtc_client.compile_program(library().path, request, source.label)
    code, log = answer["code"], answer["log"]
    if code == _INVALID_OPTION:
        raise ArgumentError("options", " ".join(options), "options of NVRTC", log.strip())
    if code != SUCCESS:
        log = _own_errors(log).replace(source.name, source.label)
        advice = _advice(log)
        kind = HostCodeError if any(one in advice for one in (_DEVICE_ONLY, _ONE_BY_ONE)) else CompileError
        raise kind(f"NVRTC {version()} refused {source.label} ({library().error_text(code)}):", log, advice)
    ptx = for_assembler(answer["ptx"], options)
    return Output(ptx, answer["cubin"] if machine_code else b"", log, answer["entries"])


def assemble(
    ptx: str, source: Source, names: Sequence[str], arch: str, options: Sequence[str], include_dirs: Sequence[Path]
) -> Output:
    """Return the machine code of ``ptx``, which `compile` produced from the other arguments.

    NVRTC reads no PTX, so this compiles the source again. (ptxas of another release might refuse this PTX, and would
    give other figures.) Raises CompileError with the assembler's messages, or if the second pass produces other PTX.
    """
    output = compile(source, names, arch, options, include_dirs, machine_code=True)
    if output.ptx != ptx:
        raise CompileError(
            f"{source.label} no longer compiles to the PTX of this kernel: a header that it includes has changed "
            "since. Compile it again."
        )
    return output


def _own_errors(log: str) -> str:
    """Remove errors about our own name expressions from a log, if the source has errors of its own."""
    blocks = re.split(r"\n(?=\S)", log.strip())
    own = [block for block in blocks if not block.startswith("__nv_name_map")]
    kept = (
        own
        if any(re.search(r"\berror\b", block.splitlines()[0]) for block in own if "detected in" not in block)
        else blocks
    )
    return "\n".join(block.rstrip() for block in kept if "detected in the compilation" not in block)


_DEVICE_ONLY = (
    'NVRTC compiles device code only: move the host code out of the file, or use compiler="nvcc" (workbench setup nvcc '
    "gets it). Run a program with a main() with: workbench run program.cu"
)
_ONE_BY_ONE = (
    "NVRTC takes the headers of CUB for blocks and warps, one by one: #include <cub/block/block_reduce.cuh>, not "
    "<cub/cub.cuh>."
)
_HOST_HEADERS = r"[a-z_]+|sys/\w+\.h|(unistd|omp|getopt|pthread|fcntl|errno|signal|dirent)\.h"  # C++'s, the system's
_LIBRARIES = {"cublas": "cublas", "curand": "curand", "cufft": "cufft", "cusparse": "cusparse", "cusolver": "cusolver"}
_ADVICE = {
    **{
        f'cannot open source file "{stem}\\w*\\.h"': f"This header comes in a separate package: python -m pip install "
        f"'cuda-toolkit[{package}]>=13,<14'; for another installation of it pass its folder, include_dirs=[FOLDER]."
        for stem, package in _LIBRARIES.items()
    },
    'cannot open source file "(nv|cuda|cub|thrust)/': "These headers are an extra package: "
    "python -m pip install 'cuda-toolkit[cccl]>=13,<14'",
    r"/cccl/\S*\(\d+\): error: A function explicitly marked as a __host__ function": _ONE_BY_ONE,
    f'cannot open source file "({_HOST_HEADERS})"': _DEVICE_ONLY,
    r"\.(h|hpp|cuh)\(\d+\): error: A function without execution space annotations": _DEVICE_ONLY,
    r"(?m)^\S*(nvrtc_builtin_header|cuda_\w+)\.hp?p?\(\d+\): (error|catastrophic)": "An error in one of CUDA's own "
    "headers: a macro or tunable may have a name that the header uses (T, N, ...). Rename it.",
    "<<<|a host function call|cudaMalloc|cudaMemcpy": _DEVICE_ONLY,
}


def _advice(log: str) -> str:
    """Return the advice for each common cause of errors that the log shows, one per line."""
    return "\n".join(dict.fromkeys(advice for pattern, advice in _ADVICE.items() if re.search(pattern, log)))
