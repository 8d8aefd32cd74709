"""Hooks that ``libcuda.so.1`` calls in Python: read a module's PTX, describe a function, launch it.

The structs are those of library/hooks.hpp; a test compares the two. Hooks run in the client's thread, with the
interpreter's lock and without the library's. None may raise, because ctypes would print the exception. A hook that
Ctrl-C ends leaves its answer unwritten; the library then makes the interpreter raise KeyboardInterrupt after the
client's call.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.check_report import said_by_ptxas
from workbench.analysis.device_models import device_model
from workbench.analysis.host_calls import HostCall
from workbench.analysis.watching import watched
from workbench.driver.argument_names import names_of
from workbench.driver.client_memory import HookRead, LaunchMemory, MemoryRecords
from workbench.driver.host_places import python_place, return_addresses, write_place
from workbench.driver.images import resources_of
from workbench.driver.linking import linked
from workbench.driver.observing import observed
from workbench.driver.order import ACCESS_BYTES, HookHostAccess, HookUnordered, OrderFindings
from workbench.driver.passed_tensors import passed_extents, passed_tensors
from workbench.driver.refusals import HookRefusal, Refusals
from workbench.errors import (
    ArgumentError,
    HostCallFault,
    KernelFault,
    KernelTimeout,
    UnknownNameError,
    UnsupportedInstructionError,
    WorkbenchError,
)
from workbench.ptx import Finding, LaunchOptions, LaunchReport, Program
from workbench.ptx.device_heap import HEAP_SPAN, DeviceHeap
from workbench.ptx.parse import MOST_PARAMETER_BYTES
from workbench.ptx.tensor_map import (
    DRIVER_ELEMENTS,
    DRIVER_SWIZZLES,
    PACKED_ELEMENTS,
    TENSOR_MAP_BYTES,
    TensorMap,
)
from workbench.toolchain import launch_buffer
from workbench.toolchain.occupancy import occupancy
from workbench.toolchain.ptx_text import kernels_of_ptx

if TYPE_CHECKING:
    from workbench.analysis.watching import Watch
    from workbench.driver.attributes import DeviceFacts
    from workbench.ptx import PtxKernel
    from workbench.ptx.buffers import Row
    from workbench.toolchain import CompiledKernel

_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_PTX, _NOT_FOUND, _NOT_SUPPORTED, _UNKNOWN = 1, 2, 218, 500, 801, 999
_ILLEGAL_ADDRESS, _TIMEOUT, _ASSERT, _STACK, _MISALIGNED, _LAUNCH_FAILED = 700, 702, 710, 714, 716, 719
# Error codes that a GPU reports for the machine's findings; on a GPU a deadlock hangs until somebody ends it.
_FAULT_CODES = {
    "out-of-bounds": _ILLEGAL_ADDRESS,
    "write to read-only memory": _ILLEGAL_ADDRESS,
    "misaligned": _MISALIGNED,
    "assertion failed": _ASSERT,
    "stack overflow": _STACK,
    "deadlock": _TIMEOUT,
    "timeout": _TIMEOUT,
}

_u32, _u64, _double, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p


class HookDevice(ctypes.Structure):
    """Facts that the library reports about its devices, which are all alike; attributes by their CUDA numbers."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("memory_bytes", _u64), ("attributes", ctypes.POINTER(ctypes.c_int)),
        ("attribute_count", _u32), ("device_bytes_per_second", _double), ("host_bytes_per_second", _double),
        ("operation_seconds", _double), ("count", _u32), ("host_blas", ctypes.c_char_p),
    )  # fmt: skip


class HookFunction(ctypes.Structure):
    """Facts of a kernel that are known before its launch; sizes in bytes."""

    _fields_ = (
        ("parameter_count", _u32), ("parameter_bytes", _u32), ("parameter_offsets", ctypes.POINTER(_u32)),
        ("parameter_sizes", ctypes.POINTER(_u32)), ("buffer_offsets", ctypes.POINTER(_u32)), ("buffer_bytes", _u32),
        ("static_shared", _u32), ("local_bytes", _u32),
        ("constant_bytes", _u32), ("max_threads", _u32), ("required_threads", _u32), ("registers", _u32),
        ("ptx_version", _u32), ("binary_version", _u32), ("tile", _u32 * 3),
    )  # fmt: skip


class HookLaunch(ctypes.Structure):
    """One launch; if it is ``timed``, the hook writes ``seconds``, its predicted time."""

    _fields_ = (
        ("module", _u64), ("name", ctypes.c_char_p), ("grid", _u32 * 3), ("block", _u32 * 3), ("dynamic_shared", _u32),
        ("timed", _u32), ("cooperative", _u32), ("cluster", _u32 * 3), ("programmatic", _u32),
        ("parameters", _pointer),
        ("parameter_bytes", _u64), ("buffers", _pointer), ("buffer_count", _u64), ("generation", _u64),
        ("context", _u64), ("heap_bytes", _u64), ("seconds", _double), ("heap_is_used", _u32),
        ("found", _u32), ("frames", _pointer), ("frame_count", _u32),
        ("deed", _u64), ("accesses", _pointer), ("access_count", _u64),
    )  # fmt: skip


class HookTensorMap(ctypes.Structure):
    """Arguments of a client's cuTensorMapEncodeTiled; ``out`` has room for the 128 bytes."""

    _fields_ = (
        ("type", _u32), ("rank", _u32), ("address", _u64), ("sizes", _u64 * 5), ("strides", _u64 * 4),
        ("box", _u32 * 5), ("steps", _u32 * 5), ("interleave", _u32), ("swizzle", _u32), ("fill", _u32),
        ("out", _pointer),
    )  # fmt: skip


class HookCall(ctypes.Structure):
    """A call of a library that computes on the host, and the error that ended it, if any."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("shape", ctypes.c_char_p), ("result", _u32), ("why", ctypes.c_char_p),
        ("address", _u64),
    )  # fmt: skip


# Pointers to the result code and to the error's text, and the bytes for the text.
_ANSWER = (ctypes.POINTER(ctypes.c_int), _pointer, _u64)
_LOAD = ctypes.CFUNCTYPE(None, _u64, ctypes.c_char_p, *_ANSWER)
_FUNCTION = ctypes.CFUNCTYPE(None, _u64, ctypes.c_char_p, ctypes.POINTER(HookFunction), *_ANSWER)
_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookLaunch), *_ANSWER)
_OCCUPANCY = ctypes.CFUNCTYPE(None, _u64, ctypes.c_char_p, _u32, _u32, ctypes.POINTER(_u32), *_ANSWER)
_PUT = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.c_char_p, _u64)
_LINK = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_char_p), _u32, _u32, _pointer, _PUT, *_ANSWER)
_VARIABLE = ctypes.CFUNCTYPE(None, _u64, ctypes.c_char_p, ctypes.POINTER(_u64), *_ANSWER)
_KERNELS = ctypes.CFUNCTYPE(None, _u64, _pointer, _PUT, *_ANSWER)
_ENCODE = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookTensorMap), *_ANSWER)
_HOST_CALL = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookCall), *_ANSWER)
_REFUSED = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookRefusal), *_ANSWER)
_FETCHED = ctypes.CFUNCTYPE(None, _u64)
_ORIGIN = ctypes.CFUNCTYPE(None, ctypes.c_char_p, _u32, _pointer, _u32, ctypes.POINTER(_u64), *_ANSWER)
_HOST_READ = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookRead), *_ANSWER)
_DEED = ctypes.CFUNCTYPE(None, ctypes.c_char_p, _pointer, _u32, ctypes.POINTER(_u64), *_ANSWER)
_UNORDERED = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookUnordered), *_ANSWER)
_HOST_ACCESS = ctypes.CFUNCTYPE(None, ctypes.POINTER(HookHostAccess), *_ANSWER)
_PLACE = ctypes.CFUNCTYPE(None, _pointer, _u64, *_ANSWER)
_GONE = ctypes.CFUNCTYPE(None, _u32, _u32, ctypes.c_char_p, *_ANSWER)
_UNLOAD = ctypes.CFUNCTYPE(None, _u64)
_INTERRUPT = ctypes.CFUNCTYPE(None)


class Hooks(ctypes.Structure):
    """Functions that the library calls, laid out as struct Hooks in driver/library."""

    _fields_ = (
        ("load", _LOAD),
        ("function", _FUNCTION),
        ("launch", _LAUNCH),
        ("occupancy", _OCCUPANCY),
        ("link", _LINK),
        ("variable", _VARIABLE),
        ("kernels", _KERNELS),
        ("encode", _ENCODE),
        ("host_call", _HOST_CALL),
        ("refused", _REFUSED),
        ("origin", _ORIGIN),
        ("host_read", _HOST_READ),
        ("deed", _DEED),
        ("unordered", _UNORDERED),
        ("host_access", _HOST_ACCESS),
        ("place", _PLACE),
        ("gone", _GONE),
        ("unload", _UNLOAD),
        ("fetched", _FETCHED),
        ("interrupt", _INTERRUPT),
    )


_MOST_ASSEMBLED_TOGETHER = 16
_TILE_LANGUAGE = re.compile(r"\.language\s+7\b")  # as tileiras marks its kernels


class _Loaded:
    """One module of a client: its program, with variables at addresses of their own, and facts of its kernels."""

    def __init__(self, program: Program, text: str):
        self.program, self.text = program, text
        self.repeats = program.module.by_llvm  # LLVM wrote it, as for Triton, whose threads repeat each other's work
        self.kernels: dict[bytes, tuple[PtxKernel, Any]] = {}
        # The latest counts of each kernel, and the seconds predicted from them.
        self.times: dict[bytes, tuple[tuple[object, ...], float]] = {}
        self.kept: list[Any] = []  # arrays that the library reads

        self._compiled: dict[str, CompiledKernel] = {}

    def text_of(self, name: str) -> str:
        """Return PTX from which to assemble a kernel; of a large module only that kernel, as all would take minutes."""
        module = self.program.module
        return self.text if len(module.entries) <= _MOST_ASSEMBLED_TOGETHER else module.source_of(name)

    def compiled(self, name: str) -> CompiledKernel:
        """Return a kernel, by its name in the PTX, as the workbench's own value."""
        if name not in self._compiled:
            self._compiled |= {kernel.name: kernel for kernel in kernels_of_ptx(self.text_of(name)).values()}
        return self._compiled[name]


class Machine:
    """Implementation of the hooks by the PTX machine.

    ``last_fault`` and ``last_report`` belong to the process's latest launches.
    """

    def __init__(self, library: ctypes.CDLL, facts: DeviceFacts, seconds_limit: float | None):
        self._library, self._facts, self._seconds_limit = library, facts, seconds_limit
        self._modules: dict[int, _Loaded] = {}
        self._memory: tuple[tuple[int, int], tuple[list[Row], list[tuple[int, int]]]] = (0, 0), ([], [])
        self._records = MemoryRecords(library)
        self.last_fault: Finding | None = None
        self.last_report: LaunchReport | None = None
        self._footprint: Any = None  # of the latest launch, if it lets a dependent one start
        library.workbench_driver_reserve.argtypes, library.workbench_driver_reserve.restype = [_u64], _u64
        library.workbench_driver_variable.argtypes = [_u64, _u64, _u64, _pointer]
        library.workbench_driver_latest_error.restype = ctypes.c_char_p
        library.workbench_driver_follow_writes.argtypes = [ctypes.c_int]
        library.workbench_driver_follow_writes.restype = None
        self._follows_writes = False
        self._heaps: dict[int, DeviceHeap] = {}
        self._thread = threading.local()
        self._order = OrderFindings(self._records.made)
        refusals = Refusals()
        watch = watched()
        self._follow_writes(watch is not None and watch.checks)
        if watch is not None and watch.late:
            library.workbench_driver_run_late(_u64(watch.first_schedule))
        library.workbench_driver_describe.argtypes = [_u64, ctypes.c_char_p, _u64]
        self.hooks = Hooks(
            _LOAD(_guarded(self._load)), _FUNCTION(_guarded(self._function)), _LAUNCH(_guarded(self._launch)),
            _OCCUPANCY(_guarded(self._occupancy)), _LINK(_guarded(self._link)), _VARIABLE(_guarded(self._variable)),
            _KERNELS(_guarded(self._kernels)), _ENCODE(_guarded(_encode)), _HOST_CALL(_guarded(self._host_call)),
            _REFUSED(_guarded(refusals.refused)), _ORIGIN(_guarded(self._records.origin)),
            _HOST_READ(_guarded(self._host_read)), _DEED(_guarded(self._order.deed)),
            _UNORDERED(_guarded(self._order.unordered)), _HOST_ACCESS(_guarded(self._order.host_access)),
            _PLACE(_guarded(write_place)), _GONE(_guarded(self._order.gone)), _UNLOAD(self._unload),
            _FETCHED(refusals.fetched),
            ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, _INTERRUPT),
        )  # fmt: skip

    def last_error(self) -> str | None:
        """Return the error message of the calling thread's latest failing call, or None."""
        return self._library.workbench_driver_latest_error().decode(errors="replace") or None

    def _load(self, number: int, image: bytes) -> None:
        text = image.decode(errors="replace")
        if ".version" not in text:
            raise _Failed(200, "the image is neither PTX nor another format that the simulated driver supports")
        program = Program(text, self._reserve)
        if not program.module.entries and not program.variables:
            raise _Failed(_INVALID_PTX, "the PTX has neither a kernel nor a variable")
        self._modules[number] = _Loaded(program, text)
        for _, address, storage in program.variable_buffers():
            if not self._library.workbench_driver_variable(number, address, storage.nbytes, storage.ctypes.data):
                raise MemoryError("the module's variables")

    def _follow_writes(self, follow: bool) -> None:
        """Make the driver mark written memory if launches are checked; other launches do not mark their writes."""
        if follow != self._follows_writes:
            self._follows_writes = follow
            self._library.workbench_driver_follow_writes(follow)

    def _reserve(self, size: int) -> int:
        address = self._library.workbench_driver_reserve(size)
        if not address:
            raise _Failed(_OUT_OF_MEMORY, "no addresses are left for the module's variables")
        return address

    def _function(self, number: int, name: bytes, out: Any) -> None:
        loaded = self._modules[number]
        kernel: PtxKernel = loaded.program[name.decode(errors="replace")]
        bytes_of_parameters = kernel.entry.parameter_bytes
        if bytes_of_parameters > MOST_PARAMETER_BYTES:
            raise _Failed(
                _INVALID_PTX, f"{kernel.name}: {bytes_of_parameters} bytes of parameters are more than CUDA allows"
            )
        count = len(kernel.parameters)
        offsets = (_u32 * count)(*[parameter.offset for parameter in kernel.parameters])
        sizes = (_u32 * count)(*[parameter.size for parameter in kernel.parameters])
        places, buffer_bytes = launch_buffer.offsets(kernel.parameters, self._facts.arch)
        in_buffer = (_u32 * count)(*places)
        loaded.kept += [offsets, sizes, in_buffer]
        if re.search(r"\.hidden\s", kernel.entry.declaration):
            raise _Failed(
                _NOT_SUPPORTED,
                f"{kernel.name} takes tensor maps that its compiler builds on the host, by machine code in its image, "
                "as a GPU reads them. Simulate a GPU without them: --model a100-sxm-80gb, or l4 for float8",
            )
        required = re.search(r"\.reqntid\s", kernel.entry.head)
        tile = (kernel.entry.cluster or (1, 1, 1)) if _TILE_LANGUAGE.search(kernel.entry.head) else (0, 0, 0)
        bound = math.prod(kernel.entry.max_threads or (0,))
        variables = loaded.program.module.variables.values()
        used = resources_of(loaded.text_of(kernel.name), self._facts.arch).get(kernel.name)
        out[0] = HookFunction(
            count, bytes_of_parameters, offsets, sizes, in_buffer, buffer_bytes,
            kernel.shared_bytes, kernel.decoded.local_bytes,
            sum(variable.size for variable in variables if variable.space == "const"), bound, bound if required else 0,
            used.registers if used else 0, _virtual_arch(loaded.program.module.target), int(self._facts.arch[3:]),
            (_u32 * 3)(*tile),
        )  # fmt: skip
        facts = SimpleNamespace(
            registers=used.registers if used else 0,
            spill_bytes=used.spill_bytes if used else 0,
            static_shared_bytes=kernel.shared_bytes,
            dynamic_shared_bytes=0,
        )
        loaded.kernels[name] = kernel, facts

    def _launch(self, pointer: Any) -> None:
        launch: HookLaunch = pointer.contents
        kernel, facts = self._modules[launch.module].kernels[launch.name]
        grid, block, shared = tuple(launch.grid), tuple(launch.block), launch.dynamic_shared
        if (watch := watched()) is not None and watch.idle is not None:
            watch.idle.append(kernel.name)
            return
        timed = bool(launch.timed)
        self._follow_writes(watch is not None and watch.checks)
        cluster = tuple(launch.cluster) if any(launch.cluster) else None
        repeats = watch is not None and watch.checks and self._modules[launch.module].repeats
        options = _options(self._seconds_limit, timed, bool(launch.cooperative), cluster, repeats, watch)
        if launch.programmatic and self._footprint is not None:
            options = replace(options, overlapped=self._footprint)
        try:
            parameters = ctypes.string_at(launch.parameters, launch.parameter_bytes)
            (rows, of_host), heap = self._allocations_of(launch), self._heap(launch, kernel)
            wanted = options.checks or (watch is not None and watch.seen is not None)
            extents = passed_extents(kernel.entry.parameters, parameters) if wanted else {}
            memory = LaunchMemory(rows, heap, kernel, parameters, self._records, extents, of_host)
            if self._follows_writes:
                place = python_place()
                self._records.use(memory, place)
                launch.deed = self._order.launch(
                    kernel, place, tuple(return_addresses(launch.frames, launch.frame_count))
                )
            bound = kernel.bind_packed(grid, block, parameters, memory, options, shared)
            if watch is not None and watch.seen is not None:
                passed = {at: one for at, (_, one) in passed_tensors(kernel.entry.parameters, parameters).items()}
                watch.see(self._modules[launch.module].compiled(kernel.name), bound, names_of(kernel), passed)
            report, _ = observed(bound, failed=[] if watch is None else [watch.failed])
        except KernelFault as fault:
            self.last_fault, message = self._told(fault)
            code = _FAULT_CODES.get(self.last_fault.kind, _LAUNCH_FAILED)
            raise _Failed(_TIMEOUT if isinstance(fault, KernelTimeout) else code, message) from fault
        self.last_report, self._footprint = report, report.footprint
        # Kept until the library has read them, after the hook.
        self._thread.accesses = report.accesses
        launch.accesses = ctypes.cast(ctypes.c_char_p(report.accesses), _pointer)
        launch.access_count = len(report.accesses) // ACCESS_BYTES
        self._records.wrote(report)
        if watch is not None:
            compiled = self._modules[launch.module].compiled(kernel.name)
            found = [replace(finding, message=finding.message + self._note(finding)) for finding in report.findings]
            notes = said_by_ptxas(compiled) if watch.checks and watch.is_new(compiled) else ()
            watch.keep(compiled, report, notes, model=device_model(self._facts.key), findings=found)
        launch.found = next((_FAULT_CODES[one.kind] for one in report.findings if one.kind in _FAULT_CODES), 0)
        if timed:
            launch.seconds = self._predicted(launch, kernel, facts, report)

    def _heap(self, launch: HookLaunch, kernel: PtxKernel) -> DeviceHeap | None:
        """Return the heap of a launch's context; the first kernel that calls malloc or free there creates it."""
        known = self._heaps.get(launch.context)
        if known is None:
            if not kernel.uses_heap:
                return None
            address = self._reserve(HEAP_SPAN * launch.heap_bytes)
            known = self._heaps[launch.context] = DeviceHeap(address, launch.heap_bytes)
        launch.heap_is_used = True
        return known

    def leaks(self) -> list[str]:
        """Return a line for each place in kernels whose blocks of the device heap were never freed."""
        return [line for heap in self._heaps.values() for line in heap.leaks()]

    def memory_notes(self) -> list[str]:
        """Return notes on memory that the host read, or launches left, unwritten, which may be intended."""
        return self._records.partly_written()

    def _host_read(self, pointer: Any) -> None:
        """Keep the finding on a read by the host of memory that was never written."""
        fault, watch = self._records.host_read(pointer.contents), watched()
        if fault is not None and watch is not None:
            watch.failed(fault)

    def _host_call(self, pointer: Any) -> None:
        """Record a call of cuBLAS or cuRAND, which launches no kernel here, and the fault that ended it."""
        told: HookCall = pointer.contents
        call = HostCall(told.name.decode(), told.shape.decode())
        watch = watched()
        if watch is not None:
            watch.called(call)
        why = told.why.decode(errors="replace")
        kind = why.partition(":")[0]
        if kind not in ("out-of-bounds", "uninitialised global read"):
            return
        made = self._records.made(told.address)
        message = f"{call}: {why}" + (f"; {made}" if made else "")
        finding = Finding(
            kind, message, call.name, block=(0, 0, 0), thread=(0, 0, 0), address=told.address, buffer=None, line=None,
            source="", other_line=None, other_source="", ptx_line=0, other_ptx_line=None, count=1,
        )  # fmt: skip
        if kind == "out-of-bounds":
            self.last_fault = finding
        if watch is not None:
            watch.failed(HostCallFault(message, finding))

    def _predicted(self, launch: HookLaunch, kernel: PtxKernel, facts: Any, report: LaunchReport) -> float:
        """Return the predicted seconds of a launch.

        A benchmark repeats a launch with equal counts; then the earlier prediction is returned.
        """
        from workbench.analysis.prediction.predict import predict

        block, grid = math.prod(launch.block), math.prod(launch.grid)
        counts = block, grid, launch.dynamic_shared, report.lines, report.buffers
        times = self._modules[launch.module].times
        known = times.get(launch.name)
        if known is None or known[0] != counts:
            assembled = self._assembled(launch.module, kernel.name, facts, launch.dynamic_shared)
            predicted = predict(report, assembled, block, grid, device_model(self._facts.key))
            known = times[launch.name] = counts, predicted.seconds
        return known[1]

    def _assembled(self, number: int, name: str, facts: Any, shared: int) -> Any:
        """Return the kernel with machine code, to predict its time; without an assembler only its known facts."""
        compiled = replace(self._modules[number].compiled(name), dynamic_shared_bytes=shared)
        try:
            compiled.registers  # noqa: B018
        except WorkbenchError:
            facts.dynamic_shared_bytes = shared
            return facts
        return compiled

    def _occupancy(self, number: int, name: bytes, threads: int, shared: int, out: Any) -> None:
        _, facts = self._modules[number].kernels[name]
        out[0] = occupancy(self._facts.arch, threads, facts.registers, facts.static_shared_bytes + shared).blocks_per_sm

    def _link(self, modules: Any, count: int, device_runtime: int, taker: int, put: Callable[..., int]) -> None:
        texts = [modules[number].decode(errors="replace") for number in range(count)]
        text = linked(texts, self._facts.arch, bool(device_runtime)).encode()
        if not put(taker, text, len(text)):
            raise MemoryError(f"{len(text)} bytes of linked PTX")

    def _kernels(self, number: int, taker: int, put: Callable[..., int]) -> None:
        for entry in self._modules[number].program.module.entries:
            name = entry.encode()
            if not put(taker, name, len(name)):
                raise MemoryError("the names of a library's kernels")

    def _allocations_of(self, launch: HookLaunch) -> tuple[list[Row], list[tuple[int, int]]]:
        """Return the allocations in the machine's form, and the ranges that the host may change while a launch runs.

        They are rebuilt only when an allocation was added or freed.
        """
        key = launch.generation, launch.buffers
        if self._memory[0] != key:
            raw = ctypes.string_at(launch.buffers, 40 * launch.buffer_count)
            table = np.frombuffer(raw, np.uint64).reshape(-1, 5).tolist()
            rows = [(address, size, host, True, marks) for address, size, host, marks, _ in table]
            of_host = [(row[0], row[0] + row[1]) for row in table if row[4]]
            self._memory = key, (rows, of_host)
        return self._memory[1]

    def _told(self, fault: KernelFault) -> tuple[Finding, str]:
        """Return a fault's finding and message, each with a note on freed memory and on memory of another device."""
        assert fault.finding is not None  # the machine's faults have one
        note = self._note(fault.finding)
        return replace(fault.finding, message=fault.finding.message + note), str(fault) + note

    def _note(self, finding: Finding) -> str:
        """Return the driver's note on a finding's address: it was freed, or is another device's; "" for another one."""
        text = ctypes.create_string_buffer(512)
        if finding.address and self._library.workbench_driver_describe(finding.address, text, len(text)):
            made = self._records.made(finding.address)
            return f"; {text.value.decode()}" + (f" ({made})" if made else "")
        return ""

    def _variable(self, number: int, name: bytes, out: Any) -> None:
        loaded = self._modules.get(number)
        known = name.decode(errors="replace")
        if loaded is None or known not in loaded.program.variables:
            raise _Failed(_NOT_FOUND, f"the module has no variable {known}")
        out[0] = loaded.program.global_address(known)

    def _unload(self, number: int) -> None:
        self._modules.pop(number, None)
        self._heaps.pop(number, None)


def _encode(pointer: Any) -> None:
    asked: HookTensorMap = pointer.contents
    if asked.interleave:
        raise _Failed(_NOT_SUPPORTED, "a tensor map with an interleaved layout, which the PTX machine does not support")
    packed = dict(enumerate(PACKED_ELEMENTS, len(DRIVER_ELEMENTS))).get(asked.type)
    if packed:
        raise _Failed(
            _NOT_SUPPORTED, f"a tensor map of {packed}, which the PTX machine does not support: copy bytes (UINT8)"
        )
    if asked.type >= len(DRIVER_ELEMENTS) or asked.swizzle >= len(DRIVER_SWIZZLES) or asked.fill > 1:
        raise _Failed(_INVALID_VALUE, "a tensor map with a type, swizzle or fill that the driver does not have")
    layout = DRIVER_SWIZZLES[asked.swizzle]
    if layout is None:
        raise _Failed(_NOT_SUPPORTED, "a swizzle with a flip of 8 bytes, which the PTX machine does not support")
    rank, (swizzle, atom) = asked.rank, layout
    encoded = TensorMap(
        DRIVER_ELEMENTS[asked.type], asked.address, asked.sizes[:rank], asked.strides[: rank - 1], asked.box[:rank],
        asked.steps[:rank], swizzle, "nan" if asked.fill else "zero", atom=atom,
    )  # fmt: skip
    ctypes.memmove(asked.out, bytes(encoded), TENSOR_MAP_BYTES)


class _Failed(Exception):
    """A hook's error: the code for the client, and the message."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``hook`` for the library, which calls it with its arguments and then those of ``_ANSWER``.

    The wrapper turns exceptions into a result code and an error text.
    """

    def call(*values: Any) -> None:
        *arguments, answer, why, room = values
        code, message = 0, ""
        try:
            try:
                hook(*arguments)
            except _Failed as failed:
                code, message = failed.code, str(failed)
            except UnknownNameError as error:
                code, message = _NOT_FOUND, str(error)
            except ArgumentError as error:
                code, message = _INVALID_VALUE, str(error)
            except UnsupportedInstructionError as error:
                code, message = _NOT_SUPPORTED, str(error)
            except MemoryError as error:
                code, message = _OUT_OF_MEMORY, str(error) or "the host has no memory left"
            except WorkbenchError as error:
                code, message = _INVALID_PTX, str(error)
            except KeyboardInterrupt:
                return
            except BaseException as error:
                traceback.print_exc()
                code, message = _UNKNOWN, f"{type(error).__name__}: {error}"
            words = message.encode()[: room - 1] + b"\0"
            ctypes.memmove(why, words, len(words))
            answer[0] = code
        except MemoryError:
            answer[0] = _OUT_OF_MEMORY
        except KeyboardInterrupt:
            return

    return call


@functools.lru_cache
def _options(
    seconds_limit: float | None, statistics: bool, cooperative: bool, cluster: tuple[int, ...] | None, repeats: bool,
    watch: Watch | None,
) -> LaunchOptions:  # fmt: skip
    """Return the options of a launch, made once for all launches with equal arguments."""
    options = LaunchOptions(
        seconds_limit=seconds_limit,
        statistics=statistics,
        cooperative=cooperative,
        cluster=cluster,
        repeats=repeats,
        accesses=watch is not None and watch.checks,
    )
    return options if watch is None else watch.options(options)


def _virtual_arch(target: str) -> int:
    """Return the number of the architecture that PTX was compiled for, such as 80."""
    found = re.search(r"sm_(\d+)", target)
    return int(found[1]) if found else 0
