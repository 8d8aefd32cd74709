"""The runtime library: what it exports, how its structs lie, and fat binaries."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from pathlib import Path

import pytest

from workbench.driver.elf import read_elf
from workbench.driver.library_files import library_path
from workbench.toolchain import tools

SOURCES = Path(__file__).parents[2] / "workbench" / "driver" / "runtime"
OURS = library_path().with_name("libcudart.so.13")
KERNEL = """.version 8.0
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 out)
{{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], {value};
  ret;
}}
"""


def test_it_exports_what_the_real_library_does():
    real = tools.find_library(r"libcudart\.so\.13")
    if real is None:
        pytest.skip("nvidia-cuda-runtime is not installed")
    names = {name for name in read_elf(real).defined if re.match(r"(__)?cuda", name)}
    assert len(names) > 400
    assert names - read_elf(OURS).defined == set()


def test_structs_are_the_real_ones(tmp_path):
    same = {
        "DeviceProperties": "cudaDeviceProp", "FunctionAttributes": "cudaFuncAttributes",
        "PointerAttributes": "cudaPointerAttributes", "Copy3D": "cudaMemcpy3DParms",
        "LaunchConfig": "cudaLaunchConfig_t", "KernelNodeParams": "cudaKernelNodeParams",
        "PitchedPointer": "cudaPitchedPtr", "Extent": "cudaExtent",
        "Position": "cudaPos", "Dim3": "dim3", "CUDA_MEMSET_NODE_PARAMS": "cudaMemsetParams",
        "CUDA_HOST_NODE_PARAMS": "cudaHostNodeParams", "CUmemPoolProps": "cudaMemPoolProps",
        "CUlaunchAttribute": "cudaLaunchAttribute", "CUDA_GRAPH_INSTANTIATE_PARAMS": "cudaGraphInstantiateParams",
    }  # fmt: skip
    shorter = {"CUmemPoolProps"}  # what follows is reserved
    lines = [
        f"static_assert(sizeof(ours::{our}) {'<=' if our in shorter else '=='} sizeof({their}));"
        for our, their in same.items()
    ]
    header = (SOURCES / "abi.hpp").read_text()
    for our in ("DeviceProperties", "FunctionAttributes", "PointerAttributes"):
        body = re.search(rf"struct {our} {{(.*?)\n}};", header, re.S)[1]
        for field in re.findall(r"[ *](\w+)(?:\[\d+\])?(?=[,;])", body):
            if field not in ("textures", "surfaces"):
                lines.append(f"static_assert(offsetof(ours::{our}, {field}) == offsetof({same[our]}, {field}));")
    assert len(lines) > 100
    program = tmp_path / "structs.cpp"
    text = "#include <cstddef>\n#include <cstdint>\n#include <cuda_runtime_api.h>\n"
    text += f'namespace ours {{\n#include "{SOURCES / "abi.hpp"}"\n}}\n' + "\n".join(lines) + "\n"
    program.write_text(text)
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{tools.cuda_include()}", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def lz4(data: bytes) -> bytes:
    """One block: all but the end as literals, the end as one match, as an encoder would write it."""
    tail = data[-5:]
    start, run = data[:-45], 40
    assert data[-45:-5] == data[-46:-45] * 40, "what repeats"

    def rest(count: int) -> bytes:
        return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])

    token = bytes([min(len(start), 15) << 4 | min(run - 4, 15)])
    return token + rest(len(start)) + start + b"\x01\x00" + rest(run - 4) + bytes([len(tail) << 4]) + tail


def zstd(data: bytes) -> bytes:
    """A frame of one block that is not compressed."""
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data)) + (len(data) << 3 | 1).to_bytes(3, "little") + data


PACKED = {0: lambda data: data, 0x2000: lz4, 0x8000: zstd}


def entry(name: str, target: str, value: int = 1, flags: int = 0, kind: int = 1) -> bytes:
    text = KERNEL.format(name=name, target=target, value=value).encode() + b" " * 60
    packed = PACKED[flags](text)
    compressed = len(packed) if flags else 0
    packed += bytes(-len(packed) % 8)
    arch = int(re.sub(r"\D", "", target))
    version = (compressed, 0, 0, 8, arch, 0, 0, flags, 0, len(text))
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(packed), *version) + packed


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def load(cuda: ctypes.CDLL, image: bytes) -> tuple[int, ctypes.c_void_p, str]:
    module, text = ctypes.c_void_p(), ctypes.c_char_p()
    status = cuda.cuModuleLoadData(ctypes.byref(module), image)
    cuda.cuGetErrorString(status, ctypes.byref(text))
    return status, module, text.value.decode()


@pytest.mark.parametrize("flags", PACKED, ids=["plain", "lz4", "zstd"])
def test_the_newest_ptx_for_the_device_is_taken(cuda, flags):
    image = fat(
        entry("old", "sm_80", 1, flags), entry("right", "sm_90a", 2, flags), entry("other", "sm_90", 3, kind=2),
        entry("newer", "sm_100", 4, flags),
    )  # fmt: skip
    wrapper = ctypes.create_string_buffer(image)
    pointer = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(wrapper), 0)
    for given in (image, pointer):
        status, module, words = load(cuda, given)
        assert status == 0, words
        function, address, value = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"right") == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), 4) == 0
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) == 0
        assert cuda.cuMemcpyDtoH_v2(ctypes.byref(value), address, 4) == 0
        assert value.value == 2
        assert cuda.cuModuleUnload(module) == 0


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (fat(entry("k", "sm_90", kind=2)), r"machine code for sm_90\): compile with -arch=compute_XX"),
        (fat(entry("k", "sm_100"), entry("k", "sm_89a")), r"sm_90, runs \(PTX for sm_100, PTX for sm_89\)"),
        (fat(), "it is empty"),
        (fat(entry("k", "sm_80", flags=0x2000).replace(b"\x01\x00\x15", b"\xff\xff\x15")), "damaged"),
        (fat(entry("k", "sm_80", flags=0x8000).replace(b"\x28\xb5", b"\x29\xb5")), "damaged"),
        (fat(entry("k", "sm_80"))[:16] + b"\x01\x00\x01\x01\x40\x00\x00\x00" + b"\xff" * 80, "damaged"),
    ],
    ids=["no PTX", "none for this device", "empty", "lz4", "zstd", "size"],
)
def test_what_no_fat_binary_gives(cuda, image, words):
    status, _, told = load(cuda, image)
    assert status in (200, 209)
    assert re.search(words, told), told
