"""Compiles ``backend.cpp`` against the installed torch, once for every state of both, and loads it before torch."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from workbench.driver.simulated import library_path
from workbench.home import home

SOURCE = Path(__file__).with_name("backend.cpp")


def torch_for_gpus() -> bool:
    """Whether the installed torch has a backend of its own for GPUs; asked without importing it."""
    return (_torch() / "lib" / "libtorch_cuda.so").exists()


def load() -> ctypes.CDLL:
    """The library, loaded. Torch asks what an accelerator can do once, when it is imported: this must come before."""
    if "torch._C" in sys.modules:
        raise RuntimeError("the simulated GPU must be started before torch is imported")
    path = _compiled()
    ctypes.CDLL(str(_torch() / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def _torch() -> Path:
    return Path(importlib.util.find_spec("torch").origin).parent


def _compiled() -> Path:
    """The compiled library, kept beside PyCUDA's wheel; half a minute where it is not there."""
    key = hashlib.sha256(SOURCE.read_bytes() + importlib.metadata.version("torch").encode()).hexdigest()[:16]
    folder = Path(os.environ.get("WORKBENCH_WHEELS") or home() / "wheels")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"simulated_gpu-{key}.so"
    with open(folder / ".simulated_gpu.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            new = library.with_suffix(f".{os.getpid()}")
            command = [
                "g++",
                "-std=c++20",
                "-O1",
                "-fPIC",
                "-shared",
                "-fvisibility=hidden",
                str(SOURCE),
                "-o",
                str(new),
            ]
            command += [f"-I{_torch() / 'include' / path}" for path in ("", "torch/csrc/api/include")]
            command += [f"-L{_torch() / 'lib'}", "-ltorch_cpu", "-lc10", str(library_path())]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the backend of the simulated GPU does not compile:\n{done.stderr[-3000:]}")
            new.replace(library)
    return library
