"""Parser of PTX: text into typed statements, one kernel at a time.

A module is split first: its entries with their parameters, its variables and its source files. The body of an entry is
only read when the kernel is decoded, so that a kernel which the machine cannot run does not block its neighbours.

Source: NVIDIA, *Parallel Thread Execution ISA*, sections 4 (syntax), 5 (state spaces) and 11 (directives).
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from workbench.base.element_types import PTX_BYTES
from workbench.errors import WorkbenchError
from workbench.ptx.machine import core


class PtxSyntaxError(WorkbenchError, ValueError):
    """Text that is not PTX as the parser knows it; names the line."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel as its PTX declares it; ``offset`` is its byte in the parameter space.

    ``name`` is the name in the source if it is known, else the PTX's. ``type`` is the PTX type (``"u64"`` for pointers
    and 64-bit integers, ``"b8"`` for a struct by value); ``size`` and ``align`` are in bytes. ``divisibility`` is a
    divisor on which the code relies: the kernel fails for an argument (a pointer's address) that is no multiple of it.
    ``scratch`` is True for a pointer that the compiler appended, to the kernel's scratch memory or null. ``pointer`` is
    True if the source or the PTX declares a pointer; without the source a parameter may be one even if it is False.
    """

    name: str
    type: str
    size: int
    align: int
    offset: int
    divisibility: int = 1
    scratch: bool = False
    pointer: bool = False

    @property
    def kind(self) -> str:
        """Kind of the parameter in the source: ``pointer``, ``struct of 24 bytes``, or the PTX type of a number."""
        if self.pointer:
            return "pointer"
        return f"struct of {self.size} bytes" if self.type == "b8" else self.type


@dataclass(frozen=True, slots=True)
class PtxVariable:
    """A declared variable. ``size`` is in bytes (0 for ``.extern .shared x[]``), ``initial`` its raw text or None."""

    name: str
    space: str
    type: str
    size: int
    align: int
    external: bool = False
    initial: str | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """A ``.loc``: file number and line, its call site if the code was inlined, and the label of its function."""

    file: int
    line: int
    caller: Location | None = None
    function: str = ""

    @property
    def kernel_site(self) -> Location:
        """Innermost frame in the kernel's own file: for a header's code, the line that uses it."""
        frames = [self]
        while frames[-1].caller:
            frames.append(frames[-1].caller)
        return next(frame for frame in frames if frame.file == frames[-1].file)


@final
@dataclass(slots=True)
class Statement:
    """One instruction as written: ``@!%p1 opcode operands;``. ``start`` is an offset in the module's text."""

    body: Body = field(repr=False)
    start: int
    guard: str | None
    negated: bool
    opcode: str
    operands: str

    @property
    def line(self) -> int:
        """Line in the PTX, from 1."""
        return self.body.module.line_of(self.start)

    @property
    def location(self) -> Location | None:
        """Source line that the ``.loc`` before the statement names."""
        return self.body.location(self.start)

    @property
    def text(self) -> str:
        """Text of the statement as written, in one line."""
        guard = f"@{'!' if self.negated else ''}{self.guard} " if self.guard else ""
        return " ".join(f"{guard}{self.opcode} {self.operands}".split())


@final
@dataclass(slots=True)
class Label:
    """A branch target."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxDeclaration:
    """A ``.reg`` line: ``type`` and the raw list of names (``%r<10>`` or plain ones)."""

    type: str
    names: str


@dataclass(frozen=True, slots=True)
class Scope:
    """``{`` or ``}`` inside a body."""

    opens: bool


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive inside a body that neither declares nor executes, such as ``.pragma``."""

    name: str
    text: str
    line: int


Item = Statement | Label | PtxDeclaration | PtxVariable | Scope | Directive


@dataclass(slots=True)
class PtxEntry:
    """A kernel: the fields of its header, and the place of its body in the module's text.

    ``head`` is the text between the parameters and the body, ``declaration`` that of the parameters.
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    parameter_bytes: int
    max_threads: tuple[int, ...] | None
    cluster: tuple[int, int, int] | None  # blocks
    declaration: str
    head: str
    body_start: int
    body_end: int


@dataclass(slots=True)
class Function:
    """A device function that was not inlined. ``body_start`` is None if another module defines it."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    body_start: int | None
    body_end: int

    @property
    def prototype(self) -> Prototype:
        """Sizes of the function's results and parameters."""
        return tuple(one.size for one in self.results), tuple(one.size for one in self.parameters)


Prototype = tuple[tuple[int, ...], tuple[int, ...]]
"""Bytes of each result and of each parameter."""


@dataclass
class ParsedModule:
    """A PTX module. ``text`` is ``source`` with its comments blanked out, so that offsets and line numbers agree."""

    source: str = field(repr=False)
    text: str
    version: str
    target: str
    files: dict[int, Path]
    entries: dict[str, PtxEntry]
    functions: dict[str, Function]
    variables: dict[str, PtxVariable]

    @property
    def arch(self) -> str:
        """Architecture of the ``.target``, such as "sm_90a"."""
        return self.target.partition(",")[0]

    @cached_property
    def by_llvm(self) -> bool:
        """True if LLVM wrote the module, as for Triton."""
        return "Generated by LLVM NVPTX Back-End" in self.source[:_HEADING]

    @cached_property
    def contracts(self) -> bool:
        """True if the assembler contracts products and sums, as it does unless told not to or assembling for -G."""
        return _UNCONTRACTED not in self.source and not re.search(r"\bdebug\b", self.target)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(np.flatnonzero(np.frombuffer(self.ascii, np.uint8) == ord("\n")) + 1).tolist()]

    def line_of(self, offset: int) -> int:
        """Return the line, from 1, at an offset of the text."""
        return bisect.bisect_right(self._line_starts, offset)

    def end_of(self, line: int) -> int:
        """Return the offset behind a line, whose number is from 1."""
        return self._line_starts[line] if line < len(self._line_starts) else len(self.text)

    def place_of(self, location: Location | None, in_kernel_file: bool = False) -> tuple[str, int]:
        """Return the (file, line) of a location; ("", 0) where the compiler names none.

        With ``in_kernel_file``, code inlined from another file has the line of the kernel's own file that uses it.
        """
        if location is None or location.file not in self.files:
            return "", 0
        if in_kernel_file and location.caller and (site := location.kernel_site).file in self.files:
            location = site
        return str(self.files[location.file]), location.line

    def source_of(self, name: str) -> str:
        """Return the source without the module's other kernels; the remaining lines keep their numbers."""
        pieces, position = [], 0
        for entry in self.entries.values():
            if entry.name == name:
                continue
            begin = self.text.rindex(".entry", position, entry.body_start)
            begin -= len(_LINKAGE.search(self.text[position:begin][-_LONGEST_LINKAGE:])[0])  # type: ignore[index]
            pieces += [self.source[position:begin], "\n" * self.source.count("\n", begin, entry.body_end + 1)]
            position = entry.body_end + 1
        return "".join([*pieces, self.source[position:]])

    @cached_property
    def addressed(self) -> tuple[Function, ...]:
        """Functions with a body whose addresses are in a register or a variable: an indirect call may lead to each."""
        names = set(_ADDRESS_TAKEN.findall(self.text))
        for variable in self.variables.values():
            names.update(re.findall(r"[\w$.]+", variable.initial or ""))
        return tuple(one for one in self.functions.values() if one.name in names and one.body_start is not None)

    @cached_property
    def ascii(self) -> bytes:
        """Text for the core, one byte per character; others become a space or a letter-like character."""
        text = self.text
        if not text.isascii():
            text = re.sub(r"[^\x00-\x7f]", lambda match: " " if match[0].isspace() else "_", text)
        return text.encode("ascii")

    def body(self, entry: PtxEntry | Function) -> Body:
        """Return the items of a body in order."""
        return Body(self, entry)


_UNCONTRACTED = "// ptxas --fmad=false"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"", re.S)  # or a quoted string
_FILE = re.compile(r"\.file[ \t]+(\d+)[ \t]+\"([^\"]*)\"")
_SECTION = re.compile(r"\.section\s+[\w.$]+\s*\{[^}]*\}")
_HEADER = re.compile(r"\.(entry|func)\b")
_HEADING = 256  # characters, in which a compiler names itself
_LINKAGE, _LONGEST_LINKAGE = re.compile(r"(?:\.(?:visible|weak)\s+)?$"), 64
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*(?:\(([^)]*)\))?([^{;]*)")
_FUNCTION = re.compile(r"\.func\s*(?:\(([^)]*)\))?\s*([\w$.]+)\s*(?:\(([^)]*)\))?[^{;]*")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)((?:\s+\.(?:ptr|align\s+\d+|\w+))*)\s+([\w$%.]+)\s*(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?P<links>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<space>global|const|shared|local|param)\b"
    r"(?P<attributes>(?:\s*\.(?:align\s+\d+|attribute\([^)]*\)|managed))*)\s*(?:\.(?P<vector>v[24])\s*)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$%.]+)\s*(?P<dims>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_ADDRESS_TAKEN = re.compile(r"\bmov\.[bu]64\s+[\w$%]+\s*,\s*([\w$.]+)\s*;")
_PROTOTYPE = re.compile(r"\.callprototype\s*(?:\(([^)]*)\))?\s*_\s*(?:\(([^)]*)\))?")
_MAX_THREADS = re.compile(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+([\d,\s]+)")
# One item, from the start that scan.cpp found. A label is no opcode; the last alternative takes any other character.
_ITEM = re.compile(
    r"(?:@(?P<negated>!?)\s*(?P<guard>[\w$%]+)\s+)?"
    r"(?P<opcode>[a-z][\w.]*+(?:::[\w.]*+)*+)(?!\s*:)\s*(?P<operands>[^;]*);"
    r"|(?P<label>[\w$%]+)\s*:(?!:)"
    r"|\.reg\s*\.(?P<reg>\w+)\s+(?P<names>[^;]*);"
    r"|\.(?P<directive>\w+)(?P<rest>[^;]*);"
    r"|(?P<unknown>\S)"
)
_MARK = re.compile(r"(?<![\w.\"])\.loc\s+")
_LOC = re.compile(r"(\d+)\s+(\d+)\s+\d+(?:\s*,\s*function_name\s+([\w$]+))?(?:[^\n]*?\binlined_at\s+(\d+)\s+(\d+))?")
MOST_PARAMETER_BYTES, _MOST_ALIGNMENT, _MOST_VARIABLE_BYTES = 32764, 1 << 16, 1 << 34
_CALL_SITE = re.compile(r"@\[ ([^\s:]+):(\d+):\d+")


def blank_comments(text: str) -> str:
    """Replace comments by spaces; offsets, line numbers and quoted strings stay as they are."""
    pieces: list[str] = []
    done = at = 0
    while True:
        slash = text.find("/", at)
        quote = text.find('"', at, slash if slash >= 0 else len(text))
        start = quote if quote >= 0 else slash
        if start < 0:
            return "".join((*pieces, text[done:])) if pieces else text
        match = _COMMENT.match(text, start)
        at = match.end() if match else start + 1
        if match and quote < 0:
            found = match[0]
            pieces += (text[done:start], re.sub(r"[^\n]", " ", found) if "\n" in found else " " * len(found))
            done = at


def without_contraction(text: str) -> str:
    """Return PTX with a last line that says that the assembler gets ``--fmad=false``; no directive stands for that."""
    return f"{text}\n{_UNCONTRACTED}\n"


def parse(text: str) -> ParsedModule:
    """Split a PTX module into entries, functions and variables. Raises PtxSyntaxError for malformed text."""
    clean = blank_comments(text)
    files = {int(number): Path(name) for number, name in _FILE.findall(clean)}
    version = re.search(r"^\s*\.version\s+(\d+(?:\.\d+)?)", clean, re.M)
    target = re.search(r"^\s*\.target\s+([\w, ]+)", clean, re.M)
    if not version or not target:
        raise PtxSyntaxError("not a PTX module: its .version line or its .target line is missing")
    module = ParsedModule(text, clean, version[1], target[1].strip(), files, {}, {}, {})
    _split(module)
    return module


def _split(module: ParsedModule) -> None:
    text, position = module.text, 0
    outside: list[str] = []
    while header := _HEADER.search(text, position):
        outside.append(text[position : header.start()])
        pattern = _ENTRY if header[1] == "entry" else _FUNCTION
        match = pattern.match(text, header.start())
        if not match:
            raise PtxSyntaxError(f"line {module.line_of(header.start())}: .{header[1]} without a name")
        line = module.line_of(header.start())
        brace = match.end()
        is_definition = brace < len(text) and text[brace] == "{"
        end = _closing_brace(module, brace) if is_definition else brace + 1
        if header[1] == "func":
            name = match[2]
            if is_definition or name not in module.functions:
                parameters, results = _parameters(match[3] or "", line)[0], _parameters(match[1] or "", line)[0]
                start = brace + 1 if is_definition else None
                module.functions[name] = Function(name, line, parameters, results, start, end - 1)
        elif is_definition:
            parameters, total = _parameters(match[2] or "", line)
            most, blocks = _shape(_MAX_THREADS, match[3]), _shape(_CLUSTER, match[3])
            cluster = None
            if blocks is not None:
                x, y, z = (*blocks, 1, 1)[:3]
                cluster = x, y, z
            module.entries[match[1]] = PtxEntry(
                match[1], line, parameters, total, most, cluster, match[2] or "", match[3], brace + 1, end - 1
            )
        position = end
    outside.append(text[position:])
    for piece in _SECTION.sub(" ", " ".join(outside)).split(";"):
        variable = parse_variable(piece.strip())
        if variable:
            module.variables[variable.name] = variable


def _shape(directive: re.Pattern[str], text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a directive in an entry's head."""
    found = directive.search(text or "")
    return tuple(int(number) for number in re.findall(r"\d+", found[1])) if found else None


def _closing_brace(module: ParsedModule, start: int) -> int:
    text, depth, position = module.text, 0, start
    while (brace := text.find("}", position)) >= 0:
        depth += text.count("{", position, brace) - 1
        position = brace + 1
        if depth == 0:
            return position
    raise PtxSyntaxError(f"line {module.line_of(start)}: the brace that opens here is never closed")


def parse_prototype(text: str, line: int) -> Prototype | None:
    """Return the sizes of the results and parameters of a ``.callprototype``, or None for other text."""
    match = _PROTOTYPE.match(text)
    if match is None:
        return None
    results, arguments = (_parameters(part or "", line)[0] for part in match.groups())
    return tuple(one.size for one in results), tuple(one.size for one in arguments)


def _parameters(text: str, line: int) -> tuple[tuple[Parameter, ...], int]:
    found, offset = [], 0
    for match in _PARAMETER.finditer(text):
        align, kind, attributes, name, count = match.groups()
        if kind not in PTX_BYTES:
            raise PtxSyntaxError(f"line {line}: parameter {name} has the unknown type .{kind}")
        alignment = int(align or max(PTX_BYTES[kind], 1))
        if alignment.bit_count() != 1:
            raise PtxSyntaxError(f"line {line}: parameter {name}: got .align {align}; allowed: a power of two")
        size = PTX_BYTES[kind] * int(count or 1)
        if size > MOST_PARAMETER_BYTES or alignment > _MOST_ALIGNMENT:
            allowed = f"at most {MOST_PARAMETER_BYTES} bytes, aligned to at most {_MOST_ALIGNMENT}"
            got = f"{size} bytes, aligned to {alignment}"
            raise PtxSyntaxError(f"line {line}: parameter {name}: got {got}; allowed: {allowed}")
        offset = (offset + alignment - 1) // alignment * alignment
        found.append(Parameter(name, kind, size, alignment, offset, pointer=".ptr" in attributes))
        offset += size
    return tuple(found), offset


def parse_variable(text: str) -> PtxVariable | None:
    """Parse a variable's declaration without its semicolon, possibly at the end of a text; None if there is none."""
    start = re.search(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const|shared|local|param)\b", text)
    match = _VARIABLE.match(text, start.start()) if start else None
    if not match or match["type"] not in PTX_BYTES:
        return None
    element = PTX_BYTES[match["type"]] * int((match["vector"] or "v1")[1:])
    align = re.search(r"\.align\s+(\d+)", match["attributes"])
    size = element
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
        size *= int(dimension or 0)
    if size > _MOST_VARIABLE_BYTES or (align and not 1 <= int(align[1]) <= _MOST_ALIGNMENT):
        allowed = f"at most {_MOST_VARIABLE_BYTES} bytes, aligned to at most {_MOST_ALIGNMENT}"
        got = f"{size} bytes, aligned to {align[1] if align else element}"
        raise PtxSyntaxError(f"variable {match['name']}: got {got}; allowed: {allowed}")
    return PtxVariable(
        match["name"], match["space"], match["type"], size, int(align[1]) if align else element,
        "extern" in match["links"], match["initial"],
    )  # fmt: skip


class Body:
    """Items of a kernel or function in order. A statement's location is computed when it is first read."""

    def __init__(self, module: ParsedModule, entry: PtxEntry | Function):
        assert entry.body_start is not None  # else it has no body
        self.module, self.entry, self._start = module, entry, entry.body_start
        self._locations: list[Location | None] = []
        self._latest: dict[tuple[int, int], Location] = {}

    def __iter__(self) -> Iterator[Item]:
        return (self.item(row[0]) for row in self.rows())

    def rows(self) -> list[tuple[int, str | None, bool, str | None, tuple[str, ...] | str | None]]:
        """Return (start, guard, negated, shape, names) of each item; only the start unless it is a statement or label.

        The shape is the opcode and the operands without the digits at the end of each name; ``names`` are these names.
        A branch to a label has no shape, and the label in place of the names. A label is the shape, without names.
        """
        return core.scan(self.module.ascii, self._start, self.entry.body_end)

    def item(self, start: int) -> Item:
        """Return the item that starts at an offset. Raises PtxSyntaxError for text that is not an item."""
        text, end = self.module.text, self.entry.body_end
        if text[start] in "{}":
            return Scope(text[start] == "{")
        match = _ITEM.match(text, start, end)
        assert match is not None  # an item starts with a character that is not white space
        kind = match.lastgroup
        if kind == "operands":
            negated, guard, opcode, operands = match.group(1, 2, 3, 4)
            while operands.startswith("."):  # white space inside an opcode, as inline PTX may have
                part, _, operands = operands.replace("\n", " ").replace("\t", " ").partition(" ")
                opcode, operands = opcode + part, operands.lstrip()
            return Statement(self, start, guard, negated == "!", opcode, operands.rstrip())
        if kind == "label":
            return Label(match["label"])
        if kind == "names":
            return PtxDeclaration(match["reg"], match["names"])
        if kind == "rest":
            whole = "." + match["directive"] + match["rest"]
            variable = parse_variable(whole.strip())
            return variable or Directive(match["directive"], whole, self.module.line_of(match.start("directive")))
        rest = text[start:end].splitlines()[0].strip()
        raise PtxSyntaxError(f"PTX line {self.module.line_of(start)}: cannot read {rest[:80]!r}")

    def statement(self, start: int) -> Statement:
        """Return the instruction that starts at an offset."""
        item = self.item(start)
        assert isinstance(item, Statement)  # the core's scan found one there
        return item

    @cached_property
    def _marks(self) -> list[int]:
        """Offsets at which the operands of each .loc begin."""
        return [match.end() for match in _MARK.finditer(self.module.text, self._start, self.entry.body_end)]

    def location(self, offset: int) -> Location | None:
        """Return the location of the latest .loc before an offset of the text."""
        count = bisect.bisect_right(self._marks, offset)
        for start in self._marks[len(self._locations) : count]:
            self._locations.append(self._read(start))
        return self._locations[count - 1] if count else None

    def _read(self, start: int) -> Location | None:
        """Return the location of the ``.loc`` whose operands begin at ``start``.

        NVIDIA's compilers name one call site, ``inlined_at``; that site's own is the latest location written for it.
        Triton names all of them, by file name, in a comment: ``// a.py:263:15 @[ a.py:293:36 @[ b.py:85:23 ] ]``. Code
        that was merged from several places has line 0 of one of their files and no call site; it counts as the
        kernel's.
        """
        match = _LOC.match(self.module.text, start)
        if not match:
            return None
        file, line, caller_file, caller_line = (int(match[group] or 0) for group in (1, 2, 4, 5))
        caller = None
        if caller_file:
            caller = self._latest.get((caller_file, caller_line)) or Location(caller_file, caller_line)
        else:
            source = self.module.source
            for name, site in reversed(_CALL_SITE.findall(source, start, source.find("\n", start))):
                caller = Location(self._file_numbers.get(name, 0), int(site), caller)
            if not line and caller is None and (before := next(filter(None, reversed(self._locations)), None)):
                caller = Location(before.kernel_site.file, 0)
        location = self._latest[file, line] = Location(file, line, caller, match[3] or "")
        return location

    @cached_property
    def _file_numbers(self) -> dict[str, int]:
        return {path.name: number for number, path in self.module.files.items()}


def parse_number(token: str) -> int | float | None:
    """Return the value of an integer, ``0f``/``0d`` float or decimal literal, or None for any other token."""
    prefix = token[:2].lower()
    try:
        if prefix == "0f":
            return struct.unpack("<f", int(token[2:], 16).to_bytes(4, "little"))[0]
        if prefix == "0d":
            return struct.unpack("<d", int(token[2:], 16).to_bytes(8, "little"))[0]
        digits = token.rstrip("U")
        return int(digits, 8 if re.fullmatch(r"[+-]?0[0-7]+", digits) else 0)
    except ValueError:
        pass
    try:
        return float(token)
    except ValueError:
        return None
