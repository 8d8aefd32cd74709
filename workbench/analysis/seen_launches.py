"""Launches as a proof needs them: the kernel, its grid and block, its numbers, and how large its arrays are."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.base.element_types import PTX_FLOAT_LETTERS

if TYPE_CHECKING:
    from workbench.ptx.launch import MachineLaunch
    from workbench.ptx.parse import Parameter
    from workbench.toolchain import CompiledKernel

MOST_OF_A_KERNEL = 16
"""Different launches that are kept of one kernel; of further ones only the number."""

ALIGNMENT = 16
"""Bytes of whose multiples it matters whether an array begins there."""

MOST_CONTENT = 1 << 16
"""Bytes of the largest array whose content is kept."""

RESERVED = frozenset({"cdiv", "min", "max", "next_power_of_2", "v", "i", "distinct"})
"""Names that mean something else in the formulas and facts of a proof."""

Dimensions = tuple[int, int, int]
Content = bytes


@dataclass(frozen=True)
class PassedArray:
    """Memory whose address a launch got: its bytes from there on, and its dtype and shape where they are known.

    ``content`` is what a small array held before the launch; None if that is not known.
    """

    address: int
    bytes: int
    dtype: str = ""
    shape: tuple[int, ...] = ()
    content: Content | None = field(default=None, compare=False, repr=False)


PassedValue = int | float | bytes | PassedArray | None
"""A value of a launch: memory is a `PassedArray`, a null pointer None; what is no number either are its bytes."""


@dataclass(frozen=True)
class SeenLaunch:
    """One launch without its large data. ``values`` are those of the kernel's parameters, in order."""

    kernel: CompiledKernel
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    values: tuple[PassedValue, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Key that launches share which differ in places of memory and in numbers that are not whole."""
        shown = [one if isinstance(one, int | None) else _shape_of(one) for one in self.values]
        return self.kernel.key, self.grid, self.block, self.shared_bytes, self.arrangement, *shown

    @property
    def arrangement(self) -> tuple[object, ...]:
        """Kinds of the values, and pairs of arrays with common memory and the bytes from one to the other."""
        kinds = (one.dtype if isinstance(one, PassedArray) else type(one) for one in self.values)
        arrays = [(at, one) for at, one in enumerate(self.values) if isinstance(one, PassedArray)]
        overlaps = (
            (at, to, other.address - one.address)
            for (at, one), (to, other) in itertools.combinations(arrays, 2)
            if one.address < other.address + other.bytes and other.address < one.address + one.bytes
        )
        return *kinds, *overlaps


def _shape_of(value: float | bytes | PassedArray) -> tuple[object, ...]:
    if not isinstance(value, PassedArray):
        return ()
    return value.bytes, value.dtype, value.shape, value.address % ALIGNMENT


class SeenLaunches:
    """Different launches of a process, of each kernel the first `MOST_OF_A_KERNEL`; several threads may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], SeenLaunch] = {}
        self._counts: dict[str, int] = {}

    def add(self, launch: SeenLaunch) -> bool:
        """Keep a launch, unless one like it is known, or enough of its kernel; return True if it is kept."""
        with self._lock:
            key, kernel = launch.key, launch.kernel.key
            if key in self._known or self._counts.get(kernel, 0) >= MOST_OF_A_KERNEL:
                return False
            self._counts[kernel] = self._counts.get(kernel, 0) + 1
            self._known[key] = launch
            return True

    def take(self) -> list[SeenLaunch]:
        """Return the launches kept so far, and start anew."""
        with self._lock:
            taken, self._known, self._counts = [*self._known.values()], {}, {}
        return taken

    def __iter__(self) -> Iterator[SeenLaunch]:
        return iter([*self._known.values()])

    def __len__(self) -> int:
        return len(self._known)


def seen(
    kernel: CompiledKernel, launch: MachineLaunch, names: Sequence[str] = (), arrays: Mapping[int, Any] | None = None
) -> SeenLaunch:
    """Return a bound launch as one to prove; ``kernel`` is as its compiler made it.

    ``names`` are the source's names of the parameters, ``arrays`` tensors at their positions, where they are known.
    """
    known = {at: one for at, one in enumerate(launch.values) if hasattr(one, "shape")} | dict(arrays or {})
    parameters = launch.runner.parameters
    rows = sorted(launch.memory.rows)
    extents = launch.memory.extents
    values = [
        _value(one, launch.parameters, rows, known.get(at), extents[at].size if at in extents else None)
        for at, one in enumerate(parameters)
    ]
    named = names if len(names) == len(parameters) else [one.name for one in kernel.parameters]
    made = replace(kernel, parameters=named_parameters(kernel.parameters, named), assembly=None)
    made, shared = with_triton(made, launch.runner.module.by_llvm, launch.block, launch.shared_bytes)
    return SeenLaunch(made, launch.grid, launch.block, shared, tuple(values))


def with_triton(
    kernel: CompiledKernel, by_llvm: bool, block: Sequence[int], shared_bytes: int
) -> tuple[CompiledKernel, int]:
    """Return a kernel as Triton's if LLVM wrote its PTX, and the dynamic shared memory that is not the kernel's own."""
    if kernel.language != "triton" and by_llvm:  # a driver sees only the PTX
        threads, shared = math.prod(block), kernel.shared_bytes + shared_bytes
        kernel = replace(
            kernel, language="triton", threads_per_block=threads, shared_bytes=shared, dynamic_shared_bytes=shared_bytes
        )
    own = kernel.dynamic_shared_bytes if kernel.language == "triton" else 0
    return kernel, max(shared_bytes - own, 0)


def _value(one: Parameter, packed: bytes, rows: Sequence[tuple[Any, ...]], array: Any, size: int | None) -> PassedValue:
    content = packed[one.offset : one.offset + one.size]
    if letter := PTX_FLOAT_LETTERS.get(one.type):
        number: float = struct.unpack(f"<{letter}", content)[0]
        return number
    if one.type[0] not in "usb" or one.type == "b8" or one.size not in (1, 2, 4, 8):
        return content
    if one.size == 8:
        [address] = struct.unpack("<Q", content)
        if address == 0 and one.pointer:
            return None
        at = bisect_right(rows, address, key=lambda row: row[0]) - 1
        if at >= 0 and address < rows[at][0] + max(rows[at][1], 1):
            behind = rows[at][0] + rows[at][1] - address
            found = _array(address, behind if size is None else size, array)
            if not 0 < found.bytes <= min(behind, MOST_CONTENT):
                return found
            return replace(found, content=ctypes.string_at(rows[at][2] + address - rows[at][0], found.bytes))
    return int.from_bytes(content, "little", signed=True)


def _array(address: int, size: int, array: Any) -> PassedArray:
    if array is None:
        return PassedArray(address, size)
    dtype, shape = str(array.dtype).rpartition(".")[2], tuple(map(int, array.shape))
    whole = array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous
    return PassedArray(
        address, math.prod(shape) * array.dtype.itemsize if whole else size, dtype, shape if whole else ()
    )


def named_parameters(parameters: Sequence[Parameter], names: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters with names that formulas can have, each once."""
    found: list[Parameter] = []
    taken: set[str] = set()
    for at, (one, name) in enumerate(zip(parameters, names, strict=True)):
        good = name.isidentifier() and name not in taken | RESERVED
        chosen = name if good else f"p{at}"
        taken.add(chosen)
        found.append(replace(one, name=chosen, scratch=one.scratch or name.endswith("scratch memory")))
    return tuple(found)
