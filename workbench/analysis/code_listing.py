"""Instructions of a kernel's PTX and machine code, with keys that are free of the names of registers and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.ptx import Program
from workbench.ptx.parse import Function, Label, ParsedModule, PtxEntry, Statement, parse
from workbench.toolchain.sass_counts import rows_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

_PTX_REGISTER = re.compile(r"(%[a-zA-Z_]+)\d+\b")
_PTX_LABEL = re.compile(r"\$[\w$]+")
_SASS_REGISTER = re.compile(r"\b(UR|UP|R|P|B|SB)\d+\b")
_SASS_LABEL = re.compile(r"`?\(?(?:\.L_x_\d+|\.L\w+)\)?")
_HINT = re.compile(r"\.reuse\b")


@dataclass(frozen=True)
class CodeLine:
    """One instruction or label.

    Attributes:
        text: as the compiler wrote it.
        key: the text with its registers and labels renamed; equal for instructions that differ in these only.
        kind: the class that it is counted in; empty for a label.
    """

    text: str
    key: str
    kind: str


def ptx_listings(*kernels: CompiledKernel) -> list[list[CodeLine]]:
    """Return, for each kernel, the PTX instructions and labels of it and of the functions that it calls.

    Their kinds are the classes of the PTX machine. If it does not execute one of the kernels, they are the opcodes
    without types and modifiers, for all kernels alike.
    """
    kinds = [_kinds(kernel) for kernel in kernels]
    return [_ptx(kernel, of_line if all(kinds) else {}) for kernel, of_line in zip(kernels, kinds, strict=True)]


def sass_listing(kernel: CompiledKernel) -> list[CodeLine]:
    """Return the machine instructions and labels of a kernel. Raises MissingToolError without a disassembler."""
    return [
        CodeLine(row.text, sass_key(row.text), row.name) if row.name else CodeLine(f"{row.text}:", "label", "")
        for row in rows_of(kernel.sass)
    ]


def _ptx(kernel: CompiledKernel, kinds: Mapping[int, str]) -> list[CodeLine]:
    module, name = parse(kernel.ptx), re.escape(kernel.name)
    own = re.compile(rf"\b{name}|(?<=\d){re.escape(_identifier(kernel.name))}")  # parameters; static variables
    lines = []
    for body in _bodies(module, kernel.name):
        for item in module.body(body):
            if isinstance(item, Label):
                lines.append(CodeLine(f"{item.name}:", "label", ""))
            elif isinstance(item, Statement):
                kind = kinds.get(item.line, "other") if kinds else item.opcode.split(".")[0]
                lines.append(CodeLine(item.text, ptx_key(own.sub("kernel", item.text)), kind))
    return lines


def _kinds(kernel: CompiledKernel) -> dict[int, str]:
    """Return the PTX machine's class of each PTX line; nothing if the machine does not execute the kernel."""
    try:
        decoded = Program.from_text(kernel.ptx).kernels[kernel.name].decoded
    except WorkbenchError:
        return {}
    kinds: dict[int, str] = {}
    for step in decoded.code:
        if step.statement is not None:
            kinds.setdefault(step.statement.line, step.opcode.group)
    return kinds


def _bodies(module: ParsedModule, kernel: str) -> list[PtxEntry | Function]:
    """Return the kernel, and the functions of its module that its code, or theirs, names."""
    found: list[PtxEntry | Function] = [module.entries[kernel]]
    for body in found:  # grows on the way
        text = module.text[body.body_start : body.body_end]
        named = set(re.findall(r"[\w$.]+", text))
        found += [one for one in module.functions.values() if one.name in named and one.body_start and one not in found]
    return found


def _identifier(mangled: str) -> str:
    """Return the identifier at the end of a plain mangled name, such as "scale" of ``_Z5scalePf``, else the name."""
    match = re.match(r"_Z(\d+)", mangled)
    return mangled[match.end() :] if match else mangled


def ptx_key(text: str) -> str:
    """Return a PTX instruction with its registers and labels renamed."""
    return _renamed(_PTX_LABEL.sub("label", text), _PTX_REGISTER)


def sass_key(text: str) -> str:
    """Return a machine instruction with its registers and labels renamed, without hints for the register cache."""
    return _renamed(_SASS_LABEL.sub("label", _HINT.sub("", text)), _SASS_REGISTER)


def _renamed(text: str, registers: re.Pattern[str]) -> str:
    """Replace the numbers of registers by the order of their first use: ``R7, R7, R2`` becomes R0, R0, R1."""
    numbers: dict[str, int] = {}
    return registers.sub(lambda match: f"{match[1]}{numbers.setdefault(match[0], len(numbers))}", text)
