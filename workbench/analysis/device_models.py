"""What a GPU's maker and independent measurements publish about it: what predictions and untuned rules rest on.

The figures are package data (``devices.json``), each with its source; ``assumed`` marks the ones that nobody
publishes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import UnknownNameError

DEFAULT_MODEL = "a100-sxm-80gb"
"""The device model that the simulator predicts for where none is named: it runs sm_80 code."""

DEVICES_FILE = Path(__file__).with_name("devices.json")
"""The figures and their sources."""


@dataclass(frozen=True)
class DeviceModel:
    """The limits of one GPU. SM stands for multiprocessor; rates are per clock, those named ``_lanes`` per SM too.

    ``l1_bytes`` are those of an SM's L1 cache and shared memory together. ``matches`` are names that the driver has for
    the GPU, without the maker's and the family's ("NVIDIA", "GeForce", "Tesla").
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
    matches: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """For each figure the publication that it comes from, in words."""

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})"


@functools.cache
def device_models() -> Mapping[str, DeviceModel]:
    """The shipped device models by name."""
    record = json.loads(DEVICES_FILE.read_text())
    shared = record["architectures"]
    return {
        key: _model(key, shared[entry["arch"]] | entry, record["sources"]) for key, entry in record["devices"].items()
    }


def device_model(name: str | DeviceModel | None = None) -> DeviceModel:
    """A device model by name; the simulator's default for None. Raises UnknownNameError listing those that exist."""
    if isinstance(name, DeviceModel):
        return name
    models = device_models()
    if name is None:
        return models[DEFAULT_MODEL]
    if name not in models:
        raise UnknownNameError("model", repr(name), ", ".join(models), "Name one of these, or pass a DeviceModel.")
    return models[name]


def model_of_gpu(gpu_name: str) -> DeviceModel | None:
    """The model of the GPU that the driver calls ``gpu_name``, or None where there is none for it.

    The whole name counts: an "RTX 3090 Ti", an "A10G" or a slice of a GPU is another device. What stands behind it in
    brackets does not.
    """
    plain = re.sub(r"\s*\(.*\)$|\b(NVIDIA|GeForce|Tesla)\s+", "", gpu_name, flags=re.IGNORECASE).strip().casefold()
    for model in device_models().values():
        if plain in (name.casefold() for name in (model.name.removeprefix("GeForce "), *model.matches)):
            return model
    return None


def model_of_arch(arch: str) -> DeviceModel | None:
    """The first recorded model of an architecture (``"sm_90a"`` is ``"sm_90"``), or None where there is none."""
    return next((model for model in device_models().values() if model.arch == arch.rstrip("af")), None)


def placed(problem: Any, device: Any, model: DeviceModel | None = None) -> Any:
    """The problem with the number of multiprocessors of where it will run, if it has a place for it.

    Args:
        problem: an op's own value.
        device: where it runs; on a GPU the number is that of torch's current one.
        model: what the simulator stands for; None leaves the number open.
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
            sources[name] = publications[figure["source"]] + note
    return DeviceModel(
        key=key, name=entry["name"], arch=entry["arch"], matches=tuple(entry["matches"]), sources=sources, **figures
    )
