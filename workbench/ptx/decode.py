"""A kernel's statements into canonical instructions, or a precise refusal before anything runs."""

from __future__ import annotations

from functools import lru_cache

from workbench.errors import UnsupportedInstructionError
from workbench.ptx.families import arithmetic, carry, convert, memory, moves, warp
from workbench.ptx.instruction import Instruction, Plan, split_operands
from workbench.ptx.operands import Refused, Symbols
from workbench.ptx.parse import (
    Declaration,
    Directive,
    Entry,
    Function,
    Label,
    Location,
    Module,
    Scope,
    Statement,
    Variable,
)

FAMILIES = arithmetic.FAMILY | moves.FAMILY | convert.FAMILY | memory.FAMILY | warp.FAMILY | carry.FAMILY
# Directives inside a body that carry no meaning for execution.
_IGNORED = {"pragma", "maxnreg", "branchtargets", "callprototype"}


@lru_cache(maxsize=4096)
def _plan(text: str) -> Plan | str:
    """The plan of an opcode text, or why there is none."""
    parts = text.split(".")
    if parts[-1] == "pred" and parts[0] in ("and", "or", "xor", "not"):
        return arithmetic.plan(parts)
    family = FAMILIES.get(parts[0])
    if family is None:
        return "the machine does not know this instruction"
    try:
        return family(parts)
    except Refused as refusal:
        return str(refusal)
    except (IndexError, KeyError):
        return "the machine does not know this instruction"


def locate(module: Module, location: Location | None) -> str:
    """``file:line`` of a .loc (of the call site too where code was inlined), or an empty string."""
    if location is None or location.file not in module.files:
        return ""
    text = f"{module.files[location.file]}:{location.line}"
    caller = location.caller
    while caller and caller.file in module.files:
        text += f", inlined at {module.files[caller.file]}:{caller.line}"
        caller = caller.caller
    return text


def refuse(
    module: Module, entry: Entry | Function, text: str, line: int, location: Location | None, reason: str
) -> Exception:
    where = locate(module, location)
    source = f" ({where})" if where else ""
    what = "function" if isinstance(entry, Function) else "kernel"
    return UnsupportedInstructionError(
        f"{what} {entry.name}: cannot execute `{text}` at PTX line {line}{source}: {reason}. "
        "Rewrite that line of the kernel, or run it on a GPU (device='cuda')."
    )


def decode(module: Module, entry: Entry | Function, symbols: Symbols) -> list[Instruction | Label]:
    """Every instruction of the entry in text order, with its labels.

    Raises UnsupportedInstructionError naming the instruction, its PTX line and its source line.
    """
    items: list[Instruction | Label] = []
    append, plans = items.append, {}
    for item in module.body(entry):
        if type(item) is Statement:
            text = item.opcode
            plan = plans.get(text)
            if plan is None:
                plan = plans[text] = _plan(text)
            try:
                if isinstance(plan, str):
                    raise Refused(plan)
                instruction = plan(symbols, split_operands(item.operands))
                if item.guard is not None:
                    guard = symbols.register(item.guard)
                    if guard is None or guard.width != 0:
                        raise Refused(f"the guard {item.guard}")
                    instruction.guard, instruction.negated = guard, item.negated
            except Refused as refusal:
                raise refuse(module, entry, item.text, item.line, item.location, str(refusal)) from None
            except (ValueError, KeyError, IndexError, AttributeError, TypeError):
                reason = "its operands are not what this instruction takes"
                raise refuse(module, entry, item.text, item.line, item.location, reason) from None
            instruction.statement = item
            append(instruction)
        elif type(item) is Label:
            append(item)
        elif type(item) is Scope:
            if item.opens:
                symbols.scopes.append({})
            else:
                symbols.scopes.pop()
        else:
            _declare(module, entry, symbols, item)
    return items


def _declare(
    module: Module, entry: Entry | Function, symbols: Symbols, item: Declaration | Variable | Directive
) -> None:
    try:
        if isinstance(item, Declaration):
            symbols.declare_registers(item)
        elif isinstance(item, Variable):
            symbols.declare_variable(item)
        elif item.name not in _IGNORED:
            raise Refused("the machine does not know this directive")
    except Refused as refusal:
        line = item.line if isinstance(item, Directive) else entry.line
        text = f".reg .{item.type}" if isinstance(item, Declaration) else getattr(item, "text", "")
        text = f".{item.space} {item.name}" if isinstance(item, Variable) else text
        raise refuse(module, entry, text, line, None, str(refusal)) from None
