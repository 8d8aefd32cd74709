"""Bytes in flight: the bytes that a multiprocessor has requested from memory, and the number that keeps memory busy.

Little's law: a memory that answers after ``latency`` seconds delivers ``bandwidth`` bytes per second only while
``bandwidth * latency`` bytes are requested. A kernel with fewer bytes in flight is bound by latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_models
from workbench.attention.bench.paged_attention.contender import Contender, Ours
from workbench.attention.bench.paged_attention.ledger import LedgerRow
from workbench.ops import Variant

_LOADED = (2.6, 4.2)
"""Latency of a memory at full speed as a multiple of that of an idle one: a lower and an upper estimate.

These are assumed, because published latencies are those of an idle memory (`DeviceModel.sources`). With them, an H200
needs 25 to 40 kB per multiprocessor.
"""


def needed(model: DeviceModel) -> tuple[float, float]:
    """Return the least and the safe number of bytes in flight per multiprocessor to read at the published bandwidth."""
    share = model.dram_bytes_per_second / model.multiprocessors
    idle = share * model.dram_latency_clocks / model.clock_hz
    return idle * _LOADED[0], idle * _LOADED[1]


def needed_of_gpu(name: str) -> tuple[float, float] | None:
    """Return `needed` for a GPU by its name in the driver or a device model; None if no model matches."""
    for model in device_models().values():
        if name == model.name or any(text in name for text in model.matches):
            return needed(model)
    return None


def bytes_in_flight(variant: Variant, config: Mapping[str, Any], problem: Any, multiprocessors: int) -> float | None:
    """Return a lower bound of a multiprocessor's bytes of keys and values in flight while a variant runs.

    It is a lower bound because the registers and shared memory of `workbench.ops.values.Footprint` are upper bounds.
    The occupancy is that of ``problem.arch``. None for a variant that declares no footprint.
    """
    if variant.footprint is None:
        return None
    block = variant.footprint(config, problem)
    return block.bytes_in_flight * min(block.resident(problem.arch), -(-block.blocks // multiprocessors))


def noted(row: LedgerRow, contender: Contender, arch: str, multiprocessors: int) -> LedgerRow:
    """Return the row with the bytes in flight of its configuration added, if it has a time and is a variant's."""
    if row.seconds is None or not isinstance(contender, Ours):
        return row
    problem = row.cell.problem(contender.form, arch)
    return replace(row, bytes_in_flight=bytes_in_flight(contender.variant, row.config, problem, multiprocessors))
