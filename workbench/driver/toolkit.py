"""The folder that builds use as their CUDA toolkit: our ``nvcc`` and ``nvidia-smi``, NVIDIA's headers, our libraries.

``torch-c++`` is the host compiler with shorter headers, for builds of torch's extensions.

Makefiles find it by ``CUDA_HOME``, CMake by asking its compiler. Apart from our programs and an empty
``libcudadevrt.a`` it holds only links, to NVIDIA's headers and programs and to the simulated driver's libraries.

Its name is a hash of Python's path, of every link and of the dates and sizes of nvcc and the host compiler. A process
that finds another nvcc has another folder, so that none changes under a build that is running. A compiler cache, which
knows a compiler by its path and date, does not take one for another either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.home import home_part
from workbench.base.own_files import own_folder
from workbench.driver.library_files import library_path
from workbench.errors import MissingToolError
from workbench.toolchain import nvcc, tools

_SCRIPT = '#!/bin/sh\nexec "{python}" -m workbench.driver.clients.{module} "$@"\n'
_PROGRAMS = {"nvcc": "nvcc", "nvidia-smi": "nvidia_smi", "ptxas": "ptxas", "torch-c++": "torch_headers"}
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


def toolkit_folder() -> Path:
    """Create the folder or bring it up to date, and return it: ``bin``, ``include``, ``lib64`` and ``nvvm``."""
    links = dict(_links())
    folder = home_part("nvcc", _key(links))
    for name in ("bin", "lib", "lib64"):
        own_folder(folder, name)
    for name, module in _PROGRAMS.items():
        script, text = folder / "bin" / name, _SCRIPT.format(python=sys.executable, module=module)
        if script.is_symlink() or not script.is_file() or script.read_bytes() != text.encode():
            replace_file(script, text, mode=0o755)  # another process may be running it
    for name, target in links.items():
        _link(folder / name, target)
    runtime = folder / "lib64" / "libcudadevrt.a"
    if runtime.is_symlink() or not runtime.is_file() or runtime.read_bytes() != _empty_archive():
        replace_file(runtime, _empty_archive())
    return folder


def _key(links: Mapping[str, Path]) -> str:
    parts = [sys.executable, *(f"{name} {target}" for name, target in sorted(links.items()))]
    for program in (nvcc.program, _host_compiler):
        with contextlib.suppress(MissingToolError, OSError):
            found = program().stat()
            parts.append(f"{found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:12]


def _host_compiler() -> Path:
    return Path(shutil.which("c++") or "c++")


def _links() -> Iterator[tuple[str, Path]]:
    with contextlib.suppress(MissingToolError):
        yield "include", tools.cuda_include()
    with contextlib.suppress(MissingToolError):
        real = nvcc.program().resolve().parent
        yield from ((f"bin/{path.name}", path) for path in real.iterdir() if path.name not in _PROGRAMS)
        yield "nvvm", real.parent / "nvvm"
        yield from ((f"lib/{path.name}", path) for path in (real.parent / "lib").glob("libnvvm.so*"))
    for path in library_path().parent.glob("lib*.so*"):
        yield f"lib64/{path.name}", path
        yield f"lib64/{path.name.partition('.')[0]}.so", path
        if path.name.startswith("libcudart."):  # for builds that ask for NVIDIA's static runtime, which we replace
            yield "lib64/libcudart_static.so", path


def _empty_archive() -> bytes:
    """Return a libcudadevrt.a with one empty object; nvlink warns about an archive without any.

    Builds with separate compilation link with it. driver/linking.py provides its functions for grid synchronization;
    its other functions launch from kernels, which the simulated device does not support.
    """
    machine = _ELF_MACHINES.get(platform.machine(), 0)
    header = b"\x7fELF\x02\x01\x01" + struct.pack("<9xHHIQQQIHHHHHH", 1, machine, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)

    def member(name: str, content: bytes) -> bytes:
        return f"{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{len(content):<10}`\n".encode() + content

    return b"!<arch>\n" + member("/", bytes(4)) + member("nothing.o/", header)


def _link(path: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        if path.readlink() == target:
            return
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        made.symlink_to(target)
        os.replace(made, path)
