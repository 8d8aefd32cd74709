"""Attributes of the simulated device: those of a real GPU, less what the PTX machine lacks.

Their numbers are those of ``CUdevice_attribute`` in cuda.h (CUDA 13). Multiprocessors, clock, L2 and bandwidth come
from the shipped figures of GPUs, limits per block and multiprocessor from the occupancy's, the rest from the CUDA
C++ Programming Guide, table "Technical Specifications per Compute Capability". The attribute of a feature that the
simulated device lacks (textures, cluster launches, virtual memory management, memory shared between processes)
is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.gpus import gpu_figures
from workbench.errors import UnknownNameError
from workbench.toolchain.occupancy import limits_of

DEFAULT_MODEL = "h200"
_LAST = 147  # the highest attribute number of CUDA 13.0
_KIB = 1024


@dataclass(frozen=True)
class DeviceFacts:
    """Facts of one simulated device: names, all attributes by their CUDA number, bandwidths, seconds per operation."""

    key: str
    name: str
    arch: str
    attributes: Mapping[int, int]
    device_bytes_per_second: float
    host_bytes_per_second: float
    operation_seconds: float


def device_facts(key: str, exact_name: bool = False) -> DeviceFacts:
    """Return the facts of a shipped device model; the name ends in "(simulated)", unless ``exact_name``.

    Raises UnknownNameError, with the list of models, for any other name.
    """
    record = gpu_figures()
    models = record["devices"]
    if key not in models:
        raise UnknownNameError("model", repr(key), ", ".join(models), "Name one of these.")
    arch = models[key]["arch"]
    model = record["architectures"][arch] | models[key]
    return DeviceFacts(
        key,
        model["name"] if exact_name else f"{model['name']} (simulated)",
        arch,
        _attributes(arch, model),
        model["dram_bytes_per_second"]["value"],
        model["host_bytes_per_second"],
        model["launch_seconds"]["value"],
    )


def _attributes(arch: str, model: Mapping[str, Any]) -> dict[int, int]:
    limits, number = limits_of(arch), int(arch.removeprefix("sm_"))
    bus = model["bus_bits"]
    # Memory moves data twice per clock.
    memory_clock = model["dram_bytes_per_second"]["value"] / (2 * bus / 8)
    known = {
        1: limits.threads_per_block,
        2: 1024, 3: 1024, 4: 64,  # block
        5: 2**31 - 1, 6: 65535, 7: 65535,  # grid
        8: 48 * _KIB,  # shared memory per block without opting in to more
        9: 64 * _KIB,  # constant memory
        10: 32,  # warp
        11: 2**31 - 1,  # pitch
        12: limits.registers_per_block,
        13: int(model["clock_hz"]["value"] / 1e3),
        14: 512,  # alignment of textures
        15: 1,  # copies beside kernels
        16: int(model["multiprocessors"]["value"]),
        19: 1,  # can map host memory
        30: 512,  # alignment of surfaces
        31: 1,  # concurrent kernels
        36: int(memory_clock / 1e3),
        37: bus,
        38: int(model["l2_bytes"]["value"]),
        39: 32 * limits.max_warps,
        40: 3,  # copy engines
        41: 1,  # one address space for host and device
        51: 32,  # pitch alignment of textures
        75: number // 10,
        76: number % 10,
        78: 1,  # stream priorities
        79: 1, 80: 1,  # global and local memory cached in L1
        81: limits.shared_per_multiprocessor,
        82: limits.registers,
        83: 1,  # managed memory
        87: int(model["fp32_lanes"]["value"] / model["fp64_lanes"]["value"]),
        89: 1,  # host and device may touch managed memory at the same time
        90: 1,  # preemption
        91: 1,  # the host's pointer serves for registered memory
        95: 1,  # cooperative launches
        97: limits.shared_per_block,
        99: 1,  # host memory can be registered
        106: limits.max_blocks,
        111: limits.shared_reserved,
        115: 1,  # memory pools
        126: 4 if number >= 90 else 1,  # memory domains
        127: int(number >= 90),  # tensor maps
        131: -1,  # its memory is no NUMA node
    }  # fmt: skip
    return {which: known.get(which, 0) for which in range(1, _LAST + 1)}
