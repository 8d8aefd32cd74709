"""The nvcc beside the simulated driver, and PyCUDA's setup: what they answer, and how they fail."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.attributes import device_facts
from workbench.driver.clients import nvcc, pycuda_setup
from workbench.driver.images import image, resources_of
from workbench.driver.simulated import provide_programs
from workbench.driver.toolkit import toolkit_folder
from workbench.errors import MissingToolError
from workbench.toolchain import tools
from workbench.toolchain.sass import KernelResources

KERNEL = '#include "part.h"\nextern "C" __global__ void go(float *x) { x[threadIdx.x] = VALUE + PART; }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "part.h").write_text("#define PART 2\n")
    (tmp_path / "kernel.cu").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_NVCC", raising=False)
    return tmp_path / "kernel.cu"


def test_the_calls_that_pycuda_makes(source: Path, capsys: pytest.CaptureFixture):
    assert nvcc.main(["--version"]) == 0
    assert "simulated driver" in capsys.readouterr().out
    options = ["-O3", "-DVALUE=3", "-Xcompiler", "-fPIC", "--keep", "-arch", "sm_90", f"-I{source.parent}/headers"]
    assert nvcc.main(["--cubin", *options, "kernel.cu"]) == 0
    content = (source.parent / "kernel.cubin").read_bytes()
    assert b".target sm_90" in content
    used = resources_of(content.decode(), "sm_90")["go"]
    assert used.registers > 0
    assert nvcc.main(["--ptx", *options, "-o", "other.ptx", "kernel.cu"]) == 0
    assert (source.parent / "other.ptx").read_bytes() == content
    capsys.readouterr()
    texts = []
    for part in ("2", "3"):
        (source.parent / "headers" / "part.h").write_text(f"#define PART {part}\n")
        assert nvcc.main(["--preprocess", *options, str(source), "--compiler-options", "-P"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1], "PyCUDA's cache must see that a header changed"
    assert len(texts[0]) > len(KERNEL)


def test_options_for_what_is_not_here_mean_nothing(source: Path):
    """Those of Kernel Tuner, of build systems, and of a linker."""
    for words in (
        "-Xcompiler=-Wall -e go -rdc=true -lcudadevrt -arch compute_90 -code sm_90",
        "-gencode=arch=compute_90,code=sm_90 -rdc true -L/nowhere -l m -Xlinker -s --expt-relaxed-constexpr -g",
        "--generate-code arch=compute_90,code=[compute_90,sm_90] -t 2 -ccbin g++ --resource-usage -O 3 -x cu",
    ):
        command = nvcc.read(["--ptx", *words.split(), "kernel.cu"])
        assert (command.arch, command.file) == ("sm_90", Path("kernel.cu"))
        assert command.options == (["-rdc=true"] if "rdc" in words else [])
    assert nvcc.main(["--ptx", *["-DVALUE=3", "-Iheaders", "-e", "go", "-rdc=true", "-lcudadevrt"], "kernel.cu"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cubin", "kernel.cu"], "part.h"),
        (["--cubin", "-Iheaders", "kernel.cu"], "VALUE"),
        (["--cubin", "missing.cu"], "missing.cu"),
        (["--cubin"], "a .cu file"),
        (["--cubin", "kernel.cu", "-arch"], "value is missing"),
        (["--cubin", "-DVALUE=1", "-Iheaders", "--nonsense", "kernel.cu"], "nonsense"),
        (["--cubin", "-DVALUE=1", "-Iheaders", "-arch=sm_12", "kernel.cu"], "sm_12"),
    ],
)
def test_errors_are_messages_and_a_status(source: Path, capfd: pytest.CaptureFixture, arguments, words):
    assert nvcc.main(arguments) == 1
    assert words in capfd.readouterr().err


def test_an_installed_nvcc_when_asked(source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setenv("WORKBENCH_NVCC", "nvcc")
    try:
        expected = tools.program_version(nvcc.nvcc.program())
    except MissingToolError:
        assert nvcc.main(["--version"]) == 1
        assert "nvcc was not found" in capsys.readouterr().err
        return
    assert nvcc.main(["--version"]) == 0
    assert expected in capsys.readouterr().out
    assert nvcc.main(["--cubin", "-arch", "sm_90", "-DVALUE=1", "-Iheaders", "kernel.cu"]) == 0
    content = (source.parent / "kernel.cubin").read_bytes()
    assert b".target sm_90" in content
    assert resources_of(content.decode(), "sm_90")["go"].registers > 0


def test_our_nvcc_is_never_taken_for_an_installed_one(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    before = tools.installed("nvcc")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("PYCUDA_CACHE_DIR", "")
    monkeypatch.setenv("WORKBENCH_DEVICES", "")
    provide_programs(device_facts("h200"))
    ours = shutil.which("nvcc")
    assert Path(ours).parent == toolkit_folder() / "bin"
    assert tools.installed("nvcc") == before
    monkeypatch.setenv("WORKBENCH_HOME", str(fresh_home / "another"))
    assert tools.installed("nvcc") == before
    assert "simulated driver" in subprocess.run([ours, "--version"], capture_output=True, text=True, check=True).stdout


def test_resources_of_plain_ptx_come_from_ptxas():
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p) { ret; }\n"
    marked = image(ptx, {"f": KernelResources(20, 8, 0, 64)}).decode()
    assert resources_of(marked, "sm_90") == {"f": KernelResources(20, 8, 0, 64)}
    assert resources_of(ptx, "sm_90")["f"].registers > 0
    assert resources_of("no ptx", "sm_90") == {}


def test_a_kept_wheel_is_installed_and_a_failure_has_its_log(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pycuda_setup, "installed", lambda: None)
    calls = []
    monkeypatch.setattr(pycuda_setup, "_pip", lambda *arguments: calls.append(arguments))
    wheels = fresh_home / "wheels"
    wheels.mkdir(parents=True)
    monkeypatch.setenv("WORKBENCH_WHEELS", str(wheels))
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheel = wheels / f"pycuda-{pycuda_setup.VERSION}-{tag}-{tag}-linux_x86_64.whl"
    wheel.write_bytes(b"")
    said = []
    pycuda_setup.install(said.append)
    assert calls == [("install", str(wheel))]
    assert wheel.name in said[-1]
    monkeypatch.undo()
    with pytest.raises(MissingToolError, match=r"pip download failed.*package index"):
        pycuda_setup._pip("download", "--no-index", "--no-deps", "--dest", str(wheels), "no-such-package-at-all")


def test_all_of_pycuda_is_compiled_as_one_file(tmp_path: Path):
    own = ("src/wrapper/wrap_cudadrv.cpp", "src/wrapper/mempool.cpp", "src/cpp/cuda.cpp", "src/cpp/bitlog.cpp")
    libs = "bpl-subset/bpl_subset/libs"
    boost = [f"{libs}/python/src/object/enum.cpp", f"{libs}/system/src/error_code.cpp"]
    other = tmp_path / f"{libs}/thread/src/win32/thread.cpp"
    for number, name in enumerate([*own, *boost, other]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"int of_file_{number};\n")
    pycuda_setup._join(tmp_path)
    assert sorted(tmp_path.rglob("*.cpp")) == sorted([*(tmp_path / name for name in own), other])
    units = [subprocess.run(["g++", "-E", "-P", tmp_path / name], capture_output=True, text=True) for name in own]
    assert [unit.stdout.split() for unit in units] == [
        [word for number in range(6) for word in ("int", f"of_file_{number};")], [], [], []
    ]  # fmt: skip


def test_setup_has_nothing_to_do_where_pycuda_is(pycuda):
    said = []
    assert pycuda_setup.install(said.append) == importlib.metadata.version("pycuda")
    assert said == [f"PyCUDA {importlib.metadata.version('pycuda')} is installed"]
