"""The PTX machine on arm64: its core is cross-compiled, and tests of it run under qemu-user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import aarch64
import pytest

pytestmark = pytest.mark.long

PROGRAMS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user", "cmake": "cmake"}
TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT "-idirafter {root}/usr/include")
set(Python_EXECUTABLE "{python}")
set(Python_INCLUDE_DIR "{root}/usr/include/python3.11")
set(Python_LIBRARY "{root}/usr/lib/aarch64-linux-gnu/libpython3.11.so.1.0")
set(SKBUILD_DATA_DIR data)
"""
# qemu-user says which program it stands for, so that a process starts others of the same kind.
PYTHON = """#!/bin/sh
export PYTHONHOME="{root}/usr" PYTHONDONTWRITEBYTECODE=1
exec qemu-aarch64 -0 "$0" -L "{root}" "{root}/usr/bin/python3.11" "$@"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An aarch64 Python, and beside it a checkout with the core of that architecture."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install {package}")
    if "WORKBENCH_AARCH64" not in os.environ:
        pytest.skip("no aarch64 Python: python tests/ptx/aarch64.py FOLDER, and WORKBENCH_AARCH64=FOLDER")
    folder = Path(os.environ["WORKBENCH_AARCH64"]).resolve()
    root, made = folder / "root", tmp_path_factory.mktemp("aarch64")
    toolchain = folder / "toolchain.cmake"
    toolchain.write_text(TOOLCHAIN.format(root=root, python=sys.executable))
    configure = ["cmake", "-S", aarch64.CHECKOUT, "-B", folder / "build", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"]
    subprocess.run([*configure, "-DCMAKE_BUILD_TYPE=Release"], check=True)
    build = ["cmake", "--build", folder / "build", "--target", "_core", "-j", str(os.cpu_count())]
    subprocess.run(build, check=True)
    for part in ("workbench", "tests", "cuda_src"):
        shutil.copytree(
            aarch64.CHECKOUT / part, made / part, ignore=shutil.ignore_patterns("*.so", "*.so.1", "__pycache__")
        )
    shutil.copy(aarch64.CHECKOUT / "pyproject.toml", made)
    (core,) = (folder / "build" / "core").glob("_core.*.so")  # nanobind names it for the Python that configured it
    shutil.copy(core, made / "workbench" / "ptx" / "_core.cpython-311-aarch64-linux-gnu.so")
    (made / "python").write_text(PYTHON.format(root=root))
    (made / "python").chmod(0o755)
    return made / "python"


@pytest.mark.parametrize("name", [
    "test_semantics", "test_collectives", "test_memory_ops", "test_mma", "test_wmma", "test_wgmma", "test_mbarrier",
])  # fmt: skip
def test_instructions(python: Path, name: str):
    environment = os.environ | {"PYTHONPATH": f"{os.environ['WORKBENCH_AARCH64']}/site:{python.parent}"}
    command = [python, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", f"tests/ptx/{name}.py"]
    done = subprocess.run(command, cwd=python.parent, env=environment, capture_output=True, text=True)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
