"""Waiting for tickets without a thread for each request: long polls and event streams."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Watching:
    """Events that are set when a ticket changes. `changed` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextlib.contextmanager
    def of(self, ticket: str) -> Iterator[asyncio.Event]:
        """Yield an event of the running loop that each change of a ticket sets; whoever waits clears it."""
        pair = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._waiting.setdefault(ticket, set()).add(pair)
        try:
            yield pair[1]
        finally:
            with self._lock:
                self._waiting[ticket].discard(pair)
                if not self._waiting[ticket]:
                    del self._waiting[ticket]

    def changed(self, ticket: str) -> None:
        """Set the events of a ticket."""
        with self._lock:
            pairs = tuple(self._waiting.get(ticket, ()))
        for loop, event in pairs:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(event.set)
