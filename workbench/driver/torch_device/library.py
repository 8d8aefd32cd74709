"""The C++ library that replaces operators of torch's CUDA build, compiled for the installed torch."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workbench.base.home import cache_part
from workbench.base.own_files import seal, sealed
from workbench.base.processes.compilers import CompilerRuns
from workbench.base.progress import announce, waiting
from workbench.driver.elf import read_elf
from workbench.driver.library_files import runtime_path
from workbench.errors import CompileError, DeviceUnavailableError, MissingToolError
from workbench.toolchain import tools

SOURCES = Path(__file__).with_name("operators")
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-w")
_BUILDS = "python -m pip install --index-url https://download.pytorch.org/whl/cu130 torch"


@dataclass(frozen=True)
class Torch:
    """The installed torch: its folder, its version, and the CUDA runtime it is linked with (None for a CPU build)."""

    folder: Path
    version: str
    runtime: str | None

    @property
    def problem(self) -> str | None:
        """Reason why this build cannot have a simulated GPU, or None."""
        if self.runtime is None:
            return f"torch {self.version} is the CPU build, which has no cuda device. Install the CUDA build: {_BUILDS}"
        if self.runtime != runtime_path().name:
            return (
                f"torch {self.version} is linked with {self.runtime}; the simulated GPU has {runtime_path().name}. "
                f"Install a build for CUDA 13: {_BUILDS}"
            )
        return None


@cache
def installed_torch() -> Torch | None:
    """Return the torch that ``import torch`` would import, without importing it, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    library = folder / "lib" / "libc10_cuda.so"
    needed = read_elf(library).needed if library.is_file() else ()
    runtime = next((name for name in needed if name.startswith("libcudart.so")), None)
    return Torch(folder, importlib.metadata.version("torch"), runtime)


def prepare(say: Callable[[str], object] = print) -> Path:
    """Compile the library for the installed torch ahead of its first use, and return its path.

    Raises DeviceUnavailableError without torch, and the errors of `compiled`.
    """
    torch = installed_torch()
    if torch is None:
        raise DeviceUnavailableError(f"torch is not installed: {_BUILDS}")
    if torch.problem is None:
        say(f"compiling the operators of torch {torch.version}")
    return compiled(torch)


def compiled(torch: Torch) -> Path:
    """Return the library for ``torch``; compile it first (half a minute) unless the cache has it, whole.

    Raises DeviceUnavailableError for a build that cannot have a simulated GPU, MissingToolError without g++,
    CompileError if g++ refuses the sources, UnsafeFileError if another account owns or can write the cache.
    """
    if torch.problem is not None:
        raise DeviceUnavailableError(torch.problem)
    sources = sorted(SOURCES.iterdir())
    content = b"".join(path.read_bytes() for path in sources) + f"{torch.version} {_FLAGS} sealed".encode()
    folder, name = cache_part("torch_device"), f"operators-{torch.version}-{hashlib.sha256(content).hexdigest()[:12]}"
    path = folder / f"{name}.so"
    if sealed(path):
        return path
    if shutil.which("g++") is None:
        raise MissingToolError("torch's cuda device needs g++ once, to compile for this torch: apt-get install g++")
    with open(folder / ".lock", "w") as lock:  # another process may be compiling it
        with waiting("waiting for another process that compiles torch's simulated device"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not sealed(path):
            announce(f"compiling the simulated device for torch {torch.version}, once, half a minute")
            _compile([one for one in sources if one.suffix == ".cpp"], torch, path)
    return path


def _compile(sources: list[Path], torch: Torch, path: Path) -> None:
    """Compile and link the library. An interrupted call ends its compiler.

    The sources are one unit: torch's headers cost more than all of them, and are read once.
    """
    headers = (torch.folder / "include", torch.folder / "include/torch/csrc/api/include", tools.cuda_include())
    include = [f"-I{folder}" for folder in headers]
    *earlier, last = map(str, sources)
    unit = [word for source in earlier for word in ("-include", source)] + [last]
    libraries = [f"-L{torch.folder / 'lib'}", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"]
    new = path.with_suffix(".new")
    with CompilerRuns() as compilers, waiting("compiling torch's simulated device"):
        status, log = compilers.run("g++", *_FLAGS, *include, "-shared", *unit, *libraries, "-o", str(new))
    if status:
        raise CompileError(
            f"g++ refused the operators of torch {torch.version}:", log[-4000:] or f"exit status {status}"
        )
    seal(new)
    new.replace(path)
