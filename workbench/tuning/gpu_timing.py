"""Timing on a GPU: what a run costs there, apart from launching it.

A run is captured in a CUDA graph, so that Python's launch overhead is not in the figure; before each sample a buffer
larger than the L2 cache is read (read, not written: dirty lines would be written back inside the measurement), which
also keeps the GPU busy while the host queues what is timed. Samples are taken until their error is small. The leaders
are timed again against each other in turns, so that a drift of the clocks meets them all alike.

A GPU that has nothing to do slows its clock down within moments, and takes some to speed up. So it is made to work
before the first sample, and looked at (`workbench.tuning.gpu_state`) while it works.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from workbench.tuning.gpu_state import GpuState, Probe, Unwatched, nvml_probe

WARM_UP_RUNS = 5
LEAST_SAMPLES, MOST_SAMPLES = 10, 200
FLUSHED_BYTES = 256 << 20
"""Read before each sample, or four times the L2 cache if that is more."""
RELATIVE_ERROR = 0.005
"""Sampling stops when the standard error of the median is below this share of it."""

LOAD_SECONDS = 0.02
"""How long a GPU works as it does for samples before it is looked at."""
LOOK_SECONDS = 0.005
"""For about how long work is queued while it is looked at."""


class Clock(Protocol):
    """What times runs; ``method`` says how, in words."""

    method: str

    def prepare(self, run: Callable[[], object]) -> Callable[[], object]:
        """What does the same as ``run`` and can be timed; it has run by then."""
        ...

    def sample(self, prepared: Callable[[], object]) -> float:
        """The seconds of one run."""
        ...

    def look(self, prepared: Callable[[], object]) -> GpuState | Unwatched:
        """The GPU while it works on this, or why there is nothing to see."""
        ...


class GpuClock(Clock):
    """CUDA events around the replay of a CUDA graph, L2 flushed before each."""

    method = "CUDA graph, CUDA events, L2 flushed by reading"

    def __init__(self, probe: Probe | None = None):
        import torch

        l2 = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
        self._torch = torch
        self._buffer = torch.zeros(max(4 * l2, FLUSHED_BYTES) // 4, dtype=torch.float32, device="cuda")
        self._sum = torch.zeros((), dtype=torch.float32, device="cuda")
        self._probe = probe or nvml_probe()

    def prepare(self, run: Callable[[], object]) -> Callable[[], object]:
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

    def sample(self, prepared: Callable[[], object]) -> float:
        torch = self._torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush()
        start.record()
        prepared()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    def look(self, prepared: Callable[[], object]) -> GpuState | Unwatched:
        def queue() -> None:
            self._flush()
            prepared()

        return under_load(lambda: self.sample(prepared), queue, self._probe)

    def _flush(self) -> None:
        self._torch.sum(self._buffer, dim=0, out=self._sum)


def under_load(
    sample: Callable[[], object],
    queue: Callable[[], object],
    look: Callable[[], GpuState | Unwatched],
    now: Callable[[], float] = time.perf_counter,
) -> GpuState | Unwatched:
    """What ``look`` sees of a GPU that has worked for `LOAD_SECONDS` and has more to do.

    ``sample`` waits for a piece of the work, ``queue`` does not; ``now`` is a clock in seconds.
    """
    begun, passed, pieces = now(), 0.0, 0
    while passed < LOAD_SECONDS:
        sample()
        pieces, passed = pieces + 1, now() - begun
    for _ in range(math.ceil(pieces * LOOK_SECONDS / passed)):
        queue()
    return look()


def take_samples(clock: Clock, prepared: Callable[[], object]) -> tuple[float, ...]:
    """Samples in seconds, in the order taken, until the median is known well enough."""
    samples: list[float] = []
    while len(samples) < MOST_SAMPLES:
        samples.append(clock.sample(prepared))
        if len(samples) >= LEAST_SAMPLES and median_error(samples) <= RELATIVE_ERROR * statistics.median(samples):
            break
    return tuple(samples)


def median_error(samples: Sequence[float]) -> float:
    """Standard error of the median, from the median absolute deviation (1.4826 x it estimates sigma)."""
    middle = statistics.median(samples)
    deviation = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return 1.2533 * deviation / math.sqrt(len(samples))


def interleave(clock: Clock, prepared: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """Samples of several runs taken in turns; each round starts with the next one, so that none is always first."""
    samples: list[list[float]] = [[] for _ in prepared]
    for turn in range(rounds):
        for at in range(len(prepared)):
            which = (turn + at) % len(prepared)
            samples[which].append(clock.sample(prepared[which]))
    return [tuple(taken) for taken in samples]
