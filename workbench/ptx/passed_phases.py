"""The reason of a deadlock at an mbarrier, from the events of the block: a phase that passed before a warp saw it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.ptx.pipeline_parts import PipelineEvent

_ASKED = re.compile(r"the mbarrier (?:\S+ )?at offset (\d+) \(parity (\d)\)")
_LANES = 32


def asks(message: str) -> bool:
    """Return True if the message is that of a deadlock of threads that wait for a phase of an mbarrier."""
    return _ASKED.search(message) is not None


def why(
    message: str, events: Sequence[PipelineEvent], warp: int, lanes: int, place: Callable[[PipelineEvent], str]
) -> str:
    """Explain a deadlock of ``warp``, which has ``lanes`` lanes, by the events of its block; "" if they cannot.

    There are two causes. The warp may ask for the parity of a phase that it has seen already. Or the phase that it has
    to see next is over, and the mbarrier has been used again since. ``place`` returns the source line of an event.
    """
    found = _ASKED.search(message)
    if found is None:
        return ""
    offset, parity = int(found[1]), int(found[2])
    here = [event for event in events if event.at == offset]
    current = sum(event.kind == "complete" for event in here)
    passes = [event for event in here if event.kind == "pass" and event.warp == warp]
    seen: dict[int, list[int]] = {}  # for each lane that has waited there before, the phases that it found complete
    for event in passes:
        for lane in range(_LANES):
            if event.count >> lane & 1 and event.phase not in seen.get(lane, ()):
                seen.setdefault(lane, []).append(event.phase)
    if current % 2 != parity:
        return ""
    waiting = seen if len(seen) <= 1 else range(lanes)  # a single lane may wait for all
    missed = [one for lane in waiting if (one := _missed([*seen.get(lane, ()), current])) is not None]
    if missed or (not seen and current > 2):
        return _overtaken(min(missed, default=0), warp, here, place, together=len(missed) == len(waiting))
    last = min((phases[-1] for phases in seen.values()), default=-1)
    if current - last != 2:
        return ""
    before = f"with which phase {last} was seen" if seen else "before it has seen any phase"
    remedy = "Flip the parity after every wait" if seen else "Begin with parity 0"
    passed = f"phase {last + 1} (parity {1 - parity}) has passed since"
    return f"; warp {warp} asks for parity {parity}, {before}, and {passed}. {remedy}"


def _missed(phases: Sequence[int]) -> int | None:
    """Return the first phase that passed unseen, if a later phase of the same parity was mistaken for it."""
    steps = zip([-1, *phases], phases, strict=False)
    return next((before + 1 for before, after in steps if after - before > 2 and (after - before) % 2), None)


def _overtaken(
    phase: int, warp: int, here: Sequence[PipelineEvent], place: Callable[[PipelineEvent], str], *, together: bool
) -> str:
    who = f"warp {warp}" if together else f"all lanes of warp {warp}"
    reused = next((place(one) for one in here if one.kind in ("arrive", "copy") and one.phase == phase + 1), "")
    by = f" at {reused}" if reused else ""
    remedy = "Let all lanes meet before that: __syncwarp()"
    if together:
        remedy = f"Let whoever begins it wait for {who} first: a second mbarrier, or __syncthreads()"
    begun = f"phase {phase + 1} was begun{by} before {who} saw it"
    return f"; phase {phase} (parity {phase % 2}) has passed, and {begun}. {remedy}"
