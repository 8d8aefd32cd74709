"""Graphs of the CUDA runtime: nodes of every kind, what they were made from, and the memory of graphs."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from runtime_calls import BY_ADDRESS, INT, SIZE, TO_HOST, U64, UINT, VOID, Dim3, Runtime

INVALID_VALUE, NOT_SUPPORTED = 1, 801
KERNEL, COPY, FILL, HOST, CHILD, EMPTY, WAIT, RECORD, ALLOCATE, FREE, CONDITIONAL = *range(8), 10, 11, 13
IF, WHILE, SWITCH = range(3)
HOST_FUNCTION = ctypes.CFUNCTYPE(None, VOID)


class KernelParams(ctypes.Structure):
    _fields_ = (
        ("function", VOID), ("grid", Dim3), ("block", Dim3), ("shared", UINT), ("values", ctypes.POINTER(VOID)),
        ("extra", VOID),
    )  # fmt: skip


class FillParams(ctypes.Structure):
    _fields_ = (
        ("to", VOID), ("pitch", SIZE), ("value", UINT), ("element", UINT), ("width", SIZE), ("height", SIZE),
    )  # fmt: skip


class PoolProps(ctypes.Structure):
    _fields_ = (("type", INT), ("handles", INT), ("location", INT * 2), ("rest", ctypes.c_ubyte * 72))


class AllocationParams(ctypes.Structure):
    _fields_ = (("pool", PoolProps), ("access", VOID), ("count", SIZE), ("bytes", SIZE), ("address", VOID))


class ConditionParams(ctypes.Structure):
    _fields_ = (("handle", U64), ("type", INT), ("size", UINT), ("graphs", ctypes.POINTER(VOID)), ("context", VOID))


class AnyParams(ctypes.Union):
    _fields_ = (
        ("room", ctypes.c_longlong * 29), ("kernel", KernelParams), ("fill", FillParams), ("handle", VOID),
        ("allocation", AllocationParams), ("condition", ConditionParams),
    )  # fmt: skip


class NodeParams(ctypes.Structure):
    _anonymous_ = ("of",)
    _fields_ = (("type", INT), ("reserved", INT * 3), ("of", AnyParams), ("end", ctypes.c_longlong))


class Built:
    """A graph under construction; each node comes after the one before it."""

    def __init__(self, runtime: Runtime, graph: VOID | None = None):
        self.runtime, self.last = runtime, ()
        self.graph = graph or runtime.new("cudaGraphCreate", VOID, 0)
        self.kept: list = []

    def add(self, kind: int, **given) -> tuple[VOID, NodeParams]:
        params = NodeParams(type=kind)
        for name, value in given.items():
            setattr(params, name, value)
        before = (VOID * len(self.last))(*self.last)
        node = self.runtime.new(
            "cudaGraphAddNode", VOID, self.graph, before, None, SIZE(len(self.last)), ctypes.byref(params)
        )
        self.last = (node,)
        return node, params

    def kernel(self, function: VOID, *values) -> VOID:
        return self.add(KERNEL, kernel=self.params(function, *values))[0]

    def params(self, function: VOID, *values) -> KernelParams:
        pointers = (VOID * len(values))(*[ctypes.addressof(value) for value in values])
        self.kept += [values, pointers]
        one = Dim3(1, 1, 1)
        return KernelParams(function, one, one, 0, ctypes.cast(pointers, ctypes.POINTER(VOID)))

    def fill(self, place: VOID, value: int) -> VOID:
        return self.add(FILL, fill=FillParams(place, 0, value, 4, 1, 1))[0]

    def condition(self, kind: int, handle: U64, size: int = 1) -> list[Built]:
        _, params = self.add(CONDITIONAL, condition=ConditionParams(handle, kind, size))
        return [Built(self.runtime, VOID(params.condition.graphs[i])) for i in range(size)]

    def run(self, times: int = 1, flags: int = 0) -> VOID:
        executable = self.runtime.new("cudaGraphInstantiate", VOID, self.graph, U64(flags))
        for _ in range(times):
            self.runtime.did("cudaGraphLaunch", executable, None)
        return executable


@pytest.fixture
def built(runtime: Runtime) -> Built:
    return Built(runtime)


def test_nodes_say_what_they_were_made_from_and_take_other_parameters(runtime: Runtime, built: Built):
    place, add = runtime.array([0]), runtime.kernel("add")
    filled, kernel = built.fill(place, 5), built.kernel(add, place, UINT(2))
    read = FillParams()
    runtime.did("cudaGraphMemsetNodeGetParams", filled, ctypes.byref(read))
    assert (read.to, read.value, read.element, read.width) == (place.value, 5, 4, 1)
    known = KernelParams()
    runtime.did("cudaGraphKernelNodeGetParams", kernel, ctypes.byref(known))
    assert (known.function, known.grid.x, known.block.x) == (add.value, 1, 1)
    assert ctypes.cast(known.values[1], ctypes.POINTER(UINT))[0] == 2
    executable = built.run()
    assert runtime.values(place) == [7]
    runtime.did("cudaGraphExecNodeSetParams", executable, kernel, ctypes.byref(
        NodeParams(type=KERNEL, of=AnyParams(kernel=built.params(add, place, UINT(10))))
    ))  # fmt: skip
    runtime.did("cudaGraphLaunch", executable, None)
    assert runtime.values(place) == [15]
    runtime.did("cudaGraphKernelNodeSetParams", kernel, ctypes.byref(built.params(add, place, UINT(1))))
    built.run()
    assert runtime.values(place) == [6], "the graph has the new number, what was instantiated before has its own"
    runtime.did("cudaGraphNodeSetEnabled", executable, kernel, UINT(0))
    enabled = UINT(7)
    runtime.did("cudaGraphNodeGetEnabled", executable, kernel, ctypes.byref(enabled))
    assert enabled.value == 0
    runtime.did("cudaGraphLaunch", executable, None)
    assert runtime.values(place) == [5]
    assert runtime.cudaGraphMemsetNodeGetParams(kernel, ctypes.byref(read)) == INVALID_VALUE


def test_captured_work_says_what_it_was_made_from(runtime: Runtime):
    place, stream, add = runtime.array([0]), runtime.new("cudaStreamCreate"), runtime.kernel("add")
    runtime.did("cudaStreamBeginCapture", stream, 0)
    runtime.did("cudaMemsetAsync", place, 3, SIZE(4), stream)
    runtime.did("cudaMemcpyAsync", place, place, SIZE(4), BY_ADDRESS, stream)
    assert runtime.launch(add, [place, UINT(9)], stream=stream) == 0
    graph = VOID()
    runtime.did("cudaStreamEndCapture", stream, ctypes.byref(graph))
    count, nodes = SIZE(3), (VOID * 3)()
    runtime.did("cudaGraphGetNodes", graph, nodes, ctypes.byref(count))
    kinds = []
    for node in nodes:
        kind = INT()
        runtime.did("cudaGraphNodeGetType", VOID(node), ctypes.byref(kind))
        kinds.append(kind.value)
    assert kinds == [FILL, COPY, KERNEL]
    fill, copy, kernel = FillParams(), (U64 * 20)(), KernelParams()
    runtime.did("cudaGraphMemsetNodeGetParams", VOID(nodes[0]), ctypes.byref(fill))
    runtime.did("cudaGraphMemcpyNodeGetParams", VOID(nodes[1]), copy)
    runtime.did("cudaGraphKernelNodeGetParams", VOID(nodes[2]), ctypes.byref(kernel))
    assert (fill.to, fill.value, fill.width) == (place.value, 3, 4)
    assert (copy[4], copy[12], copy[16]) == (place.value, place.value, 4), "from, to, width"
    assert ctypes.cast(kernel.values[1], ctypes.POINTER(UINT))[0] == 9
    runtime.did("cudaGraphMemcpyNodeSetParams", VOID(nodes[1]), copy)
    Built(runtime, graph).run()
    assert runtime.values(place) == [0x03030303 + 9]


def test_events_and_child_graphs_are_nodes(runtime: Runtime, built: Built):
    place, event, later = runtime.array([0]), runtime.new("cudaEventCreate"), runtime.new("cudaEventCreate")
    child = Built(runtime)
    child.kernel(runtime.kernel("add"), place, UINT(1))
    record, _ = built.add(RECORD, handle=event)
    inner, _ = built.add(CHILD, handle=child.graph)
    wait, _ = built.add(WAIT, handle=event)
    child.kernel(runtime.kernel("add"), place, UINT(100))  # it was copied before
    own = VOID()
    runtime.did("cudaGraphChildGraphNodeGetGraph", inner, ctypes.byref(own))
    Built(runtime, own).kernel(runtime.kernel("add"), place, UINT(10))
    runtime.did("cudaGraphEventRecordNodeSetEvent", record, later)
    for node, name, wanted in ((record, "Record", later), (wait, "Wait", event)):
        found = VOID()
        runtime.did(f"cudaGraphEvent{name}NodeGetEvent", node, ctypes.byref(found))
        assert found.value == wanted.value
    built.run()
    assert runtime.values(place) == [11]
    milliseconds = ctypes.c_float()
    runtime.did("cudaEventRecord", event, None)
    runtime.did("cudaEventElapsedTime", ctypes.byref(milliseconds), later, event)
    assert milliseconds.value > 0, "the graph recorded the event when it ran"


def test_a_clone_has_nodes_of_its_own_and_edges_are_told(runtime: Runtime, built: Built, tmp_path):
    place, add = runtime.array([0]), runtime.kernel("add")
    first, second = built.kernel(add, place, UINT(1)), built.kernel(add, place, UINT(10))
    clone = VOID()
    runtime.did("cudaGraphClone", ctypes.byref(clone), built.graph)
    runtime.did("cudaGraphKernelNodeSetParams", first, ctypes.byref(built.params(add, place, UINT(5))))
    Built(runtime, clone).run()
    assert runtime.values(place) == [11]
    count, from_, to, data = SIZE(4), (VOID * 4)(), (VOID * 4)(), (U64 * 4)(*[7] * 4)
    runtime.did("cudaGraphGetEdges", built.graph, from_, to, data, ctypes.byref(count))
    assert (count.value, from_[0], to[0], data[0]) == (1, first.value, second.value, 0)
    runtime.did("cudaGraphRemoveDependencies", built.graph, from_, to, data, SIZE(1))
    data[0] = 1  # an edge of another port
    assert runtime.cudaGraphAddDependencies(built.graph, from_, to, data, SIZE(1)) == NOT_SUPPORTED
    runtime.did("cudaGraphAddDependencies", built.graph, to, from_, None, SIZE(1))
    runtime.did("cudaGraphNodeGetDependentNodes", second, from_, data, ctypes.byref(count))
    assert (count.value, from_[0]) == (1, first.value)
    path = tmp_path / "graph.dot"
    runtime.did("cudaGraphDebugDotPrint", built.graph, str(path).encode(), 0)
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("kernel add") == 2
    assert f"n{second.value} -> n{first.value}" in text


def allocation(size: int) -> AllocationParams:
    return AllocationParams(pool=PoolProps(type=1, location=(INT * 2)(1, 0)), bytes=size)


def graph_bytes(runtime: Runtime) -> list[int]:
    found = []
    for which in range(2):
        value = U64()
        runtime.did("cudaDeviceGetGraphMemAttribute", 0, which, ctypes.byref(value))
        found.append(value.value)
    return found


def test_memory_of_graphs(runtime: Runtime, built: Built):
    out = runtime.array([0])
    _, params = built.add(ALLOCATE, allocation=allocation(4))
    inside = VOID(params.allocation.address)
    built.fill(inside, 5)
    built.kernel(runtime.kernel("add"), inside, UINT(2))
    node = VOID()
    runtime.did(
        "cudaGraphAddMemcpyNode1D", ctypes.byref(node), built.graph, (VOID * 1)(*built.last), SIZE(1), out, inside,
        SIZE(4), BY_ADDRESS,
    )  # fmt: skip
    freed = Built(runtime, built.graph)
    freed.last = (node,)
    open_graph = built.run()
    assert runtime.values(out) == [7]
    assert graph_bytes(runtime) == [4, 4]
    assert runtime.values(inside) == [7], "it outlives the launch"
    assert runtime.cudaGraphLaunch(open_graph, None) == INVALID_VALUE
    assert "AUTO_FREE" in runtime.said(INVALID_VALUE)
    runtime.did("cudaFreeAsync", inside, None)
    runtime.did("cudaGraphLaunch", open_graph, None)
    runtime.did("cudaFree", inside)
    Built(runtime, built.graph).run(times=2, flags=1)
    runtime.did("cudaFree", inside)
    elsewhere = Built(runtime)
    elsewhere.add(FREE, handle=inside)
    runtime.did("cudaGraphLaunch", open_graph, None)
    elsewhere.run()
    assert graph_bytes(runtime) == [0, 4], "another graph frees what this one allocates"
    freed.add(FREE, handle=inside)
    freed.run(times=2)
    assert graph_bytes(runtime) == [0, 4]
    assert runtime.cudaMemset(inside, 0, SIZE(4)) == INVALID_VALUE
    assert runtime.cudaGraphClone(ctypes.byref(node), built.graph) == NOT_SUPPORTED


def test_allocations_of_a_captured_stream_are_nodes(runtime: Runtime):
    stream, out, inside, graph = runtime.new("cudaStreamCreate"), np.zeros(1, np.uint32), VOID(), VOID()
    runtime.did("cudaStreamBeginCapture", stream, 0)
    runtime.did("cudaMallocAsync", ctypes.byref(inside), SIZE(4), stream)
    runtime.did("cudaMemsetAsync", inside, 1, SIZE(4), stream)
    runtime.did("cudaMemcpyAsync", VOID(out.ctypes.data), inside, SIZE(4), TO_HOST, stream)
    runtime.did("cudaFreeAsync", inside, stream)
    runtime.did("cudaStreamEndCapture", stream, ctypes.byref(graph))
    assert graph_bytes(runtime) == [0, 0]
    Built(runtime, graph).run(times=2)
    assert out[0] == 0x01010101


def condition(built: Built, initial: int) -> U64:
    return built.runtime.new("cudaGraphConditionalHandleCreate", U64, built.graph, UINT(initial), UINT(1))


@pytest.mark.parametrize(
    ("kind", "size", "initial", "expected"),
    [(IF, 1, 1, 1), (IF, 1, 0, 0), (IF, 2, 0, 10), (SWITCH, 3, 2, 100), (SWITCH, 3, 3, 0), (SWITCH, 3, 0, 1)],
)
def test_a_condition_decides_which_graph_runs(runtime: Runtime, built: Built, kind, size, initial, expected):
    place, add = runtime.array([0]), runtime.kernel("add")
    bodies = built.condition(kind, condition(built, initial), size)
    for body, number in zip(bodies, (1, 10, 100), strict=False):
        body.kernel(add, place, UINT(number))
    built.run()
    assert runtime.values(place) == [expected]


def test_a_kernel_ends_a_loop(runtime: Runtime, built: Built):
    left, rounds, handle = runtime.array([4]), runtime.array([0]), condition(built, 1)
    (body,) = built.condition(WHILE, handle)
    body.kernel(runtime.kernel("add"), rounds, UINT(1))
    body.kernel(runtime.kernel("count_down"), left, handle)
    executable = built.run()
    assert (runtime.values(left), runtime.values(rounds)) == ([0], [4])
    runtime.did("cudaMemset", left, 0, SIZE(4))
    runtime.did("cudaMemset", VOID(left.value), 2, SIZE(1))
    runtime.did("cudaGraphLaunch", executable, None)
    assert runtime.values(rounds) == [6], "each launch begins with the number that the condition was made with"
    assert runtime.launch(runtime.kernel("count_down"), [left, U64(1 << 45)]) == 0
    assert runtime.cudaDeviceSynchronize() == 700
    assert "no handle of a conditional node" in runtime.said(700)


@pytest.mark.parametrize(("kind", "size"), [(IF, 3), (WHILE, 2), (IF, 0), (7, 1)])
def test_conditional_nodes_that_there_are_not(runtime: Runtime, built: Built, kind, size):
    params = NodeParams(type=CONDITIONAL, of=AnyParams(condition=ConditionParams(condition(built, 0), kind, size)))
    node = VOID()
    assert runtime.cudaGraphAddNode(ctypes.byref(node), built.graph, None, None, SIZE(0), ctypes.byref(params)) == 1


def test_a_capture_goes_on_in_a_graph_that_is_there(runtime: Runtime, built: Built):
    place, add, stream, graph = runtime.array([0]), runtime.kernel("add"), runtime.new("cudaStreamCreate"), VOID()
    first = built.fill(place, 5)
    runtime.did("cudaStreamBeginCaptureToGraph", stream, built.graph, (VOID * 1)(first), None, SIZE(1), 0)
    assert runtime.launch(add, [place, UINT(1)], stream=stream) == 0
    runtime.did("cudaStreamEndCapture", stream, ctypes.byref(graph))
    assert graph.value == built.graph.value
    runtime.did("cudaStreamBeginCaptureToGraph", stream, built.graph, None, None, SIZE(0), 0)
    runtime.did("cudaStreamEndCapture", stream, None)
    built.run()
    assert runtime.values(place) == [6]
    runtime.did("cudaStreamBeginCaptureToGraph", stream, built.graph, None, None, SIZE(0), 0)
    assert runtime.cudaStreamSynchronize(stream) == 900
    assert runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 901
    built.run()
    assert runtime.values(place) == [6], "the graph is the client's own"
