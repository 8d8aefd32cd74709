"""ELF programs and libraries: their kind, the libraries they need, and the CUDA runtime they may contain."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ArgumentError

_MACHINES = {62: "x86_64", 183: "aarch64"}
_EXECUTABLE, _SHARED = 2, 3
_DYNAMIC, _DYNSYM = 6, 11  # kinds of sections
_NEEDED, _RPATH, _FLAGS_1, _PIE = 1, 15, 0x6FFFFFFB, 0x08000000
_REGISTRATION = "__cudaRegisterFatBinary"


@dataclass(frozen=True)
class Elf:
    """Facts of one ELF file; its dynamic symbols are split into ``defined`` and ``asked``, which others define."""

    executable: bool
    has_rpath: bool  # DT_RPATH, which the loader searches before LD_LIBRARY_PATH
    needed: tuple[str, ...]
    defined: frozenset[str]
    asked: frozenset[str]
    has_device_code: bool

    @property
    def has_static_runtime(self) -> bool:
        """True if the file has kernels and contains NVIDIA's runtime for them."""
        return self.has_device_code and _REGISTRATION not in self.asked


def is_elf(path: Path) -> bool:
    """Return True if a file can be read and begins with ELF's magic number."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def read_elf(path: Path) -> Elf:
    """Read the facts of an ELF file; raise ArgumentError for another architecture's file or a damaged one."""
    content = path.read_bytes()
    try:
        machine = struct.unpack_from("<H", content, 18)[0]
        if content[4:6] != b"\x02\x01" or _MACHINES.get(machine) != platform.machine():
            found = _MACHINES.get(machine, f"machine {machine}")
            raise ArgumentError("program", f"a file for {found}", platform.machine(), "Compile it for this machine.")
        return _read(content)
    except (struct.error, IndexError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            "program", f"{str(path)!r}, a damaged ELF file", "an intact one", "Build it again."
        ) from error


def _read(content: bytes) -> Elf:
    kind = struct.unpack_from("<H", content, 16)[0]
    offset = struct.unpack_from("<Q", content, 40)[0]
    size, count, names = struct.unpack_from("<3H", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, offset + number * size) for number in range(count)]
    titles = _part(content, sections[names]) if count else b""
    needed: list[str] = []
    pie = rpath = False
    defined: set[str] = set()
    asked: set[str] = set()
    for section in sections:
        if section[1] == _DYNAMIC:
            texts = _part(content, sections[section[6]])
            for tag, value in struct.iter_unpack("<QQ", _part(content, section)):
                if tag == _NEEDED:
                    needed.append(_text(texts, value))
                rpath |= tag == _RPATH
                pie |= tag == _FLAGS_1 and bool(value & _PIE)
        elif section[1] == _DYNSYM:
            for name, there in _symbols(_part(content, section), _part(content, sections[section[6]])):
                (defined if there else asked).add(name)
    has_code = any(_text(titles, section[0]) == ".nv_fatbin" for section in sections)
    return Elf(kind == _EXECUTABLE or pie, rpath, tuple(needed), frozenset(defined), frozenset(asked), has_code)


def _symbols(table: bytes, texts: bytes) -> Iterator[tuple[str, bool]]:
    for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
        if name:
            yield _text(texts, name), section != 0


def _part(content: bytes, section: tuple[int, ...]) -> bytes:
    return content[section[4] : section[4] + section[5]]


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode(errors="replace")
