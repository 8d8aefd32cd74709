"""What other clients than PyCUDA ask of the driver: occupancy, pools, graphs of their own, entry points by version."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable

import pytest
from test_graphs import stream, value
from test_library import PTX, SIZE, U64, VOID, allocated, made, said

from workbench.programs.running import _advice
from workbench.toolchain.occupancy import occupancy

TILE = """
.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 tile[16384];
.visible .entry tiled(.param .u64 out) .maxntid 512, 1, 1
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.shared.u32 %r1, [tile];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
INT = ctypes.c_int


class KernelNode(ctypes.Structure):
    _fields_ = (
        ("function", VOID), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("parameters", VOID), ("extra", VOID), ("kernel", VOID), ("context", VOID),
    )  # fmt: skip


class FillNode(ctypes.Structure):
    _fields_ = (
        ("to", U64), ("pitch", SIZE), ("value", ctypes.c_uint), ("element", ctypes.c_uint), ("width", SIZE),
        ("height", SIZE),
    )  # fmt: skip


class Location(ctypes.Structure):
    _fields_ = (("type", INT), ("id", INT))


class PoolProperties(ctypes.Structure):
    _fields_ = (
        ("type", INT), ("handles", INT), ("location", Location), ("security", VOID), ("most", SIZE),
        ("reserved", ctypes.c_ubyte * 56),
    )  # fmt: skip


class ClusterAttribute(ctypes.Structure):
    _fields_ = (("id", INT), ("padding", INT), ("extents", ctypes.c_uint * 3), ("rest", ctypes.c_ubyte * 52))


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", VOID),
        ("attributes", ctypes.POINTER(ClusterAttribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def function_of(cuda, ptx: str, name: bytes) -> VOID:
    return made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, ptx.encode()), name)


def packed(*arguments) -> tuple[ctypes.Array, list]:
    return (VOID * len(arguments))(*[ctypes.addressof(one) for one in arguments]), list(arguments)


def test_a_function_knows_what_it_was_compiled_for(cuda):
    kernel, number = function_of(cuda, PTX, b"add"), INT()
    for attribute, wanted in ((5, 80), (6, 90)):  # the architecture of the PTX, that of the device
        assert cuda.cuFuncGetAttribute(ctypes.byref(number), attribute, kernel) == 0
        assert number.value == wanted


def test_occupancy_is_that_of_the_calculator(cuda):
    kernel, number, bytes_left = function_of(cuda, TILE, b"tiled"), INT(), SIZE()
    count = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert cuda.cuFuncGetAttribute(ctypes.byref(number), 4, kernel) == 0
    registers = number.value
    for threads, shared in ((32, 0), (256, 0), (512, 4096), (256, 100_000)):
        assert count(ctypes.byref(number), kernel, threads, SIZE(shared)) == 0
        assert number.value == occupancy("sm_90", threads, registers, 16384 + shared).blocks_per_sm
    assert count(ctypes.byref(number), kernel, 513, SIZE(0)) == 0
    assert number.value == 0, "more threads than its bounds allow"
    assert count(ctypes.byref(number), kernel, 1025, SIZE(0)) == 1
    assert "1 to 1024 threads" in said(cuda, 1)

    grid, block = INT(), INT()
    need = ctypes.CFUNCTYPE(SIZE, INT)(lambda threads: 100_000 if threads > 128 else 0)
    best = cuda.cuOccupancyMaxPotentialBlockSize
    assert best(ctypes.byref(grid), ctypes.byref(block), kernel, None, SIZE(0), 0) == 0
    assert (block.value, grid.value) == (512, 4 * 132)
    assert best(ctypes.byref(grid), ctypes.byref(block), kernel, need, SIZE(0), 200) == 0
    assert (block.value, grid.value) == (128, occupancy("sm_90", 128, registers, 16384).blocks_per_sm * 132)

    room = cuda.cuOccupancyAvailableDynamicSMemPerBlock
    assert room(ctypes.byref(bytes_left), kernel, 4, 256) == 0
    assert count(ctypes.byref(number), kernel, 256, SIZE(bytes_left.value)) == 0
    assert number.value == 4
    assert count(ctypes.byref(number), kernel, 256, SIZE(bytes_left.value + 128)) == 0
    assert number.value == 3
    assert room(ctypes.byref(bytes_left), kernel, 33, 32) == 1


def test_clusters_that_fit(cuda):
    """CuTe DSL asks with more threads than the kernel is compiled for."""
    kernel, number, attribute = function_of(cuda, TILE, b"tiled"), INT(), ClusterAttribute(id=4)
    config = LaunchConfig(block=(1024, 1, 1), shared=100_000, attributes=ctypes.pointer(attribute), count=1)
    for size in (1, 2, 4, 8, 16):
        attribute.extents[:] = size, 1, 1
        assert cuda.cuOccupancyMaxActiveClusters(ctypes.byref(number), kernel, ctypes.byref(config)) == 0
        assert number.value == 132 // size
    attribute.extents[:] = 16, 2, 1
    assert cuda.cuOccupancyMaxActiveClusters(ctypes.byref(number), kernel, ctypes.byref(config)) == 1
    assert "a cluster of 32 blocks" in said(cuda, 1)


def test_the_kernels_of_a_library_are_listed(cuda):
    text = TILE + TILE[TILE.index(".visible") :].replace("tiled", "again")
    library, count, names = VOID(), ctypes.c_uint(), []
    assert cuda.cuLibraryLoadData(ctypes.byref(library), text.encode(), None, None, 0, None, None, 0) == 0
    assert cuda.cuLibraryGetKernelCount(ctypes.byref(count), library) == 0
    kernels = (VOID * 3)()
    assert cuda.cuLibraryEnumerateKernels(kernels, 3, library) == 0
    for kernel in kernels[: count.value]:
        name = ctypes.c_char_p()
        assert cuda.cuKernelGetName(ctypes.byref(name), VOID(kernel)) == 0
        names.append(name.value)
    assert names == [b"tiled", b"again"]
    assert kernels[2] is None
    assert cuda.cuLibraryUnload(library) == 0


def test_a_cooperative_launch_runs_where_all_blocks_fit(cuda):
    place, kernel = allocated(cuda, 4), function_of(cuda, PTX, b"add")
    parameters, kept = packed(place, ctypes.c_uint32(3))
    launch = cuda.cuLaunchCooperativeKernel
    assert launch(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters) == 0
    assert value(cuda, place) == 3
    assert launch(kernel, 132 * 32, 1, 1, 32, 1, 1, 0, None, parameters) == 0, "as many as the occupancy query says"
    assert cuda.cuCtxSynchronize() == 0
    assert launch(kernel, 132 * 32 + 1, 1, 1, 32, 1, 1, 0, None, parameters) == 720
    assert "4225 blocks, of which 4224 fit" in said(cuda, 720)
    assert cuda.cuCtxSynchronize() == 0, "nothing ran, and nothing is wrong"
    assert kept


def test_a_launch_that_is_repeated_is_predicted_once(cuda, monkeypatch):
    module, asked = importlib.import_module("workbench.analysis.prediction.predict"), []
    predict = module.predict
    monkeypatch.setattr(module, "predict", lambda *arguments: asked.append(arguments) or predict(*arguments))
    place, kernel = allocated(cuda, 4), function_of(cuda, PTX, b"add")
    parameters, kept = packed(place, ctypes.c_uint32(3))
    begin, end = (made(cuda.cuEventCreate, 0) for _ in range(2))
    took, times = ctypes.c_float(), []
    for threads in (1, 1, 1, 2):
        assert cuda.cuEventRecord(begin, None) == 0
        assert cuda.cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, None, parameters, None) == 0
        assert cuda.cuEventRecord(end, None) == 0
        assert cuda.cuEventElapsedTime_v2(ctypes.byref(took), begin, end) == 0
        times.append(took.value)
    assert len(asked) == 2, "another block is another launch"
    assert times[0] > 0
    assert len(set(times[:3])) == 1
    assert kept


def test_launch_attributes_that_are_hints_are_taken(cuda):
    place, kernel = allocated(cuda, 4), function_of(cuda, PTX, b"add")
    parameters, kept = packed(place, ctypes.c_uint32(3))

    def launch(attribute: int, *values: int, grid: int = 1) -> int:
        attributes = (ctypes.c_uint * 18)(attribute, 0, *values)
        config = (ctypes.c_uint64 * 7)()
        config[:] = [grid | 1 << 32, 1 | 1 << 32, 1 | 1 << 32, 0, 0, ctypes.addressof(attributes), 1]
        return cuda.cuLaunchKernelEx(config, kernel, parameters, None)

    assert launch(8, 1) == 0, "a priority"
    assert launch(4, 1, 1, 1) == 0, "a cluster of one block"
    assert launch(4, 2, 1, 1) == 1
    assert "a multiple of the cluster" in said(cuda, 1)
    assert launch(2, 1) == 0
    assert launch(2, 1, grid=132 * 32 + 1) == 720
    assert value(cuda, place) == 9
    assert kept


def test_pools(cuda):
    pool, number, device = VOID(), U64(), Location(1, 0)
    total, before, after = SIZE(), SIZE(), SIZE()
    assert cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(before), ctypes.byref(total)) == 0
    address, which = U64(), VOID()
    assert cuda.cuMemAllocAsync(ctypes.byref(address), SIZE(4096), None) == 0
    assert cuda.cuMemsetD8_v2(address, 1, SIZE(4096)) == 0
    assert cuda.cuPointerGetAttribute(ctypes.byref(which), 17, address) == 0
    assert which.value == pool.value
    assert cuda.cuMemPoolGetAttribute(pool, 7, ctypes.byref(number)) == 0
    assert number.value == 4096
    assert cuda.cuMemFreeAsync(U64(address.value + 8), None) == 1
    assert cuda.cuMemFreeAsync(address, None) == 0
    assert cuda.cuMemFreeAsync(address, None) == 1
    assert "that was freed" in said(cuda, 1)
    assert cuda.cuMemGetInfo_v2(ctypes.byref(after), ctypes.byref(total)) == 0
    assert after.value == before.value
    assert cuda.cuMemPoolGetAttribute(pool, 8, ctypes.byref(number)) == 0
    assert number.value == 4096, "the most that was used"
    assert cuda.cuMemPoolDestroy(pool) == 1

    own, small = VOID(), PoolProperties(1, 0, device, None, 1024)
    assert cuda.cuMemPoolCreate(ctypes.byref(own), ctypes.byref(small)) == 0
    assert cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), SIZE(1024), own, None) == 0
    assert cuda.cuMemAllocFromPoolAsync(ctypes.byref(which), SIZE(1), own, None) == 2
    assert cuda.cuDeviceSetMemPool(0, own) == 0
    assert cuda.cuMemAllocAsync(ctypes.byref(which), SIZE(1), None) == 2
    assert cuda.cuMemPoolDestroy(own) == 0
    assert cuda.cuDeviceGetMemPool(ctypes.byref(which), 0) == 0
    assert which.value == pool.value
    assert cuda.cuMemsetD8_v2(address, 1, SIZE(1024)) == 0, "what was allocated lives on"
    captured = stream(cuda)
    assert cuda.cuStreamBeginCapture_v2(captured, 2) == 0
    assert cuda.cuMemAllocAsync(ctypes.byref(which), SIZE(1), captured) == 0, "a node of the graph"
    shared = PoolProperties(1, 1, device, None, 0)
    assert cuda.cuMemPoolCreate(ctypes.byref(own), ctypes.byref(shared)) == 801


def test_pointer_attributes_all_at_once(cuda):
    memory = allocated(cuda, 64)
    kind, device, size = ctypes.c_uint(7), INT(7), SIZE(7)
    which = (INT * 3)(2, 9, 12)
    out = (VOID * 3)(*[ctypes.addressof(one) for one in (kind, device, size)])
    assert cuda.cuPointerGetAttributes(3, which, out, memory) == 0
    assert (kind.value, device.value, size.value) == (2, 0, 64)
    assert cuda.cuPointerGetAttributes(3, which, out, U64(4096)) == 0, "no allocation, and no error"
    assert (kind.value, device.value, size.value) == (0, -2, 0)


def test_a_graph_of_the_clients_own(cuda):
    """A fill, two kernels after it, and a host function; then with other parameters, and as a part of another."""
    place, kernel, seen = allocated(cuda, 4), function_of(cuda, PTX, b"add"), []
    graph = made(cuda.cuGraphCreate, 0)

    def kernel_node(amount: int) -> KernelNode:
        parameters, kept = packed(place, ctypes.c_uint32(amount))
        node = KernelNode(kernel, (1, 1, 1), (1, 1, 1), 0, ctypes.addressof(parameters), None, None, None)
        node.kept = parameters, kept
        return node

    def add(call: Callable, after: list[VOID], *arguments) -> VOID:
        dependencies = (VOID * len(after))(*after)
        return made(call, graph, dependencies, SIZE(len(after)), *arguments)

    note = ctypes.CFUNCTYPE(None, VOID)(lambda data: seen.append(data))
    host = (VOID * 2)(ctypes.cast(note, VOID), 5)
    last = add(cuda.cuGraphAddHostNode, [], host)
    first = add(cuda.cuGraphAddKernelNode_v2, [], ctypes.byref(kernel_node(2)))
    second = add(cuda.cuGraphAddKernelNode, [first], ctypes.byref(kernel_node(3)))
    fill = add(cuda.cuGraphAddMemsetNode, [], ctypes.byref(FillNode(place, 0, 10, 4, 1, 1)), None)
    edges = (VOID * 2)(fill, second), (VOID * 2)(first, last)
    assert cuda.cuGraphAddDependencies(graph, *edges, SIZE(2)) == 0
    kind, count = INT(), SIZE(4)
    nodes = (VOID * 4)()
    assert cuda.cuGraphNodeGetType(fill, ctypes.byref(kind)) == 0
    assert kind.value == 2
    assert cuda.cuGraphGetRootNodes(graph, nodes, ctypes.byref(count)) == 0
    assert (nodes[: count.value], nodes[count.value]) == ([fill.value], None)
    assert cuda.cuGraphNodeGetDependencies(second, nodes, ctypes.byref(count)) == 0
    assert nodes[: count.value] == [first.value]
    count.value = 4
    assert cuda.cuGraphNodeGetDependentNodes(fill, nodes, ctypes.byref(count)) == 0
    assert nodes[: count.value] == [first.value]

    executable = made(cuda.cuGraphInstantiate_v2, graph, None, None, SIZE(0))
    for _ in range(2):
        assert cuda.cuGraphLaunch(executable, None) == 0
        assert value(cuda, place) == 15, "the fill, though it was added last, comes first"
    assert seen == [5, 5]
    assert cuda.cuGraphExecKernelNodeSetParams(executable, second, ctypes.byref(kernel_node(30))) == 0
    assert cuda.cuGraphLaunch(executable, None) == 0
    assert value(cuda, place) == 42
    assert cuda.cuGraphExecMemsetNodeSetParams(executable, second, ctypes.byref(FillNode()), None) == 1
    assert "another kind" in said(cuda, 1)
    assert cuda.cuGraphExecUpdate_v2(executable, graph, ctypes.byref((U64 * 3)())) == 0
    assert cuda.cuGraphLaunch(executable, None) == 0
    assert value(cuda, place) == 15, "the graph itself has its first parameters"

    circle = (VOID * 1)(last), (VOID * 1)(fill)
    assert cuda.cuGraphAddDependencies(graph, *circle, SIZE(1)) == 0
    assert cuda.cuGraphInstantiateWithFlags(ctypes.byref(VOID()), graph, U64(0)) == 1
    assert "in a circle" in said(cuda, 1)
    assert cuda.cuGraphDestroyNode(last) == 0
    outer, child = graph, made(cuda.cuGraphCreate, 0)
    graph = child
    add(cuda.cuGraphAddChildGraphNode, [], outer)
    update = (U64 * 3)()
    assert cuda.cuGraphExecUpdate_v2(executable, child, ctypes.byref(update)) == 910
    assert update[0] == 2
    assert cuda.cuGraphDestroy(outer) == 0
    assert cuda.cuGraphLaunch(made(cuda.cuGraphInstantiateWithFlags, child, U64(0)), None) == 0
    assert value(cuda, place) == 15
    assert cuda.cuGraphNodeGetType(fill, ctypes.byref(kind)) == 400


def test_what_a_graph_keeps_ends_with_it(cuda):
    ended, graph, kept = [], made(cuda.cuGraphCreate, 0), VOID()
    end = ctypes.CFUNCTYPE(None, VOID)(lambda data: ended.append(data))
    assert cuda.cuUserObjectCreate(ctypes.byref(kept), VOID(3), end, 1, 1) == 0
    assert cuda.cuGraphRetainUserObject(graph, kept, 1, 1) == 0
    assert cuda.cuUserObjectRelease(kept, 1) == 1, "the reference was given to the graph"
    executable = made(cuda.cuGraphInstantiateWithFlags, graph, U64(0))
    assert cuda.cuGraphDestroy(graph) == 0
    assert ended == []
    assert cuda.cuGraphExecDestroy(executable) == 0
    assert ended == [3]
    assert cuda.cuUserObjectRetain(kept, 1) == 400


def test_captures_tell_where_they_are(cuda):
    place, captured, kernel = allocated(cuda, 4), stream(cuda), function_of(cuda, PTX, b"add")
    status, number, graph, last, count = ctypes.c_uint(), U64(), VOID(), ctypes.POINTER(VOID)(), SIZE()
    assert cuda.cuStreamBeginCapture_v2(captured, 0) == 0
    assert cuda.cuMemsetD32Async(place, 5, SIZE(1), captured) == 0
    outs = [ctypes.byref(one) for one in (status, number, graph, last)]
    assert cuda.cuStreamGetCaptureInfo_v3(captured, *outs, None, ctypes.byref(count)) == 0
    assert (status.value, count.value) == (1, 1)
    kind = INT()
    assert cuda.cuGraphNodeGetType(VOID(last[0]), ctypes.byref(kind)) == 0
    assert kind.value == 2
    ended = VOID()
    assert cuda.cuStreamEndCapture(captured, ctypes.byref(ended)) == 0
    assert ended.value == graph.value
    assert kernel


@pytest.mark.parametrize(
    ("name", "version", "symbol"),
    [
        (b"cuCtxCreate", 3020, "cuCtxCreate_v2"),
        (b"cuCtxCreate", 11040, "cuCtxCreate_v3"),
        (b"cuCtxCreate", 13000, "cuCtxCreate_v4"),
        (b"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"),
        (b"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"),
        (b"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"),
        (b"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
        (b"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
    ],
)
def test_entry_points_of_a_version(cuda, name: bytes, version: int, symbol: str):
    function, status = VOID(), INT()
    assert cuda.cuGetProcAddress_v2(name, ctypes.byref(function), version, U64(0), ctypes.byref(status)) == 0
    assert function.value == ctypes.cast(getattr(cuda, symbol), VOID).value
    assert status.value == 0


def test_what_is_not_there_says_what_to_use(cuda, driver):
    function, status = VOID(), INT()
    assert cuda.cuGetProcAddress_v2(b"cuMemAdvise", ctypes.byref(function), 8000, U64(0), ctypes.byref(status)) == 500
    assert status.value == 2, "there is a later one"
    for call, words in (
        (cuda.cuMemAddressReserve, "use cuMemAlloc"),
        (cuda.cuTexObjectCreate, "read linear memory"),
        (cuda.cuTensorMapEncodeIm2col, "use cuTensorMapEncodeTiled"),
    ):
        assert call() == 801
        assert call.__name__ in said(cuda, 801)
        assert words in said(cuda, 801)
        assert words in driver.last_error


def test_workbench_run_shows_what_the_driver_said(cuda):
    assert cuda.cuTexObjectCreate() == 801
    shown = _advice(RuntimeError("CUDA_ERROR_NOT_SUPPORTED: operation not supported"), check=False)
    assert "cuTexObjectCreate" in shown
    assert "read linear memory" in shown
    assert _advice(RuntimeError("of its own"), check=False) is None


def test_a_host_function_of_an_older_kind(cuda):
    seen = []
    call = ctypes.CFUNCTYPE(None, VOID, INT, VOID)(lambda stream, result, data: seen.append((result, data)))
    assert cuda.cuStreamAddCallback(None, call, VOID(4), 0) == 0
    assert seen == [(0, 4)]


def test_parameters_of_a_function(cuda):
    kernel, offset, size, name = function_of(cuda, PTX, b"add"), SIZE(), SIZE(), ctypes.c_char_p()
    told = []
    while cuda.cuFuncGetParamInfo(kernel, SIZE(len(told)), ctypes.byref(offset), ctypes.byref(size)) == 0:
        told.append((offset.value, size.value))
    assert told == [(0, 8), (8, 4)]
    assert cuda.cuFuncGetName(ctypes.byref(name), kernel) == 0
    assert name.value == b"add"
