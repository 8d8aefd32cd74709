"""Kernels whose threads have roles: one execution for the threads of each, and the barriers between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from workbench.proof.access import ThreadAccess
from workbench.proof.clocks import GROUP, PRODUCTS, BarrierUse, Ring, Role
from workbench.proof.conditions import FALSE, Predicate, both, conjuncts, equal
from workbench.proof.execution import Execution
from workbench.proof.graph import head
from workbench.proof.indices import flat_index
from workbench.proof.members import decided, divided, leaves
from workbench.proof.passed_bytes import Divided, PassedBytes
from workbench.proof.terms import quotient
from workbench.proof.unknown import Unknown
from workbench.ptx.decode import short_name
from workbench.ptx.parse import ParsedModule

_MOST_ROLES = 16
_MOST_ATTEMPTS = 6
"""Executions of all roles, each of which knows more about the bytes that threads pass to each other."""
Slot = tuple[str, int]


class Roles:
    """The executions of all roles. ``whole`` stands for them all: it has the accesses and barriers of each."""

    def __init__(self, whole: Execution, executions: Sequence[Execution]):
        self.whole, self.executions = whole, list(executions)
        whole.accesses = [one for run in executions for one in run.accesses]
        whole.meetings = [one for run in executions for one in run.meetings]
        whole.hazards = [one for run in executions for one in run.hazards]

    def events(self, *kinds: str) -> list[BarrierUse]:
        """Return what threads do at barriers, of some kinds."""
        return [one for run in self.executions for one in run.events if one.kind in kinds]

    @property
    def rings(self) -> list[Ring]:
        """All barriers that threads count at."""
        return self.executions[0].role.all_rings()

    def path(self, event: BarrierUse) -> Predicate:
        """Return the condition of an event without that of its role, so that one answer serves several roles."""
        own = frozenset(conjuncts(self.executions[event.clock.role].role.condition))
        return both(*(one for one in conjuncts(event.path) if one not in own))

    def holds(self, event: BarrierUse, condition: Predicate) -> bool:
        """Return True if a condition can be proved for all threads of an event."""
        return self.whole.holds(self.path(event), condition)

    def members(self, role: int) -> frozenset[int]:
        """Return the threads of a role."""
        found = self.executions[role].role.members
        assert found is not None
        return found


def has_roles(execution: Execution) -> bool:
    """Return True if an execution met barriers that not all threads of a block take part in, copies or products."""
    return execution.in_roles


def is_product(access: ThreadAccess) -> bool:
    """Return True for what a product of a warp group reads."""
    return access.statement.opcode.startswith("wgmma")


def _number(event: BarrierUse) -> int:
    assert event.ring is not None
    return int(event.ring.name.removeprefix("bar"))


def in_roles(first: Execution, module: ParsedModule) -> Roles:
    """Execute a kernel once for each role. Raises Unknown where the roles or the barriers are not known."""
    rings = _rings(first)
    bars = {_number(one): one.ring for one in first.events if one.kind == "bar" and one.ring is not None}
    statements = frozenset(one.statement.start for one in first.events if one.kind == "bar")
    groups = _groups(first)
    products = frozenset(one.start for block in first.graph.blocks for one in block.statements if head(one) == "wgmma")
    whole = Role(rings, bars, statements, groups, products if groups else frozenset())
    conditions = [leaf for one in first.events for leaf in leaves(one.path)]
    conditions += [equal(quotient(flat_index(first.specification), GROUP), one) for one in groups]
    earlier: list[Execution] = []
    for _ in range(_MOST_ATTEMPTS):
        parts = divided(conditions, first.specification)
        whole = _with_warps(whole, first, conditions, parts)
        if whole.warps:
            parts = divided(conditions, first.specification)
        if len(parts) > _MOST_ROLES:
            raise Unknown(None, f"threads of {len(parts)} roles")
        executions: list[Execution] = []
        passed = PassedBytes(earlier or executions)
        failed: Unknown | None = None
        try:
            for number, (members, condition) in enumerate(parts):
                role = whole.of(members, condition, number)
                one = Execution(module, first.entry.name, first.specification, first.budget, role)
                one.changed = frozenset(access.base for access in first.accesses if access.writes)
                one.passed = passed.load
                try:
                    one.run()
                    executions.append(one)
                except Unknown as error:
                    failed = failed or error
            if passed.agrees(executions):
                if failed is not None:
                    raise failed
                return Roles(first, executions)
        except Divided as found:
            conditions += found.conditions
        earlier = executions
    raise Unknown(None, "bytes that tell threads what to do and are not the same from attempt to attempt")


def _with_warps(
    whole: Role, execution: Execution, conditions: list[Predicate], parts: Sequence[tuple[frozenset[int], Predicate]]
) -> Role:
    """Return a role with a ring for each warp whose lanes have several, and meet; add conditions that tell it apart."""
    specification, met = execution.specification, [one for one in execution.events if one.kind == "warp"]
    warps = dict(whole.warps)
    for warp in range(specification.threads // 32 if met else 0):
        lanes = range(warp * 32, warp * 32 + 32)
        several = sum(not members.isdisjoint(lanes) for members, _ in parts) > 1
        if warp not in warps and several and any(decided(one.path, lanes, specification) != FALSE for one in met):
            warps[warp] = Ring(f"warp{warp}")
            conditions.append(equal(quotient(flat_index(specification), 32), warp))
    statements = frozenset(one.statement.start for one in met)
    return replace(whole, warps=warps, warp_statements=statements)


def _groups(execution: Execution) -> dict[int, Ring]:
    """Return a ring of products for each warp group that makes some."""
    made = [one.path for one in execution.events if one.kind == "product"]
    specification, found = execution.specification, {}
    for group in range(specification.threads // GROUP):
        members = range(group * GROUP, (group + 1) * GROUP)
        if any(decided(path, members, specification) != FALSE for path in made):
            found[group] = Ring(f"{PRODUCTS}{group}")
    if made and not found:
        raise Unknown(None, "products in a block of less than a warp group")
    return found


def _rings(execution: Execution) -> dict[int, Ring]:
    """Return the ring of each statement that uses an mbarrier."""
    slots: dict[Slot, Slot] = {}
    counts: dict[Slot, int] = {}
    again: dict[Slot, BarrierUse] = {}
    for one in execution.events:
        if one.kind == "init":
            place, number = one.offset.constant, getattr(one.number, "constant", None)
            if place is None or not number:
                raise Unknown(one.statement, "an mbarrier that is initialised at a place or for arrivals not known")
            if any(count.constant is None for count in one.rounds):
                raise Unknown(one.statement, "an mbarrier that is initialised in the rounds of a loop")
            if (one.base, place) in slots:  # a compiler may do that to one that nobody uses
                again[one.base, place] = one
            slots[one.base, place], counts[one.base, place] = (one.base, place), number
    uses = [one for one in execution.events if one.kind in ("arrive", "wait", "copy", "inval")]
    for one in uses:
        first, *rest = _reached(one, slots)
        for other in (first, *rest):
            if other in again:
                raise Unknown(again[other].statement, "an mbarrier that is initialised twice")
        for other in rest:
            slots[_root(slots, other)] = _root(slots, first)
    found: dict[int, Ring] = {}
    for one in uses:
        root = _root(slots, _reached(one, slots)[0])
        own = sorted(place for base, place in slots if _root(slots, (base, place)) == root)
        steps = {later - place for place, later in itertools.pairwise(own)}
        arrivals = {counts[one.base, place] for place in own}
        if len(steps) > 1 or len(arrivals) > 1:
            raise Unknown(one.statement, "mbarriers of different counts, or in no array, that are used as one ring")
        name = f"{short_name(one.base.removeprefix('%'))}+{own[0]}"
        ring = Ring(name, one.base, own[0], min(steps, default=8), len(own), min(arrivals))
        if found.setdefault(one.statement.start, ring) != ring:
            raise Unknown(one.statement, "an mbarrier of one of several rings")
    return found


def _reached(event: BarrierUse, slots: dict[Slot, Slot]) -> list[Slot]:
    """Return the mbarriers that a statement may use, from the bounds of its address."""
    low, high = event.offset.bounds
    if low is None or high is None:
        raise Unknown(event.statement, "an mbarrier whose place in its array has no bounds")
    found = [one for one in slots if one[0] == event.base and low <= one[1] <= high]
    if not found:
        raise Unknown(event.statement, "an mbarrier that the kernel does not initialise")
    return found


def _root(slots: dict[Slot, Slot], one: Slot) -> Slot:
    while slots[one] != one:
        one = slots[one]
    return one
