"""Names of the source for places in shared memory, and the scope of a problem: grid, block or warp."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from workbench.ptx.decode import short_name

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

Scope = Literal["grid", "block", "warp"]
SCOPES: tuple[Scope, ...] = ("grid", "block", "warp")
_OF_WARP = (
    "absent lane", "mismatched mask", "warp race", "undefined shuffle value", "read ordered by a shuffle alone",
)  # fmt: skip
_OF_BLOCK = (
    "shared race", "uninitialised shared read", "cp.async data read before wait", "divergent barrier", "barrier misuse",
    "mbarrier misuse", "write to shared memory that is being read", "missing fence.proxy.async",
    "arrivals that nobody waits for", "barrier at several places", "replicas that differ",
)  # fmt: skip
_MBARRIER = re.compile(r"the mbarrier at offset (\d+)")
_EXPECTED = re.compile(r"expects (-?\d+) bytes, of which (-?\d+) come")
_BYTES = 8  # size of an mbarrier
_MOST_BARRIERS = 64  # in an array; a larger variable is a struct with mbarriers in it


def scope_of(kind: str, thread: int, other_thread: int, other_block: int) -> Scope:
    """Return the scope of a problem: the grid, one block or one warp. A thread is its index, -1 for none."""
    if other_block >= 0:
        return "grid"
    if other_thread >= 0 and kind not in _OF_WARP:
        return "warp" if thread // 32 == other_thread // 32 else "block"
    return "warp" if kind in _OF_WARP else "block" if kind in _OF_BLOCK else "grid"


def shared_variable(kernel: DecodedKernel, address: int) -> tuple[str, int, int] | None:
    """Return the source's name, the start and the bytes of the shared variable at an offset; None if there is none.

    The bytes are 0 for dynamic shared memory.
    """
    decoded = kernel.decoded
    if address >= decoded.static_shared:
        declared = kernel.module.variables.values()
        dynamic = [one.name for one in declared if one.space == "shared" and one.external]
        return (short_name(dynamic[0]), decoded.static_shared, 0) if len(dynamic) == 1 else None
    begins = [begin for begin in decoded.shared_variables if begin <= address]
    if not begins:
        return None
    begin = max(begins)
    if address >= begin + decoded.shared_sizes[begin]:
        return None
    return short_name(decoded.shared_variables[begin]), begin, decoded.shared_sizes[begin]


def shared_place(kernel: DecodedKernel, address: int) -> tuple[str | None, str]:
    """Return the name of the variable at an offset of shared memory, and a description of the place."""
    found, where = shared_variable(kernel, address), f"offset {address} of shared memory"
    if found is None:
        return None, where
    name, begin, size = found
    return name, f"{where}, byte {address - begin} of {name}" + (f", which has {size} bytes" if size else "")


def signed_offset(offset: int) -> int:
    """Return an offset of shared memory as a signed number: addresses in it have 32 bits, or 56 in its window."""
    for bits in (32, 56):
        if 0 <= offset - (1 << bits - 1) < 1 << bits - 1:
            return offset - (1 << bits)
    return offset


def mbarrier_name(kernel: DecodedKernel, address: int) -> str | None:
    """Return the source's name of the mbarrier at an offset; None if no variable is known there.

    It is ``full[1]`` in an array, ``storage+1,024`` within a struct.
    """
    found = shared_variable(kernel, address)
    if found is None:
        return None
    name, begin, size = found
    if size == _BYTES:
        return name
    offset = address - begin
    if size and size % _BYTES == 0 and size <= _MOST_BARRIERS * _BYTES and offset % _BYTES == 0:
        return f"{name}[{offset // _BYTES}]"
    return f"{name}+{offset:,}" if offset else name


def with_mbarrier_names(kernel: DecodedKernel, text: str) -> str:
    """Add the names of mbarriers to a text of the core, which has only their offsets."""
    text = _MBARRIER.sub(
        lambda at: f"the mbarrier {mbarrier_name(kernel, int(at[1])) or ''} at offset {at[1]}".replace("  ", " "), text
    )
    return _EXPECTED.sub(_missing, text)


def _missing(found: re.Match[str]) -> str:
    expected, coming = int(found[1]), int(found[2])
    return f"{found[0]}, {abs(expected - coming)} too {'few' if expected > coming else 'many'}"
