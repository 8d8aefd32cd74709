"""mbarriers, and barriers of some of the threads: what they count, and the waits for them."""

from __future__ import annotations

from workbench.proof.access import AccessMode
from workbench.proof.clocks import BARRIER_BYTES, EXPECTED, MADE, WAITED, BarrierUse, Ring
from workbench.proof.conditions import FALSE, TRUE, Predicate, both
from workbench.proof.memory import accesses, places_of, space_in
from workbench.proof.state import State
from workbench.proof.terms import Term, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

_PLAIN, _COUNTED = AccessMode(writes=True), AccessMode(writes=True, strong=True)
_BARRIERS = 16
LARGEST_EXPECTED = (1 << 20) - 1


def mbarrier_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute an operation of an mbarrier. Raises Unknown for those that are not modelled."""
    parts = statement.opcode.split(".")
    name = parts[1]
    if not operands[0].lstrip().startswith("["):  # a result: of an arrival nobody may use it
        for register in thread.graph.registers(operands[0]):
            thread.assign(statement, state, register, None, guard)
        operands = operands[1:]
    if "shared::cluster" in parts or name not in ("init", "inval", "arrive", "try_wait", "test_wait"):
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    if name == "arrive" and {"noComplete", "relaxed"} & set(parts):
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    if name in ("try_wait", "test_wait"):
        if statement.start not in thread.graph.waits:
            return  # a question without a loop: nothing follows from it
        if "parity" not in parts or "relaxed" in parts:
            raise Unknown(statement, "a wait for a state instead of a parity is not modelled")
        name = "wait"
    number = _operand(thread, statement, operands, 1, state)
    use_mbarrier(thread, statement, operands[0], state, guard, plain=name in ("init", "inval"))
    if name == "arrive":
        expects = "expect_tx" in parts
        bytes_expected = number if expects else term(0)
        if bytes_expected is None or not bytes_expected.within(0, LARGEST_EXPECTED):
            raise Unknown(statement, "expected bytes that are not a number")
        weight = term(1) if expects or number is None else number
        event(thread, "arrive", statement, operands[0], state, guard, weight)
        if bytes_expected.constant:
            event(thread, "announce", statement, operands[0], state, guard, bytes_expected)
        thread.release(state)
        count(thread, statement, state, MADE, term(1), guard)
        count(thread, statement, state, EXPECTED, bytes_expected, guard)
    else:
        event(thread, name, statement, operands[0], state, guard, number)
        if name == "wait":
            count(thread, statement, state, WAITED, term(1), guard)


def _operand(thread: Thread, statement: Statement, operands: list[str], place: int, state: State) -> Term | None:
    if len(operands) <= place:
        return None
    found = thread.value(statement, operands[place], state)
    return found if isinstance(found, Term) else None


def use_mbarrier(
    thread: Thread, statement: Statement, operand: str, state: State, guard: Predicate, *, plain: bool = False,
    copied: AccessMode | None = None,
) -> None:  # fmt: skip
    """Note that a statement uses an mbarrier, so that nothing else may write there meanwhile."""
    mode = copied._replace(writes=True, strong=True) if copied else _PLAIN if plain else _COUNTED
    accesses(thread, statement, operand, BARRIER_BYTES, state, guard, mode._replace(space=_space(statement)))


def _space(statement: Statement) -> str:
    """Return the state space of the mbarrier of a statement: that of a copy is in shared memory."""
    return "shared" if statement.opcode.startswith("cp.") else space_in(statement)


def event(
    thread: Thread, kind: str, statement: Statement, operand: str, state: State, guard: Predicate, number: Term | None
) -> BarrierUse | None:  # fmt: skip
    """Note what a statement does at an mbarrier, and return it; None in a trial run."""
    if not thread.exact:
        return None
    places = [
        (base, offset)
        for when, base, offset in places_of(thread, statement, operand, state, _space(statement))
        if both(state.path, guard, when) != FALSE
    ]
    if len(places) != 1:
        raise Unknown(statement, "an mbarrier of one of several arrays")
    ((base, offset),) = places
    found = BarrierUse(
        kind, statement, both(state.path, guard), thread.clock(state), thread.role.rings.get(statement.start), base,
        offset, number, thread.rounds,
    )  # fmt: skip
    thread.note(found)
    return found


def count(
    thread: Thread, statement: Statement, state: State, kind: str, more: Term, guard: Predicate,
    ring: Ring | None = None,
) -> None:  # fmt: skip
    """Add to one of the thread's counts. Raises Unknown for counts that differ from round to round in no known way."""
    ring = ring or thread.role.rings.get(statement.start)
    if ring is None or not more.parts:
        if thread.role.known and more.parts:
            raise Unknown(statement, "an mbarrier that was not initialised where the proof sees it")
        return
    held = state.registers.get(ring.count(kind))
    if not isinstance(held, Term):
        raise Unknown(statement, "uses of an mbarrier that match no sum of steps from round to round")
    thread.assign(statement, state, ring.count(kind), held + more, guard)


def count_barrier(
    thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate
) -> None:  # fmt: skip
    """Count a barrier of threads."""
    given = [_operand(thread, statement, operands, place, state) for place in range(2)]
    number = given[0].constant if given[0] is not None else None if operands else 0
    threads = given[1].constant if given[1] is not None else thread.specification.threads
    if number is None or threads is None or (len(operands) > 1 and given[1] is None):
        raise Unknown(statement, "a barrier whose number or threads are not numbers")
    if not 0 <= number < _BARRIERS or (given[1] is not None and threads % 32):
        raise Unknown(statement, "a barrier that a block does not have, or of parts of warps")
    ring = thread.role.bars.get(number)
    if thread.role.known and ring is None:
        raise Unknown(statement, "a barrier that the proof did not meet before")
    thread.release(state)
    thread.note(BarrierUse("bar", statement, both(state.path, guard), thread.clock(state), ring or Ring(f"bar{number}"),
                    number=threads, rounds=thread.rounds))  # fmt: skip
    if ring is not None:
        count(thread, statement, state, MADE, term(1), guard, ring)


def count_warp(thread: Thread, statement: Statement, state: State) -> None:
    """Count a barrier of a whole warp, where its lanes have several roles."""
    ring = thread.role.warp
    if not thread.role.known:
        thread.note(BarrierUse("warp", statement, state.path))
    if ring is not None:
        thread.release(state)
        thread.note(
            BarrierUse("bar", statement, state.path, thread.clock(state), ring, number=32, rounds=thread.rounds)
        )
        count(thread, statement, state, MADE, term(1), TRUE, ring)


def fence_step(thread: Thread, statement: Statement, state: State, guard: Predicate) -> None:
    """Execute a fence: the thread's stores so far come before copies and products that are ordered after it."""
    if guard != TRUE:
        return
    if "proxy.async" in statement.opcode and not statement.opcode.endswith(".global"):
        state.unfenced = frozenset()
    elif "mbarrier_init" in statement.opcode:
        state.unfenced -= thread.inits
