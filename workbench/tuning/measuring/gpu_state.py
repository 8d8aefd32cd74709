"""State of a GPU during a timing: its clock, and the processes that use it, to tell whether it was left alone.

The figures are NVML's, through ``nvidia-ml-py`` (part of ``[cuda]``). If they are not available nothing is watched, and
:func:`disturbances` names the reason and the remedy.
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
"""Share of the higher of two clock readings under load below which the lower one counts as a change."""

_NOT_WATCHED = "not watched: "
_NOT_INSTALLED = "nvidia-ml-py is not installed"
_TOO_OLD = "nvidia-ml-py is too old"

_APPLICATION_CLOCKS = 0x2
# NVML's bits for the reasons that hold clocks down: nvmlClocksEventReasons in its API reference.
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
    """A reading of a GPU's state. ``clock_mhz`` is the multiprocessors' clock; ``others`` are processes beside ours."""

    clock_mhz: int
    others: tuple[int, ...] = ()
    held_back: tuple[str, ...] = ()
    """Reasons why it runs slower than it could."""


@dataclass(frozen=True)
class Unwatched:
    """A reading of a GPU's state that failed, with the reason. A trial keeps its ``str()``."""

    reason: str

    def __str__(self) -> str:
        return _NOT_WATCHED + self.reason


Probe = Callable[[], GpuState | Unwatched]


def nvml_probe() -> Probe:
    """Return a probe that reads the state of torch's current GPU, or returns the reason why it cannot."""
    try:
        import pynvml
    except ImportError:
        return lambda: Unwatched(_NOT_INSTALLED)
    import torch

    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    probe = _NvmlProbe(pynvml, f"GPU-{uuid}")
    probe()  # the first reading looks the GPU up, which takes longer than the load under which to read it
    return probe


def gpu_lost() -> bool:
    """Return True if torch's current GPU no longer answers, as after an illegal access, for this process."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").add_(1).cpu()
    except torch.OutOfMemoryError:
        return False
    except Exception:  # CUDA's errors have no class of their own, and every one is sticky
        return True
    return False


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the bits in NVML's mask of clock event reasons; being idle is none."""
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
            return Unwatched(f"NVML reports {error} for {self._uuid}")
        except AttributeError as error:
            return Unwatched(f"{_TOO_OLD}: {error}")
        return GpuState(
            clock_mhz=clock,
            # In a container NVML may give the host's process ids; one that does not exist here may be our own.
            others=tuple(sorted(pid for pid in users - _ours() if Path(f"/proc/{pid}").exists())),
            held_back=throttle_reasons(mask & ~_APPLICATION_CLOCKS),  # application clocks are what the user set
        )


def _ours() -> set[int]:
    """Return the ids of this process and of its parent, whose context is idle while this one measures."""
    return {os.getpid(), os.getppid()}


def disturbance(before: GpuState | Unwatched, after: GpuState | Unwatched) -> str:
    """Describe what disturbed a timing, from readings of the GPU before and after; "" if nothing did."""
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
    """Return a sentence for each kind of disturbance of the trials that were timed, for the notes of a run."""
    timed = [trial for trial in trials if trial.measured_seconds is not None and not trial.reused]
    told = Counter(str(trial.timing.get("disturbed", "")) for trial in timed)
    quiet = told.pop("", 0)
    notes = []
    for text in [text for text in told if text.startswith(_NOT_WATCHED)]:
        count = told.pop(text)
        notes.append(f"disturbances of the GPU were {text} ({count} timings). {_remedy(text)}")
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
    return "Look at what nvidia-smi reports, from the same library; after an update of the driver restart the machine."
