"""Bytes in flight: what a multiprocessor has asked memory for at a time, beside what keeps the memory busy.

Little's law: a memory that answers after ``latency`` seconds delivers ``bandwidth`` bytes per second only while
``bandwidth * latency`` bytes are asked for. A kernel below that waits for latency however well it computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_models
from workbench.attention.bench.paged_attention.contender import Contender, Ours
from workbench.attention.bench.paged_attention.ledger import Row
from workbench.ops.variant import Variant
from workbench.toolchain.occupancy import occupancy

_LOADED = (2.6, 4.2)
"""How many times longer than an idle memory one at full speed takes to answer. Assumed: published latencies are those
of an idle one (`DeviceModel.sources`); with these an H200 wants 25 to 40 kB per multiprocessor."""


def needed(model: DeviceModel) -> tuple[float, float]:
    """Bytes in flight per multiprocessor that reading at the published bandwidth takes: at least, and for certain."""
    share = model.dram_bytes_per_second / model.multiprocessors
    idle = share * model.dram_latency_clocks / model.clock_hz
    return idle * _LOADED[0], idle * _LOADED[1]


def needed_of_gpu(name: str) -> tuple[float, float] | None:
    """`needed` of the GPU that the driver, or a device model, calls so; None where there is no model of it."""
    for model in device_models().values():
        if name == model.name or any(text in name for text in model.matches):
            return needed(model)
    return None


def bytes_in_flight(variant: Variant, config: Mapping[str, Any], problem: Any, multiprocessors: int) -> float | None:
    """Bytes of keys and values that a busy multiprocessor waits for while the variant runs on ``problem.arch``.

    At least: registers and shared memory are upper bounds (`workbench.ops.values.Footprint`). None for a variant that
    does not say.
    """
    if variant.footprint is None:
        return None
    block = variant.footprint(config, problem)
    resident = occupancy(problem.arch, block.threads, block.registers, block.shared_bytes).blocks_per_sm
    return block.bytes_in_flight * min(resident, -(-block.blocks // multiprocessors))


def noted(row: Row, contender: Contender, arch: str, multiprocessors: int) -> Row:
    """The row with the bytes in flight of its configuration, if it has a time and is one of ours."""
    if row.seconds is None or not isinstance(contender, Ours):
        return row
    problem = row.cell.problem(contender.form, arch)
    return replace(row, bytes_in_flight=bytes_in_flight(contender.variant, row.config, problem, multiprocessors))
