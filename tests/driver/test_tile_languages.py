"""Tile languages through their own doors: the ptxas beside the driver, launches on a grid of tiles, whole programs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_library import SIZE, VOID, allocated, made, said

from workbench.driver.attributes import device_facts
from workbench.driver.clients import ptxas
from workbench.driver.images import resources_of
from workbench.driver.simulated import provide_programs
from workbench.errors import MissingToolError
from workbench.toolchain import nvcc, tools

PROGRAMS = Path(__file__).parent / "tile_programs"
# One kernel as tileiras writes them: the block and the blocks of a tile are in its head, lines of its own code beside
# those of the source. Each thread writes the number of its block, and of its cluster.
PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry number(.param .u64 out{hidden})
{shape}
{language}
{{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .loc 1 3 0
    ld.param.u64 %rd1, [out];
    .loc 1 4 4
    .loc_intermediate 2 9 4
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r5, %clusterid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    .loc_intermediate 2 11 4
    st.global.u32 [%rd3], %r5;
    ret;
}}
    .file 1 "number.py"
"""


def text(tile: bool = True, cluster: int = 1, hidden: str = "") -> str:
    shape = ".reqntid 64\n" + (f".explicitcluster\n.reqnctapercluster {cluster}" if cluster > 1 else "")
    return PTX.format(shape=shape, language=".language 7" if tile else "", hidden=hidden)


def launched(cuda: ctypes.CDLL, image: bytes, threads: int, blocks: int, count: int) -> np.ndarray:
    """Launch the kernel and return the memory that it wrote; unwritten elements are -1."""
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, image), b"number")
    out, result = allocated(cuda, 4 * count), np.full(count, -1, np.int32)
    assert cuda.cuMemcpyHtoD_v2(out, VOID(result.ctypes.data), SIZE(result.nbytes)) == 0
    parameters = (VOID * 1)(ctypes.addressof(out))
    code = cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, VOID(), parameters, VOID())
    assert code == 0, said(cuda, code)
    assert cuda.cuMemcpyDtoH_v2(VOID(result.ctypes.data), out, SIZE(result.nbytes)) == 0
    assert cuda.cuMemFree_v2(out) == 0
    return result


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_kernel_of_a_tile_language_is_launched_on_a_grid_of_tiles(cuda, cluster):
    tiles = launched(cuda, text(cluster=cluster).encode(), threads=1, blocks=3, count=3 * cluster * 64 + 5)
    wanted = np.repeat([0, 1, 2], cluster * 64)
    np.testing.assert_array_equal(tiles, np.append(wanted, [-1] * 5))


def test_other_kernels_keep_their_block(cuda):
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, text(tile=False).encode()), b"number")
    out = allocated(cuda, 4)
    code = cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, VOID(), (VOID * 1)(ctypes.addressof(out)), VOID())
    assert "blocks of exactly 64 threads" in said(cuda, code)


def test_tensor_maps_of_a_compiler_are_refused_with_a_device_that_needs_none(cuda):
    hidden = ",\n.hidden .param .align 64 .b8 map[128]"
    module = made(cuda.cuModuleLoadData, text(hidden=hidden).encode())
    function = VOID()
    code = cuda.cuModuleGetFunction(ctypes.byref(function), module, b"number")
    assert "--model a100-sxm-80gb" in said(cuda, code)


def assembled(folder: Path, *options: str, source: str | None = None) -> tuple[int, Path]:
    file, output = folder / "number.ptx", folder / "number.cubin"
    file.write_text(text(tile=False) if source is None else source)
    return ptxas.main(["-arch", "sm_90", str(file), "-o", str(output), *options]), output


def without_intermediate(ptx: str) -> str:
    return "\n".join(line for line in ptx.splitlines() if ".loc_intermediate" not in line)


def test_our_ptxas_keeps_the_ptx_and_reports_what_nvidias_says(tmp_path, capfd):
    plain = without_intermediate(text(tile=False))
    status, output = assembled(tmp_path, source=plain)
    assert status == 0
    kept = output.read_text()
    assert kept.endswith(plain)
    assert resources_of(kept, "sm_90")["number"].registers > 0
    assert "Used" not in capfd.readouterr().err, "resources are told if they are asked for"
    assert assembled(tmp_path, "-v", source=plain)[0] == 0
    assert "Used" in capfd.readouterr().err
    output.unlink()
    assert assembled(tmp_path, source=plain.replace("mad.lo", "mad.absent"))[0] != 0
    assert "mad" in capfd.readouterr().err
    assert not output.exists()
    assert assembled(tmp_path, "-c", source=plain)[0] == 0
    assert output.read_bytes().startswith(b"\x7fELF"), "objects are for NVIDIA's linker"


def test_ptx_that_no_assembler_here_knows_is_kept_without_resources(tmp_path, monkeypatch):
    newer = text().replace(".version 8.0", ".version 99.0")
    status, output = assembled(tmp_path, source=newer)
    assert status == 0
    assert output.read_text().endswith(newer)

    def absent() -> Path:
        raise MissingToolError("ptxas was not found")

    monkeypatch.setattr(nvcc, "assembler", absent)
    assert assembled(tmp_path, source=newer)[0] == 0


def test_machine_code_with_line_information_runs_from_the_ptx_inside(cuda, tmp_path):
    source, output = tmp_path / "number.ptx", tmp_path / "number.cubin"
    for runs in (True, False):
        lines = without_intermediate(text(tile=False)).splitlines()
        source.write_text("\n".join(line for line in lines if runs or not line.strip().startswith((".loc", ".file"))))
        subprocess.run([str(nvcc.assembler()), "-arch", "sm_90", str(source), "-o", str(output)], check=True)
        image = output.read_bytes()
        if runs:
            np.testing.assert_array_equal(launched(cuda, image, 64, 2, 128), np.repeat([0, 1], 64))
        else:
            module = VOID()
            code = cuda.cuModuleLoadData(ctypes.byref(module), image)
            assert "-lineinfo" in said(cuda, code)


def test_compilers_find_our_ptxas_and_the_workbench_finds_nvidias(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for variable in ("CUDA_ROOT", "CUDA_TILE_CACHE_DIR", "PYCUDA_CACHE_DIR"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    provide_programs(device_facts("h200"))
    found = shutil.which("ptxas")
    assert found == str(Path(os.environ["CUDA_ROOT"], "bin", "ptxas"))
    assert "workbench.driver.clients.ptxas" in Path(found).read_text()
    assert not str(tools.installed("ptxas")).startswith(os.environ["CUDA_ROOT"])
    assert str(nvcc.assembler()) != found
    assert Path(os.environ["CUDA_TILE_CACHE_DIR"]).is_dir()


# The package of each language, and the options of the run.
LANGUAGES = {
    "cutile": ("cuda.tile", ["--model", "a100-sxm-80gb"]),
    "tilelang": ("tilelang", ["--model", "a100-sxm-80gb"]),
    "cute_dsl": ("cutlass.cute", []),
    "cute_tma": ("cutlass.cute", []),
    "helion": ("helion", ["--first-config"]),
    "gluon": ("triton.experimental.gluon", []),
}


def has(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_runs_checked_and_a_planted_fault_is_found(language, tmp_path):
    package, options = LANGUAGES[language]
    if not has(package):
        pytest.skip(f"could not import {package!r}")
    environment = os.environ | {"WORKBENCH_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    for arguments, status in (([], 0), (["fault"], 1)):
        command = [sys.executable, "-m", "workbench.cli", "run", "--check", *options]
        command += [str(PROGRAMS / f"in_{language}.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
        assert done.returncode == status, done.stdout[-1000:] + done.stderr[-3000:]
        assert "right" in done.stdout or arguments
        assert ("nothing found" in done.stderr) == (status == 0), done.stderr[-2000:]
        assert ("out-of-bounds" in done.stderr) == (status == 1), done.stderr[-2000:]
