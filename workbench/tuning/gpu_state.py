"""Whether a GPU was left alone while something was timed on it: its clock, and who else used it.

The figures are NVML's, through ``nvidia-ml-py`` (part of ``[cuda]``). Where that is missing nothing is watched, and
:func:`disturbances` says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.tuning.trial import Trial

CLOCK_FALL = 0.95
"""A clock that ends below this share of what it was when the timing began has fallen."""

NOT_WATCHED = "not watched: nvidia-ml-py is not installed"

_APPLICATION_CLOCKS = 0x2
# NVML's bits of what holds clocks down: nvmlClocksEventReasons of its API reference.
_REASONS = {
    _APPLICATION_CLOCKS: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


@dataclass(frozen=True)
class GpuState:
    """A look at a GPU. ``clock_mhz`` is the multiprocessors'; ``others`` the processes beside ours."""

    clock_mhz: int
    others: tuple[int, ...] = ()
    held_back: tuple[str, ...] = ()
    """Why it runs slower than it could."""


Probe = Callable[[], GpuState]


def nvml_probe() -> Probe | None:
    """What looks at torch's current GPU; None without ``nvidia-ml-py`` or where the driver gives no answer."""
    try:
        import pynvml
    except ImportError:
        return None
    import torch

    try:
        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
        probe = _NvmlProbe(pynvml, handle)
        probe()
    except pynvml.NVMLError:
        return None
    return probe


def gpu_lost() -> bool:
    """Whether torch's current GPU no longer answers: after an illegal access nothing in this process can use it."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").add_(1).cpu()
    except Exception:
        return True
    return False


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """What NVML's mask of clock event reasons names; being idle is none."""
    return tuple(reason for bit, reason in _REASONS.items() if mask & bit)


class _NvmlProbe:
    def __init__(self, nvml, handle):
        self._nvml, self._handle = nvml, handle

    def __call__(self) -> GpuState:
        nvml, handle = self._nvml, self._handle
        users = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        return GpuState(
            clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            # In a container NVML may name processes by the host's numbers: who is not here cannot be told from us.
            others=tuple(sorted(pid for pid in users - _ours() if Path(f"/proc/{pid}").exists())),
            held_back=throttle_reasons(mask & ~_APPLICATION_CLOCKS),  # these are as asked,
        )


def _ours() -> set[int]:
    """This process and the one that had it made, whose context waits while this one measures."""
    return {os.getpid(), os.getppid()}


def disturbance(before: GpuState, after: GpuState) -> str:
    """What disturbed a timing between two looks at the GPU; "" if nothing did."""
    found = []
    if others := sorted({*before.others, *after.others}):
        found.append(f"in use by process {', '.join(map(str, others))}")
    if after.clock_mhz < CLOCK_FALL * before.clock_mhz:
        why = f" ({', '.join(after.held_back)})" if after.held_back else ""
        found.append(f"clock fell from {before.clock_mhz} to {after.clock_mhz} MHz{why}")
    return "; ".join(found)


def disturbances(trials: Iterable[Trial]) -> list[str]:
    """A sentence for each kind of disturbance that timed trials met, for the notes of a run."""
    timed = [trial for trial in trials if trial.measured_seconds is not None and not trial.reused]
    told = Counter(str(trial.timing.get("disturbed", "")) for trial in timed)
    quiet = told.pop("", 0)
    notes = []
    if unwatched := told.pop(NOT_WATCHED, 0):
        notes.append(
            f"whether anything disturbed the GPU was {NOT_WATCHED} ({unwatched} timings). "
            "python -m pip install nvidia-ml-py"
        )
    if told:
        kinds = ", ".join(f"{count} x {text}" if count > 1 else text for text, count in told.most_common(3))
        notes.append(
            f"the GPU was disturbed during {told.total()} of {quiet + told.total()} timings: {kinds}. "
            "Their times may be too long: leave the GPU alone and tune them again in a fresh store."
        )
    return notes
