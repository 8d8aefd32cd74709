"""Device models: published figures of GPUs, on which predictions and launch rules without tuning rest.

The figures come from the makers and from independent measurements. They are package data (``base/gpus.json``), each
with its source; ``assumed`` marks unpublished ones. A second reading compared them with other
publications: ``also`` names one that agrees, ``differs`` says where one does not, and a figure with neither was read
once.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.base.architectures import plain_arch
from workbench.base.gpus import gpu_figures
from workbench.errors import UnknownNameError

DEFAULT_MODEL = "a100-sxm-80gb"
"""Device model that the simulator predicts for by default; the simulator runs sm_80 code."""


@dataclass(frozen=True)
class DeviceModel:
    """Published limits and rates of one GPU. SM stands for multiprocessor.

    Rates are per clock; those named ``_lanes`` are per clock and SM. ``l1_bytes`` counts an SM's L1 cache and shared
    memory together. ``matches`` are the driver's names of the GPU, without the maker and the family ("NVIDIA",
    "GeForce", "Tesla").
    """

    key: str
    name: str
    arch: str
    multiprocessors: float
    clock_hz: float
    dram_bytes_per_second: float
    l2_bytes: float
    l2_bytes_per_clock: float
    l2_bytes_per_clock_sm: float
    l1_bytes: float
    l1_bytes_per_clock: float
    issue_slots: float
    fp32_lanes: float
    fp16_lanes: float
    fp64_lanes: float
    integer_lanes: float
    conversion_lanes: float
    special_lanes: float
    memory_lanes: float
    tensor_flops_per_clock: float
    shared_bytes_per_clock: float
    dram_latency_clocks: float
    l2_latency_clocks: float
    shared_latency_clocks: float
    arithmetic_latency_clocks: float
    launch_seconds: float
    base_clock_hz: float | None = None
    """Clock that the GPU keeps under any load within its power and temperature limits; None where none is published.
    ``clock_hz`` is the boost clock, which it reaches while these limits allow."""
    block_start_seconds: float | None = None
    """Time that the whole GPU takes to start one more block; None where it has not been measured."""
    tensor_flops_per_clock_8_bits: float | None = None
    """Rate of products of 8-bit factors; None: that of 16 bits, ``tensor_flops_per_clock``."""
    tensor_flops_per_clock_4_bits: float | None = None
    """Rate of products of 4-bit factors; None: that of 8 bits."""
    matches: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Publication that each figure comes from, in words."""

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})"


@functools.cache
def device_models() -> Mapping[str, DeviceModel]:
    """Return the shipped device models by name."""
    record = gpu_figures()
    shared = record["architectures"]
    return {
        key: _model(key, shared[entry["arch"]] | entry, record["sources"]) for key, entry in record["devices"].items()
    }


def device_model(name: str | DeviceModel | None = None) -> DeviceModel:
    """Return a device model by name, or the simulator's default for None.

    Raises UnknownNameError, with the names that exist.
    """
    if isinstance(name, DeviceModel):
        return name
    models = device_models()
    if name is None:
        return models[DEFAULT_MODEL]
    if name not in models:
        raise UnknownNameError("model", repr(name), ", ".join(models), "Name one of these, or pass a DeviceModel.")
    return models[name]


def model_of_gpu(gpu_name: str) -> DeviceModel | None:
    """Return the model of the GPU that the driver calls ``gpu_name``, or None if there is none.

    The whole name counts: an "RTX 3090 Ti", an "A10G" or a slice of a GPU is another device. A suffix in brackets does
    not count.
    """
    plain = re.sub(r"\s*\(.*\)$|\b(NVIDIA|GeForce|Tesla)\s+", "", gpu_name, flags=re.IGNORECASE).strip().casefold()
    for model in device_models().values():
        if plain in (name.casefold() for name in (model.name.removeprefix("GeForce "), *model.matches)):
            return model
    return None


def model_of_arch(arch: str) -> DeviceModel | None:
    """Return the first recorded model of an architecture (``"sm_90a"`` is ``"sm_90"``), or None if there is none."""
    return next((model for model in device_models().values() if model.arch == plain_arch(arch)), None)


def placed(problem: Any, device: Any, model: DeviceModel | None = None) -> Any:
    """Return the problem with the number of multiprocessors that will run it, if the problem has a field for it.

    Args:
        problem: an op's own value.
        device: where it runs; on a GPU the number is that of torch's current one.
        model: the device model that the simulator stands for; None leaves the number open.
    """
    if device.name == "cuda":
        import torch

        count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    else:
        count = None if model is None else int(model.multiprocessors)
    return dataclasses.replace(problem, multiprocessors=count) if hasattr(problem, "multiprocessors") else problem


def _model(key: str, entry: Mapping[str, Any], publications: Mapping[str, str]) -> DeviceModel:
    figures, sources = {}, {}
    for name in (f.name for f in dataclasses.fields(DeviceModel)):
        if isinstance(entry.get(name), dict):
            figure = entry[name]
            figures[name] = float(figure["value"])
            note = f" ({figure['note']})" if "note" in figure else ""
            also = f"; agrees with {publications[figure['also']]}" if "also" in figure else ""
            differs = f"; differs from {figure['differs']}" if "differs" in figure else ""
            sources[name] = publications[figure["source"]] + note + also + differs
    return DeviceModel(
        key=key, name=entry["name"], arch=entry["arch"], matches=tuple(entry["matches"]), sources=sources, **figures
    )
