"""Builds that look for a CUDA toolkit find ours: CMake projects, Makefiles, linkers of their own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.clients import host_programs
from workbench.driver.clients import nvcc as wrapper
from workbench.driver.toolkit import toolkit_folder
from workbench.errors import DamagedFileWarning, MissingToolError, UnsafeFileError
from workbench.programs.children import shared_python
from workbench.programs.compiling import compiled_program
from workbench.toolchain import nvcc

PROJECT = Path(__file__).parent / "cmake"


def has_nvcc() -> bool:
    try:
        nvcc.program()
    except MissingToolError:
        return False
    return shutil.which("g++") is not None


needs_nvcc = pytest.mark.skipif(not has_nvcc() or shared_python() is None, reason="needs nvcc, g++ and libpython")


def workbench_run(*arguments: object, status: int = 0, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_our_toolkit_is_a_folder_of_links_that_is_never_taken_for_an_installed_one(monkeypatch):
    folder = toolkit_folder()
    libraries = {path.name for path in (folder / "lib64").iterdir()}
    assert {"libcuda.so", "libcudart.so", "libcudart_static.so", "libcudadevrt.a"} <= libraries
    assert (folder / "include" / "cuda_runtime.h").is_file()
    kept = (folder / "lib64" / "libcuda.so").resolve()
    (folder / "lib64" / "libcuda.so").unlink()
    (folder / "lib64" / "libcuda.so").symlink_to("elsewhere")
    assert (toolkit_folder() / "lib64" / "libcuda.so").resolve() == kept
    before = os.environ.get("CUDA_HOME")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, str(folder))
    assert folder not in nvcc.tools.toolkit_folders()
    if has_nvcc() and before is None:
        assert nvcc.program() != folder / "bin" / "nvcc"


def test_a_process_with_another_nvcc_has_another_toolkit(monkeypatch, tmp_path):
    """The folder of a build that is running stays as it is: place and date of nvcc are in its name."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("one", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "nvcc").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin" / "nvcc").chmod(0o755)
        (tmp_path / name / "bin" / "cudafe++").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "one"))
    first = toolkit_folder()
    assert (first / "bin" / "cudafe++").resolve() == tmp_path / "one" / "bin" / "cudafe++"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "other"))
    second = toolkit_folder()
    assert second != first
    assert (second / "bin" / "cudafe++").resolve() == tmp_path / "other" / "bin" / "cudafe++"
    assert (first / "bin" / "cudafe++").resolve() == tmp_path / "one" / "bin" / "cudafe++"
    os.utime(tmp_path / "other" / "bin" / "nvcc", (1, 1))
    assert toolkit_folder() not in (first, second), "an update in the same place"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "one"))
    assert toolkit_folder() == first


def test_a_damaged_object_is_named_and_compiled_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    entry = host_programs.entry_object()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:1000])
    with pytest.warns(DamagedFileWarning, match=r"entry-\S+\.o is damaged.*removed"):
        assert host_programs.entry_object() == entry
    assert entry.read_bytes() == whole
    entry.chmod(0o666)
    with pytest.raises(UnsafeFileError, match="chmod -R go-w"):
        host_programs.entry_object()


def test_cmake_is_told_our_toolkit_and_programs_are_for_the_device_of_the_run(monkeypatch, capsys):
    assert host_programs.call_nvcc(["-v", "__cmake_determine_cuda"]) != 0
    assert f"#$ TOP={toolkit_folder()}\n" in capsys.readouterr().err
    called = []
    monkeypatch.setattr(host_programs.nvcc, "program", lambda: Path("nvcc"))
    monkeypatch.setattr(
        host_programs.subprocess,
        "run",
        lambda words, **_: called.append(words) or subprocess.CompletedProcess(words, 0),
    )
    for arch, expected in ((None, "compute_90"), ("compute_80", "compute_80")):
        monkeypatch.delenv("WORKBENCH_NVCC_ARCH", raising=False)
        if arch:
            monkeypatch.setenv("WORKBENCH_NVCC_ARCH", arch)
        assert host_programs.call_nvcc(["-c", "-arch=sm_120", "-gencode", "arch=compute_75,code=sm_75", "a.cu"]) == 0
        assert [word for word in called[-1] if "arch" in word] == [f"-gencode=arch={expected},code={expected}"]


def test_no_nvcc_is_told_with_how_to_get_it(monkeypatch, capsys, tmp_path):
    def absent() -> None:
        raise MissingToolError("nvcc was not found.")

    monkeypatch.setattr(nvcc, "program", absent)
    program = tmp_path / "program.cu"
    program.write_text("int main() {}\n")
    with pytest.raises(MissingToolError, match="workbench setup nvcc"):
        compiled_program([program], "sm_90", [])
    assert wrapper.main([str(program), "-o", str(tmp_path / "program")]) == 1
    assert "nvcc was not found" in capsys.readouterr().err
    with pytest.raises(MissingToolError, match=r"apt-get install g\+\+"):
        host_programs.entry_object("no-such-compiler")


MACHINES = {"x86_64": ("gcc", []), "aarch64": ("aarch64-linux-gnu-gcc", ["qemu-aarch64"])}


@pytest.mark.parametrize("machine", ["x86_64", pytest.param("aarch64", marks=pytest.mark.long)])
def test_a_program_without_interpreter_becomes_python_with_its_own_arguments(machine, tmp_path, monkeypatch):
    compiler, emulator = MACHINES[machine]
    for program in (compiler, *emulator):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install gcc-aarch64-linux-gnu qemu-user")
    if not emulator and platform.machine() != machine:
        pytest.skip(f"this machine is no {machine}")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(host_programs.sys, "executable", "/bin/echo")
    made, entry = tmp_path / "made", host_programs.entry_object(compiler)
    subprocess.run([compiler, "-shared", "-Wl,-e,workbench_start", entry, "-o", made], check=True)
    done = subprocess.run([*emulator, made, "one", "two words"], capture_output=True, text=True, check=True)
    assert done.stdout == f"-m workbench.cli run {made} one two words\n"


@pytest.mark.long
@needs_nvcc
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
@pytest.mark.parametrize("architectures", ["80;90", "native"])
def test_a_cmake_project_is_configured_built_and_tested(architectures, tmp_path):
    project = shutil.copytree(PROJECT, tmp_path / "project")
    options = [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
    model = ("--model", "a100-sxm-80gb", "--")
    workbench_run(*model, "cmake", "-S", project, "-B", tmp_path / "build", *options)
    built = workbench_run(*model, "cmake", "--build", tmp_path / "build")
    assert "warning" not in built.stdout + built.stderr
    done = workbench_run("--check", *model, "ctest", "--test-dir", tmp_path / "build", "--verbose", status=1)
    assert "1: 42" in done.stdout
    assert "2: architecture 800" in done.stdout
    assert "3: device A100" in done.stdout
    assert "100% tests passed" in done.stdout
    assert "alone.cu:5: architecture: out-of-bounds: 4 bytes" in done.stderr
    assert "2 launches checked, 1 finding" in done.stderr


@pytest.mark.long
@needs_nvcc
def test_a_makefile_links_by_cuda_home(tmp_path):
    shutil.copy(PROJECT / "alone.cu", tmp_path)
    (tmp_path / "Makefile").write_text(
        "CUDA_PATH ?= /usr/local/cuda\ntest: alone\n\t./alone\nalone: alone.o\n\tg++ -o $@ $^ -L$(CUDA_PATH)/lib64 "
        "-lcudart_static -lpthread -ldl -lrt\nalone.o: alone.cu\n\t$(CUDA_PATH)/bin/nvcc -I$(CUDA_PATH)/include "
        "-arch=sm_100 -c -o $@ $<\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")}
    done = workbench_run("--check", "make", "-C", tmp_path, status=1, env=environment)
    assert "architecture 900" in done.stdout
    assert "1 launch checked, 1 finding" in done.stderr


@pytest.mark.long
@needs_nvcc
@pytest.mark.parametrize("target", ["arch=compute_90,code=compute_90", "arch=compute_120,code=sm_120"])
def test_code_for_a_newer_device_is_refused_as_cuda_does(target, tmp_path):
    made = tmp_path / "made"
    command = [nvcc.program(), "-gencode", target, "-cudart", "shared", *host_programs.link_options()]
    program = tmp_path / "program.cu"
    program.write_text(
        "#include <cstdio>\n__global__ void none() {}\nint main() {\n  none<<<1, 1>>>();\n"
        "  std::puts(cudaGetErrorName(cudaGetLastError()));\n  return cudaDeviceSynchronize();\n}\n"
    )
    subprocess.run([*command, *host_programs.include_options(), "-o", made, program], check=True)
    done = workbench_run("--model", "a100-sxm-80gb", made)
    assert done.stdout == "cudaErrorNoKernelImageForDevice\n"
