"""The C++ library that replaces operators of torch's CUDA build, compiled for the installed torch."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workbench.base.home import cache_folder
from workbench.base.progress import tracked, waiting
from workbench.driver.elf import read_elf
from workbench.driver.simulated import runtime_path
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
        raise DeviceUnavailableError(f"There is no torch here: {_BUILDS}")
    if torch.problem is None:
        say(f"compiling the operators of torch {torch.version}")
    return compiled(torch)


def compiled(torch: Torch) -> Path:
    """Return the library for ``torch``; compile it first (some ten seconds) unless the cache has it.

    Raises DeviceUnavailableError for a build that cannot have a simulated GPU, MissingToolError without g++,
    CompileError if g++ refuses the sources.
    """
    if torch.problem is not None:
        raise DeviceUnavailableError(torch.problem)
    sources = sorted(SOURCES.iterdir())
    content = b"".join(path.read_bytes() for path in sources) + f"{torch.version} {_FLAGS}".encode()
    folder = cache_folder() / "torch_device"
    path = folder / f"operators-{torch.version}-{hashlib.sha256(content).hexdigest()[:12]}.so"
    if path.is_file():
        return path
    if shutil.which("g++") is None:
        raise MissingToolError("torch's cuda device needs g++ once, to compile for this torch: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # another process may be compiling it
        with waiting("waiting for another process that compiles torch's simulated device"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            _compile([one for one in sources if one.suffix == ".cpp"], torch, path)
    return path


def _compile(sources: list[Path], torch: Torch, path: Path) -> None:
    headers = (torch.folder / "include", torch.folder / "include/torch/csrc/api/include", tools.cuda_include())
    include = [f"-I{folder}" for folder in headers]
    objects = [path.with_name(f"{path.stem}-{source.stem}.o") for source in sources]
    libraries = ["-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"]
    new = path.with_suffix(".new")
    try:
        with ThreadPoolExecutor() as pool:
            logs = pool.map(
                lambda pair: _run("g++", *_FLAGS, *include, "-c", str(pair[0]), "-o", str(pair[1])),
                zip(sources, objects, strict=True),
            )
            for log in tracked(logs, " files of torch's simulated device compiled", len(sources)):
                if log:
                    raise CompileError(f"g++ refused the operators of torch {torch.version}:", log)
        link = ("g++", "-shared", "-o", str(new), *map(str, objects), f"-L{torch.folder / 'lib'}", *libraries)
        with waiting("linking torch's simulated device"):
            log = _run(*link)
        if log:
            raise CompileError(f"The operators of torch {torch.version} do not link:", log)
        new.replace(path)
    finally:
        for one in (*objects, new):
            one.unlink(missing_ok=True)


def _run(*command: str) -> str:
    """Run the compiler; return the end of its error output if it fails, else ""."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr[-4000:] or f"exit status {done.returncode}"
