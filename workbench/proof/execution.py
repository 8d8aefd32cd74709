"""Execution of one generic thread over a kernel's PTX: block by block, and merged where paths meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from workbench.base.element_types import PTX_BYTES
from workbench.proof.access import Epoch, Meeting, ThreadAccess, following
from workbench.proof.barriers import count_barrier, count_warp, fence_step, mbarrier_step
from workbench.proof.clocks import BarrierUse, Role
from workbench.proof.conditions import FALSE, TRUE, Predicate, both, choice, conjuncts, either, negation, zero
from workbench.proof.copies import copy_step
from workbench.proof.graph import ENDS, Graph, head
from workbench.proof.indices import block_index, flat_index, thread_index, variable_base
from workbench.proof.loops import run_loop
from workbench.proof.made_maps import map_step
from workbench.proof.members import decided
from workbench.proof.memory import is_pointer, move, parameter
from workbench.proof.products import product_step
from workbench.proof.records import Records
from workbench.proof.shared_values import SharedValues
from workbench.proof.solver import QUICK, Effort, Question
from workbench.proof.specification import Specification
from workbench.proof.state import STORES, Landed, State, Value, merged
from workbench.proof.terms import THREAD, Term, remainder, term
from workbench.proof.unknown import Unknown
from workbench.proof.values import WITHOUT_MEMORY, Operation, as_integer, computed
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import ParsedModule, Statement, parse_number

_MOST_BLOCKS = 4_000
"""Executions of a basic block after which a proof gives up."""
_MOST_RUNS = 6
"""Executions of the whole kernel, each of which knows more about memory than the one before."""
_NOTHING = frozenset((
    "membar", "prefetch", "prefetchu", "griddepcontrol", "setmaxnreg", "nanosleep", "pmevent", "applypriority",
))  # fmt: skip
"""Instructions that matter neither to addresses nor to the order of accesses here."""
_MOVES = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix")
_OPAQUE = ("clock", "clock64", "globaltimer", "globaltimer_lo", "smid", "warpid", "nwarpid", "nsmid", "gridid")
_WIDE = ("clock64", "globaltimer", "gridid")
"""Special registers of 64 bits."""
Exits = list[tuple[int, State]]
Passed = Callable[["Execution", ThreadAccess, int, int, tuple[int, int]], Term | None]
"""A function that returns what a load of some bytes finds, within limits, for all threads of a role; None for any."""


class Execution(Records):
    """The generic thread, and its recorded accesses and barriers.

    ``accesses`` and ``meetings`` are those of the ``exact`` runs; in a trial run of a loop nothing is recorded, and
    values are taken not to wrap. ``wraps`` are the places where a value of 32 bits may.
    """

    def __init__(
        self, module: ParsedModule, name: str, specification: Specification, budget: Effort, role: Role | None = None
    ):
        super().__init__(role or Role(), specification.threads)
        self.entry = module.entries[name]
        self.graph = Graph(module, self.entry)
        self.specification, self.budget = specification, budget
        self._decided: dict[Predicate, Predicate] = {}
        self.wraps: dict[int, Statement] = {}
        self.changed: frozenset[str] = frozenset()
        self.read_as_constant: set[str] = set()
        self.stored: dict[ThreadAccess, tuple[Value, ...]] = {}
        self._shared = SharedValues(self)
        self.passed: Passed = lambda *_: None
        self.rounds: tuple[Term, ...] = ()
        self._proved: dict[tuple[Predicate, Predicate], bool] = {}
        self._blocks = 0
        for name, statements in self.role.watched():
            self.graph.watch(name, statements)

    def run(self) -> None:
        """Execute the kernel. Raises Unknown for code that is not modelled, OutOfBudget if it takes too long."""
        for attempt in range(_MOST_RUNS):
            start = State({name: term(0) for ring in self.role.all_rings() for name in ring.counts()})
            start.path = self.role.condition
            self.region(set(self.graph.order), 0, start, looping=False)
            written = frozenset(one.base for one in self.accesses if one.writes)
            if written & self.read_as_constant:
                self.changed |= written  # values of what the kernel writes are not those before it: once more, without
            elif attempt + 1 == _MOST_RUNS or self.in_roles or not self._shared.learn():
                return
            self.accesses, self.meetings, self.hazards, self.read_as_constant, self._blocks = [], [], [], set(), 0
            self.events, self.stored, self.going_on = [], {}, {}
        raise Unknown(None, "memory that is written after it was read as constant")

    # -- paths --------------------------------------------------------------------------------------------------

    def region(self, blocks: set[int], entry: int, start: State, *, looping: bool) -> tuple[list[State], Exits]:
        """Execute blocks from ``entry``; return the states that come back to it, and those that leave."""
        waiting: dict[int, list[State]] = {entry: [start]}
        back: list[State] = []
        exits: Exits = []
        done: set[int] = set()
        for block in self.graph.order:
            if block not in blocks or block in done or block not in waiting:
                continue
            state = merged(waiting.pop(block), self.graph.live[block], self.graph.types)
            body = self.graph.loops.get(block)
            if body is not None and not (looping and block == entry):
                outcomes = run_loop(self, block, body, state)
                done |= body
            else:
                outcomes = self._block(block, state)
            for target, after in outcomes:
                if after.path == FALSE:
                    continue
                if looping and target == entry:
                    back.append(after)
                elif target not in blocks:
                    exits.append((target, after))
                else:
                    waiting.setdefault(target, []).append(after)
        return back, exits

    def merged(self, block: int, states: Sequence[State]) -> State:
        """Return the state of several paths to a block."""
        return merged(states, self.graph.live[block], self.graph.types)

    def round(self, block: int, body: set[int], start: State, count: Term, *, apart: bool) -> tuple[list[State], Exits]:
        """Execute a round of a loop: the states that come back, and those that leave.

        With ``apart`` the reach of the round's places counts from the loop's head.
        """
        rounds, self.rounds = self.rounds, (*self.rounds, count)
        if apart:
            self._base.append(start.path)
            start.reach = TRUE
        try:
            return self.region(body, block, start, looping=True)
        finally:
            self.rounds = rounds
            if apart:
                self._base.pop()

    def _block(self, block: int, state: State) -> Exits:
        self._blocks += 1
        if self._blocks > _MOST_BLOCKS:
            raise Unknown(None, f"more than {_MOST_BLOCKS:,} blocks of code, unrolled")
        after = self.graph.blocks[block].after
        for statement in self.graph.blocks[block].statements:
            name = head(statement)
            if name == "bra":
                if not statement.guard:
                    return [(after[0], state)]
                guard = self.guard(statement, state)
                ends = [self.graph.ends(one) for one in after]
                aborts = [self.graph.aborts(one) for one in after]
                taken = state.copy().narrow(guard, others_end=ends[1], others_abort=aborts[1])
                rest = state.narrow(negation(guard), others_end=ends[0], others_abort=aborts[0])
                return [(after[0], taken), (after[1], rest)]
            if name in ENDS:
                guard = self.guard(statement, state)
                self._end(statement, state.copy().narrow(guard))
                if not statement.guard:
                    return []
                state.narrow(negation(guard), others_end=True, others_abort=name == "trap")
            else:
                self._step(statement, name, state)
        if not after and self.graph.blocks[block].statements:
            self._end(self.graph.blocks[block].statements[-1], state)
        return [(one, state) for one in after]

    def _end(self, statement: Statement, state: State) -> None:
        """Note that the thread ends, and the copies that it has not waited for."""
        if self.role.known and state.path != FALSE:
            for when, copy in state.pending:
                stores = state.queues[STORES]
                if not copy.writes and any((when, copy) in group for group in (*stores.groups, stores.open)):
                    self.note(BarrierUse("unread", statement, both(state.path, when, copy.path), self.clock(state)))
                self.record(replace(copy.lasting(when, state.path, (), ()), landing=None), ended=True)
            self.note(BarrierUse("exit", statement, state.path, self.clock(state)))

    def guard(self, statement: Statement, state: State) -> Predicate:
        """Return the condition under which a statement runs."""
        if not statement.guard:
            return TRUE
        found = self.value(statement, statement.guard, state)
        if not isinstance(found, Predicate):
            raise Unknown(statement, "a guard that is not a predicate")
        return self.role_decides(negation(found) if statement.negated else found)

    def role_decides(self, condition: Predicate) -> Predicate:
        """Return a condition without what the numbers of the role's threads decide."""
        if self.role.members is None:
            return condition
        found = self._decided.get(condition)
        if found is None:
            found = self._decided[condition] = decided(condition, self.role.members, self.specification)
        return found

    # -- statements ---------------------------------------------------------------------------------------------

    def _step(self, statement: Statement, name: str, state: State) -> None:
        operands = split_operands(statement.operands)
        guard = self.guard(statement, state)
        if guard == FALSE or name in _NOTHING or (name == "st" and ".param" in statement.opcode):
            return
        if name in ("bar", "barrier"):
            self._barrier(statement, operands, state, guard)
        elif name == "mbarrier":
            mbarrier_step(self, statement, operands, state, guard)
        elif name == "tensormap" or "proxy.tensormap" in statement.opcode:
            map_step(self, statement, operands, state, guard)
            if name == "tensormap" and "aligned" in statement.opcode:
                self._together(statement, both(state.reach, guard))
        elif name == "fence":
            fence_step(self, statement, state, guard)
        elif name == "cp":
            copy_step(self, statement, operands, state, guard)
        elif name == "wgmma":
            product_step(self, statement, operands, state, guard)
            self._together(statement, both(state.reach, guard))
        elif name == "elect":
            self._elect(statement, operands, state, guard)
        elif name == "ld" and ".param" in statement.opcode:
            parameter(self, statement, operands, state, guard)
        elif name in _MOVES:
            move(self, statement, operands, state, guard)
        elif name in WITHOUT_MEMORY:
            results = self.graph.registers(operands[0]) if operands else []
            operation = Operation(self, statement, operands, state, statement.opcode.split("."))
            shuffled = name == "shfl" and not operands[0].startswith("_")
            known = shuffled or (len(results) == 1 and "|" not in operands[0])
            value = computed(operation) if known else None
            for place, register in enumerate(results):  # of a shuffle, a predicate comes behind the value
                self.assign(statement, state, register, None if place else value, guard)
        else:
            raise Unknown(statement, f"{statement.opcode} is not modelled")

    def _together(self, statement: Statement, reach: Predicate, *, lanes: bool = True) -> None:
        """Note that the threads of a warp, or of the block, have to come here together."""
        if self.exact:
            self.meetings.append(Meeting(statement, self._base[-1], reach, lanes, self.rounds))

    def _elect(self, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
        """Elect the first lane of a warp."""
        if parse_number(operands[1]) not in (-1, 0xFFFF_FFFF):
            raise Unknown(statement, "an election among some lanes of a warp is not modelled")
        number, _, chosen = operands[0].partition("|")
        if number.strip() in self.graph.types:
            self.assign(statement, state, number.strip(), term(0), guard)
        self.assign(statement, state, chosen.strip(), zero(remainder(flat_index(self.specification), 32)), guard)

    def _barrier(self, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
        parts = statement.opcode.split(".")
        if "arrive" in parts or "cluster" in parts:
            raise Unknown(statement, f"{statement.opcode} is not modelled")
        lanes = "warp" in parts
        if lanes:
            whole = parse_number(operands[0])
            if whole not in (-1, 0xFFFF_FFFF) or guard != TRUE:
                return  # of some lanes: it orders nothing for the others
        elif "red" in parts:
            for register in self.graph.registers(operands[0]):
                self.assign(statement, state, register, None, guard)
            operands = operands[1:-1]
        if lanes:
            count_warp(self, statement, state)
        else:
            count_barrier(self, statement, operands, state, guard)
        self._together(statement, both(state.reach, guard), lanes=lanes)
        here, others = Epoch(guard, statement.start, self.rounds), negation(guard)
        state.lane_epochs = following(state.lane_epochs, here, others)
        if not lanes:
            state.epochs = following(state.epochs, here, others)
        for when, copy in state.pending if not self.role.known else ():
            self.record(copy.lasting(when, state.path, state.epochs, state.lane_epochs))

    def keep(self, access: ThreadAccess, values: tuple[Value, ...]) -> None:
        """Keep the values of the elements that an access stores, in an exact run."""
        if self.exact:
            self.stored[access] = values

    def shared_value(
        self, access: ThreadAccess, shift: int, size: int, limits: tuple[int, int], landed: Landed
    ) -> Value:  # fmt: skip
        """Return what a load finds in shared memory, within the limits of its type.

        Threads with roles order their accesses by more than barriers of all: only what these order is looked at.
        """
        if self.role.known:
            value = self.passed(self, access, shift, size, limits) if self.exact else None
            return self.fresh(access.statement, f"shared{shift}", *limits) if value is None else value
        return self._shared.load(access, shift, size, limits, landed.copies)

    # -- values -------------------------------------------------------------------------------------------------

    def assign(self, statement: Statement, state: State, register: str, value: Value, guard: Predicate) -> None:
        """Give a register a value, where the guard holds."""
        predicate = self.graph.types[register] == "pred"
        if isinstance(value, Predicate) != predicate:
            value = None
        if value is None and predicate:
            value = self._unknown_condition(f"{register}@{statement.start}")
        if guard != TRUE:
            old = state.registers.get(register)
            if isinstance(value, Predicate):
                if not isinstance(old, Predicate):
                    old = self._unknown_condition(f"{register}<{statement.start}")
                value = either(both(guard, value), both(negation(guard), old))
            elif isinstance(value, Term):
                value = choice(guard, value, self._as_term(register, old, f"<{statement.start}"))
        state.registers[register] = value

    def value(self, statement: Statement, operand: str, state: State) -> Value:
        """Return a register, a special register, a number or the address of a variable."""
        operand = operand.strip()
        kind = self.graph.types.get(operand)
        if kind is not None:
            held = state.registers.get(operand)
            if held is None:
                mark = f"<{statement.start}"
                held = self._unknown_condition(operand + mark) if kind == "pred" else self._as_term(operand, None, mark)
                state.registers[operand] = held
            return held
        if operand.startswith("%"):
            return self._special(statement, operand[1:])
        number = parse_number(operand)
        if number is not None:
            return term(number) if isinstance(number, int) else None
        variable = self.graph.variables.get(operand)
        if variable is not None:
            if variable.space == "shared" and variable.external:  # all of these begin at one address
                known = self.graph.variables.values()
                operand = next(one.name for one in known if one.space == "shared" and one.external)
            return self.specification.arena.atom("pointer", variable_base(operand))
        mapped = self._tensor_map(operand)
        if mapped is not None:
            return mapped
        raise Unknown(statement, f"the operand {operand} is not modelled")

    def _tensor_map(self, operand: str) -> Term | None:
        """Return the address of a parameter that is a tensor map."""
        place = {one.name: i for i, one in enumerate(self.entry.parameters)}.get(operand)
        value = None if place is None else self.specification.arguments[place]
        atom = None if value is None else value.atom
        return value if atom is not None and atom.name in self.specification.maps else None

    def _special(self, statement: Statement, name: str) -> Value:
        name, _, axis = name.partition(".")
        place = "xyz".find(axis) if axis else -1
        specification = self.specification
        if place >= 0 and name == "tid":
            return thread_index(specification, place)
        if place >= 0 and name == "ctaid":
            return block_index(specification, place)
        if place >= 0 and name in ("ntid", "nctaid"):
            return term((specification.block if name == "ntid" else specification.grid)[place])
        if name == "laneid" and specification.block[1:] == (1, 1):
            return remainder(thread_index(specification, 0), 32)
        if name == "WARP_SZ":
            return term(32)
        if name in _OPAQUE or name.startswith("lanemask") or name == "laneid":
            bits = 5 if name == "laneid" else 64 if name in _WIDE else 32
            return self.fresh(statement, name, 0, (1 << bits) - 1)
        raise Unknown(statement, f"%{name} is not modelled")

    def fresh(self, statement: Statement, name: str, low: int, high: int) -> Term:
        """Return a value that may be anything, the same one when this statement is executed again in these rounds."""
        return self.specification.arena.atom("unknown", f"{name}@{statement.start}", self.rounds, low, high, THREAD)

    def _as_term(self, register: str, held: Value, mark: str) -> Term:
        if isinstance(held, Term):
            return held
        half = 1 << 8 * PTX_BYTES.get(self.graph.types[register], 8) - 1
        return self.specification.arena.atom("unknown", register + mark, self.rounds, -half, half - 1, THREAD)

    def _unknown_condition(self, name: str) -> Predicate:
        return negation(zero(self.specification.arena.atom("unknown", name, self.rounds, 0, 1, THREAD)))

    def constant(self, access: ThreadAccess) -> bool:
        """Return True if the memory that an access reads is known not to change, and note that this was used."""
        base, statement = access.base, access.statement
        tensor = base in self.specification.tensors and (".global" in statement.opcode or head(statement) == "ldu")
        fact = self.specification.data.get(base)
        used = {base, fact.apart} - {""} if fact is not None else {base}
        if not tensor or access.strong or used & self.changed:
            return False
        self.read_as_constant |= used
        return True

    def integer(self, statement: Statement, value: Term, signed: bool, width: int, state: State) -> Term:
        """Return the integer that an instruction reads from the bits of a value."""
        wrapped, fits = as_integer(value, signed, width)
        if fits == TRUE or not self.exact or self.holds(state.path, fits):
            return value
        if is_pointer(value):
            raise TypeError  # an address that leaves its array on the way
        self.wraps.setdefault(statement.start, statement)
        return wrapped

    def question(self, path: Sequence[Predicate] = ()) -> Question:
        """Return a question with the facts about sizes and some conditions."""
        return Question(self.budget, self.specification.data, [*self.specification.facts, *path])

    def holds(self, path: Predicate, goal: Predicate, resources: int = QUICK, lemmas: int = 1) -> bool:
        """Return True if a condition can be proved for the threads of a path."""
        if goal.kind in ("true", "false"):
            return goal == TRUE
        if frozenset(conjuncts(path)).issuperset(conjuncts(goal)):
            return True
        known = self._proved.get((path, goal))
        if known is None:
            question = self.question([path])
            against = question.condition(negation(goal), "")
            known = question.ask([against], resources, model=False, lemmas=lemmas).contradiction
            self._proved[path, goal] = known
        return known
