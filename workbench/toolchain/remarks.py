"""Statements of ptxas about the code that it assembles: instructions that it ignored, serialized or inserted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.ptx.parse import Body, ParsedModule, Statement, parse

_NOT_ABOUT_CODE = re.compile(
    r"\d+ bytes gmem|Compiling entry function|Function properties for|Used \d+ registers|Compile time =|Conflicting "
    r"options"
)
_LINE = re.compile(
    r"ptxas[\w-]*\s+(?:(?P<file>[^;\n]*?), line (?P<at>\d+);\s*)?(?P<severity>info|warning|error)\s*:\s*(?P<text>.*)"
)
_CODE = re.compile(r"\((C\d+)\)\s*")
_AROUND = re.compile(r" in (?:around )?line (\d+)")
_FUNCTION = re.compile(r"\b(?:in (?:the )?function|for entry) '?([\w$.]+)")
_TOLD = re.compile(r"\b(?:wgmma|setmaxnreg)\b")
_IGNORED = "'setmaxnreg' ignored"
_WAIT = "Write wgmma.wait_group before the first use of the product's registers."
_FENCE = "Write wgmma.fence between the last write to a product's registers and the product."
_REMEDIES = {
    "unable to determine register count": "Bound the registers at entry: __launch_bounds__(threads, 1), or maxnreg.",
    "minimum register requirements": "Ask for more registers than the code that follows holds at once.",
    "across compilation units": "Compile the program as a whole, without -rdc.",
    "into 'extern' call": "Let the compiler see the function that is called.",
    "to allow debugging": "Compile without -G.",
    "insufficient register resources": "Give the accumulators fewer registers: smaller tiles, or more warp groups.",
    "crossing function boundary": "Inline the function that is called between the products and their wait.",
    "presence of Extern calls": "Inline the functions that are called.",
    "non wgmma instructions": "Leave the registers of a product alone until wgmma.wait_group has waited for it.",
    "ill formed pipeline stage": "Let a fence, products, their commit_group and a wait_group follow each other.",
    "in divergent path": "Let all warps of the group take the same way between wgmma.fence and wgmma.wait_group.",
    "wait is injected": _WAIT,
    "wait_group is injected": _WAIT,
    "arrive is injected": _FENCE,
    "fence is injected": _FENCE,
    "is out of range": "Ask for fewer threads or blocks in __launch_bounds__.",
}


@dataclass(frozen=True)
class AssemblerRemark:
    """One statement of ptxas about the code, such as "'setmaxnreg' ignored".

    ``code`` is ptxas's own ("C7508"), or empty. ``ptx_line`` and ``kernel`` (the entry in the PTX) are those that ptxas
    names; for an ignored instruction they are its own. ``source`` and ``line`` are the place in the source.
    """

    severity: str
    text: str
    code: str = ""
    kernel: str = ""
    ptx_line: int | None = None
    source: str = ""
    line: int | None = None

    @property
    def remedy(self) -> str:
        """The remedy in a sentence; empty if none is known."""
        return next((remedy for part, remedy in _REMEDIES.items() if part in self.text), "")

    @property
    def said(self) -> str:
        """Text behind its code: "(C7508) 'setmaxnreg' ignored"."""
        return f"({self.code}) {self.text}" if self.code else self.text

    @property
    def place(self) -> str:
        """File name and line in the source, or the line of the PTX; empty without either."""
        if self.line:
            return f"{Path(self.source).name}:{self.line}"
        return f"PTX line {self.ptx_line}" if self.ptx_line else ""

    def __str__(self) -> str:
        return ". ".join(filter(None, (_said([self]), self.remedy)))


def messages(remarks: Iterable[AssemblerRemark]) -> tuple[str, ...]:
    """Return a sentence or two for each statement, with all places of it, and the remedy."""
    grouped: dict[tuple[str, str], list[AssemblerRemark]] = {}
    for remark in remarks:
        grouped.setdefault((remark.code, remark.text), []).append(remark)
    return tuple(". ".join(filter(None, (_said(same), same[0].remedy))) for same in grouped.values())


def _said(same: Sequence[AssemblerRemark]) -> str:
    first, places = same[0], dict.fromkeys(filter(None, (remark.place for remark in same)))
    return f"ptxas{' at ' if places else ''}{', '.join(places)}: {first.said}"


def split_log(log: str) -> tuple[str, str]:
    """Split a compiler's log into what its front end says and what its assembler says, without resource lines."""
    front, assembler = list[str](), list[str]()
    for line in log.splitlines():
        if re.match(r"ptxas[\w-]*\s+\.|\s+\d+ bytes stack frame", line):
            continue
        said = _LINE.match(line)
        if said is None or not _NOT_ABOUT_CODE.match(said["text"]):
            (assembler if line.startswith("ptxas") else front).append(line)
    return "\n".join(front).strip(), "\n".join(assembler).strip()


def parse_remarks(log: str) -> tuple[AssemblerRemark, ...]:
    """Return the statements in an assembler's log, each once, in order."""
    found = dict[AssemblerRemark, None]()
    for said in filter(None, map(_LINE.match, split_log(log)[1].splitlines())):
        code = _CODE.match(said["text"])
        text = _CODE.sub("", said["text"], count=1).strip().rstrip(".")
        around, function = _AROUND.search(text), _FUNCTION.search(text)
        at = int(said["at"] or (around[1] if around else 0)) or None
        text = _AROUND.sub("", text, count=1)
        remark = AssemblerRemark(said["severity"], text, code[1] if code else "", function[1] if function else "", at)
        found[remark] = None
    return tuple(found)


def has_remarks(ptx: str) -> bool:
    """Return True for PTX with instructions that ptxas may ignore or serialize: worth assembling for its messages."""
    return _TOLD.search(ptx) is not None


def remarks_on(log: str, ptx: str, kernel: str, sass: Callable[[], str]) -> tuple[AssemblerRemark, ...]:
    """Return the remarks of a log that concern one kernel, with their places in the source.

    ``ptx`` is the text that was assembled. ptxas names neither kernel nor line of a ``setmaxnreg`` that it ignores:
    there is a remark at each one of the kernel, unless its machine code has them. ``sass`` makes the machine code's
    text, if several kernels are in question.
    """
    said = parse_remarks(log)
    if not said:
        return ()
    module = parse(ptx)
    remarks = list[AssemblerRemark]()
    for remark in said:
        if _IGNORED in remark.text and remark.ptx_line is None:
            remarks += _ignored(remark, module, kernel, sass)
        elif (remark.kernel or kernel) == kernel or remark.kernel not in module.entries:
            remarks.append(remark)
    bodies = [module.body(entry) for entry in module.entries.values()]
    bodies += [module.body(function) for function in module.functions.values() if function.body_start is not None]
    return tuple(dict.fromkeys(_placed(remark, module, bodies) for remark in remarks))


def _ignored(
    remark: AssemblerRemark, module: ParsedModule, kernel: str, sass: Callable[[], str]
) -> Iterator[AssemblerRemark]:
    having = {name: _registers(module.body(entry)) for name, entry in module.entries.items()}
    if not any(having.values()):  # they are in a function that was not inlined
        yield remark
    if not having[kernel]:
        return
    if sum(map(bool, having.values())) > 1:
        try:
            if "USETMAXREG" in sass():
                return
        except MissingToolError:
            pass  # then it is said of each kernel that has some
    for statement in having[kernel]:
        yield replace(remark, kernel=kernel, ptx_line=statement.line)


def _registers(body: Body) -> list[Statement]:
    return [item for item in body if isinstance(item, Statement) and item.opcode.startswith("setmaxnreg")]


def _placed(remark: AssemblerRemark, module: ParsedModule, bodies: Iterable[Body]) -> AssemblerRemark:
    """Return the remark with its place in the source, if it has a line in the PTX of a kernel or function."""
    line = remark.ptx_line
    if line is None:
        return remark
    for body in bodies:
        if body.entry.line <= line <= module.line_of(body.entry.body_end):
            source, number = module.place_of(body.location(module.end_of(line)), in_kernel_file=True)
            return replace(remark, source=source, line=number or None)
    return remark
