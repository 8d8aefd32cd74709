"""The machine that a result was measured on: the GPU, its driver, and the state of its clocks."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

from workbench.base.versions import versions
from workbench.tuning.measuring.gpu_state import throttle_reasons

_STATE = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "throttled_by": "clocks_event_reasons.active",
}


def gpu_facts() -> dict[str, Any]:
    """Return name, architecture, multiprocessors, memory, L2 and driver of torch's current GPU."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": properties.name,
        "arch": f"sm_{properties.major}{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "cuda": torch.version.cuda,
        "driver": _query(["driver_version"]).get("driver_version"),  # None without an answer of nvidia-smi
    }


def gpu_state() -> dict[str, Any]:
    """Return the clocks, temperature and power of torch's current GPU, and what throttles it, by ``nvidia-smi``.

    Without an answer it is ``{"unknown": reason}``. (Not by NVML's Python binding, which the environment of a peer's
    benchmark may lack.)
    """
    found = _query(list(_STATE.values()))
    if "unknown" in found:
        return dict(found)
    state: dict[str, Any] = {}
    for name, query in _STATE.items():
        text = found.get(query, "")
        if name == "throttled_by":
            state[name] = _throttled_by(text)
        elif text.replace(".", "", 1).isdigit():
            state[name] = float(text)
    return state


def _throttled_by(bits: str) -> list[str] | None:
    """Return the reasons in a mask such as ``0x0000000000000004``, or None for a text that is not a mask."""
    return list(throttle_reasons(int(bits, 16))) if re.fullmatch(r"0x[0-9a-fA-F]+", bits) else None


def all_versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return `workbench.base.versions` and the versions of further packages that are installed."""
    found = dict(versions())
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _query(fields: list[str]) -> dict[str, str]:
    """Return the answer of nvidia-smi on torch's current GPU, or only ``unknown`` with the reason why there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"unknown": "nvidia-smi is not on the PATH"}
    import torch

    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    command = [program, f"--id=GPU-{uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return {"unknown": f"nvidia-smi: {error}"}
    said = (done.stdout + done.stderr).strip()
    values = [value.strip() for value in done.stdout.partition("\n")[0].split(",")]
    if done.returncode != 0 or len(values) != len(fields):
        return {"unknown": f"nvidia-smi reports: {said or f'nothing, status {done.returncode}'}"}
    return dict(zip(fields, values, strict=True))
