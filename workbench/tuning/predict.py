"""A predicted time from what the simulator counted and what is published about a GPU.

Each resource gives the time that the launch needs of it at its full rate; the launch takes at least the largest:

    seconds = launch overhead + first access + max(parts)

* device-wide parts: ``dram`` (each distinct sector once, and repeated sectors as far as the working set exceeds the
  L2 cache) and ``l2`` (every requested sector);
* parts of the busiest multiprocessor, which has ceil(blocks / multiprocessors) blocks: ``issue``, ``l1``, ``shared``
  (wavefronts, so conflicts count), and the ``fp32``, ``fp16``, ``fp64``, ``integer``, ``conversion``, ``special`` and
  ``tensor`` pipes;
* ``latency``: the dependent chain of one warp (:mod:`workbench.tuning.chain`), as often as there are waves of resident
  blocks. This is Little's law: too few bytes in flight, because occupancy is low or loads depend on each other, and
  the latency rather than the bandwidth sets the pace. For a case smaller than the GPU it is what tells configurations
  apart.

What it leaves out, so that a reader can judge it: hits in L1 (every requested sector is charged to L2), uneven work
between blocks, the difference between PTX and the machine code that ptxas makes of it (apart from registers, shared
memory and spills), clocks below boost, DRAM efficiency below 100 %. It ranks configurations and names their
bottleneck; it is no measurement, and is labelled ``predicted`` with the device model wherever it is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.device_models import DeviceModel, device_model
from workbench.toolchain.occupancy import occupancy
from workbench.tuning.chain import dependent_chain

VERSION = 1
"""Changes with the model; stored predictions of another version are computed anew from the stored counts."""

_SECTOR = 32
_WARP = 32
_MMA_SHAPE = re.compile(r"\bmma\.\S*?\.m(\d+)n(\d+)k(\d+)")
# Classes of `LaunchReport.mix` that have a pipe of their own, with the figure that gives its lanes.
_PIPES = {
    "fp32": "fp32_lanes",
    "fp16": "fp16_lanes",
    "fp64": "fp64_lanes",
    "integer": "integer_lanes",
    "conversion": "conversion_lanes",
    "special": "special_lanes",
}


@dataclass(frozen=True)
class Prediction:
    """A predicted time in seconds, what bounds it, and each part in seconds; ``device`` names the device model."""

    seconds: float
    bound_by: str
    parts: Mapping[str, float]
    device: str
    waves: float
    occupancy: float
    version: int = field(default=VERSION)

    def __str__(self) -> str:
        return f"predicted {self.seconds * 1e6:.2f} µs on {self.device}, bound by {self.bound_by}"

    def to_dict(self) -> dict:
        parts = {name: float(f"{value:.6g}") for name, value in self.parts.items()}
        return {**self.__dict__, "parts": parts}


def counts_of(report, kernels: Sequence) -> dict:
    """What a prediction needs of a run, as plain numbers that can be stored.

    ``report`` is a ``LaunchReport`` with statistics, ``kernels`` the ``CompiledKernel`` of each launch in it. Of
    several launches the counts are the sums, with those of each launch under ``"parts"``.
    """
    counts = launch_counts(report, kernels[0])
    if len(kernels) > 1:
        pairs = zip(report.parts, kernels, strict=True)
        counts["parts"] = [launch_counts(part, kernel) for part, kernel in pairs]
        counts["tensor_flops"] = sum(part["tensor_flops"] for part in counts["parts"])
    return counts


def launch_counts(report, kernel, *, block_threads: int | None = None, grid_blocks: int | None = None) -> dict:
    """`counts_of` for one launch; its extent may be given where the report was taken with another one."""
    threads = block_threads if block_threads is not None else math.prod(_tuple(report.block))
    blocks = grid_blocks if grid_blocks is not None else math.prod(_tuple(report.grid))
    warps = blocks * -(-threads // _WARP)
    tensor_flops = 0
    for line in report.lines:
        shape = _MMA_SHAPE.search(line.text)
        if shape:
            tensor_flops += 2 * math.prod(map(int, shape.groups())) * line.executions
    names = (
        "global_load_requests",
        "global_load_sectors",
        "global_store_requests",
        "global_store_sectors",
        "global_bytes_requested",
        "unique_bytes_read",
        "unique_bytes_written",
        "shared_requests",
        "shared_wavefronts",
        "shared_ideal_wavefronts",
        "shared_conflicts",
    )
    return {
        "grid_blocks": blocks,
        "block_threads": threads,
        "registers": kernel.registers,
        "shared_bytes": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
        "spill_bytes": kernel.spill_bytes,
        "warp_instructions": int(report.instructions),
        "thread_instructions": int(report.thread_instructions),
        "mix": {name: int(count) for name, count in report.mix.items() if count},
        **{name: int(getattr(report, name)) for name in names},
        "tensor_flops": tensor_flops,
        "chain": dependent_chain(report.lines, warps).to_dict(),
    }


def predict(report, kernel, block_threads: int, grid_blocks: int, model: str | DeviceModel | None = None) -> Prediction:
    """Predict the time of the launch that ``report`` (with statistics) describes, on a device model."""
    counts = launch_counts(report, kernel, block_threads=block_threads, grid_blocks=grid_blocks)
    return predict_counts(counts, device_model(model))


def predict_counts(counts: Mapping, model: DeviceModel) -> Prediction:
    """Predict from stored counts (see :func:`counts_of`). Infinite, bound by occupancy, if not one block fits.

    Launches that follow each other take the sum of their times, with the overhead of a launch once: the later ones are
    queued while the first one runs.
    """
    if "parts" in counts:
        return _in_sequence([predict_counts(part, model) for part in counts["parts"]])
    threads, blocks = counts["block_threads"], counts["grid_blocks"]
    resident = occupancy(model.arch, threads, counts["registers"], counts["shared_bytes"])
    if resident.blocks_per_sm == 0:
        return Prediction(math.inf, "occupancy", {}, model.name, 0.0, 0.0)
    clock = model.clock_hz
    # The busiest multiprocessor's share of everything that blocks do evenly.
    share = -(-blocks // int(model.multiprocessors)) / blocks
    sectors = counts["global_load_sectors"] + counts["global_store_sectors"]
    # Spills are known per thread from the compiler only, not how often they run: charged once.
    spilled = counts["spill_bytes"] * threads * blocks
    parts = {
        "dram": _dram_bytes(counts, model) / model.dram_bytes_per_second,
        "l2": sectors * _SECTOR / (model.l2_bytes_per_clock * clock),
        "l2 to sm": sectors * _SECTOR * share / (model.l2_bytes_per_clock_sm * clock),
        "l1": (sectors * _SECTOR + spilled) * share / (model.l1_bytes_per_clock * clock),
        "issue": counts["warp_instructions"] * share / (model.issue_slots * clock),
        "shared": counts["shared_wavefronts"] * 128 * share / (model.shared_bytes_per_clock * clock),
        "tensor": counts["tensor_flops"] * share / (model.tensor_flops_per_clock * clock),
    }
    for name, lanes in _PIPES.items():
        parts[name] = counts["mix"].get(name, 0) * _WARP * share / (getattr(model, lanes) * clock)
    waves = -(-blocks // (int(model.multiprocessors) * resident.blocks_per_sm))
    parts["latency"] = waves * _chain_clocks(counts, model) / clock
    bound_by = max(parts, key=parts.__getitem__)
    first_access = model.dram_latency_clocks / clock
    seconds = model.launch_seconds + first_access + parts[bound_by]
    parts["launch"] = model.launch_seconds
    parts["first access"] = first_access
    if parts["launch"] > parts[bound_by]:
        bound_by = f"launch, then {bound_by}"
    return Prediction(seconds, bound_by, parts, model.name, float(waves), resident.fraction)


def _in_sequence(predictions: Sequence[Prediction]) -> Prediction:
    """The time of several launches one after the other; parts and occupancy are those of the longest."""
    longest = max(predictions, key=lambda prediction: prediction.seconds)
    hidden = sum(prediction.parts.get("launch", 0.0) for prediction in predictions[1:])
    return replace(longest, seconds=sum(prediction.seconds for prediction in predictions) - hidden)


def _dram_bytes(counts: Mapping, model: DeviceModel) -> float:
    unique = counts["unique_bytes_read"] + counts["unique_bytes_written"]
    requested = (counts["global_load_sectors"] + counts["global_store_sectors"]) * _SECTOR
    # A repeated access finds its sector in L2 with the probability that the working set is still there.
    missing = max(0.0, 1 - model.l2_bytes / unique) if unique else 0.0
    return unique + max(0.0, requested - unique) * missing


def _chain_clocks(counts: Mapping, model: DeviceModel) -> float:
    chain = counts["chain"]
    requested = (counts["global_load_sectors"] + counts["global_store_sectors"]) * _SECTOR
    first = min(1.0, (counts["unique_bytes_read"] + counts["unique_bytes_written"]) / requested) if requested else 1.0
    load = first * model.dram_latency_clocks + (1 - first) * model.l2_latency_clocks
    # A conflicted access holds the warp for its additional wavefronts.
    conflicts = (
        counts["shared_wavefronts"] / counts["shared_ideal_wavefronts"] if counts["shared_ideal_wavefronts"] else 1.0
    )
    shared = model.shared_latency_clocks + max(0.0, conflicts - 1)
    return (
        chain["global_loads"] * load
        + chain["shared_accesses"] * shared
        + chain["arithmetic"] * model.arithmetic_latency_clocks
        + chain["barriers"] * model.shared_latency_clocks
    )


def _tuple(extent) -> tuple[int, ...]:
    return extent if isinstance(extent, tuple) else (extent,)
