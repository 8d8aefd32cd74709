"""Accesses that differ by equal steps alone, as a compiler makes them that unrolls a loop, as one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from workbench.proof.access import ThreadAccess
from workbench.proof.clocks import NO_COUNTS
from workbench.proof.terms import THREAD

_LEAST = 3


def in_series(
    several: Sequence[ThreadAccess],
) -> tuple[list[ThreadAccess], dict[ThreadAccess, list[ThreadAccess]]]:
    """Return accesses with one to any of the places in a row instead of each series, and the members of these.

    Who cannot prove something of a series has to ask about its members.
    """
    groups: dict[tuple, list[ThreadAccess]] = {}
    for one in several:
        rest = one.offset - one.offset.parts.get((), 0)
        groups.setdefault((rest, one.manner), []).append(one)
    found, series = [], {}
    for members in groups.values():
        members.sort(key=lambda one: one.offset.parts.get((), 0))
        starts = [one.offset.parts.get((), 0) for one in members]
        steps = {after - before for before, after in itertools.pairwise(starts)}
        first = members[0]
        if len(members) < _LEAST or len(steps) != 1 or first.clock != NO_COUNTS or first.proxy or not first.offset.deps:
            found += members
            continue
        name = f"place{first.statement.start}of{len(members)}"
        place = first.offset.arena.atom("place", name, (), 0, len(members) - 1, THREAD)
        found.append(replace(first, offset=first.offset + place * steps.pop()))
        series[found[-1]] = members
    return found, series
