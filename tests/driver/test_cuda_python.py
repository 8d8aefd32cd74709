"""Exchanges in cuda.bindings, as soon as a program imports it, under the simulated driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_MODULE = """
import ctypes
from ctypes import pythonapi, c_void_p, c_char_p, py_object
new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
signature = b"cudaError_t (void)"
names = ("_cudaGetLastError", "_cudaOfAnotherVersion", "_getLocalRuntimeVersion")
__pyx_capi__ = {name: new(16, signature, None) for name in names}
"""
_PROGRAM = """
import ctypes
import workbench as wb
from workbench.driver.library_files import runtime_path
wb.simulated_driver(force=True)
from cuda.bindings._internal import runtime
pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
at = {name: pointer(capsule, runtime.signature) for name, capsule in runtime.__pyx_capi__.items()}
ours = ctypes.cast(ctypes.CDLL(str(runtime_path())).cudaGetLastError, ctypes.c_void_p).value
assert at == {"_cudaGetLastError": ours, "_cudaOfAnotherVersion": 16, "_getLocalRuntimeVersion": 16}, (at, ours)
"""
_PATHFINDER = """
class DynamicLibNotFoundError(RuntimeError): pass
def load_nvidia_dynamic_lib(libname): return libname.upper()
"""
_FINDS = """
import workbench as wb
wb.simulated_driver(force=True)
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
assert load_nvidia_dynamic_lib("nvrtc") == "NVRTC"
try:
    load_nvidia_dynamic_lib("cufft")
except DynamicLibNotFoundError as error:
    assert "libcufft: NVIDIA's library only runs on NVIDIA's driver" in str(error), error
else:
    raise AssertionError("it was loaded")
"""


def test_libraries_of_kernels_are_refused_by_name(tmp_path: Path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").touch()
    (tmp_path / "cuda" / "pathfinder.py").write_text(_PATHFINDER)
    (tmp_path / "program.py").write_text(_FINDS)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_runtime_of_cuda_bindings_is_ours(tmp_path: Path):
    package = tmp_path / "cuda" / "bindings" / "_internal"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "runtime.py").write_text(_MODULE)
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
