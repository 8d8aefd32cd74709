"""Compiler stages of a kernel (TTIR, TTGIR, LLVM IR, PTX, SASS), each line with the source line that it comes from."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.analysis.places import NOWHERE, Place, PtxPlaces
from workbench.errors import MissingToolError
from workbench.toolchain import disassembly
from workbench.toolchain.sass_counts import INSTRUCTION, PTX_LINE

if TYPE_CHECKING:
    from workbench.ptx.report import LaunchReport
    from workbench.toolchain import CompiledKernel

NAMES = {"ttir": "TTIR", "ttgir": "TTGIR", "llir": "LLVM IR", "ptx": "PTX", "sass": "SASS"}
"""Stages in their order, and their titles."""


@dataclass(frozen=True)
class StageLine:
    """A line of a stage and its source place; for PTX also how often warps executed it (else None)."""

    text: str
    place: Place
    executions: int | None = None


@dataclass(frozen=True)
class Stage:
    """One form of a kernel; ``name`` is a key of `NAMES`."""

    name: str
    lines: tuple[StageLine, ...]

    def of(self, path: str, line: int) -> tuple[StageLine, ...]:
        """Return the lines that come from one line of the source."""
        return tuple(one for one in self.lines if one.place == (path, line))

    def __repr__(self) -> str:
        linked = sum(bool(one.place[1]) for one in self.lines)
        return f"<{NAMES[self.name]}: {len(self.lines)} lines, {linked} with their line of the source>"


def stages_of(kernel: CompiledKernel, report: LaunchReport, *, inlined: bool = False) -> tuple[Stage, ...]:
    """Return the stages of a launched kernel that its compiler has kept; for CUDA C++ these are PTX and SASS.

    Code of other files counts at the kernel's line that uses it; with ``inlined`` it counts where it stands. SASS is
    left out where there is no disassembler.
    """
    own = next((line.kernel_source for line in report.lines if line.kernel_source), "")
    found = []
    for name, text in kernel.stages.items():
        read = _llvm if name == "llir" else _mlir
        found.append(Stage(name, tuple(read(text, "" if inlined else own))))
    places = PtxPlaces(kernel, inlined=inlined)
    found.append(Stage("ptx", tuple(_ptx(kernel, report, places))))
    with contextlib.suppress(MissingToolError):
        found.append(Stage("sass", tuple(_sass(kernel, places))))
    return tuple(found)


# -- PTX and SASS --------------------------------------------------------------------------------------------------


def _ptx(kernel: CompiledKernel, report: LaunchReport, places: PtxPlaces) -> Iterator[StageLine]:
    """Yield the PTX from the kernel's head to its last instruction, without the lines for debuggers."""
    ran = {fact.ptx_line: fact.executions for fact in report.lines}
    head = re.compile(rf"\.entry\s+{re.escape(kernel.name)}\b")
    texts = kernel.ptx.splitlines()
    first = next((at for at, text in enumerate(texts, 1) if head.search(text)), 1)
    for number in range(first, max(places, default=0) + 1):
        text = texts[number - 1].expandtabs(4).rstrip()
        if text.strip() and not text.lstrip().startswith((".loc", ".file", "//", "$L__tmp", ".pragma")):
            yield StageLine(text, places.get(number, NOWHERE), ran.get(number, 0) if number in places else None)


def _sass(kernel: CompiledKernel, places: PtxPlaces) -> Iterator[StageLine]:
    """Yield the lines of the SASS; ptxas names the PTX line of each instruction, and the PTX its source line."""
    number = 0
    for text in disassembly.disassemble_by_ptx_line(kernel).splitlines():
        if match := PTX_LINE.match(text):
            number = int(match[1])
        elif INSTRUCTION.match(text):
            yield StageLine(text.strip(), places.of_machine_code(number))
        elif re.match(r"^\.L\w+:", text):
            yield StageLine(text, NOWHERE)


# -- Triton's own stages -------------------------------------------------------------------------------------------

_DEFINITION = re.compile(r"^#(loc\d*) = loc\((.*)\)\s*$")
_USE = re.compile(r"\s*loc\((#loc\d*|\"[^\"]*\":\d+:\d+)\)")
_FILE = re.compile(r'^"([^"]*)":(\d+)')
_REFERENCE = re.compile(r"#(loc\d*)")


def _mlir(text: str, own: str) -> Iterator[StageLine]:
    """Yield the lines of an MLIR text with their places.

    Each line ends with a location, which may stand for a chain of calls, from the innermost to the kernel.
    """
    known = {match[1]: match[2] for match in map(_DEFINITION.match, text.splitlines()) if match}

    def chain(location: str) -> list[Place]:
        if match := _FILE.match(location):
            return [(match[1], int(match[2]))]
        return [place for name in _REFERENCE.findall(location) for place in chain(known.get(name, ""))]

    for row in text.splitlines():
        if _DEFINITION.match(row) or not row.strip():
            continue
        uses = _USE.findall(row)
        yield StageLine(_USE.sub("", row).rstrip(), _chosen(chain(uses[-1]) if uses else [], own))


_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$")
_DEBUG = re.compile(r",? !dbg !(\d+)")


def _llvm(text: str, own: str) -> Iterator[StageLine]:
    """Yield the lines of an LLVM IR text with their places.

    An instruction names its debug location; that names the file of its scope and the call that it was inlined at.
    """
    known = {match[1]: (match[2], match[3]) for match in map(_METADATA.match, text.splitlines()) if match}

    def field(number: str | None, name: str) -> str | None:
        found = re.search(rf'\b{name}: (?:!(\d+)|"([^"]*)"|(\d+))', known.get(number or "", ("", ""))[1])
        return next((one for one in found.groups() if one is not None), None) if found else None

    def chain(number: str | None) -> Iterator[Place]:
        while number is not None:
            file = field(field(number, "scope"), "file")
            folder, name = field(file, "directory"), field(file, "filename")
            path = f"{folder}/{name}" if folder and name and not name.startswith("/") else name or ""
            yield path, int(field(number, "line") or 0)
            number = field(number, "inlinedAt")

    for row in text.splitlines():
        if not row.strip() or row.startswith(("!", "; ModuleID", "source_filename", "target ")):
            continue
        found = _DEBUG.search(row)
        places = list(chain(found[1])) if found and not row.startswith("define") else []
        yield StageLine(_DEBUG.sub("", row), _chosen(places, own))


def _chosen(chain: list[Place], own: str) -> Place:
    """Return the innermost place in the kernel's own file, else the innermost; ``chain`` starts at the innermost."""
    return next((place for place in chain if place[0] == own), chain[0] if chain else NOWHERE)
