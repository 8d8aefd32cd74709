"""The model that predicts a launch's time from the simulator's counts and the published figures of a GPU.

Each resource gives the time that the launch needs of it at its full rate. They overlap, but not perfectly:

    seconds = launch overhead + first access + sqrt(rates ** 2 + latency ** 2)
    rates = (sum of the other parts ** OVERLAP) ** (1 / OVERLAP)

This is at least the largest part (what bounds it), and more where others come near: the many warps that keep the
resources busy hide each other's latency, few do not.

* Device-wide: ``dram``, ``l2``, ``atomics``, and ``block starts`` on GPUs of which it is known how long they take to
  start a block: an H200 takes 0.60 ns for each, whatever its size (docs/GPUS.md). When a block reads bytes again, L1
  answers if they lie no further back than it holds, by the distances that the machine records, shared between the
  resident blocks. The rest and every write go to L2. DRAM brings each sector once, and again the shared bytes that one
  wave of blocks does not leave in L2. Atomics on one sector queue, and one is done in a clock, an assumption that was
  compared with no GPU; lanes that ptxas reduces in the warp first count as one (:mod:`workbench.analysis.atomics`).
* For the busiest multiprocessor, which has ceil(blocks / multiprocessors) blocks: ``issue``, ``l1``, ``l2 to sm``,
  ``shared`` (load/store units, and wavefronts, so conflicts count), and the pipes ``fp32``, ``fp16``, ``fp64``,
  ``integer``, ``conversion``, ``special`` and ``tensor``. Of 128 FP32 lanes only 64 multiply integers, by the
  programming guide, or take an operand from constant memory, by what convolutions measured on an RTX 3090 show.
  Instructions are those of the machine code (:mod:`workbench.analysis.prediction.machine_counts`) if there is any,
  otherwise those of the PTX.
* ``latency``: the time of one warp times the number of waves of resident blocks: the clocks that the assembler's
  schedule gives it, and the latencies that it waits for. This is Little's law: with few warps, or loads that depend on
  each other, the latency rather than a rate sets the pace.

If the launch's blocks were recorded (:mod:`workbench.analysis.prediction.block_time`), as blocks can be whose warps
wait for each other at mbarriers, ``schedule`` takes the place of ``latency``. It is the time of the blocks, one after
the other on each multiprocessor, and includes the resources of a multiprocessor; the device-wide parts are added as
above:

    seconds = launch overhead + sqrt(device-wide rates ** 2 + schedule ** 2)

The model leaves out uneven work between blocks, instruction fetch, clocks that differ from the published ones, DRAM
efficiency below 100 %, the path of operands through a division's slow path, and other work on the GPU. It ranks
configurations and names their bottleneck. It is not a measurement, and is labelled ``predicted`` with the device model
wherever it is printed. :mod:`workbench.analysis.prediction.confidence` says how near it comes to measured times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.analysis.prediction.block_time import launch_clocks
from workbench.analysis.prediction.confidence import level, ranking
from workbench.analysis.prediction.counting import launch_counts
from workbench.analysis.prediction.tensor_flops import tensor_clocks
from workbench.base.tables import Table
from workbench.toolchain import CompiledKernel
from workbench.toolchain.occupancy import Occupancy, occupancy

if TYPE_CHECKING:
    from workbench.base.trials.values import Counts, PredictionRecord
    from workbench.ptx import LaunchReport

VERSION = 3
"""Version of the model; predictions stored under another version are computed anew from the stored counts."""

OVERLAP = 4.0
"""Exponent with which parts add up: with 1 they run one after the other, with infinity only the largest counts.

Three constants are not published ones: this exponent, the sum of squares for the latency, and the rate of FP32 operands
in constant memory. On one space alone, 400 rows of a convolution on an RTX 3090, they rank best of a grid (exponents 2
to 16 and 1 to 8, a rate of 64 or 128; Spearman 0.942 to 0.964). The record that ``workbench bench predict`` writes has
their quality on the others, an RTX 2080 Ti and another kind of kernel.
"""


_SCHEDULED, _SPECIAL = 4, 20
"""Clocks of the latency of 32-bit arithmetic for which the assembler schedules, and until a special function or a
conversion answers (abdelkhalik-2022: MUFU and F2I, 18 to 23)."""

_DEVICE_WIDE = ("dram", "l2", "block starts", "atomics")
_SECTOR = 32
_WARP = 32
# Classes of `LaunchReport.mix` and pipes of `machine_counts`, with the figure that gives the lanes of each part.
_PTX_PIPES = {
    "fp32": ("fp32", "fp32_lanes"),
    "fp16": ("fp16", "fp16_lanes"),
    "fp64": ("fp64", "fp64_lanes"),
    "integer": ("integer", "integer_lanes"),
    "conversion": ("conversion", "conversion_lanes"),
    "special": ("special", "special_lanes"),
}
_MACHINE_PIPES = {
    "fp32": ("fma", "fp32_lanes"),
    "fp16": ("fp16", "fp16_lanes"),
    "fp64": ("fp64", "fp64_lanes"),
    "integer": ("alu", "integer_lanes"),
    "special": ("special", "special_lanes"),  # conversions too: they share the unit
}


@dataclass(frozen=True)
class Prediction:
    """A predicted time in seconds, what bounds it, and each part in seconds; ``device`` names the device model.

    ``level`` says how predicted times for the model's architecture compared with measured ones, and ``ranking`` how the
    order of predicted times did (:mod:`workbench.analysis.prediction.confidence`). They are two things: an order holds
    on GPUs that were never compared, a level may not.
    """

    seconds: float
    bound_by: str
    parts: Mapping[str, float]
    device: str
    waves: float
    occupancy: float
    version: int = field(default=VERSION)
    level: str = field(default="", compare=False)
    ranking: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"predicted {self.seconds * 1e6:.2f} µs on {self.device}, bound by {self.bound_by}"

    def _repr_html_(self) -> str:
        rows = [("predicted", f"{self.seconds * 1e6:.2f} µs on {self.device}"), ("bound by", self.bound_by)]
        rows += [("level", self.level), ("ranking", self.ranking)]
        return Table(("", "prediction"), rows, "ll").html()

    def to_dict(self) -> PredictionRecord:
        """Return the prediction as a store keeps it, with the parts to six digits.

        Level and ranking are left out: they are facts of the record of comparisons, not of this prediction.
        """
        parts = {name: float(f"{value:.6g}") for name, value in self.parts.items()}
        return {
            "seconds": self.seconds,
            "bound_by": self.bound_by,
            "parts": parts,
            "device": self.device,
            "waves": self.waves,
            "occupancy": self.occupancy,
            "version": self.version,
        }


def predict(
    report: LaunchReport,
    kernel: CompiledKernel,
    block_threads: int,
    grid_blocks: int,
    model: str | DeviceModel | None = None,
) -> Prediction:
    """Predict the time on a device model of the launch that ``report`` (with statistics) describes."""
    counts = launch_counts(report, kernel, block_threads=block_threads, grid_blocks=grid_blocks)
    return predict_counts(counts, device_model(model))


def predict_counts(counts: Counts, model: DeviceModel) -> Prediction:
    """Predict from stored counts (see `workbench.analysis.prediction.counting.counts_of`).

    The time is infinite, bound by occupancy, if no block fits.

    Launches that follow each other take the sum of their times, with the overhead of a launch once: the later ones are
    queued while the first one runs.
    """
    if "parts" in counts:
        return _in_sequence([predict_counts(part, model) for part in counts["parts"]])
    threads, blocks = counts["block_threads"], counts["grid_blocks"]
    resident = occupancy(model.arch, threads, counts["registers"], counts["shared_bytes"])
    if resident.blocks_per_sm == 0:
        return Prediction(math.inf, "occupancy", {}, model.name, 0.0, 0.0, level=level(model), ranking=ranking(model))
    clock, machine = model.clock_hz, counts.get("machine")
    issued = machine["instructions"] if machine else counts["warp_instructions"]
    # Share of the busiest multiprocessor in the work, which blocks are taken to do evenly.
    share = -(-blocks // int(model.multiprocessors)) / blocks
    memory = _traffic(counts, model, resident)
    # Shared memory is reached through the load/store units, which take the lanes of an access in turns.
    requests = machine["pipes"].get("memory", 0) if machine else counts["shared_requests"]
    accesses = requests * _WARP / model.memory_lanes
    wavefronts = _accessed(counts, "shared_wavefronts") * 128 / model.shared_bytes_per_clock
    parts = {
        "dram": memory.dram / model.dram_bytes_per_second,
        "l2": memory.l2 / (model.l2_bytes_per_clock * clock),
        "l2 to sm": memory.l2 * share / (model.l2_bytes_per_clock_sm * clock),
        "l1": memory.l1 * share / (model.l1_bytes_per_clock * clock),
        "issue": issued * share / (model.issue_slots * clock),
        "shared": max(wavefronts, accesses) * share / clock,
        "tensor": tensor_clocks(counts, model) * share / clock,
        "conversion": 0.0,
    }
    if "atomic_queue" in counts:
        parts["atomics"] = counts["atomic_queue"] / clock
    if model.block_start_seconds is not None:
        parts["block starts"] = blocks * model.block_start_seconds
    found, pipes = (machine["pipes"], _MACHINE_PIPES) if machine else (counts["mix"], _PTX_PIPES)
    for name, (kind, lanes) in pipes.items():
        parts[name] = found.get(kind, 0) * _WARP * share / (getattr(model, lanes) * clock)
    # Half of 128 FP32 lanes; where there are 64, these are all of them.
    heavy = found.get("heavy", 0) * _WARP * share / (model.integer_lanes * clock)
    parts["fp32"] = max(parts["fp32"], heavy)
    at_once = int(model.multiprocessors) * resident.blocks_per_sm
    waves = -(-blocks // at_once)
    first_access = model.dram_latency_clocks / clock
    if "pipeline" in counts:
        within = max(seconds for name, seconds in parts.items() if name not in _DEVICE_WIDE)
        parts["schedule"] = latency = max(within, launch_clocks(counts["pipeline"], at_once) / clock)
        rates, first_access = [parts[name] for name in _DEVICE_WIDE if name in parts], 0.0
    else:
        rates = list(parts.values())
        parts["latency"] = latency = waves * _warp_clocks(counts, model, memory) / clock
    bound_by = max(parts, key=parts.__getitem__)
    together = float(overlapped(np.array([rates]), np.array([latency]))[0])
    seconds = model.launch_seconds + first_access + together
    parts["launch"] = model.launch_seconds
    parts["first access"] = first_access
    if parts["launch"] > parts[bound_by]:
        bound_by = f"launch, then {bound_by}"
    return Prediction(
        seconds, bound_by, parts, model.name, float(waves), resident.fraction,
        level=level(model), ranking=ranking(model),
    )  # fmt: skip


def overlapped(rates: np.ndarray, latency: np.ndarray) -> np.ndarray:
    """Return the seconds of resources that are used at the same time: at least the largest part, at most the sum.

    Args:
        rates: ``[n, parts]`` seconds of each resource at its rate.
        latency: ``[n]`` seconds of the warps one after the other.
    """
    largest = rates.max(axis=1, keepdims=True, initial=1e-30)
    return np.hypot(largest[:, 0] * ((rates / largest) ** OVERLAP).sum(axis=1) ** (1 / OVERLAP), latency)


def _in_sequence(predictions: Sequence[Prediction]) -> Prediction:
    """Add up the times of several launches in sequence; parts and occupancy are those of the longest."""
    longest = max(predictions, key=lambda prediction: prediction.seconds)
    hidden = sum(prediction.parts.get("launch", 0.0) for prediction in predictions[1:])
    return replace(longest, seconds=sum(prediction.seconds for prediction in predictions) - hidden)


@dataclass(frozen=True)
class _Traffic:
    """Bytes requested from L1, L2 and DRAM, and the shares of the loads' bytes that L1 and L2 answer."""

    l1: float
    l2: float
    dram: float
    from_l1: float
    from_l2: float


def _traffic(counts: Counts, model: DeviceModel, resident: Occupancy) -> _Traffic:
    read, written = counts["global_load_sectors"] * _SECTOR, counts["global_store_sectors"] * _SECTOR
    unique_read, unique_written = counts["unique_bytes_read"], counts["unique_bytes_written"]
    room = max(model.l1_bytes - resident.blocks_per_sm * counts["shared_bytes"], 0)
    missed = min(read, counts.get("block_bytes_read", read))
    if missed < read:
        # New bytes that all resident warps read while one of them reads a sector, if blocks read different sectors.
        between = resident.warps_per_sm * _SECTOR * missed / read
        missed += sum(size for at, size in enumerate(counts["read_again"]) if at and 0.75 * 2**at * between > room)
    # Bytes that several blocks read are still in L2 if the blocks that run at the same time leave them there.
    running = min(counts["grid_blocks"], resident.blocks_per_sm * model.multiprocessors)
    alike = min(running ** counts.get("sharing", 0.0), max(1.0, missed / unique_read)) if unique_read else 1.0
    at_once = min(unique_read + unique_written, running / counts["grid_blocks"] * (missed / alike + unique_written))
    dropped = max(0.0, 1 - model.l2_bytes / at_once) if at_once else 0.0
    dram_read = unique_read + max(0.0, missed - unique_read) * dropped
    # L2 merges writes to a sector, so DRAM sees each written sector once.
    dram = dram_read + unique_written
    # Without counts of the machine code, spills are charged once per thread. Their reuse distance is the stacks of all
    # resident threads.
    spilled = counts["spill_bytes"] * counts["block_threads"] * counts["grid_blocks"]
    local = counts["machine"]["local_bytes"] if "machine" in counts else spilled
    stacks = resident.warps_per_sm * _WARP * counts.get("stack_bytes", counts["spill_bytes"] // 2)
    beyond_l1 = local * max(0.0, 1 - room / stacks) if stacks else 0.0
    beyond_l2 = beyond_l1 * max(0.0, 1 - model.l2_bytes / (stacks * model.multiprocessors)) if stacks else 0.0
    # L1 serves a request one cache line at a time: at least one wavefront each, and a wavefront has four sectors.
    requests = (counts["global_load_requests"] + counts["global_store_requests"]) * 4 * _SECTOR
    l1 = max(read + written, requests) + local
    l2 = missed + written + beyond_l1
    if not read:
        return _Traffic(l1, l2, dram + beyond_l2, 0.0, 0.0)
    return _Traffic(l1, l2, dram + beyond_l2, 1 - missed / read, max(0.0, missed - dram_read) / read)


def _warp_clocks(counts: Counts, model: DeviceModel, memory: _Traffic) -> float:
    """Return the clocks of one warp alone."""
    from_dram = 1 - memory.from_l1 - memory.from_l2
    load = (
        from_dram * model.dram_latency_clocks
        + memory.from_l2 * model.l2_latency_clocks
        + memory.from_l1 * model.shared_latency_clocks
    )
    # A conflicted access holds the warp for its additional wavefronts.
    taken, ideal = _accessed(counts, "shared_wavefronts"), _accessed(counts, "shared_ideal_wavefronts")
    slower = model.arithmetic_latency_clocks / _SCHEDULED
    shared = model.shared_latency_clocks + slower * max(0.0, taken / ideal - 1 if ideal else 0.0)
    if "machine" in counts:
        machine = counts["machine"]
        waits = {"global": load, "shared": shared, "special": slower * _SPECIAL}
        return slower * machine["clocks"] + sum(machine["waits"][kind] * clocks for kind, clocks in waits.items())
    chain = counts["chain"]
    return (
        chain["global_loads"] * load
        + chain["shared_accesses"] * shared
        + chain["arithmetic"] * model.arithmetic_latency_clocks
        + chain["barriers"] * model.shared_latency_clocks
    )


def _accessed(counts: Counts, name: Literal["shared_wavefronts", "shared_ideal_wavefronts"]) -> int:
    """Return the wavefronts of loads and stores: operands of wgmma, which have no conflicts, are in the tensor time."""
    return counts[name] - counts.get("operand_wavefronts", 0)
