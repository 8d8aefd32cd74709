"""The rows on the pages of an SQLite file, whatever is left of its trees: the way of SQLite's ``.recover``.

A leaf of a table's tree says by itself what it holds (https://www.sqlite.org/fileformat2.html, sections 1.6, 2.1 and
4), so that its rows can be read although the way to it is lost. Nothing is taken on trust: who reads judges the rows.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

_FILE_HEADER, _LEAF = 100, 13
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_LONGEST_ROW = 1 << 24

Value = int | float | str | bytes | None


def rows_on_pages(path: Path) -> Iterator[list[Value]]:
    """The values of every row of every table that its leaves still hold, in the order of the pages; damaged ones are
    left out. Pages that the write-ahead log has are read there."""
    content = path.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    size = 1 << 16 if size == 1 else size
    if size < 512:
        return
    pages = {at // size + 1: content[at : at + size] for at in range(0, len(content) - size + 1, size)}
    pages |= _logged(path.with_name(f"{path.name}-wal"), size)
    usable = size - content[20]
    for number, page in sorted(pages.items()):
        start = _FILE_HEADER if number == 1 else 0
        if page[start] != _LEAF:
            continue
        (count,) = struct.unpack_from(">H", page, start + 3)
        for index in range(min(count, (usable - start - 8) // 2)):
            (at,) = struct.unpack_from(">H", page, start + 8 + 2 * index)
            with contextlib.suppress(ValueError, IndexError, KeyError, UnicodeDecodeError, struct.error):
                yield _values(_payload(pages, page, at, usable))


def _logged(path: Path, size: int) -> dict[int, bytes]:
    """The committed pages of a write-ahead log."""
    content = path.read_bytes() if path.is_file() else b""
    if len(content) < _WAL_HEADER or struct.unpack_from(">I", content)[0] not in _WAL_MAGIC:
        return {}
    salts = content[16:24]
    found: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    for at in range(_WAL_HEADER, len(content) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        number, commit = struct.unpack_from(">II", content, at)
        if content[at + 8 : at + 16] != salts:
            break
        pending[number] = content[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        if commit:
            found |= pending
            pending = {}
    return found


def _payload(pages: dict[int, bytes], page: bytes, at: int, usable: int) -> bytes:
    """The record of the cell at ``at``, with what of it lies on overflow pages."""
    length, at = _varint(page, at)
    _, at = _varint(page, at)  # the row's number
    if length > _LONGEST_ROW:
        raise ValueError(length)
    local, most = length, usable - 35
    if length > most:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
    found = bytearray(page[at : at + local])
    following = int.from_bytes(page[at + local : at + local + 4], "big") if local < length else 0
    while len(found) < length:
        overflow = pages[following]
        found += overflow[4 : 4 + min(length - len(found), usable - 4)]
        following = int.from_bytes(overflow[:4], "big")
    return bytes(found)


def _values(record: bytes) -> list[Value]:
    """The columns of a record."""
    end, at = _varint(record, 0)
    body, values = end, list[Value]()
    while at < end:
        kind, at = _varint(record, at)
        size = _INTEGER_BYTES.get(kind) or (8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        field = record[body : body + size]
        if len(field) < size or kind in (10, 11):
            raise ValueError(kind)
        body += size
        if kind in _INTEGER_BYTES:
            values.append(int.from_bytes(field, "big", signed=True))
        elif kind == 7:
            values.append(struct.unpack(">d", field)[0])
        elif kind >= 12:
            values.append(field.decode() if kind % 2 else field)
        else:
            values.append((None, 0, 1)[max(kind - 7, 0)])
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, of seven bits a byte, and where it ends."""
    value = 0
    for index in range(8):
        value = value << 7 | data[at + index] & 0x7F
        if data[at + index] < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9
