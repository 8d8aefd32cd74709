"""Recorded history of a launch: a state for each step, of which only what changed is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from workbench.errors import ArgumentError
from workbench.launch.debug import DebugSession

MOST_BYTES = 330_000
"""Bytes of JSON that a history takes at most, so that its page has at most 400 kB."""


def difference(before: Any, after: Any) -> dict[str, Any]:
    """Return what changed from one state to the next, by key; None where a key is gone.

    Of lists with equally many elements the changed ones are returned by index.
    """
    old = before if isinstance(before, dict) else dict(enumerate(before))
    new = after if isinstance(after, dict) else dict(enumerate(after))
    found: dict[str, Any] = {str(key): None for key in old if key not in new}
    for key, value in new.items():
        if key in old and old[key] == value:
            continue
        found[str(key)] = difference(old[key], value) if key in old and _comparable(old[key], value) else value
    return found


def _comparable(before: Any, after: Any) -> bool:
    if isinstance(before, dict) and isinstance(after, dict):
        return True
    return isinstance(before, list) and isinstance(after, list) and len(before) == len(after)


def record(session: DebugSession, steps: int, state: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """Step through a launch and return its states: the first in full, then what each step changed.

    Ends where the launch ends, after ``steps`` steps, or where the history would exceed `MOST_BYTES`. The launch then
    stands where it stood before. Raises ArgumentError for fewer than one step and for a launch that has ended.
    """
    if steps < 1:
        raise ArgumentError("steps", steps, "1 or more", "Each step is a source line.")
    if session.status == "ended":
        raise ArgumentError("session", "a launch that has ended", "one with steps to come", "Go back with goto(0).")
    start = session.index
    now = state()
    frames, size = [now], len(json.dumps(now))
    while len(frames) <= steps and session.status == "stopped":
        session.step()
        before, now = now, state()
        change = difference(before, now)
        size += len(json.dumps(change))
        if size > MOST_BYTES:
            break
        frames.append(change)
    session.goto(start)
    return frames
