"""Matrix descriptors of ``wgmma``: how kernels compute them from addresses, and which bytes they mean.

The address of a shared array is ``align`` times an atom, so that what compilers do with its bits stays a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from workbench.proof.memory import is_pointer
from workbench.proof.terms import Term, term
from workbench.proof.thread import Thread

WINDOW = 1 << 18
"""Bytes of shared memory that a descriptor reaches."""
_UNIT, _FIELD, _ADDRESS_FIELD = 16, 1 << 14, 1 << 16
_DYNAMIC_ALIGN = 1024
_WIDTHS = (1, 8, 4, 2)
"""16-byte chunks in a row of each layout: without a swizzle, and swizzled by 128, 64 and 32 bytes."""
_GAP = 128
"""Bytes between two parts of a matrix that count as read as well: where a swizzle moves others."""


class Layout(NamedTuple):
    """A matrix in shared memory: ``start`` is its offset in an array, ``leading`` and ``stride`` bytes."""

    base: str
    start: Term
    leading: int
    stride: int
    width: int


def alignment(thread: Thread, base: str) -> int:
    """Return the multiple that the address of a shared array is; dynamic memory alone begins at one of 1,024."""
    known = thread.graph.variables
    variable = known.get(base.removeprefix("%"))
    if variable is None or variable.space != "shared":
        return 1
    alone = all(one.external for one in known.values() if one.space == "shared")
    return max(variable.align, _DYNAMIC_ALIGN) if variable.external and alone else variable.align


def _pointer(thread: Thread, value: Term) -> tuple[str, Term, int] | None:
    """Return the shared array, the offset and the alignment of an address."""
    keys = [key for key in value.parts if is_pointer(Term({key: 1}))]
    if len(keys) != 1 or len(keys[0]) != 1 or value.parts[keys[0]] != 1 or keys[0][0].kind != "pointer":
        return None
    base, offset = keys[0][0].name, value - Term({keys[0]: 1})
    generic = any(atom.kind == "window" for atom in offset.deps)
    align = alignment(thread, base)
    return (base, offset, align) if align > 1 and not generic else None


def is_address(value: Term) -> bool:
    """Return True for a term with a part of a shared array's address."""
    return any(len(key) == 1 and key[0].kind == "address" for key in value.parts)


def bits_of_address(thread: Thread, value: Term, start: int, length: int) -> Term | None:
    """Return some bits of an address or of a descriptor's field for one: all that are not 0, shifted; else None."""
    found = _pointer(thread, value)
    if found is not None:
        base, offset, align = found
        unit = 1 << start
        if align % unit or any(factor % unit for factor in offset.parts.values()) or start + length < 18:
            return None
        if not start:
            return value
        atom = thread.specification.arena.atom("address", base, (), 0, WINDOW // align - 1)
        return atom * (align // unit) + Term({key: factor // unit for key, factor in offset.parts.items()})
    return value if is_address(value) and not start and length >= 14 else None


def masked_address(thread: Thread, value: Term, mask: int) -> Term | None:
    """Return an address, or a descriptor's field for one, under a mask of ones with zeros below; else None."""
    low = (mask & -mask).bit_length() - 1
    length = mask.bit_length() - low
    if mask <= 0 or mask >> low != (1 << length) - 1:
        return None
    found = _pointer(thread, value)
    parts = value if found is None else found[1]
    if any(factor % (1 << low) for factor in parts.parts.values()) or (found is not None and found[2] % (1 << low)):
        return None
    if found is not None:
        return value if low + length >= 18 else None
    return value if is_address(value) and low + length >= 14 else None


def with_bits(value: Term, bits: int) -> Term | None:
    """Return a descriptor's field for an address with other fields, or bits that are 0 in it, set; else None."""
    low = bits % _ADDRESS_FIELD
    least, most = value.bounds
    if not is_address(value) or least is None or most is None or least < 0 or most + low >= _ADDRESS_FIELD:
        return None
    unit = 1 << low.bit_length()
    return value + bits if all(factor % unit == 0 for factor in value.parts.values()) else None


def layout_of(thread: Thread, value: object) -> Layout | None:
    """Return the layout of a descriptor; None if it is not known."""
    if not isinstance(value, Term):
        return None
    keys = [key for key in value.parts if len(key) == 1 and key[0].kind == "address"]
    if len(keys) != 1:
        return None
    base = keys[0][0].name
    align = alignment(thread, base)
    bits = value.parts.get((), 0) % (1 << 64)
    if value.parts[keys[0]] != align // _UNIT or bits % _ADDRESS_FIELD >= _FIELD:
        return None
    mode, leading, stride = bits >> 62, bits >> 16 & _FIELD - 1, bits >> 32 & _FIELD - 1
    if mode and bits >> 49 & 7:
        return None  # a base offset
    rest = Term({key: factor for key, factor in value.parts.items() if key and key not in keys})
    start = (rest + bits % _ADDRESS_FIELD) * _UNIT
    span = _UNIT * _WIDTHS[mode]
    if align % span or any(factor % span for factor in (rest * _UNIT).parts.values()):
        return None
    return Layout(base, start, leading * _UNIT, stride * _UNIT, _WIDTHS[mode])


def read_by_product(layout: Layout, rows: int, transposed: bool) -> list[tuple[Term, int]]:
    """Return the offsets and the widths of what a product reads of a matrix: ``rows`` rows of 32 bytes along K.

    With a swizzle whole rows of its pattern count, in which it moves chunks.
    """
    span = _UNIT * layout.width
    first = layout.start.parts.get((), 0)
    moving = layout.start - first
    places = sorted({(first + one) // span * span for one in _chunks(layout, rows, transposed)})
    found: list[tuple[int, int]] = []
    for place in places:
        if found and place - found[-1][1] <= (_GAP if layout.width > 1 else 0):
            found[-1] = (found[-1][0], place + span)
        else:
            found.append((place, place + span))
    return [(moving + term(begin), end - begin) for begin, end in found]


def _chunks(layout: Layout, rows: int, transposed: bool) -> Iterator[int]:
    width = layout.width
    if not transposed:
        for row in range(rows):
            for chunk in range(2):
                further = _UNIT if width > 1 else layout.leading
                yield row // 8 * layout.stride + row % 8 * _UNIT * width + chunk * further
        return
    for k in range(16):
        for chunk in range(rows // 8):
            if width == 1:
                yield chunk * layout.stride + k % 8 * _UNIT + k // 8 * layout.leading
            else:
                place = _UNIT * (chunk % width + k % 8 * width)
                yield place + chunk // width * layout.leading + k // 8 * layout.stride
