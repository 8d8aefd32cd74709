"""Decoding of a kernel's statements into canonical instructions; an unsupported one is refused before anything runs."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from workbench.errors import UnsupportedInstructionError
from workbench.ptx import element_words, old_values
from workbench.ptx.families import (
    arithmetic,
    bulk,
    carry,
    cluster,
    compare,
    convert,
    launch_control,
    matrix,
    mbarrier,
    memory,
    moves,
    refused,
    tcgen05,
    video,
    warp,
    warp_group,
)
from workbench.ptx.instruction import Form, Instruction, InstructionStep, Plan, split_operands
from workbench.ptx.machine import BRANCH, OPCODES
from workbench.ptx.operands import Refused, Register, Symbols
from workbench.ptx.parse import (
    Directive,
    Function,
    Label,
    Location,
    ParsedModule,
    PtxDeclaration,
    PtxEntry,
    PtxVariable,
    Scope,
    Statement,
    parse_prototype,
)

_FAMILIES = (
    arithmetic,
    moves,
    convert,
    memory,
    warp,
    carry,
    compare,
    video,
    matrix,
    mbarrier,
    bulk,
    warp_group,
    cluster,
    launch_control,
    tcgen05,
)
FAMILIES = {name: plan for family in _FAMILIES for name, plan in family.FAMILY.items()}
# Directives inside a body that carry no meaning for execution.
_IGNORED = {"pragma", "maxnreg", "branchtargets", "callprototype"}
# A name in an operand, not the letters of a number. (The lookbehind stands after the first letter, as that is quick.)
_NAME = re.compile(r"([%A-Za-z_$](?<![\w.].)[\w$.]*+)")
# The shape of an access at an offset from a register: the text before the offset, the offset, the text behind it.
_OFFSET = re.compile(r"((?:ld|st)\.[^[]*\[[^]+-]*#)\+?(-?\d+)(\].*)", re.S)
_BRANCH = Form(Instruction(OPCODES["bra"], {}), ())  # the target belongs to the step, not to the form
_Key = str | tuple[object, ...] | None  # the shape of a statement, with the widths of its registers where these differ
# Errors of a family given modifiers that it does not know, and of a plan given malformed operands.
_MALFORMED = (ValueError, KeyError, IndexError, AttributeError, TypeError, StopIteration)


@lru_cache(maxsize=4096)
def _plan(text: str) -> Plan | str:
    """Return the plan of an opcode text, or the reason why there is none."""
    parts = text.split(".")
    family = FAMILIES.get(parts[0], refused.plan)
    try:
        return refused.reason(text) or family(parts)
    except Refused as refusal:
        return str(refusal)
    except _MALFORMED:
        return "the machine does not support this instruction"


def locate(module: ParsedModule, location: Location | None) -> str:
    """Return ``file:line`` of a .loc, or an empty string.

    For inlined code it is the line of the kernel's own file that uses the code. The header's function and line are
    added if the code stands in a header, and the outermost line of the kernel's file if the call passes through
    several.
    """
    if location is None or location.file not in module.files:
        return ""
    frames = [location]
    while frames[-1].caller and frames[-1].caller.file in module.files:
        frames.append(frames[-1].caller)
    own = next(frame for frame in frames if frame.file == frames[-1].file)
    text = f"{module.files[own.file]}:{own.line}"
    if own is not location:
        path = module.files[location.file]
        text += f", in {_function(module, location)}{path.name if is_installed(path) else path}:{location.line}"
    return text if own is frames[-1] else f"{text}, inlined at {module.files[own.file]}:{frames[-1].line}"


def is_installed(path: str | Path) -> bool:
    """Return True if a source file came with a package or the system, so that the user does not edit it."""
    parts = Path(path).parts
    return "site-packages" in parts or "dist-packages" in parts or parts[:2] == ("/", "usr")


def _function(module: ParsedModule, location: Location) -> str:
    """Return ``"name() of "`` for the inlined function that a .loc names, or "" where the compiler left no name."""
    string = re.search(rf"^{re.escape(location.function)}:((?:\s*\.b8[\d\s,]+)+)", module.source, re.MULTILINE)
    if not location.function or string is None:
        return ""
    name = readable(bytes(map(int, re.findall(r"\b\d+\b", string[1]))).rstrip(b"\0").decode(errors="replace"))
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    name = name.rsplit("::", 1)[-1]
    return f"{name}() of " if name.isidentifier() else ""


def readable(name: str) -> str:
    """Return a kernel's or function's name as in its source, without the types that a mangled name carries."""
    if not name.startswith("_Z"):
        return name
    from workbench.base.demangle import demangle

    return demangle(name)


def short_name(name: str) -> str:
    """Return the last part of a variable's name as in its source."""
    return readable(name).rsplit("::", 1)[-1]


def refuse(
    module: ParsedModule, entry: PtxEntry | Function, text: str, line: int, location: Location | None, reason: str
) -> UnsupportedInstructionError:
    """Make the error for a statement, or for another piece of text at a PTX line.

    A ``reason`` that has a colon ends in a remedy, which comes first in the message.
    """
    where = locate(module, location)
    source = f" ({where})" if where else ""
    what = "function" if isinstance(entry, Function) else "kernel"
    why, _, remedy = reason.rpartition(": ")
    first = f"{remedy}; " if why else ""
    return UnsupportedInstructionError(
        f"{what} {readable(entry.name)}: {first}cannot execute `{text}` at PTX line {line}{source}: {why or reason}. "
        "Rewrite that line of the kernel, or run it on a GPU (device='cuda')."
    )


def decode(module: ParsedModule, entry: PtxEntry | Function, symbols: Symbols) -> list[InstructionStep | Label]:
    """Return every instruction of the entry in text order, with its labels.

    Raises UnsupportedInstructionError naming the instruction, its PTX line and its source line.
    """
    items: list[InstructionStep | Label] = []
    forms: dict[_Key, Form] = {}
    append, register, labels, body = items.append, symbols.names.__getitem__, _Labels(), module.body(entry)
    for start, guard, negated, shape, found in body.rows():
        if found is not None:
            try:
                if type(found) is str:
                    form, registers, target = _BRANCH, [], found
                else:
                    registers, target = list(map(register, found)), ""
                    form = forms[shape if symbols.alike else (shape, *[one.width for one in registers])]
                guarded = None if guard is None else _guard(symbols, guard)
                append(InstructionStep(form, registers, target, guarded, negated, body, start))
            except (KeyError, Refused):
                items += _bind(module, entry, symbols, body.statement(start), shape, forms)
            if labels.scope:
                labels.use(items)
            continue
        if shape is not None:
            append(labels.define(Label(shape)))
            continue
        item = body.item(start)
        if isinstance(item, Scope):
            labels.enter(item.opens)
            if item.opens:
                symbols.open_scope()
            else:
                symbols.close_scope()
        elif not isinstance(item, Statement | Label):
            if type(item) is Directive and item.name == "branchtargets" and items and type(items[-1]) is Label:
                targets = item.text.removeprefix(".branchtargets").split(",")
                symbols.branch_targets[items[-1].name] = [target.strip() for target in targets]
            if type(item) is Directive and item.name == "callprototype" and items and type(items[-1]) is Label:
                prototype, label = parse_prototype(item.text, item.line), items[-1].name.partition(" ")[0]
                if prototype is not None:
                    symbols.prototypes[label] = prototype
                    items.pop()  # the label names a prototype, no branch target
            _declare(module, entry, symbols, item)
    labels.resolve()
    element_words.mark(items)
    old_values.mark(items)
    return items


class _Labels:
    """Labels and their scopes: a label belongs to its braces, as inline assembly that is inlined twice needs."""

    def __init__(self) -> None:
        self.scope: tuple[int, ...] = ()
        self.opened = 0
        self.names: dict[tuple[tuple[int, ...], str], str] = {}
        self.uses: list[tuple[InstructionStep, tuple[int, ...]]] = []

    def enter(self, opens: bool) -> None:
        self.opened += opens
        self.scope = (*self.scope, self.opened) if opens else self.scope[:-1]

    def define(self, label: Label) -> Label:
        unique = f"{label.name} of scope {self.scope[-1]}" if self.scope else label.name
        self.names[self.scope, label.name] = unique
        return Label(unique) if self.scope else label

    def use(self, items: list[InstructionStep | Label]) -> None:
        """Note the branches of the latest statement."""
        for step in reversed(items):
            if type(step) is Label:
                break
            if step.form.kind == BRANCH:
                self.uses.append((step, self.scope))
            if step.start is not None:
                break

    def resolve(self) -> None:
        for branch, scope in self.uses:
            around = (scope[:depth] for depth in range(len(scope), -1, -1))
            found = (self.names.get((each, branch.target)) for each in around)
            branch.target = next((name for name in found if name is not None), branch.target)


def _bind(
    module: ParsedModule, entry: PtxEntry | Function, symbols: Symbols, item: Statement, shape: str | None,
    forms: dict[_Key, Form],
) -> list[InstructionStep]:  # fmt: skip
    """Bind a statement whose shape is new, or which has names that are not registers; return its steps."""
    plan = _plan(item.opcode)
    try:
        if isinstance(plan, str):
            raise Refused(plan)
        steps = _steps(symbols, plan, item, shape, forms)
        guard = None if item.guard is None else _guard(symbols, item.guard)
        if guard is not None and any(step.guard is not None for step in steps):
            raise Refused("a guard on an instruction that the machine takes apart")
    except Refused as refusal:
        raise refuse(module, entry, item.text, item.line, item.location, str(refusal)) from None
    except _MALFORMED:
        reason = "its operands are not what this instruction takes"
        raise refuse(module, entry, item.text, item.line, item.location, reason) from None
    for step in steps:
        if guard is not None:
            step.guard, step.negated = guard, item.negated
    steps[0].body, steps[0].start = item.body, item.start
    return steps


def _steps(
    symbols: Symbols, plan: Plan, item: Statement, shape: str | None, forms: dict[_Key, Form]
) -> list[InstructionStep]:
    """Bind a statement, and keep its form for its shape unless the form depends on more than that."""
    pieces = _NAME.split(item.operands)  # literals and punctuation at even places, names at odd ones
    names = pieces[1::2]
    registers = [register for register in map(symbols.register, names) if register is not None]
    only_registers, distinct = len(registers) == len(names), len(set(registers)) == len(registers)
    at_offset = _OFFSET.fullmatch(shape) if shape is not None and only_registers else None
    if at_offset is not None:  # an unrolled loop has thousands that differ in the immediate only
        alike = _key(symbols, f"{at_offset[1]}+{at_offset[3]}", registers)
        if alike in forms:
            known = forms[_key(symbols, shape, registers)] = forms[alike].with_imm(int(at_offset[2]))
            return [InstructionStep(known, registers)]
    form = _with_stand_ins(symbols, plan, pieces, registers) if only_registers and not distinct else None
    if form is None:
        made = plan(symbols, split_operands(item.operands))
        if not isinstance(made, Instruction):
            return [part if isinstance(part, InstructionStep) else InstructionStep.of(part) for part in made]
        if not only_registers or not distinct or not _takes_only(made, registers):
            return [InstructionStep.of(made)]
        form = Form(made, registers)
    forms[_key(symbols, shape, registers)] = form
    if at_offset is not None:
        forms[alike] = form
    return [InstructionStep(form, registers)]


def _key(symbols: Symbols, shape: str | None, registers: list[Register]) -> _Key:
    """Return a form's key: the shape, and the registers' widths where equal names may have several widths."""
    return shape if symbols.alike else (shape, *[register.width for register in registers])


def _with_stand_ins(symbols: Symbols, plan: Plan, pieces: list[str], registers: list[Register]) -> Form | None:
    """Return the form of a statement that names a register twice, by giving each place a stand-in of its own."""
    stand_ins = [symbols.stand_in(place, register.width) for place, register in enumerate(registers)]
    text = list(pieces)
    text[1::2] = [register.name for register in stand_ins]
    try:
        made = plan(symbols, split_operands("".join(text)))
    except (Refused, *_MALFORMED):
        return None  # binding the statement itself reports the error
    if not isinstance(made, Instruction) or not _takes_only(made, stand_ins):
        return None
    return Form(made, stand_ins)


def _takes_only(made: Instruction, registers: list[Register]) -> bool:
    """Return True if the instruction uses only the given registers, and no other such as the carry flag."""
    return all(operand in registers for operand in made.slots.values() if type(operand) is Register)


def _guard(symbols: Symbols, name: str) -> Register:
    guard = symbols.register(name)
    if guard is None or guard.width != 0:
        raise Refused(f"the guard {name}, which is not a predicate")
    return guard


def _declare(
    module: ParsedModule, entry: PtxEntry | Function, symbols: Symbols, item: PtxDeclaration | PtxVariable | Directive
) -> None:
    try:
        if isinstance(item, PtxDeclaration):
            symbols.declare_registers(item)
        elif isinstance(item, PtxVariable):
            symbols.declare_variable(item)
        elif item.name not in _IGNORED:
            raise Refused("the machine does not support this directive")
    except Refused as refusal:
        line = item.line if isinstance(item, Directive) else entry.line
        text = f".reg .{item.type}" if isinstance(item, PtxDeclaration) else getattr(item, "text", "")
        text = f".{item.space} {item.name}" if isinstance(item, PtxVariable) else text
        raise refuse(module, entry, text, line, None, str(refusal)) from None
