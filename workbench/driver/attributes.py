"""Attributes of the simulated device: those of a real GPU, less what the PTX machine lacks.

Their numbers are those of ``CUdevice_attribute`` in cuda.h (CUDA 13). Multiprocessors, clock, L2 and bandwidth come
from the shipped device models, limits per block and multiprocessor from the occupancy tables, the rest from the CUDA
C++ Programming Guide, table "Technical Specifications per Compute Capability". The attribute of a feature that the
simulated device lacks (textures, cluster launches, virtual memory management, peers, memory shared between processes)
is 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.home import PACKAGE
from workbench.errors import UnknownNameError
from workbench.toolchain.occupancy import limits_of

DEFAULT_MODEL = "h200"
_LAST = 147  # the highest attribute number of CUDA 13.0
_KIB = 1024

# Not in devices.json. Bus widths in bits, from the datasheets named there; float32 lanes per float64 lane.
_BUS_WIDTHS = {
    "a100-sxm-80gb": 5120, "a100-sxm-40gb": 5120, "a100-pcie-80gb": 5120, "a100-pcie-40gb": 5120, "h100-sxm": 5120,
    "h100-pcie": 5120, "h200": 6144, "gh200": 6144, "b200": 8192, "gb300": 8192, "rtx-5090": 512, "l4": 192,
    "l40s": 384, "rtx-4090": 384, "a10": 384, "rtx-a4000": 256, "rtx-a6000": 384, "rtx-3060": 192, "rtx-3090": 384,
    "rtx-2080-ti": 352, "titan-rtx": 384, "t4": 256,
}  # fmt: skip
_SINGLE_TO_DOUBLE = {
    "sm_75": 32, "sm_80": 2, "sm_86": 64, "sm_89": 64, "sm_90": 2, "sm_100": 2, "sm_103": 64, "sm_120": 64,
}  # fmt: skip
# Nominal bytes per second between host and device, one way, over 16 lanes of PCI Express: 3.0 on sm_75, 4.0 on sm_80 to
# sm_89, 5.0 from sm_90 on, 6.0 on sm_103.
_HOST_BANDWIDTH = {
    "sm_75": 16e9, "sm_80": 32e9, "sm_86": 32e9, "sm_89": 32e9, "sm_90": 64e9, "sm_100": 64e9,
    "sm_103": 128e9, "sm_120": 64e9,
}  # fmt: skip


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
    # Reads the file itself, because workbench.tuning would import torch.
    record = json.loads((PACKAGE / "analysis" / "devices.json").read_text())
    models = record["devices"]
    if key not in models:
        raise UnknownNameError("model", repr(key), ", ".join(models), "Name one of these.")
    arch = models[key]["arch"]
    model = record["architectures"][arch] | models[key]
    return DeviceFacts(
        key,
        model["name"] if exact_name else f"{model['name']} (simulated)",
        arch,
        _attributes(key, arch, model),
        model["dram_bytes_per_second"]["value"],
        _HOST_BANDWIDTH[arch],
        model["launch_seconds"]["value"],
    )


def _attributes(key: str, arch: str, model: Mapping[str, Any]) -> dict[int, int]:
    limits, number = limits_of(arch), int(arch.removeprefix("sm_"))
    bus = _BUS_WIDTHS[key]
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
        87: _SINGLE_TO_DOUBLE[arch],
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
