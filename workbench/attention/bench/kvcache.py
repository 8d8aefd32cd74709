"""Cost of the block manager's operations, from a thousand blocks to a million: ``workbench bench kvcache``.

Allocating, appending, forking and freeing should cost the same whatever the size of the cache. All sizes are measured
in one run, in turn, so that other load on the machine affects every size: trust the ratios rather than the seconds.
``tests/kvcache/test_block_cost.py`` counts steps exactly; seconds show what such a count misses, for example a slow
call into C over a whole list.
"""

from __future__ import annotations

import dataclasses
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.attention.kvcache import BlockManager
from workbench.errors import ArgumentError
from workbench.tuning.bench import Benchmark

SIZES = (10**3, 10**4, 10**5, 10**6)
BLOCK_SIZE = 16
_LEAST_BLOCKS = 256
_SEQS = 8
"""Number of sequences that each round allocates, appends to, forks and frees; each holds `_BLOCKS` blocks."""
_BLOCKS = 4
_FILLER_BLOCKS = 10
OPERATIONS = {
    "allocate": f"a prompt of {_BLOCKS} blocks",
    "append": "one token, into the last block",
    "append, new block": "one token that begins a block",
    "fork": f"a sequence of {_BLOCKS + 1} blocks",
    "append, copy": "one token into a shared block: copy-on-write",
    "free": f"a sequence of {_BLOCKS + 1} blocks, all but one of them shared with its fork",
}
"""Description of each timed operation by its name, in the order of a sequence's life."""


@dataclass(frozen=True)
class BlockCostRow:
    """Measurements of one operation: median nanoseconds of a call, by the number of blocks."""

    operation: str
    what: str
    nanoseconds: dict[int, float]

    @property
    def ratio(self) -> float:
        """Time in the largest pool divided by the time in the smallest."""
        sizes = sorted(self.nanoseconds)
        return self.nanoseconds[sizes[-1]] / self.nanoseconds[sizes[0]]


@dataclass(frozen=True)
class KVCacheBenchmark(Benchmark):
    """Result of `run`, with a row for each operation; the fraction ``filled`` of the blocks was in use."""

    kind = "bench-kvcache"

    block_size: int
    filled: float
    rounds: int
    rows: tuple[BlockCostRow, ...]

    def row(self, operation: str) -> BlockCostRow:
        """Return the row of an operation."""
        return next(row for row in self.rows if row.operation == operation)

    def record(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return super().record() | {"rows": [dataclasses.asdict(row) | {"ratio": row.ratio} for row in self.rows]}

    def __str__(self) -> str:
        sizes = sorted(self.rows[0].nanoseconds)
        lines = [
            f"block manager, blocks of {self.block_size} tokens, {self.filled:.0%} in use; "
            f"microseconds per call, median of {self.rounds} rounds",
            f"{'':20}" + "".join(f"{f'{size:,} blocks':>18}" for size in sizes) + f"{'largest/smallest':>20}",
        ]
        for row in self.rows:
            cells = "".join(f"{row.nanoseconds[size] / 1000:>18.2f}" for size in sizes)
            lines.append(f"{row.operation:20}{cells}{row.ratio:>19.2f}x   {row.what}")
        return "\n".join(lines)


def run(sizes: Sequence[int] = SIZES, *, filled: float = 0.8, rounds: int = 200) -> KVCacheBenchmark:
    """Time every operation of `OPERATIONS` on managers of these sizes.

    Each manager is first filled with sequences of `_FILLER_BLOCKS` blocks, some of which are then freed in random
    order, so that free blocks are scattered as after some time of serving.

    Args:
        sizes: numbers of blocks, at least two.
        filled: fraction of the blocks that other sequences hold.
        rounds: number of timings of each operation at each size, each over 8 sequences; the result is their median.

    Raises:
        ArgumentError: if there are fewer than two sizes, one is below 256 blocks, or ``filled`` leaves no room.
    """
    sizes = sorted(set(sizes))
    if len(sizes) < 2 or sizes[0] < _LEAST_BLOCKS:
        raise ArgumentError("sizes", sizes, f"two or more, each at least {_LEAST_BLOCKS} blocks", "A ratio needs two.")
    room = 1 - 2 * _SEQS * (_BLOCKS + 1) / sizes[0]
    if not 0 <= filled <= room:
        raise ArgumentError("filled", filled, f"0 to {room:.2f} with {sizes[0]} blocks", "Leave room to allocate.")
    if rounds < 1:
        raise ArgumentError("rounds", rounds, "1 or more", "Use 200 for a steady median.")
    managers = {size: _filled_manager(size, filled) for size in sizes}
    taken: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in OPERATIONS}
    collecting = gc.isenabled()
    gc.disable()  # a collection visits every sequence, at an unpredictable moment
    try:
        for _ in range(rounds):
            for size, manager in managers.items():
                for name, nanoseconds in _life(manager):
                    taken[name][size].append(nanoseconds)
    finally:
        if collecting:
            gc.enable()
    rows = tuple(
        BlockCostRow(name, what, {size: statistics.median(taken[name][size]) for size in sizes})
        for name, what in OPERATIONS.items()
    )
    return KVCacheBenchmark(BLOCK_SIZE, filled, rounds, rows)


def _filled_manager(num_blocks: int, filled: float) -> BlockManager:
    manager, rng = BlockManager(num_blocks, BLOCK_SIZE), random.Random(0)
    fillers = range(num_blocks // _FILLER_BLOCKS)
    for filler in fillers:
        manager.allocate(("filler", filler), _FILLER_BLOCKS * BLOCK_SIZE)
    for filler in rng.sample(fillers, len(fillers) - int(num_blocks * filled) // _FILLER_BLOCKS):
        manager.free(("filler", filler))
    return manager


def _life(manager: BlockManager) -> list[tuple[str, float]]:
    """Time one call of each operation in nanoseconds, as a mean over `_SEQS` sequences, then free them all."""
    seqs, children = range(_SEQS), range(_SEQS, 2 * _SEQS)
    free = manager.num_free_blocks
    found = []

    def timed(name: str, call: Callable[[int], object], of: range) -> None:
        start = time.perf_counter_ns()
        for seq in of:
            call(seq)
        found.append((name, (time.perf_counter_ns() - start) / len(of)))

    timed("allocate", lambda seq: manager.allocate(seq, _BLOCKS * BLOCK_SIZE - 1), seqs)
    timed("append", lambda seq: manager.append(seq, 1), seqs)
    timed("append, new block", lambda seq: manager.append(seq, 1), seqs)
    timed("fork", lambda seq: manager.fork(seq, _SEQS + seq), seqs)
    timed("append, copy", lambda seq: manager.append(seq, 1), children)
    timed("free", manager.free, seqs)
    for child in children:
        manager.free(child)
    assert manager.num_free_blocks == free
    return found
