"""Device functions that were not inlined: finds those that a kernel needs, and plans the steps of a call.

Every function has registers of its own, so that a call saves none; only a function that can be active twice saves its
caller's. Parameters and results lie in local memory: the caller's variables are copied to the callee's frame, which
begins where the caller's ends, and back. Functions stand before the kernel in the code: the scheduler runs the lanes
with the lowest pc, so that those inside a function come back before the others go on.

A call through a register (a function pointer, a virtual function) becomes a call of each function whose address the
module takes and whose prototype fits, made by the lanes that have its address. Lanes whose address is none of these
trap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.ptx import flow
from workbench.ptx.decode import decode, refuse
from workbench.ptx.instruction import Instruction, InstructionStep, comparison, elementwise
from workbench.ptx.machine import CALL, NO_SLOT, OPCODES, core
from workbench.ptx.operands import Constant, Frame, Register, Symbols
from workbench.ptx.parse import Function, Label, ParsedModule, PtxEntry, PtxSyntaxError

RECURSION_BYTES = 8192  # of local memory per thread, for kernels that recurse
# Functions that the machine provides itself: the instruction, its number of parameters, True if it has a result.
_BUILTINS = {
    "vprintf": ("call.vprintf", 2, True),
    "__assertfail": ("call.assertfail", 5, False),
    "malloc": ("call.malloc", 1, True),
    "free": ("call.free", 1, False),
    "cudaGraphSetConditional": ("call.set_conditional", 2, False),
}
HEAP_CALLS = ("call.malloc", "call.free")


@dataclass(eq=False)
class Unit:
    """A kernel or one of its functions, decoded. ``callees`` are the units it calls, ``frame`` its local bytes."""

    source: PtxEntry | Function
    symbols: Symbols
    items: list[InstructionStep | Label]
    callees: dict[str, Unit] = field(default_factory=dict)
    targets: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """For each call through a register, by its step's id, the (address, name) of functions that it may call."""
    recursive: bool = False
    index: int = 0

    @property
    def frame(self) -> int:
        """Bytes of local memory, rounded up to a multiple of 16."""
        return max(16, (self.symbols.local_bytes + 15) // 16 * 16)

    def blocks(self) -> list[flow.BasicBlock]:
        """Return the basic blocks in text order. Raises PtxSyntaxError for a branch to a label that does not exist."""
        try:
            return flow.split_blocks(self.items)
        except KeyError as missing:
            raise PtxSyntaxError(f"{self.source.name}: a branch to the label {missing}, which does not exist") from None


def units(module: ParsedModule, entry: PtxEntry, global_address: Callable[[str], int]) -> list[Unit]:
    """Return the kernel's functions, each after the ones it calls unless they recurse, and the kernel last.

    Raises UnsupportedInstructionError for a function without a body, and for a call through a register that fits no
    function.
    """
    shared: dict[str, int] = {}
    shared_sizes: dict[str, int] = {}
    known: dict[str, Unit] = {}
    finished: list[Unit] = []
    shared_bytes = 0
    work: list[tuple[PtxEntry | Function, bool]] = [(entry, False)]
    while work:
        source, done = work.pop()
        if done:
            finished.append(known[source.name])
            continue
        if source.name in known:
            continue
        symbols = Symbols(
            source,
            module.variables,
            global_address,
            shared=shared,
            shared_sizes=shared_sizes,
            shared_bytes=shared_bytes,
        )
        items = decode(module, source, symbols)
        shared_bytes = symbols.shared_bytes
        known[source.name] = Unit(source, symbols, items)
        work.append((source, True))
        for item in items:
            if type(item) is InstructionStep and item.form.kind == CALL and item.target not in _BUILTINS:
                found = _callees(module, source, item)
                if item.form.instruction.prototype is not None:
                    known[source.name].targets[id(item)] = [(global_address(one.name), one.name) for one in found]
                work += [(one, False) for one in found]
    finished[-1].symbols.shared_bytes = shared_bytes
    _link(finished, known)
    return finished


def _callees(module: ParsedModule, source: PtxEntry | Function, call: InstructionStep) -> list[Function]:
    """Return the called function; for a call through a register, all that it may call."""
    prototype, function = call.form.instruction.prototype, module.functions.get(call.target)
    found = [function] if function is not None and function.body_start is not None else []
    if prototype is not None:
        found = [one for one in module.addressed if one.prototype == prototype]
    _, arguments = call.form.instruction.call or ((), ())
    if found and len(arguments) == len(found[0].parameters):
        return found
    reason = f"it calls {call.target}, which has no body in this module"
    if found:
        reason = f"it calls {call.target} with {len(arguments)} arguments instead of {len(found[0].parameters)}"
    elif prototype is not None:
        reason = f"it calls through {call.target}: take the address of a function of that prototype"
    statement = call.statement
    assert statement is not None  # calls are never inserted
    raise refuse(module, source, statement.text, statement.line, statement.location, reason)


def _link(finished: list[Unit], known: dict[str, Unit]) -> None:
    for index, unit in enumerate(finished):
        unit.index = index
        for item in unit.items:
            if type(item) is InstructionStep and item.form.kind == CALL and item.target in known:
                unit.callees[item.target] = known[item.target]
        for names in unit.targets.values():
            unit.callees.update((name, known[name]) for _, name in names)
    for unit in finished:
        seen: set[int] = set()
        work = list(unit.callees.values())
        while work:
            other = work.pop()
            if other.index not in seen:
                seen.add(other.index)
                work.extend(other.callees.values())
        unit.recursive = unit.index in seen
    for unit in finished:
        if (
            unit.symbols.in_function
            or unit.callees
            or any(type(i) is InstructionStep and i.form.kind == CALL for i in unit.items)
        ):
            unit.items = [*_prologue(unit), *(part for item in unit.items for part in _expand(unit, item))]


def _prologue(unit: Unit) -> list[InstructionStep]:
    """Return steps that compute the addresses of a function's own variables, frame + offset."""
    add = OPCODES["add.b64"]
    return [
        InstructionStep.of(elementwise(add, register, Frame(), Constant(8, offset)))
        for register, offset in unit.symbols.frame_addresses
    ]


def _expand(unit: Unit, item: InstructionStep | Label) -> list[InstructionStep | Label]:
    if type(item) is not InstructionStep or item.form.kind != CALL:
        return [item]
    call = item.form.instruction
    builtin = _BUILTINS.get(item.target)
    if builtin:
        name, count, returns = builtin
        results, arguments = call.call or ((), ())
        raw = dict(enumerate(arguments[:count], core.SystemCall.argument))
        if returns:
            raw[core.SystemCall.result] = results[0] if results else NO_SLOT
        return [_guarded(item, Instruction(OPCODES[name], {core.SystemCall.frame: Frame()}, raw=raw))]
    if call.prototype is not None:
        return [*_dispatched(unit, item)]
    return [_guarded(item, part) for part in _call(unit, call, unit.callees[item.target])]


def _dispatched(unit: Unit, item: InstructionStep) -> list[InstructionStep]:
    """Return the steps of a call through a register: each target in turn, then a trap for lanes that matched none."""
    call, move = item.form.instruction, OPCODES["mov.pred"]
    done, hit = unit.symbols.temporary(0), unit.symbols.temporary(0)

    def steps(*parts: Instruction, guard: Register | None, negated: bool = False) -> list[InstructionStep]:
        made = [InstructionStep.of(part) for part in parts]
        for step in made:
            step.guard, step.negated = guard, negated
        return made

    def set_to(flag: Register, value: int) -> Instruction:
        return elementwise(move, flag, Constant(0, value))

    # Lanes that the call's own guard leaves out are done from the first.
    (first,) = began = steps(set_to(done, 0), guard=item.guard, negated=item.negated)
    first.body, first.start = item.body, item.start  # counted as the call, once
    made = [*steps(set_to(done, 1), guard=None), *began]
    for address, name in unit.targets[id(item)]:
        test = comparison(OPCODES["setp.eq.b64"], hit, call.slots[core.Call.target], Constant(8, address))
        made += steps(set_to(hit, 0), guard=None) + steps(test, guard=item.guard, negated=item.negated)
        made += steps(*_call(unit, call, unit.callees[name]), set_to(done, 1), guard=hit)
    return [*made, *steps(Instruction(OPCODES["trap"], {}), guard=done, negated=True)]


def _call(unit: Unit, call: Instruction, callee: Unit) -> list[Instruction]:
    """Return the steps of a direct call: arguments into the callee's frame, the jump, results back."""
    results, arguments = call.call or ((), ())
    function, places = callee.source, callee.symbols.local
    assert isinstance(function, Function)  # a kernel is never called
    into = [
        (offset, unit.frame + places[p.name], p.size) for offset, p in zip(arguments, function.parameters, strict=True)
    ]
    back = [(unit.frame + places[p.name], offset, p.size) for offset, p in zip(results, function.results, strict=False)]
    frames = {core.Call.caller_bytes: unit.frame, core.Call.callee_bytes: callee.frame}
    jump = [Instruction(call.opcode, {core.Call.frame: Frame()}, raw=frames, target=function.name)]
    if callee.recursive and unit.recursive:
        save, restore = OPCODES["registers.save"], OPCODES["registers.restore"]
        jump = [Instruction(save, {}, imm=unit.index), *jump, Instruction(restore, {}, imm=unit.index)]
    return [*(_copy(*m) for m in into), *jump, *(_copy(*m) for m in back)]


def _guarded(item: InstructionStep, part: Instruction) -> InstructionStep:
    """Return a part of a call under the call's guard; the call itself keeps its statement."""
    step = InstructionStep.of(part)
    step.guard, step.negated = item.guard, item.negated
    if part.opcode.name.startswith("call"):
        step.body, step.start = item.body, item.start
    return step


def _copy(from_: int, to: int, size: int) -> Instruction:
    copy = core.ParameterCopy
    raw = {copy.source: from_, copy.destination: to, copy.bytes: size}
    return Instruction(OPCODES["param.copy"], {copy.frame: Frame()}, raw=raw)


def local_bytes(all_units: list[Unit]) -> int:
    """Return the local memory of one thread: all frames, and a stack if functions recurse."""
    entry = all_units[-1]
    if len(all_units) == 1:
        return (entry.symbols.local_bytes + 15) // 16 * 16
    recursive = any(unit.recursive for unit in all_units)
    # Functions that call each other count once; further frames come from the recursion's stack.
    return sum(unit.frame for unit in all_units) + (RECURSION_BYTES if recursive else 0)
