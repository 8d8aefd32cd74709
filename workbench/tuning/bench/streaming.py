"""Speed at which a GPU reads memory in a stream: the ceiling of every kernel that mostly reads.

Published bandwidth is never reached, and a copy also writes. So the benchmark measures a kernel that only reads, on the
same GPU in the same run, with the best of several shapes of it. It measures that shape again between the other timings,
as clocks and temperature drift.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from workbench.base.home import cuda_sources
from workbench.errors import ArgumentError, WrongResultError
from workbench.launch import load_cuda
from workbench.tuning.measuring.gpu_timing import Clock, interleave

if TYPE_CHECKING:
    import torch

SPACE: Mapping[str, tuple[int, ...]] = {
    "UNROLL": (4, 8, 16),
    "NUM_THREADS": (256, 512),
    "BLOCKS_PER_MULTIPROCESSOR": (2, 4, 16),
}
_ROUNDS, _LEADER_ROUNDS, _LEADERS = 5, 25, 4
_SHORT_ROUNDS = 10


@dataclass(frozen=True)
class Ceiling:
    """The fastest stream: median bytes per second, the bytes that it reads, its configuration and its noise."""

    bytes_per_second: float
    bytes_read: int
    config: Mapping[str, int]
    spread: float
    """Median absolute deviation, as a share of the median."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the benchmark's JSON file has them."""
        return asdict(self)


def reader(
    data: torch.Tensor, config: Mapping[str, int], multiprocessors: int, device: str
) -> tuple[Callable[[], None], torch.Tensor]:
    """Return a function that reads all of ``data`` once, and the tensor to which it adds the sum of the words.

    Args:
        data: ``[words]`` int32; whole chunks of ``16 * UNROLL * NUM_THREADS`` bytes.
        config: UNROLL, NUM_THREADS and BLOCKS_PER_MULTIPROCESSOR.
        multiprocessors: number of multiprocessors of the GPU.
        device: "cuda" or "sim".

    Returns:
        The function, and ``[1]`` int32: each call adds the sum of all words modulo 2**32.

    Raises:
        ArgumentError: the data is not a whole number of chunks; the rest would not be read.
    """
    import torch

    chunk = 4 * config["UNROLL"] * config["NUM_THREADS"]
    if data.numel() == 0 or data.numel() % chunk:
        raise ArgumentError("data", f"{data.numel()} words", f"a multiple of {chunk}", "Cut the rest off.")
    macros = {name: config[name] for name in ("UNROLL", "NUM_THREADS")}
    source = cuda_sources() / "streaming_read.cu"
    kernel = load_cuda(source, macros=macros, include_dirs=(cuda_sources(),), device=device).streaming_read
    total = torch.zeros(1, dtype=torch.int32, device=data.device)
    grid = min(config["BLOCKS_PER_MULTIPROCESSOR"] * multiprocessors, data.numel() // chunk)
    arguments = (total, data, data.numel() // 4)

    def read() -> None:
        kernel(grid, config["NUM_THREADS"], *arguments)

    return read, total


def measure_ceiling(
    clock: Clock,
    data: torch.Tensor,
    multiprocessors: int,
    *,
    device: str = "cuda",
    space: Mapping[str, Sequence[int]] = SPACE,
) -> Ceiling:
    """Time every shape of the stream on ``data`` (see `reader`), the fastest few again in turns, and return the best.

    Raises:
        WrongResultError: a sum is wrong: part of the data was not read, or read twice.
    """
    import torch

    expected = int(data.sum(dtype=torch.int64)) % 2**32
    prepared, configs, readers = [], [], []
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        read, total = reader(data, config, multiprocessors, device)
        _check(read, total, expected, config)
        prepared.append(clock.prepare(read))
        configs.append(config)
        readers.append((read, total))
    first = [statistics.median(samples) for samples in interleave(clock, prepared, _ROUNDS)]
    leaders = sorted(range(len(first)), key=first.__getitem__)[:_LEADERS]
    samples = interleave(clock, [prepared[leader] for leader in leaders], _LEADER_ROUNDS)
    seconds, which = min((statistics.median(taken), at) for at, taken in enumerate(samples))
    _check(*readers[leaders[which]], expected, configs[leaders[which]])
    size = data.numel() * data.element_size()
    return Ceiling(size / seconds, size, configs[leaders[which]], _spread(samples[which], seconds))


def measure_again(
    clock: Clock, data: torch.Tensor, multiprocessors: int, config: Mapping[str, int], *, device: str = "cuda"
) -> float:
    """Return bytes per second of the stream in a shape that is known to be the fastest, from a few samples.

    Raises:
        WrongResultError: the sum is wrong, before or after them.
    """
    import torch

    expected = int(data.sum(dtype=torch.int64)) % 2**32
    read, total = reader(data, config, multiprocessors, device)
    _check(read, total, expected, config)
    (samples,) = interleave(clock, [clock.prepare(read)], _SHORT_ROUNDS)
    _check(read, total, expected, config)
    return data.numel() * data.element_size() / statistics.median(samples)


def _check(read: Callable[[], None], total: torch.Tensor, expected: int, config: Mapping[str, int]) -> None:
    total.zero_()
    read()
    if int(total) % 2**32 != expected:
        raise WrongResultError(f"streaming_read {dict(config)}: sum {int(total) % 2**32}, not {expected}")


def _spread(samples: Sequence[float], middle: float) -> float:
    return statistics.median(abs(sample - middle) for sample in samples) / middle
