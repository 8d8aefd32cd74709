"""``workbench setup cupy``, and what the simulated driver does as soon as a program imports CuPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.driver.clients import cupy_client, cupy_setup
from workbench.errors import MissingToolError
from workbench.toolchain import tools


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Packages that are installed, by name, and pip's calls; a folder of wheels."""
    here = SimpleNamespace(packages={}, calls=[], wheels=tmp_path, said=[])

    def distributions(*, name: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(version=here.packages[name])] if name in here.packages else []

    monkeypatch.setenv("WORKBENCH_WHEELS", str(tmp_path))
    monkeypatch.setattr(cupy_client.importlib.metadata, "distributions", distributions)
    monkeypatch.setattr(cupy_setup, "pip", lambda *words, **options: here.calls.append(words))
    return here


@pytest.mark.parametrize("present", [None, "13.6.0"])
def test_a_kept_wheel_of_the_version_that_is_there_is_installed(environment, present):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    version = present or cupy_setup.VERSION
    wheel = environment.wheels / f"cupy_cuda13x-{version}+workbench-{tag}-{tag}-linux_x86_64.whl"
    for one in (wheel, wheel.with_name(f"cupy_cuda13x-99.0.0+workbench-{tag}-{tag}-linux_x86_64.whl")):
        one.write_bytes(b"")
    if present:
        environment.packages["cupy-cuda13x"] = present
    assert cupy_setup.install(environment.said.append) == version
    assert environment.calls == [("install", str(wheel))]


def test_what_was_built_before_is_left_alone(environment):
    environment.packages["cupy-cuda13x"] = "14.2.0+workbench"
    assert cupy_setup.install(environment.said.append) == "14.2.0+workbench"
    assert environment.calls == []
    assert environment.said == ["CuPy 14.2.0+workbench is installed"]


def test_another_cupy_is_refused_with_how_to_remove_it(environment):
    environment.packages["cupy-cuda12x"] = "14.2.0"
    with pytest.raises(MissingToolError, match=r"cupy-cuda12x is installed.*pip uninstall cupy-cuda12x"):
        cupy_setup.install(environment.said.append)
    assert environment.calls == []


_PACKAGE = {
    "cupy/__init__.py": """
import os
assert os.environ["CUPY_COMPILE_WITH_PTX"] == "1", "CuPy reads it as it is imported"
assert "libcudart.so.13" in open("/proc/self/maps").read(), "its modules look for it by its name"
""",
    "cupy/cuda/__init__.py": "",
    "cupy/cuda/compiler.py": """
class _NVRTCProgram:
    def __init__(self, src, name="default_program", headers=()):
        self.name, self.headers = name, headers

    def compile(self, options=(), log_stream=None):
        return options

def compile_using_nvcc(source, options=(), arch=None, filename="kern.cu", code_type="cubin", log_stream=None):
    return options, code_type
""",
    "cupy_cuda13x-14.2.0{label}.dist-info/METADATA": "Name: cupy-cuda13x\nVersion: 14.2.0{label}\n",
    "program.py": """
import workbench as wb
wb.simulated_driver(force=True)
import cupy.cuda.compiler
source = 'template<class T> __global__ void __launch_bounds__(128) add(T *x) {}'
program = cupy.cuda.compiler._NVRTCProgram(source, "/tmp/gone/0123.cubin.cu", headers=(b"h",))
print(program.name, program.headers, program.compile(("-DN=1",)), open(program.name).read() == source)
print(cupy.cuda.compiler._NVRTCProgram("").name)
print(cupy.cuda.compiler.compile_using_nvcc("", ("-O1",), "90", "add.cu", code_type="cubin"))
""",
}


@pytest.mark.parametrize("label", ["", "+workbench"])
def test_cupy_finds_the_driver_prepared(tmp_path, label):
    for name, text in _PACKAGE.items():
        path = tmp_path / name.format(label=label)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(label=label) if "{label}" in name else text)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kept, empty, by_nvcc = done.stdout.splitlines()
    assert kept.endswith("/add.cu (b'h',) ('-DN=1', '-lineinfo') True")
    assert empty == "default_program"
    assert by_nvcc == "(('-O1', '-lineinfo'), 'ptx')"
    assert ("Run once: workbench setup cupy" in done.stderr) == (not label)


def test_a_runtime_that_cupy_would_take_instead_is_named(tmp_path):
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").touch()
    real = tools.find_library(r"libcudart\.so\.13")
    program = (
        f"import ctypes, warnings; ctypes.CDLL({str(real)!r}); import cupy; import workbench as wb; "
        "warnings.simplefilter('error', RuntimeWarning); wb.simulated_driver(force=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert f"RuntimeWarning: {real} is loaded in this process already, and CuPy takes it" in done.stderr
