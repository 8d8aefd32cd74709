"""Whether a GPU was left alone while something was timed on it: its clock, and who else used it.

The figures are NVML's, through ``nvidia-ml-py`` (part of ``[cuda]``). Where they cannot be had nothing is watched, and
:func:`disturbances` says why and what to do.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.trials.trial import Trial

CLOCK_FALL = 0.95
"""Of a clock's two readings under load, one below this share of the other has changed."""

_NOT_WATCHED = "not watched: "
_NOT_INSTALLED = "nvidia-ml-py is not installed"
_TOO_OLD = "nvidia-ml-py is too old"

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


@dataclass(frozen=True)
class Unwatched:
    """What came of a look at a GPU that gave nothing to see. ``str()`` is what a trial keeps of it."""

    reason: str

    def __str__(self) -> str:
        return _NOT_WATCHED + self.reason


Probe = Callable[[], GpuState | Unwatched]


def nvml_probe() -> Probe:
    """What looks at torch's current GPU, or says each time why it cannot."""
    try:
        import pynvml
    except ImportError:
        return lambda: Unwatched(_NOT_INSTALLED)
    import torch

    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    probe = _NvmlProbe(pynvml, f"GPU-{uuid}")
    probe()  # the first look finds the GPU, which takes longer than the load that it is to be seen at
    return probe


def gpu_lost() -> bool:
    """Whether torch's current GPU no longer answers: after an illegal access nothing in this process can use it."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").add_(1).cpu()
    except torch.OutOfMemoryError:
        return False
    except Exception:  # CUDA's errors have no class of their own, and any of them stays
        return True
    return False


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """What NVML's mask of clock event reasons names; being idle is none."""
    return tuple(reason for bit, reason in _REASONS.items() if mask & bit)


class _NvmlProbe:
    def __init__(self, nvml: Any, uuid: str):
        self._nvml, self._uuid = nvml, uuid
        self._handle: Any = None

    def __call__(self) -> GpuState | Unwatched:
        nvml = self._nvml
        try:
            if self._handle is None:
                nvml.nvmlInit()
                self._handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid.encode())
            clock = nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)  # first: it depends on the load
            mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
            users = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
        except nvml.NVMLError as error:
            return Unwatched(f"NVML says {error} of {self._uuid}")
        except AttributeError as error:
            return Unwatched(f"{_TOO_OLD}: {error}")
        return GpuState(
            clock_mhz=clock,
            # In a container NVML may name processes by the host's numbers: who is not here cannot be told from us.
            others=tuple(sorted(pid for pid in users - _ours() if Path(f"/proc/{pid}").exists())),
            held_back=throttle_reasons(mask & ~_APPLICATION_CLOCKS),  # these are as asked
        )


def _ours() -> set[int]:
    """This process and the one that had it made, whose context waits while this one measures."""
    return {os.getpid(), os.getppid()}


def disturbance(before: GpuState | Unwatched, after: GpuState | Unwatched) -> str:
    """What disturbed a timing between two looks at the GPU under load; "" if nothing did."""
    if isinstance(before, Unwatched):
        return str(before)
    if isinstance(after, Unwatched):
        return str(after)
    found = []
    if others := sorted({*before.others, *after.others}):
        found.append(f"in use by process {', '.join(map(str, others))}")
    clocks = before.clock_mhz, after.clock_mhz
    if min(clocks) < CLOCK_FALL * max(clocks):
        slower = after if after.clock_mhz < before.clock_mhz else before
        why = f" ({', '.join(slower.held_back)})" if slower.held_back else ""
        change = "fell" if slower is after else "rose"
        found.append(f"clock {change} from {before.clock_mhz} to {after.clock_mhz} MHz{why}")
    return "; ".join(found)


def disturbances(trials: Iterable[Trial]) -> list[str]:
    """A sentence for each kind of disturbance that timed trials met, for the notes of a run."""
    timed = [trial for trial in trials if trial.measured_seconds is not None and not trial.reused]
    told = Counter(str(trial.timing.get("disturbed", "")) for trial in timed)
    quiet = told.pop("", 0)
    notes = []
    for text in [text for text in told if text.startswith(_NOT_WATCHED)]:
        count = told.pop(text)
        notes.append(f"whether anything disturbed the GPU was {text} ({count} timings). {_remedy(text)}")
    if told:
        kinds = ", ".join(f"{count} x {text}" if count > 1 else text for text, count in told.most_common(3))
        notes.append(
            f"the GPU was disturbed during {told.total()} of {quiet + told.total()} timings: {kinds}. "
            "Their times may be too long: leave the GPU alone and tune them again in a fresh store."
        )
    return notes


def _remedy(text: str) -> str:
    if _NOT_INSTALLED in text:
        return "python -m pip install nvidia-ml-py"
    if _TOO_OLD in text:
        return "python -m pip uninstall pynvml; python -m pip install --upgrade nvidia-ml-py"
    return (
        "Look at what nvidia-smi says, which asks the same library; after an update of the driver restart the machine."
    )
