"""Requests that come and go in a contiguous cache, step by step: what its rows hold while a trace is served."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.attention.cache_studies.traces import Request
from workbench.attention.kvcache.contiguous import ContiguousKVCache
from workbench.attention.kvcache.memory_use import MemoryUse
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class RowState:
    """A row: tokens of its request's prompt, tokens generated so far, and tokens that will still come; 0 if free."""

    prompt: int = 0
    generated: int = 0
    to_come: int = 0


@dataclass(frozen=True)
class ReplayStep:
    """The cache after one step: every row, the requests that wait for one, and the bytes."""

    rows: tuple[RowState, ...]
    waiting: int
    memory: MemoryUse

    @property
    def tokens(self) -> int:
        """Slots that hold a token."""
        return sum(row.prompt + row.generated for row in self.rows)

    @property
    def to_come(self) -> int:
        """Slots that a running request will fill later."""
        return sum(row.to_come for row in self.rows)


def replay(trace: Sequence[Request], cache: ContiguousKVCache) -> Iterator[ReplayStep]:
    """Serve a trace, first come, first served: a free row takes the next request and stores its prompt (context phase),
    then every running request stores one more token (generation phase). A row is free again after its last token.

    No keys and values are written: this is the bookkeeping of the cache, whose rows are all free before and after.

    Raises:
        ArgumentError: rows in use, a request longer than a row, or one that generates nothing; nothing has been taken
            then.
    """
    if cache.rows:
        raise ArgumentError("cache", f"rows {list(cache.rows)} in use", "an empty cache", "Free its rows.")
    for number, request in enumerate(trace):
        if request.total_tokens > cache.max_seqlen:
            allowed = f"at most max_seqlen = {cache.max_seqlen} tokens"
            raise ArgumentError(f"trace[{number}]", request, allowed, "Make longer rows, or leave it out.")
        if request.output_tokens < 1:
            raise ArgumentError(f"trace[{number}]", request, "at least one output token", "Leave it out.")
    return _steps(deque(trace), cache)


def _steps(waiting: deque[Request], cache: ContiguousKVCache) -> Iterator[ReplayStep]:
    running: dict[int, RowState] = {}
    while waiting or running:
        for row in range(cache.num_rows):
            if row not in running and waiting:
                request = waiting.popleft()
                cache.allocate(row, request.input_tokens)
                running[row] = RowState(request.input_tokens, 0, request.output_tokens)
        cache.append(running)
        for row, one in running.items():
            running[row] = RowState(one.prompt, one.generated + 1, one.to_come - 1)
        rows = tuple(running.get(row, RowState()) for row in range(cache.num_rows))
        yield ReplayStep(rows, len(waiting), cache.memory())
        for row in [row for row, one in running.items() if not one.to_come]:
            cache.free(row)
            del running[row]
