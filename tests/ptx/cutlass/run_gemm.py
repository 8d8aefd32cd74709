"""A program: CUTLASS' kernel compiled, launched and checked. HEADERS SCHEDULE EPILOGUE TILE_M CLUSTER SPARSE_A."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import workbench as wb
from workbench.driver.library_files import library_path
from workbench.toolchain import compile_cuda, tools
from workbench.toolchain.nvrtc_client import compile_limit

HERE = Path(__file__).parent
NAMES = ("SCHEDULE", "EPILOGUE", "TILE_M", "CLUSTER", "SPARSE_A")
M, N, K = 256, 192, 320


class Launch(ctypes.Structure):
    _fields_ = (("params_bytes", ctypes.c_int), ("shared_bytes", ctypes.c_int), ("threads", ctypes.c_int),
                ("grid", ctypes.c_int * 3))  # fmt: skip


def host_library(headers: str, macros: dict[str, str], folder: str) -> ctypes.CDLL:
    """CUTLASS' host code, over the simulated driver's ``cuTensorMapEncodeTiled``."""
    places = [headers, HERE, tools.cuda_include(), *tools.library_includes()]
    built = Path(folder) / "host.so"
    command = ["g++", "-std=c++17", "-O1", "-w", "-fpermissive", "-shared", "-fPIC", "-o", built, HERE / "host.cpp"]
    command += [f"-I{place}" for place in places] + [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run([*command, "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1"], check=True)
    wb.simulated_driver("h100-sxm")
    ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL).cuInit(0)
    return ctypes.CDLL(str(built))


def compressed(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Set two of each four elements of ``a`` to zero; return the others, and four bits for each four: their places."""
    fours = torch.tensor([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110])[torch.randint(6, (len(a), K // 4))]
    places = torch.stack((fours & 3, fours >> 2), 2)
    chunks = a.view(len(a), K // 4, 4)
    stored = chunks.gather(2, places)
    chunks.copy_(torch.zeros_like(chunks).scatter_(2, places, stored))
    return stored.reshape(len(a), K // 2).contiguous(), fours.to(torch.uint8)


def main(headers: str, *values: str) -> None:
    macros = dict(zip(NAMES, values, strict=True))
    options = {"macros": macros, "include_dirs": [headers], "options": ["-std=c++17", "-default-device"]}
    with compile_limit(600):
        kernel = compile_cuda(HERE / "gemm.cu", "hopper_gemm", arch="sm_90a", **options)
    torch.manual_seed(0)
    a, b, d = torch.randn(M, K).half(), torch.randn(N, K).half(), torch.zeros(M, N)
    with tempfile.TemporaryDirectory() as folder:
        made, params = Launch(), ctypes.create_string_buffer(4096)
        host, left, metadata = host_library(headers, macros, folder), a, torch.zeros(1, dtype=torch.uint8)
        if macros["SPARSE_A"] == "1":
            left, fours = compressed(a)
            given = ctypes.c_void_p(fours.data_ptr())
            metadata = torch.zeros(host.place_metadata(None, given, M, N, K), dtype=torch.uint8)
            host.place_metadata(ctypes.c_void_p(metadata.data_ptr()), given, M, N, K)
        pointers = [ctypes.c_void_p(one.data_ptr()) for one in (left, b, d, metadata)]
        host.make_launch(ctypes.byref(made), params, M, N, K, *pointers)
    report = wb.check_kernel(
        kernel, grid=tuple(made.grid), block=made.threads, args=[params.raw[: made.params_bytes]],
        shared_bytes=made.shared_bytes, cluster=int(macros["CLUSTER"]), seconds_limit=None,
    )  # fmt: skip
    print(report)
    torch.testing.assert_close(d.double(), a.double() @ b.double().T, rtol=0, atol=2e-3)
    assert ("wgmma.mma_async.sp" if macros["SPARSE_A"] == "1" else "wgmma.mma_async.sync") in kernel.ptx
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
