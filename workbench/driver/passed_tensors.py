"""Tensors that a launch gets as arguments, of which the driver only sees the addresses.

A client that knows the tensors names them around the launch. Where a checked launch gets the address of one, the kernel
may touch what the tensor spans, not all of the allocation that it is a view of.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from workbench.analysis.watching import watched
from workbench.driver.records import recording
from workbench.ptx.buffers import described, span_of
from workbench.ptx.extents import Extent

if TYPE_CHECKING:
    from workbench.ptx.parse import Parameter

_passed = threading.local()


@contextmanager
def passing(arguments: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Name the arguments of the launches within the block, among them tensors."""
    watch = watched()
    before = getattr(_passed, "tensors", ())
    wanted = watch is not None and watch.names_arrays
    if wanted or recording.is_recorded():
        tensors = [(name, one) for name, one in _flat(arguments) if hasattr(one, "untyped_storage")]
        if wanted:
            _passed.tensors = tensors
        if recording.is_recorded():
            recording.log_passed(tensors)
    try:
        yield
    finally:
        _passed.tensors = before


def passed_extents(parameters: Sequence[Parameter], packed: bytes) -> dict[int, Extent]:
    """Return the extents of the arguments of a launch that are addresses of named tensors, by position.

    Of several tensors at one address the largest counts.
    """
    return {
        position: Extent(name, low, high - low, text=described(tensor), filled=filled)
        for position, (name, tensor) in passed_tensors(parameters, packed).items()
        for low, high, filled in [span_of(tensor)]
    }


def passed_tensors(parameters: Sequence[Parameter], packed: bytes) -> dict[int, tuple[str, Any]]:
    """Return name and tensor of the arguments that are addresses of named tensors, by position, the largest there."""
    found: dict[int, tuple[str, Any]] = {}
    sizes: dict[int, int] = {}
    for name, tensor in getattr(_passed, "tensors", ()):
        address = tensor.data_ptr()
        for position, parameter in enumerate(parameters):
            if parameter.size != 8 or struct.unpack_from("<Q", packed, parameter.offset)[0] != address:
                continue
            low, high, _ = span_of(tensor)
            if position not in found or high - low > sizes[position]:
                found[position], sizes[position] = (name, tensor), high - low
    return found


def _flat(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments, those in tuples one by one, and the tensors that Triton's wrappers have as their base."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from _flat((f"{name}[{at}]", one) for at, one in enumerate(value))
            continue
        while not hasattr(value, "untyped_storage") and hasattr(value, "base"):
            value = value.base
        yield name, value
