"""A replay of a trace of requests on a contiguous cache, step by step, with the contents of every row."""

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
    """State of a row: tokens of the prompt, tokens generated so far, tokens still to be generated; all 0 if free."""

    prompt: int = 0
    generated: int = 0
    to_come: int = 0


@dataclass(frozen=True)
class ReplayStep:
    """State of the cache after one step: every row, the number of waiting requests, and the memory use."""

    rows: tuple[RowState, ...]
    waiting: int
    memory: MemoryUse

    @property
    def tokens(self) -> int:
        """Number of slots that hold a token."""
        return sum(row.prompt + row.generated for row in self.rows)

    @property
    def to_come(self) -> int:
        """Number of slots that running requests will fill later."""
        return sum(row.to_come for row in self.rows)


def replay(trace: Sequence[Request], cache: ContiguousKVCache) -> Iterator[ReplayStep]:
    """Serve a trace, first come, first served, and yield the state of the cache after each step.

    In each step, free rows take the next requests and store their prompts (context phase), then every running request
    stores one more token (generation phase). A row is free again after its last token. No keys or values are written,
    only the bookkeeping of the cache changes; all its rows must be free before, and are free at the end.

    Raises:
        ArgumentError: if rows are in use, or a request is longer than a row or generates nothing; no row is taken then.
    """
    if cache.rows:
        raise ArgumentError("cache", f"rows {list(cache.rows)} in use", "an empty cache", "Free its rows.")
    for number, request in enumerate(trace):
        if request.total_tokens > cache.max_seqlen:
            allowed = f"at most max_seqlen = {cache.max_seqlen} tokens"
            raise ArgumentError(f"trace[{number}]", request, allowed, "Make longer rows, or leave the request out.")
        if request.output_tokens < 1:
            raise ArgumentError(f"trace[{number}]", request, "at least one output token", "Leave the request out.")
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
