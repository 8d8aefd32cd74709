"""Search for the libraries, headers and programs of the CUDA toolchain on this machine.

pip packages come first, because their versions are the tested ones: NVRTC from ``nvidia-cuda-nvrtc``, headers from
``nvidia-cuda-runtime`` and ``nvidia-cuda-crt``, ``ptxas``, ``cuobjdump`` and ``nvdisasm`` from Triton's wheel. An
installed CUDA toolkit (``CUDA_HOME``, ``CUDA_PATH``, the nvcc on PATH, ``CONDA_PREFIX``, ``/usr/local/cuda``) is the
second choice.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from workbench.base.home import home
from workbench.base.own_files import own_folder
from workbench.errors import MissingToolError

HEADERS_REMEDY = "Install them with: python -m pip install 'cuda-toolkit[nvrtc,cudart,crt,cccl]>=13,<14'"
TRITON_REMEDY = "Install Triton, whose wheel carries it: python -m pip install triton"


def stub_headers() -> Path:
    """Return the folder of our stubs for the few C headers that NVRTC lacks."""
    return Path(__file__).resolve().parent / "headers"


def pip_folders() -> list[Path]:
    """Return the folders of NVIDIA's pip packages, such as ``nvidia/cu13``, newest first; NCCL's is the last one."""
    return list(_pip_folders(tuple(sys.path)))


@functools.lru_cache(maxsize=4)
def _pip_folders(path: tuple[str, ...]) -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(path) for path in (spec.submodule_search_locations or [])] if spec else []
    found = [path for root in roots for path in root.glob("cu[0-9]*") if path.is_dir()]
    found += [path for root in roots for path in root.glob("cuda_*") if path.is_dir()]
    found.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)], reverse=True)
    return found + [root / "nccl" for root in roots if (root / "nccl").is_dir()]


def pip_nvcc() -> Path | None:
    """Return the nvcc of NVIDIA's pip package ``nvidia-cuda-nvcc``, or None."""
    programs = [folder / "bin" / "nvcc" for folder in pip_folders()]
    return next((path for path in programs if os.access(path, os.X_OK)), None)


def installed(name: str) -> Path | None:
    """Return the program of this name on PATH, skipping the simulated driver's, or None."""
    folders = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part]
    others = [part for part in folders if not _is_drivers_nvcc(Path(part) / "nvcc")]
    found = shutil.which(name, os.F_OK | os.X_OK, os.pathsep.join(others))
    return Path(found) if found else None


def _is_drivers_nvcc(program: Path) -> bool:
    """Return True if a program is a simulated driver's nvcc, by its text: its home may be another than ours."""
    try:
        with open(program, "rb") as file:
            return b"-m workbench.driver." in file.read(512)
    except OSError:
        return False


def toolkit_folders() -> list[Path]:
    """Return the folders of installed CUDA toolkits, in the order in which they are tried."""
    return list(_toolkit_folders(*map(os.environ.get, ("CUDA_HOME", "CUDA_PATH", "PATH", "CONDA_PREFIX"))))


@functools.lru_cache(maxsize=4)
def _toolkit_folders(home: str | None, path: str | None, programs: str | None, conda: str | None) -> list[Path]:
    """Look for the folders with these values of the environment's variables."""
    nvcc = installed("nvcc")
    candidates = [home, path, str(nvcc.resolve().parent.parent) if nvcc else None, conda, "/usr/local/cuda"]
    folders = [Path(candidate) for candidate in candidates if candidate]
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir() and not is_drivers(folder)))


def look_again() -> None:
    """Forget the folders that were found: something was installed."""
    _pip_folders.cache_clear()
    _toolkit_folders.cache_clear()


def is_drivers(folder: Path) -> bool:
    """Return True if a toolkit's folder was made by the simulated driver (driver/toolkit.py)."""
    return _is_drivers_nvcc(folder / "bin" / "nvcc")


def find_library(pattern: str) -> Path | None:
    """Find the first shared library whose file name matches ``pattern`` (a regular expression), pip packages first."""
    places = [folder / "lib" for folder in pip_folders()]
    for folder in toolkit_folders():
        places += [folder / "lib64", folder / "lib", folder / "targets" / "x86_64-linux" / "lib"]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64")]
    for place in places:
        found = sorted(path for path in place.glob("lib*.so*") if re.fullmatch(pattern, path.name))
        if found:
            return found[0]
    return None


def cuda_include() -> Path:
    """Return the folder of the CUDA headers, which has ``cuda_fp16.h``.

    Raises MissingToolError without one, with the command that installs it.
    """
    places = [folder / "include" for folder in [*pip_folders(), *toolkit_folders()]]
    for place in places:
        if (place / "cuda_fp16.h").is_file() and (place / "crt" / "host_defines.h").is_file():
            return place
    raise MissingToolError(f"The CUDA headers (cuda_fp16.h and crt/) were not found. {HEADERS_REMEDY}")


def library_includes() -> list[Path]:
    """Return further folders of headers: NVIDIA's C++ libraries, NCCL's, and those ``workbench setup nvcc`` fetched.

    The former (``cuda/``, ``cub/``, and ``nv/``, which cooperative groups need) lie in a folder of their own since
    CUDA 13.
    """
    places = [folder / "include" / "cccl" for folder in [*pip_folders(), *toolkit_folders()]]
    found = [place for place in places if (place / "nv" / "target").is_file()][:1]
    found += [folder / "include" for folder in pip_folders() if (folder / "include" / "nccl.h").is_file()]
    fetched = fetched_headers()
    return [*found, own_folder(fetched.parent, fetched.name)] if fetched.is_dir() else found


def fetched_headers() -> Path:
    """Return the folder in which ``workbench setup nvcc`` puts the headers of cuBLAS and cuRAND."""
    return Path(os.environ.get("WORKBENCH_HEADERS") or home() / "headers") / "cu13"


@functools.cache
def headers_version(folder: Path) -> str:
    """Return a text that identifies the CUDA headers: CUDA_VERSION of cuda.h, pip packages' versions, the folder."""
    versions = [_package_version(name) for name in ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")]
    header = folder / "cuda.h"
    match = (
        re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header.read_text(errors="replace")) if header.is_file() else None
    )
    return " ".join([match[1] if match else "unknown", *versions, str(folder)])


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def find_program(name: str) -> Path:
    """Find ``cuobjdump``, ``nvdisasm`` or ``ptxas``: Triton's own, else a CUDA toolkit's, else the one on PATH.

    Raises MissingToolError, with the remedy, without any.
    """
    spec = importlib.util.find_spec("triton")
    places = (
        [Path(path) / "backends" / "nvidia" / "bin" for path in (spec.submodule_search_locations or [])] if spec else []
    )
    places += [folder / "bin" for folder in toolkit_folders()]
    for place in places:
        if os.access(place / name, os.X_OK):
            return place / name
    on_path = installed(name)
    if on_path is None:
        raise MissingToolError(f"{name} was not found. {TRITON_REMEDY}")
    return on_path


@functools.lru_cache(maxsize=32)
def _version_of(path: str, modified: float) -> str:
    text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    match = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return match[1] if match else "unknown"


def program_version(path: Path) -> str:
    """Return the release of one of NVIDIA's programs, such as ``"13.0.88"``."""
    return _version_of(str(path), path.stat().st_mtime)


def run_program(command: list[str | Path]) -> str:
    """Run one of the toolchain's programs and return its output; raise MissingToolError if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip()
        raise MissingToolError(f"{Path(command[0]).name} failed with status {done.returncode}: {reason}")
    return done.stdout
