"""Compilation of CUDA programs, host code and kernels, to a shared object that this process loads; cached on disk.

nvcc compiles them to PTX, for the simulated device, with line numbers, for its findings. They are linked with the
simulated driver and its runtime, which this process loads before the program. ``-Bsymbolic`` binds the program's calls
to its own functions in a process with many libraries; ``-z defs`` makes undefined functions an error at link time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from workbench.base.home import cache_part
from workbench.base.kept_entries import hold, trim_entries
from workbench.base.own_files import seal, sealed
from workbench.base.progress import waiting
from workbench.driver.clients.host_programs import FLAGS, include_options, link_options
from workbench.driver.elf import read_elf
from workbench.errors import ArgumentError, CompileError, MissingToolError
from workbench.toolchain import disk_cache, nvcc, tools
from workbench.toolchain.source import include_closure, read_source

SETUP = "Get it with: workbench setup nvcc (99 MB by pip)"
_LINKER = ("-Xlinker", "-Bsymbolic", "-Xlinker", "-z,defs")
_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH")
# NVIDIA's libraries that need a GPU, by the prefix of their headers and functions.
_LIBRARIES = {
    "cufft": "cuFFT", "cudnn": "cuDNN", "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER", "nvml": "NVML", "npp": "NPP", "nvToolsExt": "NVTX 2", "glut": "OpenGL",
}  # fmt: skip
_MISSING = re.compile(
    rf"(?:undefined reference to [`']|fatal error: (?:\w+/)*)({'|'.join(_LIBRARIES)})\w*", re.IGNORECASE
)


def compiled_program(sources: Sequence[Path], arch: str, words: Sequence[str]) -> Path:
    """Compile the ``sources`` of one program for ``arch`` and return its shared object.

    nvcc gets ``words`` unchanged, and reads its own environment variables, such as ``NVCC_APPEND_FLAGS``. A program
    that was compiled before, from the same files with the same options, comes from the cache, unless it is damaged.

    Raises CompileError with the compiler's messages, MissingToolError without nvcc or g++, ArgumentError for a program
    without a ``main``.
    """
    program = _nvcc()
    kept_in = cache_part("programs")
    command = [str(program), *_target(arch, words), "-shared", *FLAGS, *_LINKER, *link_options()]
    command += [*include_options(), *words]
    key = _key(sources, command)
    kept = kept_in / f"{key or uuid.uuid4().hex}.so"
    hold(kept)  # as long as this process lives
    if not sealed(kept):
        _compile(command, sources, kept)
        hold(kept)
        trim_entries(kept_in, disk_cache.limit_bytes())
    if "main" not in read_elf(kept).defined:
        raise ArgumentError(
            "program", f"{sources[0]}, which has no main()", "a CUDA program",
            "Load kernels without a main() with workbench.load_cuda; name further files of a program after --nvcc.",
        )  # fmt: skip
    return kept


def _nvcc() -> Path:
    try:
        program = nvcc.program()
    except MissingToolError as error:
        raise MissingToolError(f"A CUDA program needs nvcc, which was not found. {SETUP}") from error
    if shutil.which("g++") is None:
        raise MissingToolError("nvcc needs g++ for host code, which is not installed: apt-get install g++")
    return program


def _target(arch: str, words: Sequence[str]) -> list[str]:
    """Return the option for the simulated device's PTX, unless the user's options name an architecture."""
    given = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")
    if any(word.split("=")[0] in given for word in words):
        return []
    # Of an architecture with a letter -arch compiles for the plain one, too, which lacks instructions.
    virtual = arch.replace("sm_", "compute_")
    return [f"-gencode=arch={virtual},code={virtual}"]


def _key(sources: Sequence[Path], command: Sequence[str]) -> str | None:
    """Hash everything that the result depends on; return None if an include cannot be resolved from the text."""
    folders = [Path(word[2:]) for word in command if word.startswith("-I") and len(word) > 2]
    own, theirs = [path for path in folders if path not in _toolkit()], list(_toolkit())
    parts = ["sealed", *command, tools.program_version(Path(command[0])), tools.headers_version(tools.cuda_include())]
    parts += [f"{name}={os.environ.get(name, '')}" for name in _VARIABLES] + [_host_compiler(), os.getcwd()]
    for path in sources:
        source = read_source(path)
        closure = include_closure(source, own, theirs, {})
        if not closure.complete:
            return None
        parts += [source.name, source.text, *(f"{name} {digest}" for name, digest in closure.digests.items())]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _toolkit() -> tuple[Path, ...]:
    return (tools.cuda_include(), *tools.library_includes())


def _host_compiler() -> str:
    done = subprocess.run(["g++", "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _compile(command: Sequence[str], sources: Sequence[Path], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".workbench-program-", dir=target.parent) as folder:
        made = Path(folder) / "program.so"
        command = [*command, *map(str, sources), "-o", str(made)]
        with waiting(f"compiling {', '.join(path.name for path in sources)}"):
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        log = (done.stderr + done.stdout).strip()
        if done.returncode != 0:
            raise CompileError(f"{command[0]} refused {', '.join(map(str, sources))}:", log, _advice(log))
        seal(made)
        made.replace(target)


def _advice(log: str) -> str:
    if "cudaThreadSynchronize" in log:
        return "CUDA 13 removed it: workbench run --nvcc -DcudaThreadSynchronize=cudaDeviceSynchronize program.cu"
    if member := re.search(r'"cudaDeviceProp".* has no member "(\w+)"', log):
        return f"CUDA 13 removed {member[1]} from that struct: ask cudaDeviceGetAttribute for it."
    if found := _MISSING.search(log):
        library = _LIBRARIES[next(key for key in _LIBRARIES if found[1].lower() == key.lower())]
        return _no_such(library)
    if found := re.search(r"fatal error: (cublas|curand)\w*\.h", log):
        return f"Fetch the headers of {'cuBLAS' if found[1] == 'cublas' else 'cuRAND'} with: workbench setup nvcc"
    if found := re.search(r"undefined reference to [`'](cublasLt|cublas|curand|nccl)", log):
        return f"Link {found[1]}: workbench run --nvcc '-l{found[1]}' program.cu"
    if "fatal error: nccl.h" in log:
        return "Fetch NCCL's header with: python -m pip install --no-deps nvidia-nccl-cu13"
    if "fatal error:" in log and "No such file" in log:
        return "Name a folder of headers with: workbench run --nvcc '-I FOLDER' program.cu"
    if "undefined reference to" in log:
        return "Name further files of the program with: workbench run --nvcc 'other.cu' program.cu"
    return ""


def advice_on_loading(error: str) -> str:
    """Return the advice for a library that the loader reports missing, or "" for an unknown one."""
    found = re.search(r"\blib(\w+?)(?:_\w+)?\.so", error)
    name = next((name for key, name in _LIBRARIES.items() if found and found[1].lower().startswith(key.lower())), None)
    return _no_such(name) if name else ""


def _no_such(library: str) -> str:
    return (
        f"{library} does not run on the simulated device; cuBLAS, cuRAND, NCCL, Thrust, CUB and cooperative groups do. "
        "Compute it on the host, or with a kernel of your own."
    )
