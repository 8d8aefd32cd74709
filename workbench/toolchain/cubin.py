"""Reader of cubins: a kernel's encoded instructions, and the PTX line of each.

A cubin is an ELF file. ``ptxas -lineinfo`` stores the lines in ``.nv_debug_line_sass``, a line number program of DWARF
2 (section 6.2 of its standard); relocations tell to which kernel's section its addresses belong.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from workbench.errors import MachineCodeError

INSTRUCTION_BYTES = 16
_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_LINES = ".nv_debug_line_sass"
_NUM_BARRIERS, _SIZED = 0x4C, 4
"""Attribute EIATTR_NUM_BARRIERS in ``.nv.info``, and the form of attributes whose value is the size of what follows."""
_BARRIERS_AT = 20
"""Bit of a section's flags from which on seven have the number of barriers."""


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Turn the exceptions of reading damaged bytes into a MachineCodeError."""
    try:
        yield
    except (struct.error, ValueError, LookupError, ZeroDivisionError, OverflowError) as error:
        raise MachineCodeError(
            f"a cubin that cannot be read ({type(error).__name__}: {error}). Compile the kernel again; if it is "
            "cached, delete the folder $WORKBENCH_CACHE first."
        ) from error


class Cubin:
    """A cubin and its sections, parsed on demand; a damaged one raises MachineCodeError."""

    def __init__(self, data: bytes):
        self._data = data
        with _readable():
            (table,) = struct.unpack_from("<Q", data, 0x28)
            size, count, of_names = struct.unpack_from("<HHH", data, 0x3A)
            self._rows = [_SECTION.unpack_from(data, table + at * size) for at in range(count)]
            names = self._rows[of_names][4]
            self._names = [self._text(names + row[0]) for row in self._rows]

    def section(self, name: str) -> bytes:
        """Return the content of a section, empty if there is none of that name."""
        if name not in self._names:
            return b""
        *_, offset, size = self._rows[self._names.index(name)][:6]
        return self._data[offset : offset + size]

    def code(self, kernel: str) -> bytes:
        """Return the encoded instructions of a kernel, followed by the compiler's subroutines for it."""
        return self.section(f".text.{kernel}")

    def subroutines(self, kernel: str) -> dict[int, str]:
        """Return the names of the subroutines behind a kernel by their start in its code, in bytes."""
        found = {}
        with _readable():
            symbols = self._symbols
        for name, section, value in symbols:
            if section < len(self._names) and self._names[section] == f".text.{kernel}" and name.startswith("$"):
                found[value] = name
        return found

    def lines(self, kernel: str) -> list[int]:
        """Return the PTX line of each instruction of a kernel; 0 before the first that has one."""
        with _readable():
            rows = sorted(dict(self._line_rows(kernel)).items())
        places, named = [at for at, _ in rows], [0, *(line for _, line in rows)]
        count = len(self.code(kernel)) // INSTRUCTION_BYTES
        return [named[bisect_right(places, index * INSTRUCTION_BYTES)] for index in range(count)]

    def barriers(self, kernel: str) -> int:
        """Return the number of named barriers that a kernel uses, 16 if it names one by a register.

        CUDA 13's assembler writes it to ``.nv.info``, older ones to the flags of the code's section.
        """
        data, at = self.section(f".nv.info.{kernel}"), 0
        code = f".text.{kernel}"
        with _readable():
            while at < len(data):
                form, attribute, value = struct.unpack_from("<BBH", data, at)
                if attribute == _NUM_BARRIERS:
                    return value & 0xFF
                at += 4 + (value if form == _SIZED else 0)
        return self._rows[self._names.index(code)][2] >> _BARRIERS_AT & 0x7F if code in self._names else 0

    @cached_property
    def _symbols(self) -> list[tuple[str, int, int]]:
        """Name, section number and offset in the section of each symbol."""
        table = self._rows[self._names.index(".symtab")]
        names = self._rows[table[6]][4]
        rows = _SYMBOL.iter_unpack(self._data[table[4] : table[4] + table[5]])
        return [(self._text(names + row[0]), row[3], row[4]) for row in rows]

    def _line_rows(self, kernel: str) -> Iterator[tuple[int, int]]:
        """Yield (offset in the code in bytes, line) for every row of the line table that belongs to a kernel."""
        data, start = self.section(_LINES), 0
        of_kernel = {
            place
            for place, symbol in self._relocations(_LINES)
            if self._names[self._symbols[symbol][1]] == f".text.{kernel}"
        }
        while start < len(data):
            (length,) = struct.unpack_from("<I", data, start)
            yield from _unit(data, start, start + 4 + length, of_kernel)
            start += 4 + length

    def _relocations(self, section: str) -> Iterator[tuple[int, int]]:
        """Yield (offset, symbol number) for each relocation of a section; its addend, from sm_90 on, is 0 here."""
        for name, row in ((f".rel{section}", "<QQ"), (f".rela{section}", "<QQq")):
            for place, info, *_ in struct.iter_unpack(row, self.section(name)):
                yield place, info >> 32

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode()


def _unit(data: bytes, start: int, end: int, of_kernel: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the rows of one line number program; ``of_kernel`` are the offsets of the addresses to keep."""
    (header,) = struct.unpack_from("<I", data, start + 6)
    step, _, base, span, first = struct.unpack_from("<BBbBB", data, start + 10)
    operands = data[start + 15 : start + 14 + first]
    at, address, line, counts = start + 10 + header, 0, 1, False
    while at < end:
        code = data[at]
        at += 1
        if code >= first:
            address += (code - first) // span * step
            line += base + (code - first) % span
            if counts:
                yield address, line
        elif code == 0:  # extended
            length, at = _number(data, at)
            if data[at] == 1:  # the end of a sequence
                address, line, counts = 0, 1, False
            elif data[at] == 2:
                (address,) = struct.unpack_from("<Q", data, at + 1)
                counts = at + 1 in of_kernel
            at += length
        elif code == 1:
            if counts:
                yield address, line
        elif code == 2:
            more, at = _number(data, at)
            address += more * step
        elif code == 3:
            more, at = _number(data, at, signed=True)
            line += more
        elif code == 8:
            address += (255 - first) // span * step
        elif code == 9:
            address += int.from_bytes(data[at : at + 2], "little")
            at += 2
        else:
            for _ in range(operands[code - 1]):
                _, at = _number(data, at)


def _number(data: bytes, at: int, *, signed: bool = False) -> tuple[int, int]:
    """Decode a number of variable length (LEB128); return it and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value - (1 << shift) if signed and byte & 64 else value), at
