"""One attempt as a task for another process: what is sent there, what is done there, what comes back.

A task is plain data. Nothing but a worker's death or a fault of ours makes a task raise: exceptions with
arguments of their own do not survive the way back, so what ended an attempt returns as an `Answer`.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workbench.errors import DeviceUnavailableError, MissingToolError
from workbench.tuning.attempts import device_label
from workbench.tuning.device_models import DeviceModel
from workbench.tuning.gpu_timing import GpuClock
from workbench.tuning.measure import DeviceLostError, Inputs, Limits, evaluate
from workbench.tuning.shipping import Shipped
from workbench.tuning.trial import Trial, canonical
from workbench.tuning.versions import toolchain

_KEPT_CASES = 2
_HERE = threading.local()
"""What a worker keeps from task to task, each of its threads for itself: inputs are written to."""
_LOST = threading.Event()
"""Set when this process has lost its GPU context."""


@dataclass(frozen=True)
class Stamp:
    """What a time is valid for. A worker's must be that of the process which stores its rows."""

    device: str
    arch: str
    toolchain: str
    source_hash: str

    def difference(self, other: Stamp) -> str:
        """The fields that differ, ``name: mine, other's``; empty if none does."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return "; ".join(f"{name}: {mine} here, {theirs} there" for name, mine, theirs in pairs if mine != theirs)


def stamp_of(variant, device) -> Stamp:
    """The stamp of this process."""
    return Stamp(device_label(device), device.arch, toolchain(variant.language), variant.source_hash)


@dataclass(frozen=True)
class Task:
    """One configuration of a variant, to be tried on one case."""

    variant: Shipped
    config: Mapping
    case: Shipped
    device: Shipped
    model: DeviceModel
    limits: Limits | None
    parent: int
    """The process that stores the result."""
    ticket: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Makes every task another one: Dask answers a task that it knows with the result, or the failure, that it has."""


@dataclass(frozen=True)
class Answer:
    """What a task came to: a trial, or ``fatal``, the reason why no other can be tried there either."""

    stamp: Stamp
    trial: Trial | None = None
    fatal: str = ""
    lost: bool = False
    """Whether the trial left the worker's GPU context unusable."""
    pid: int = field(default_factory=os.getpid)


def run_task(task: Task, attempt: Callable = evaluate) -> Answer:
    """Try the configuration in this process."""
    if _LOST.is_set() and os.getpid() != task.parent:
        os._exit(1)  # A context that is lost stays lost as long as the process lives; its successor has a new one.
    variant, device = task.variant.value, task.device.value
    stamp = stamp_of(variant, device)
    case, inputs = _inputs(task.case.value, device.name)
    try:
        trial = attempt(
            variant,
            task.config,
            case,
            device,
            model=task.model,
            limits=task.limits,
            inputs=inputs,
            clock=_clock() if device.name == "cuda" else None,
        )
    except DeviceLostError as error:
        _LOST.set()
        return Answer(stamp, error.trial, lost=True)
    except (MissingToolError, DeviceUnavailableError) as error:
        return Answer(stamp, fatal=str(error))
    return Answer(stamp, trial)


def _inputs(case, device_name: str) -> tuple:
    """An equal case that was here before, with the reference that it computed, and its inputs."""
    kept = _HERE.__dict__.setdefault("cases", OrderedDict())
    key = type(case), canonical(case.to_dict()), device_name
    if key not in kept:
        kept[key] = case, Inputs(case, device_name)
        while len(kept) > _KEPT_CASES:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _clock() -> GpuClock:
    if not hasattr(_HERE, "clock"):
        _HERE.clock = GpuClock()
    return _HERE.clock
