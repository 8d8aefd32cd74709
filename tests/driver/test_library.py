"""The simulated driver by its own calls: what PyCUDA does not reach, or hides."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.analysis.device_models import device_model, device_models
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch
from workbench.driver import simulated_driver
from workbench.driver.attributes import device_facts
from workbench.driver.library_files import library_path
from workbench.driver.simulated import real_device
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ptx.tensor_map import TensorMap

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 total = 7;
.visible .entry add(.param .u64 out, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
    ret;
}
"""
U64, SIZE, VOID = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


def made(create, *arguments) -> VOID:
    out = VOID()
    assert create(ctypes.byref(out), *arguments) == 0
    return out


def allocated(cuda, size: int) -> U64:
    out = U64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(out), SIZE(size)) == 0
    return out


def said(cuda, code: int) -> str:
    text = ctypes.c_char_p()
    assert cuda.cuGetErrorString(code, ctypes.byref(text)) == 0
    return text.value.decode()


def test_every_symbol_that_pycuda_links_against_is_there(pycuda):
    """What its extension leaves undefined, by the system's own tools."""
    from pycuda import _driver

    listing = subprocess.run(["nm", "-D", "--undefined-only", _driver.__file__], capture_output=True, text=True)
    wanted = set(re.findall(r"\bcu[A-Z]\w+", listing.stdout))
    if not wanted:
        pytest.skip("no nm on this machine")
    assert len(wanted) > 130
    library = ctypes.CDLL(str(library_path()))
    assert [name for name in sorted(wanted) if not hasattr(library, name)] == []


def test_parameters_by_pointers(cuda):
    """As Numba and cuda.bindings launch; PyCUDA packs a buffer."""
    module = made(cuda.cuModuleLoadData, PTX.encode())
    function = made(cuda.cuModuleGetFunction, module, b"add")
    memory = allocated(cuda, 4)
    assert cuda.cuMemsetD32_v2(memory, 40, SIZE(1)) == 0
    values = (VOID * 2)(ctypes.addressof(memory), ctypes.addressof(number := ctypes.c_uint32(2)))
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, values, None) == 0
    back = np.zeros(1, np.uint32)
    assert cuda.cuMemcpyDtoH_v2(VOID(back.ctypes.data), memory, SIZE(4)) == 0
    assert back[0] == 42
    assert number.value == 2
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 1
    assert cuda.cuModuleUnload(module) == 0
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, values, None) == 400
    assert "no such function" in said(cuda, 400)


def test_registered_host_memory(cuda):
    host = np.arange(1024, dtype=np.uint32)
    assert cuda.cuMemHostRegister_v2(VOID(host.ctypes.data), SIZE(host.nbytes), 0) == 0
    assert cuda.cuMemHostRegister_v2(VOID(host.ctypes.data + 8), SIZE(8), 0) == 712
    address = U64()
    assert cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(address), VOID(host.ctypes.data), 0) == 0
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, PTX.encode()), b"add")
    values = (VOID * 2)(ctypes.addressof(address), ctypes.addressof(number := ctypes.c_uint32(5)))
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, values, None) == 0
    assert host[0] == number.value
    assert cuda.cuMemHostUnregister(VOID(host.ctypes.data)) == 0
    assert cuda.cuMemHostUnregister(VOID(host.ctypes.data)) == 713
    assert cuda.cuMemHostRegister_v2(VOID(1 << 44), SIZE(8), 0) == 1


def map_host_pages(address: int) -> None:
    """Map two pages of the host there, unless something is mapped already, as a sanitizer's shadow is.

    A sanitizer has a mmap of its own, hence the system call.
    """
    number = {"x86_64": 9}.get(platform.machine(), 222)
    read_write, private_anonymous_no_replace = mmap.PROT_READ | mmap.PROT_WRITE, 0x100022
    place = (VOID(address & -4096), SIZE(8192), read_write, private_anonymous_no_replace, -1, SIZE(0))
    ctypes.CDLL(None).syscall(number, *place)


def test_device_addresses_are_never_host_memory(cuda):
    memory, freed, host = allocated(cuda, 64), allocated(cuda, 64), np.zeros(32, np.uint32)
    assert cuda.cuMemFree_v2(freed) == 0
    for address, wrong in ((memory, "128 bytes from byte 0 of an allocation of 64"), (freed, "that was freed")):
        map_host_pages(address.value)
        for to, from_ in ((VOID(host.ctypes.data), address), (address, VOID(host.ctypes.data))):
            assert cuda.cuMemcpy(to, from_, SIZE(128)) == 1
            assert wrong in said(cuda, 1)
        assert cuda.cuMemHostRegister_v2(VOID(address.value + 64), SIZE(8), 0) == 1
        assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link := VOID())) == 0
        data = VOID(address.value + 64)
        assert cuda.cuLinkAddData_v2(link, 1, data, SIZE(8), b"data", 0, None, None) == 1
        assert "there is no such data" in said(cuda, 1)


def test_host_memory_of_a_copy_is_registered_whole_or_not_at_all(cuda):
    memory, host = allocated(cuda, 4096), np.zeros(4096, np.uint8)
    first, second = host.ctypes.data, host.ctypes.data + 64
    assert cuda.cuMemHostRegister_v2(VOID(second), SIZE(64), 0) == 0
    within, across = ((first, 64), (second, 64), (second + 64, 64)), ((first, 65), (second, 65))
    for begin, size in within + across:
        code = int((begin, size) in across)
        assert cuda.cuMemcpyHtoD_v2(memory, VOID(begin), SIZE(size)) == code, (begin - first, size)
        assert cuda.cuMemcpyDtoH_v2(VOID(begin), memory, SIZE(size)) == code
    assert "65 bytes from byte 0 of an allocation of 64" in said(cuda, 1)
    assert cuda.cuMemHostRegister_v2(VOID(first), SIZE(64), 0) == 0
    assert cuda.cuMemcpyHtoD_v2(memory, VOID(first), SIZE(128)) == 0
    assert cuda.cuMemcpyHtoD_v2(memory, VOID(first), SIZE(129)) == 1
    for begin in (first, second):
        assert cuda.cuMemHostUnregister(VOID(begin)) == 0
    pinned = made(cuda.cuMemHostAlloc, SIZE(100), 0)
    assert cuda.cuMemcpyHtoD_v2(memory, pinned, SIZE(101)) == 1
    assert "101 bytes from byte 0 of an allocation of 100" in said(cuda, 1)


def test_freed_twice_and_freed_inside(cuda):
    memory = allocated(cuda, 100)
    assert cuda.cuMemFree_v2(U64(memory.value + 4)) == 1
    assert "inside an allocation" in said(cuda, 1)
    assert cuda.cuMemFree_v2(memory) == 0
    assert cuda.cuMemFree_v2(memory) == 1
    assert "that was freed" in said(cuda, 1)
    assert cuda.cuMemFreeHost(VOID(memory.value)) == 1
    assert allocated(cuda, 100).value != memory.value, "a stale pointer must not fit the next allocation"


def test_memory_belongs_to_its_context(cuda):
    memory, other = allocated(cuda, 64), made(cuda.cuCtxCreate_v2, 0, 0)
    used = SIZE()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(used), ctypes.byref(total := SIZE())) == 0
    within = allocated(cuda, 4096)
    assert cuda.cuCtxDestroy_v2(other) == 0
    free = SIZE()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    assert free.value == used.value, "what a context held goes with it"
    assert cuda.cuMemsetD8_v2(within, 0, SIZE(1)) == 1
    assert cuda.cuMemsetD8_v2(memory, 0, SIZE(64)) == 0
    assert cuda.cuCtxPushCurrent_v2(other) == 201


def test_pointer_attributes(cuda):
    memory, value = allocated(cuda, 4096), U64()
    managed = U64()
    assert cuda.cuMemAllocManaged(ctypes.byref(managed), SIZE(64), 1) == 0
    for which, address, expected in ((2, memory, 2), (11, memory, memory.value), (12, memory, 4096), (8, managed, 1)):
        value.value = 0
        assert cuda.cuPointerGetAttribute(ctypes.byref(value), which, U64(address.value + 8)) == 0
        assert value.value == expected
    assert cuda.cuPointerGetAttribute(ctypes.byref(value), 4, memory) == 1
    assert cuda.cuPointerGetAttribute(ctypes.byref(value), 2, U64(1234567)) == 1


def test_clocks_of_streams(cuda):
    """Predicted times: a copy takes its bytes over the bandwidth, streams run beside each other, events order them."""
    milliseconds = ctypes.c_float()

    def elapsed(begin: VOID, end: VOID) -> float:
        assert cuda.cuEventElapsedTime_v2(ctypes.byref(milliseconds), begin, end) == 0
        return milliseconds.value

    size = 8 << 20
    host = np.zeros(size, np.uint8)
    memory, facts = allocated(cuda, size), device_facts("h200")
    one, two = (made(cuda.cuStreamCreate, 1) for _ in range(2))
    begin, middle, end = (made(cuda.cuEventCreate, 0) for _ in range(3))
    assert cuda.cuEventElapsedTime_v2(ctypes.byref(milliseconds), begin, end) == 400
    assert "never recorded" in said(cuda, 400)

    def copy(stream: VOID) -> None:
        assert cuda.cuMemcpyHtoDAsync_v2(memory, VOID(host.ctypes.data), SIZE(size), stream) == 0

    expected = 1e3 * (size / facts.host_bytes_per_second + facts.operation_seconds)
    cuda.cuEventRecord(begin, one)
    copy(one)
    cuda.cuEventRecord(middle, one)
    copy(two)
    cuda.cuEventRecord(end, two)
    assert elapsed(begin, middle) == pytest.approx(expected, rel=1e-4)
    assert elapsed(begin, end) == pytest.approx(expected, rel=1e-4), "side by side"
    cuda.cuStreamWaitEvent(two, middle, 0)
    copy(two)
    cuda.cuEventRecord(end, two)
    assert elapsed(begin, end) == pytest.approx(2 * expected, rel=1e-4), "one after the other"


def test_functions_by_name(cuda):
    function, status = VOID(), ctypes.c_int()
    assert cuda.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(function), 13000, U64(0), ctypes.byref(status)) == 0
    assert (function.value, status.value) == (ctypes.cast(cuda.cuMemAlloc_v2, VOID).value, 0)
    assert cuda.cuGetProcAddress_v2(b"cuNothing", ctypes.byref(function), 13000, U64(0), ctypes.byref(status)) == 500


def test_one_driver_to_a_process(driver):
    assert simulated_driver() is driver
    with pytest.raises(ArgumentError, match="one driver"):
        simulated_driver("l4")
    with pytest.raises(ArgumentError, match="one driver"):
        simulated_driver(memory_bytes=1 << 30)
    with pytest.raises(UnknownNameError, match="h200"):
        device_facts("h900")
    assert (driver.simulated, driver.model, driver.memory_bytes) == (True, "h200", 64 << 20)


def test_every_model_has_its_attributes():
    capabilities = {"a100-sxm-80gb": (8, 0), "h200": (9, 0), "l4": (8, 9)}
    capabilities |= {"b200": (10, 0), "gb300": (10, 3), "rtx-5090": (12, 0)}
    assert capabilities.keys() <= device_models().keys()
    for key, model in device_models().items():
        facts, number = device_facts(key), int(model.arch.removeprefix("sm_"))
        arch = capabilities.get(key, divmod(number, 10))
        assert "simulated" in facts.name
        assert (facts.attributes[75], facts.attributes[76]) == arch
        assert set(facts.attributes) == set(range(1, 148))


def test_nothing_of_it_is_on_the_systems_path():
    """A program that does not ask for the simulated driver does not get it."""
    if real_device() is not None:
        pytest.skip("this machine has a driver of its own")
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "cannot open shared object file" in done.stderr
    assert Path(library_path()).parent.name == "driver"


RANKS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry ranks(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r3, %cluster_nctaid.x;
    mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd3, %rd1, %rd2;
    st.global.v2.u32 [%rd3], {%r2, %r3};
    ret;
}
"""


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16))


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", VOID),
        ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def test_a_launch_with_clusters(cuda):
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, RANKS.encode()), b"ranks")
    memory = allocated(cuda, 64)
    values = (VOID * 1)(ctypes.addressof(memory))

    def launch(cluster: int) -> int:
        attribute = Attribute(id=4, value=(cluster, 1, 1))
        config = Config((6, 1, 1), (1, 1, 1), 0, None, ctypes.pointer(attribute), 1)
        return cuda.cuLaunchKernelEx(ctypes.byref(config), function, values, None)

    assert launch(2) == 0
    back = np.zeros((6, 2), np.uint32)
    assert cuda.cuMemcpyDtoH_v2(VOID(back.ctypes.data), memory, SIZE(48)) == 0
    assert back.tolist() == [[0, 2], [1, 2]] * 3
    assert launch(4) == 1
    assert "a multiple of the cluster" in said(cuda, 1)
    assert cuda.cuCtxSynchronize() == 0


DEPENDENT = PTX.replace("sm_80", "sm_90").replace("ret;", "griddepcontrol.launch_dependents;\n    ret;")


@pytest.mark.parametrize(("programmatic", "waits", "found"), [(1, 0, 1), (1, 1, 0), (0, 0, 0)])
def test_a_launch_that_may_begin_before_the_last_has_ended(cuda, driver, programmatic: int, waits: int, found: int):
    text = DEPENDENT.replace("ld.global", "griddepcontrol.wait;\n    ld.global") if waits else DEPENDENT
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, text.encode()), b"add")
    memory = allocated(cuda, 4)
    values = (VOID * 2)(ctypes.addressof(memory), ctypes.addressof(number := ctypes.c_uint32(5)))
    attribute = Attribute(id=6, value=(programmatic,))
    config = Config((1, 1, 1), (1, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    launches = Launches()
    watch(Watch(launches, device_model(driver.model), checks=True))
    try:
        assert cuda.cuMemsetD32_v2(memory, number.value, SIZE(1)) == 0
        assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, values, None) == 0
        assert cuda.cuLaunchKernelEx(ctypes.byref(config), function, values, None) == 0
    finally:
        watch(None)
    assert cuda.cuCtxSynchronize() == 0
    kinds = [[finding.kind for finding in launch.findings] for launch in launches]
    assert kinds == [[], ["missing griddepcontrol.wait"] * 2 * found]  # its load, and its store


def encode(cuda, **change):
    """The result of encoding a map of 8 x 64 halves in boxes of 4 x 32, and its bytes."""
    given = {"type": 6, "sizes": (64, 8), "strides": (128,), "box": (32, 4), "steps": (1, 1), "swizzle": 2} | change
    room = ctypes.create_string_buffer(192)
    at = -(-ctypes.addressof(room) // 64) * 64
    rank = len(given["sizes"])
    code = cuda.cuTensorMapEncodeTiled(
        VOID(at), given["type"], rank, VOID(4096), (U64 * 5)(*given["sizes"]), (U64 * 4)(*given["strides"]),
        (ctypes.c_uint32 * 5)(*given["box"]), (ctypes.c_uint32 * 5)(*given["steps"]), given.get("interleave", 0),
        given["swizzle"], 0, 0,
    )  # fmt: skip
    return code, at, room


def test_tensor_maps(cuda):
    code, at, room = encode(cuda)
    assert code == 0
    expected = TensorMap("f16", 4096, (64, 8), (128,), (32, 4), (1, 1), 64)
    assert ctypes.string_at(at, 128) == bytes(expected)
    assert cuda.cuTensorMapReplaceAddress(VOID(at), VOID(8192)) == 0
    moved = TensorMap("f16", 8192, (64, 8), (128,), (32, 4), (1, 1), 64)
    assert ctypes.string_at(at, 128) == bytes(moved)
    for number, atom in ((3, 16), (4, 32), (6, 64)):
        code, at, room = encode(cuda, swizzle=number)
        assert code == 0
        expected = TensorMap("f16", 4096, (64, 8), (128,), (32, 4), (1, 1), 128, atom=atom)
        assert ctypes.string_at(at, 128) == bytes(expected)
    del room


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"box": (128, 4)}, 1, "rows of 256 bytes"),
        ({"strides": (100,)}, 1, "multiples of 16 bytes"),
        ({"swizzle": 9}, 1, "type, swizzle or fill"),
        ({"interleave": 1}, 801, "interleaved"),
        ({"swizzle": 5}, 801, "a flip of 8 bytes"),
        ({"type": 14}, 801, "16U4_ALIGN16B"),
    ],
)
def test_tensor_maps_that_break_a_rule(cuda, change: dict[str, object], code: int, words: str):
    assert encode(cuda, **change)[0] == code
    assert words in said(cuda, code)
