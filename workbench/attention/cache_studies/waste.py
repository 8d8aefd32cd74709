"""Waste of KV cache memory under one trace: contiguous reservation, an ideal allocator and paging.

A queue that never runs empty is served first come, first served with continuous batching: in each step every running
request generates one token, and the head of the queue is admitted as soon as it fits. Every slot is in one of four
states, as Kwon et al. define them ("Efficient Memory Management for Large Language Model Serving with PagedAttention",
2023, section 3.1 and Figure 2), and the results are averages over the steps:

* token states: it holds the keys and values of a token;
* reserved: its request will fill it later;
* internal fragmentation: it belongs to a request that will never fill it;
* external fragmentation (and others): it belongs to no request, though one is waiting. The slots that a buddy allocator
  adds to make the length of a row a power of two count here.

Paging is measured on the real `BlockManager`, not computed by a formula. `PAPER` has the figures of the paper.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Protocol

from workbench.attention.cache_studies.buddy import BuddyAllocator
from workbench.attention.cache_studies.traces import Request
from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.errors import OutOfBlocksError
from workbench.errors import ArgumentError

OPT_13B_SLOTS = 12 * 2**30 // (2 * 40 * 5120 * 2)
"""Number of slots in the paper's main setting (Table 1): 12 GB for K and V of OPT-13B, 40 layers of 5120 x fp16."""

MAX_SEQLEN = 2048
"""Longest sequence of OPT in tokens, which Orca (Max) reserves for every request."""


@dataclass(frozen=True)
class WasteResult:
    """Averages over the steps of one simulation; the four shares of all slots add up to 1.

    Attributes:
        policy: "contiguous max", "contiguous pow2", "contiguous oracle", "ideal" or "paged".
        block_size: tokens per block; None for a policy without blocks.
        token_states: share of the slots that hold a token.
        reserved: share of the slots that a running request will fill later.
        internal: share of the slots that belong to a request and will never be filled.
        external: share of the slots that belong to no request.
        mean_batch: mean number of running requests.
        sharing_saved: blocks that sharing saves, as a fraction of the blocks without sharing.
        preemptions: number of times that a running request lost its slots and was queued again.
        steps: number of steps averaged over.
    """

    policy: str
    block_size: int | None
    token_states: float
    reserved: float
    internal: float
    external: float
    mean_batch: float
    sharing_saved: float = 0.0
    preemptions: float = 0
    steps: float = 0


@dataclass(frozen=True)
class Published:
    """Shares and batch size that the paper reports for one system; None where it reports nothing."""

    system: str
    policy: str
    token_states: float | None
    reserved: float | None
    internal: float | None
    external: float | None
    batch_sharegpt: float | None


PAPER = (
    Published("Orca (Max)", "contiguous max", 0.204, 0.133, 0.573, 0.089, 7.00),
    Published("Orca (Pow2)", "contiguous pow2", 0.268, 0.179, 0.136, 0.416, 9.81),
    Published("Orca (Oracle)", "contiguous oracle", 0.382, 0.252, 0.0, 0.366, 13.62),
    Published("vLLM", "paged", 0.963, None, None, None, 30.42),
)
"""Published figures: the labels of Figures 2 and 13.

Figure 2 has the shares of KV cache memory in the experiment of section 6.2, Figure 13 the mean number of batched
requests for OPT-13B, with ShareGPT at 2 requests/s. The caption of Figure 2 does not name the data set. It must be
ShareGPT: 7 requests of Alpaca's mean 78 tokens would fill at most 3.5 % of 15.7 K slots, not 20.4 %.
"""


@dataclass(slots=True)
class Running:
    """A running or waiting request, with the number of tokens it has generated."""

    request: Request
    generated: int = 0

    @property
    def tokens(self) -> int:
        """Current length in tokens."""
        return self.request.input_tokens + self.generated

    @property
    def to_come(self) -> int:
        """Number of tokens still to be generated."""
        return self.request.output_tokens - self.generated


@dataclass(frozen=True)
class Tally:
    """Numbers of slots in each state; the rest of the capacity is external fragmentation."""

    token_states: int
    reserved: int
    internal: int
    sharing_saved: float = 0.0


class Policy(Protocol):
    """A way in which a cache gives slots to requests."""

    name: str
    block_size: int | None
    capacity: int

    def fits(self, request: Request) -> bool:
        """Return True if the empty cache could serve a request to its end."""

    def admit(self, seq: int, running: Running) -> bool:
        """Take the slots that a request needs to start (or to resume); return False if it does not fit now."""

    def grow(self, seq: int) -> bool:
        """Take the slot of one more token; return False if there is none."""

    def release(self, seq: int) -> None:
        """Free all slots of a request."""

    def tally(self, running: dict[int, Running]) -> Tally:
        """Count the slots in each state."""


class Contiguous(Policy):
    """A policy that reserves a row for each request, from a buddy allocator: the paper's Orca baselines.

    Args:
        rule: length of a row. "max" reserves ``max_seqlen`` (Orca (Max)), "pow2" the prompt and the true output length
            rounded up to a power of two (Orca (Pow2)), "oracle" the true length (Orca (Oracle)).
        capacity: slots in all.
        max_seqlen: tokens that a sequence may have.
    """

    block_size = None

    def __init__(self, rule: str, capacity: int = OPT_13B_SLOTS, max_seqlen: int = MAX_SEQLEN):
        if rule not in ("max", "pow2", "oracle"):
            raise ArgumentError(
                "rule", repr(rule), "'max', 'pow2' or 'oracle'", "The docstring of the class describes them."
            )
        self.name, self.rule, self.capacity, self.max_seqlen = f"contiguous {rule}", rule, capacity, max_seqlen
        self._buddy = BuddyAllocator(capacity)
        self._rows: dict[int, tuple[int, int]] = {}
        self._reserved = 0

    def row_length(self, request: Request) -> int:
        """Return the number of slots that a request reserves."""
        if self.rule == "oracle":
            return request.total_tokens
        if self.rule == "pow2":
            return min(request.input_tokens + (1 << (request.output_tokens - 1).bit_length()), self.max_seqlen)
        return self.max_seqlen

    def fits(self, request: Request) -> bool:
        """Return True if the request is no longer than a sequence may be, and its row no longer than any chunk."""
        largest_chunk = 1 << (self.capacity.bit_length() - 1)
        return request.total_tokens <= self.max_seqlen and self.row_length(request) <= largest_chunk

    def admit(self, seq: int, running: Running) -> bool:
        """Reserve the row of a request; return False if no chunk is free."""
        length = self.row_length(running.request)
        start = self._buddy.allocate(length)
        if start is None:
            return False
        self._rows[seq] = start, length
        self._reserved += length
        return True

    def grow(self, seq: int) -> bool:
        """Return True, because the row has room for every token."""
        return True

    def release(self, seq: int) -> None:
        """Free the row of a request."""
        start, length = self._rows.pop(seq)
        self._buddy.release(start)
        self._reserved -= length

    def tally(self, running: dict[int, Running]) -> Tally:
        """Count the slots in each state."""
        tokens = to_come = 0
        for one in running.values():
            tokens += one.request.input_tokens + one.generated
            to_come += one.request.output_tokens - one.generated
        return Tally(tokens, to_come, self._reserved - tokens - to_come)


class Ideal(Policy):
    """A policy that takes a slot anywhere for each new token: the best that is possible without sharing."""

    name, block_size = "ideal", None

    def __init__(self, capacity: int = OPT_13B_SLOTS):
        self.capacity = self._free = capacity
        self._held: dict[int, int] = {}

    def fits(self, request: Request) -> bool:
        """Return True if the request is no longer than the cache."""
        return request.total_tokens <= self.capacity

    def admit(self, seq: int, running: Running) -> bool:
        """Take a slot for each token that the request has; return False if too few are free."""
        if running.tokens > self._free:
            return False
        self._held[seq] = running.tokens
        self._free -= running.tokens
        return True

    def grow(self, seq: int) -> bool:
        """Take one slot; return False if none is free."""
        if not self._free:
            return False
        self._held[seq] += 1
        self._free -= 1
        return True

    def release(self, seq: int) -> None:
        """Free all slots of a request."""
        self._free += self._held.pop(seq)

    def tally(self, running: dict[int, Running]) -> Tally:
        """Count the slots: each one that is taken holds a token."""
        return Tally(sum(self._held.values()), 0, 0)


class Paged(Policy):
    """A policy that takes blocks from a `BlockManager` on demand.

    Args:
        block_size: tokens per block.
        capacity: slots in all.
        watermark: fraction of the blocks that must stay free when a request is admitted, so that it is not preempted
            at once; 1 % is vLLM's default.
        shared_prefix: number of tokens that all prompts start with, in addition to their own.
        prefix_caching: share the blocks of that prefix between requests.
    """

    name = "paged"

    def __init__(
        self,
        block_size: int,
        capacity: int = OPT_13B_SLOTS,
        *,
        watermark: float = 0.01,
        shared_prefix: int = 0,
        prefix_caching: bool = False,
    ):
        self.block_size, self.capacity = block_size, capacity
        self.manager = BlockManager(capacity // block_size, block_size, prefix_caching=prefix_caching)
        self._prefix: list[Hashable] = [("shared", i) for i in range(shared_prefix)]
        self._spare = math.ceil(watermark * self.manager.num_blocks)

    def fits(self, request: Request) -> bool:
        """Return True if the request, with the shared prefix, is no longer than all blocks together."""
        return len(self._prefix) + request.total_tokens <= self.manager.num_blocks * self.block_size

    def admit(self, seq: int, running: Running) -> bool:
        """Allocate the blocks of a request; return False if that would leave less than the watermark free."""
        num_tokens = len(self._prefix) + running.tokens
        cached = len(self._prefix) // self.block_size if self.manager.prefix_caching and self.manager.sequences else 0
        needed = -(-num_tokens // self.block_size) - cached
        if self.manager.sequences and self.manager.num_free_blocks - needed < self._spare:
            return False
        own: list[Hashable] = [(seq, i) for i in range(running.tokens)] if self.manager.prefix_caching else []
        try:
            self.manager.allocate(seq, self._prefix + own if own else num_tokens)
        except OutOfBlocksError:
            return False
        return True

    def grow(self, seq: int) -> bool:
        """Append one token; return False if it needs a block and none is free."""
        try:
            self.manager.append(seq)
        except OutOfBlocksError:
            return False
        return True

    def release(self, seq: int) -> None:
        """Free the blocks of a request."""
        self.manager.free(seq)

    def tally(self, running: dict[int, Running]) -> Tally:
        """Count the slots in each state; those of a partial last block are reserved as far as tokens will come."""
        counts = self.manager.statistics()
        size = self.block_size
        rooms = ((-self.manager.num_tokens(seq) % size, one.to_come) for seq, one in running.items())
        reserved = sum(min(room, to_come) for room, to_come in rooms)
        return Tally(counts.filled_slots, reserved, counts.wasted_slots - reserved, counts.sharing_saved)


def simulate(trace: Sequence[Request], policy: Policy, *, warm_up: float = 0.2) -> WasteResult:
    """Serve a trace from a full queue and average the states of the slots.

    The averages start when the fraction ``warm_up`` of the requests has finished and end when the last request has been
    admitted, so that the cache is always under pressure. When no slot is left for a token, the newest request is
    preempted and computed again later.

    Raises:
        ArgumentError: if a request does not fit into the empty cache, or the trace is too short to average over.
    """
    for request in trace:
        if not policy.fits(request):
            allowed = f"requests that fit {policy.name} with {policy.capacity} slots"
            raise ArgumentError("trace", request, allowed, "Raise the capacity, or leave it out.")
    waiting = deque((seq, Running(request)) for seq, request in enumerate(trace))
    running: dict[int, Running] = {}
    sums, batches, saved, steps, finished, preemptions = [0, 0, 0], 0, 0.0, 0, 0, 0
    while True:
        while waiting and policy.admit(*waiting[0]):
            seq, one = waiting.popleft()
            running[seq] = one
        if not waiting:
            break
        if finished >= warm_up * len(trace):
            tally = policy.tally(running)
            sums = [sums[0] + tally.token_states, sums[1] + tally.reserved, sums[2] + tally.internal]
            batches += len(running)
            saved += tally.sharing_saved
            steps += 1
        for seq in list(running):
            if seq not in running:
                continue  # preempted in this step
            while not policy.grow(seq):
                newest = next(reversed(running))
                policy.release(newest)
                waiting.appendleft((newest, running.pop(newest)))
                preemptions += 1
                if newest == seq:
                    break
            else:
                running[seq].generated += 1
                if not running[seq].to_come:
                    policy.release(seq)
                    del running[seq]
                    finished += 1
    if not steps:
        raise ArgumentError("trace", f"{len(trace)} requests", "more requests", "The queue ran empty while warming up.")
    token_states, reserved, internal = shares = [total / steps / policy.capacity for total in sums]
    return WasteResult(
        policy.name, policy.block_size, token_states, reserved, internal, 1 - sum(shares), batches / steps,
        saved / steps, preemptions, steps,
    )  # fmt: skip


def average(results: Sequence[WasteResult]) -> WasteResult:
    """Return the mean of results of one policy, for traces of different seeds.

    Raises:
        ArgumentError: if there are no results, or they are of several policies or block sizes.
    """
    if len({(result.policy, result.block_size) for result in results}) != 1:
        raise ArgumentError(
            "results", f"{len(results)} results", "one policy and block size", "Average each policy by itself."
        )
    means = {field.name: fmean(getattr(result, field.name) for result in results) for field in fields(WasteResult)[2:]}
    return WasteResult(results[0].policy, results[0].block_size, **means)


def compare_waste(
    trace: Sequence[Request],
    *,
    block_sizes: Iterable[int] = (1, 8, 16, 32, 64, 128, 256),
    capacity: int = OPT_13B_SLOTS,
) -> list[WasteResult]:
    """Simulate the three contiguous rules, the ideal allocator and paging with each block size under one trace."""
    policies: list[Policy] = [Contiguous(rule, capacity) for rule in ("max", "pow2", "oracle")]
    policies += [Ideal(capacity), *(Paged(block_size, capacity) for block_size in block_sizes)]
    return [simulate(trace, policy) for policy in policies]
