"""Timing on a GPU: the time of a run itself, without the overhead of launching it.

A run is captured in a CUDA graph, so that Python's launch overhead is not in the figure. Before each sample a buffer
larger than the L2 cache is read (read, not written: dirty lines would be written back inside the measurement), which
also keeps the GPU busy while the host queues the timed work. Samples are taken until their error is small. The leaders
are timed again against each other in turns, so that a drift of the clocks meets them all alike.

An idle GPU slows its clock down within moments, and takes a while to speed up. An H200 is 12 % slower for about 12 ms
after it has summed 4 GiB as int64, at unchanged clocks. So the GPU works on what is timed until such a phase is over,
before the first sample, and its state is read (`workbench.tuning.measuring.gpu_state`) while it works.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from workbench.base.trials.trial import median_error
from workbench.tuning.measuring.gpu_state import GpuState, Probe, Unwatched, nvml_probe

WARM_UP_RUNS = 5
LEAST_SAMPLES, MOST_SAMPLES = 10, 200
FLUSHED_BYTES = 256 << 20
"""Bytes read before each sample, or four times the L2 cache if that is more."""
RELATIVE_ERROR = 0.005
"""Sampling stops when the standard error of the median is below this share of it."""

LOAD_SECONDS = 0.03
"""Time that a GPU works, as it does for samples, before the first of them and before its state is read."""
LOOK_SECONDS = 0.005
"""Approximate time of the work that is queued while its state is read."""


class Clock(Protocol):
    """Protocol of an object that times runs; ``method`` describes how."""

    method: str

    def prepare(self, run: Callable[[], object]) -> Callable[[], object]:
        """Return a function that does the same as ``run`` and can be timed; it has run already."""
        ...

    def load(self, prepared: Sequence[Callable[[], object]]) -> None:
        """Run these in turns until nothing that ran before slows them down."""
        ...

    def sample(self, prepared: Callable[[], object]) -> float:
        """Return the seconds of one run."""
        ...

    def look(self, prepared: Callable[[], object]) -> GpuState | Unwatched:
        """Return the state of the GPU while it works on this, or why it cannot be read."""
        ...


class GpuClock(Clock):
    """Clock of CUDA events around the replay of a CUDA graph, with L2 flushed before each."""

    method = "CUDA graph, CUDA events, L2 flushed by reading"

    def __init__(self, probe: Probe | None = None):
        import torch

        l2 = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
        self._torch = torch
        self._buffer = torch.zeros(max(4 * l2, FLUSHED_BYTES) // 4, dtype=torch.float32, device="cuda")
        self._sum = torch.zeros((), dtype=torch.float32, device="cuda")
        self._probe = probe or nvml_probe()

    def prepare(self, run: Callable[[], object]) -> Callable[[], object]:
        """Capture ``run`` in a CUDA graph, warm it up, and return its replay."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        for _ in range(WARM_UP_RUNS):
            graph.replay()
        torch.cuda.synchronize()
        return graph.replay

    def load(self, prepared: Sequence[Callable[[], object]]) -> None:
        """Replay these graphs in turns for `LOAD_SECONDS`."""
        turns = itertools.cycle(prepared)
        load(lambda: self.sample(next(turns)))

    def sample(self, prepared: Callable[[], object]) -> float:
        """Return the seconds of one replay, with L2 flushed before it."""
        torch = self._torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush()
        start.record()
        prepared()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    def look(self, prepared: Callable[[], object]) -> GpuState | Unwatched:
        """Return the state of the GPU while it replays the graph, or why it cannot be read."""

        def queue() -> None:
            self._flush()
            prepared()

        return under_load(lambda: self.sample(prepared), queue, self._probe)

    def _flush(self) -> None:
        self._torch.sum(self._buffer, dim=0, out=self._sum)


def load(sample: Callable[[], object], now: Callable[[], float] = time.perf_counter) -> float:
    """Call ``sample`` for `LOAD_SECONDS` and return the seconds of a call; ``now`` is a clock in seconds.

    ``sample`` waits for its work. The first call is not counted, because it waits for earlier work too.
    """
    sample()
    begun, passed, pieces = now(), 0.0, 0
    while passed < LOAD_SECONDS:
        sample()
        pieces, passed = pieces + 1, now() - begun
    return passed / pieces


def under_load(
    sample: Callable[[], object],
    queue: Callable[[], object],
    look: Callable[[], GpuState | Unwatched],
    now: Callable[[], float] = time.perf_counter,
) -> GpuState | Unwatched:
    """Return what ``look`` reads from a GPU that has worked for `LOAD_SECONDS` and has more to do.

    ``sample`` waits for a piece of the work, ``queue`` does not; ``now`` is a clock in seconds.
    """
    for _ in range(math.ceil(LOOK_SECONDS / load(sample, now))):
        queue()
    return look()


def is_steady(samples: Sequence[float]) -> bool:
    """Return True if the standard error of the samples' median is at most `RELATIVE_ERROR` of it."""
    return median_error(samples) <= RELATIVE_ERROR * statistics.median(samples)


def take_samples(clock: Clock, prepared: Callable[[], object]) -> tuple[float, ...]:
    """Take samples in seconds until the median is known well enough; return them in the order taken."""
    samples: list[float] = []
    while len(samples) < MOST_SAMPLES:
        samples.append(clock.sample(prepared))
        if len(samples) >= LEAST_SAMPLES and is_steady(samples):
            break
    return tuple(samples)


def interleave(clock: Clock, prepared: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """Load the GPU with several runs, then sample them in turns.

    Each round starts with the next one, so that none is always first.
    """
    if prepared:
        clock.load(prepared)
    samples: list[list[float]] = [[] for _ in prepared]
    for turn in range(rounds):
        for at in range(len(prepared)):
            which = (turn + at) % len(prepared)
            samples[which].append(clock.sample(prepared[which]))
    return [tuple(taken) for taken in samples]
