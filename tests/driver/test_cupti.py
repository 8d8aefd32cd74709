"""Our libcupti.so.13: records as NVIDIA's header has them, by which torch's profiler reads them, in its buffers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import workbench
from workbench.toolchain import tools

PROFILING = Path(workbench.__file__).parent / "driver" / "host_libraries" / "profiling"
FIELDS = {
    ("KernelRecord", "CUpti_ActivityKernel10"): {
        "registers": "registersPerThread", "start": "start", "end": "end", "completed": "completed",
        "device": "deviceId", "context": "contextId", "stream": "streamId", "grid": "gridX", "block": "blockX",
        "static_shared": "staticSharedMemory", "dynamic_shared": "dynamicSharedMemory",
        "local_per_thread": "localMemoryPerThread", "correlation": "correlationId", "grid_id": "gridId", "name": "name",
    },
    ("Correlation", "CUpti_ActivityExternalCorrelation"): {
        "external_kind": "externalKind", "external_id": "externalId", "correlation": "correlationId",
    },
}  # fmt: skip
KINDS = {
    "kKernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "kConcurrentKernel": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "kExternalCorrelation": "CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION",
}

BUFFERS = """
import ctypes
import workbench as wb
from workbench.driver.clients.host_programs import load_libraries
from workbench.driver.library_files import library_path

wb.simulated_driver(force=True)
load_libraries()
driver, cupti = (ctypes.CDLL(str(library_path().with_name(name))) for name in ("libcuda.so.1", "libcupti.so.13"))
context, room, given, done = ctypes.c_void_p(), 1000, [], []

@ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_size_t)] * 3)
def request(buffer, size, most_records):
    given.append(ctypes.create_string_buffer(room))
    buffer[0], size[0], most_records[0] = ctypes.addressof(given[-1]), room, 0

@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
def complete(context, stream, buffer, size, used):
    record = ctypes.c_void_p()
    while not cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(used), ctypes.byref(record)):
        done.append(ctypes.cast(record, ctypes.POINTER(ctypes.c_uint))[0])

driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
cupti.cuptiActivityRegisterCallbacks(request, complete)
for kind in (10, 39):
    cupti.cuptiActivityEnable(kind)
cupti.cuptiActivityPushExternalCorrelationId(3, ctypes.c_uint64(7))
for _ in range(10):
    driver.workbench_driver_operator(None, b"an operator", ctypes.c_uint64(0), None, ctypes.c_uint64(0))
cupti.cuptiActivityPopExternalCorrelationId(3, None)
cupti.cuptiActivityDisable(10)
driver.workbench_driver_operator(None, b"an operator", ctypes.c_uint64(0), None, ctypes.c_uint64(0))
cupti.cuptiActivityFlushAll(0)
print(done == [39, 10] * 10, len(given) > 2)
"""


def test_records_fill_one_buffer_after_the_other():
    done = subprocess.run([sys.executable, "-c", BUFFERS], capture_output=True, text=True, check=False)
    assert done.stdout == "True True\n", done.stdout + done.stderr


def test_records_are_laid_out_as_the_header_says(tmp_path: Path):
    include = tools.cuda_include()
    if not (include / "cupti.h").is_file() or shutil.which("g++") is None:
        pytest.skip("needs g++ and the package nvidia-cuda-cupti")
    lines = [
        f"static_assert(offsetof({ours}, {one}) == offsetof({theirs}, {other}));"
        for (ours, theirs), fields in FIELDS.items()
        for one, other in fields.items()
    ]
    lines += [f"static_assert(static_cast<int>({ours}) == {theirs});" for ours, theirs in KINDS.items()]
    lines += ["static_assert(sizeof(KernelRecord) >= sizeof(CUpti_ActivityKernel10));"]
    lines += ["static_assert(sizeof(Correlation) == sizeof(CUpti_ActivityExternalCorrelation));"]
    source = tmp_path / "layout.cpp"
    names = f'#include <cupti.h>\n#include <cstddef>\n#include "{PROFILING}/records.hpp"\n'
    source.write_text(f"{names}using namespace workbench::profiling;\n" + "\n".join(lines))
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{include}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
