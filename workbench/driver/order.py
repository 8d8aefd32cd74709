"""Findings on operations that nothing orders, and on memory that the host accesses before an operation on it has ended.

The clocks are in library/order.cpp; here are the names and lines of operations, by the numbers that the library keeps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.analysis.places import HostPlace, source_text
from workbench.analysis.watching import watched
from workbench.driver.host_places import native_place, python_place, return_addresses
from workbench.errors import HostCallFault
from workbench.ptx.decode import readable
from workbench.ptx.report import Finding

if TYPE_CHECKING:
    from workbench.ptx import PtxKernel

ACCESS_BYTES = 24
_MOST_DEVICES = 16  # numbers below are those of the devices' default streams
UNORDERED, REUSED, HOST_ACCESS = "unordered accesses", "memory reused too early", "host access too early"
GONE = "memory of a graph is gone"
_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64


class HookSide(ctypes.Structure):
    """One of two operations that nothing orders."""

    _fields_ = (("what", _u32), ("writes", _u32), ("stream", _u64), ("pc", ctypes.c_int64))


class HookUnordered(ctypes.Structure):
    """Two operations on the same bytes; an allocator took these back in between if ``freed``."""

    _fields_ = (("earlier", HookSide), ("later", HookSide), ("address", _u64), ("bytes", _u64), ("freed", _u32))


class HookHostAccess(ctypes.Structure):
    """An access of the host to memory that an operation may still use."""

    _fields_ = (
        ("side", HookSide), ("address", _u64), ("offset", _u64), ("bytes", _u64), ("managed", _u32), ("writes", _u32),
        ("frames", ctypes.c_void_p), ("frame_count", _u32),
    )  # fmt: skip


class _Deed(NamedTuple):
    """An operation's name, the line of Python or the calls that enqueued it, and its kernel, if it is a launch."""

    name: str
    place: HostPlace | tuple[int, ...] | None
    kernel: PtxKernel | None = None

    @property
    def line(self) -> HostPlace | None:
        """The line that enqueued the operation."""
        if self.place is None or isinstance(self.place, HostPlace):
            return self.place
        return native_place(self.place, self.name)

    def kernel_line(self, pc: int) -> HostPlace | None:
        """Return the line of the kernel with an instruction."""
        if self.kernel is None or pc < 0:
            return None
        file, line = self.kernel.source_of(pc, in_kernel_file=True)
        return HostPlace(file, line) if line else None


class OrderFindings:
    """Implementation of the hooks ``deed``, ``unordered``, ``host_access`` and ``gone``.

    ``made`` returns the origin of the memory at an address.
    """

    def __init__(self, made: Callable[[int], str]) -> None:
        self._made = made
        self._deeds: list[_Deed] = [_Deed("an operation", None)]
        self._numbers: dict[object, int] = {}

    def deed(self, name: bytes, frames: Any, count: int, number: Any) -> None:
        """Write the number of an operation, unless it has no line."""
        place = python_place() or tuple(return_addresses(frames, count))
        if place:
            number[0] = self._number((name, place), lambda: _Deed(_called(name.decode()), place))

    def launch(self, kernel: PtxKernel, place: HostPlace | None, frames: tuple[int, ...] = ()) -> int:
        """Return the number of a launch."""
        at = place or frames or None
        return self._number((kernel, at), lambda: _Deed(readable(kernel.name), at, kernel))

    def _number(self, key: object, made: Callable[[], _Deed]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._deeds)
            self._deeds.append(made())
        return number

    def unordered(self, pointer: Any) -> None:
        """Keep the finding on two operations that nothing orders."""
        found: HookUnordered = pointer.contents
        earlier, later = self._deeds[found.earlier.what], self._deeds[found.later.what]
        made = self._made(found.address)
        bytes_of = f"{found.bytes:,} bytes" + (f" of memory ({made})" if made else "")
        here, there = _stream(found.later.stream), _stream(found.earlier.stream)
        this, other = _side(later, found.later), _side(earlier, found.earlier)
        does, did = f"{_does(found.later)} {bytes_of}", f"{_does(found.earlier)} it"
        kind = REUSED if found.freed else UNORDERED
        if found.freed:
            text = (
                f"{this} on {here} {does} that was freed and handed out again, while {other} on {there}, which {did}, "
                "may still run. Call record_stream() of the tensor with that stream before it is freed, or let "
                f"{here} wait for {there} (wait_stream)"
            )
        elif here == there:
            text = (
                f"{this} {does}, and {other} in another branch of the same graph {did}; nothing orders the two. Add a "
                "dependency between the nodes, or let one captured stream wait for the other (wait_stream, "
                "cudaStreamWaitEvent)"
            )
        else:
            text = (
                f"{this} on {here} {does}, and {other} on {there} {did}; nothing orders the two. Let {here} wait for "
                f"{there}: stream.wait_stream(other), or an event that is recorded after the first and waited for "
                "before the second (wait_event, cudaStreamWaitEvent); or synchronize in between"
            )
        self._keep(kind, text, found.address, later, found.later, earlier, found.earlier)

    def host_access(self, pointer: Any) -> None:
        """Keep the finding on an access of the host."""
        found: HookHostAccess = pointer.contents
        deed, frames = self._deeds[found.side.what], tuple(return_addresses(found.frames, found.frame_count))
        host = _Deed("the host", python_place() or frames)
        memory = "managed" if found.managed else "page-locked"
        does = "writes" if found.writes else "reads"
        text = (
            f"the host {does} byte {found.offset:,} of {found.bytes:,} bytes of {memory} memory, while "
            f"{_side(deed, found.side)} on {_stream(found.side.stream)}, which {_does(found.side)} it, may still run. "
            "Synchronize that stream, or an event recorded after the operation, before the host uses the memory "
            "(event.synchronize(), cudaStreamSynchronize)"
        )
        self._keep(HOST_ACCESS, text, found.address, host, None, deed, found.side)

    def gone(self, recorded: int, launch: int, what: bytes) -> None:
        """Keep the finding on an operation of a graph whose memory is gone."""
        deed, later = self._deeds[recorded], self._deeds[launch]
        at = f" (recorded at {deed.line})" if deed.line is not None else ""
        text = (
            f"the graph runs {deed.name}{at}: {what.decode()}. Keep the memory as long as the graph, or change the "
            "node (cudaGraphExecMemcpyNodeSetParams)"
        )
        self._keep(GONE, text, 0, later, None, deed, HookSide(pc=-1))

    def _keep(
        self, kind: str, text: str, address: int, later: _Deed, side: HookSide | None, earlier: _Deed, other: HookSide
    ) -> None:  # fmt: skip
        watch = watched()
        if watch is None:
            return
        here, there = later.line, earlier.line
        of_kernels = [later.kernel_line(side.pc) if side is not None else None, earlier.kernel_line(other.pc)]
        places = dict.fromkeys(one for one in (here, there, *of_kernels) if one is not None)
        shown = [(one, source_text(one.file, one.line, nowhere="").strip()) for one in places]
        message = "\n".join(
            [f"{here}: {kind}: {text}" if here else f"{kind}: {text}", *(f"      {one}  {line}" for one, line in shown)]
        )
        kernel = earlier.name if later.kernel is None else later.name
        file, line = ("", None) if here is None else (here.file, here.line)
        other_file, other_line = ("", None) if there is None else (there.file, there.line)
        finding = Finding(
            kind, f"{kind}: {text}", kernel, block=(0, 0, 0), thread=(0, 0, 0), address=address, buffer=None, line=line,
            source=file, other_line=other_line, other_source=other_file, ptx_line=0, other_ptx_line=None, count=1,
        )  # fmt: skip
        watch.failed(HostCallFault(message, finding))


def _called(name: str) -> str:
    return f"torch's {name.removeprefix('aten::').rstrip('_')}" if name.startswith("aten::") else name


def _side(deed: _Deed, side: HookSide) -> str:
    kernel, line = deed.kernel_line(side.pc), deed.line
    at = [f"line {kernel}"] if kernel is not None else []
    verb = "launched" if deed.kernel is not None else "enqueued"
    at += [f"{verb} at {line}"] if line is not None else []
    return deed.name + (f" ({', '.join(at)})" if at else "")


def _does(side: HookSide) -> str:
    return "writes" if side.writes else "reads"


def _stream(number: int) -> str:
    if number < _MOST_DEVICES:
        return f"the default stream of device {number}" if number else "the default stream"
    return f"stream {number:#x}"
