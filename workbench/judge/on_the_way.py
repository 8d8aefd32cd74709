"""Stages of a judgement as they end, for whoever listens in the thread that judges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from workbench.judge.verdict import Verdict

Listener = Callable[[str, Verdict], None]
"""A function of the latest stage that has ended, and of the verdict so far on one variant, configuration and case."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` whenever stages of a judgement end within the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(stage: str, *verdicts: Verdict) -> None:
    """Tell the listener, if there is one, that a stage and all before it have ended for these verdicts."""
    listener = _listener.get()
    if listener is not None:
        for one in verdicts:
            listener(stage, one)
