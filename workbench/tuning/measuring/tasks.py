"""An attempt as a task for another process, with its answer.

A task is plain data. Only a worker's death or a defect of the workbench makes a task raise. Exceptions that take
arguments of their own cannot be unpickled, so the end of an attempt returns as a `TaskAnswer`.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel
from workbench.base.processes.ending import end_with_pool
from workbench.base.trials.trial import Trial
from workbench.base.versions import toolchain
from workbench.errors import CaseTooLargeError, DeviceUnavailableError, MissingToolError, WorkbenchError
from workbench.tuning.measuring.attempt import Attempt, Limits, Setting
from workbench.tuning.measuring.gpu_choice import device_label, use_gpu
from workbench.tuning.measuring.isolation import InWorker, measurer
from workbench.tuning.measuring.measure import InProcess
from workbench.tuning.measuring.shipping import SentAttempt

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Variant

_HERE = threading.local()
"""A worker's state from task to task. Each of its threads has its own, because kernels write to the inputs."""
_MADE: weakref.WeakValueDictionary[tuple[str, int], InProcess | InWorker] = weakref.WeakValueDictionary()
"""The measurers of all threads, by tuning run and thread."""
_LOST = threading.Event()
"""Set when this process has lost its GPU context."""


@dataclass(frozen=True)
class Stamp:
    """Conditions under which a time is valid. A worker's must equal those of the process that stores its rows."""

    device: str
    arch: str
    toolchain: str
    source_hash: str

    def difference(self, other: Stamp) -> str:
        """Return the fields that differ, as ``name: mine here, theirs there``; empty if none does."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return "; ".join(f"{name}: {mine} here, {theirs} there" for name, mine, theirs in pairs if mine != theirs)


def stamp_of(variant: Variant, device: Device) -> Stamp:
    """Return the stamp of this process."""
    return Stamp(device_label(device), device.arch, toolchain(variant.language), variant.source_hash)


@dataclass(frozen=True)
class Task:
    """An attempt that a worker shall try."""

    attempt: SentAttempt
    model: DeviceModel
    limits: Limits | None
    isolation: str
    stamp: Stamp
    """The stamp of the process that stores the result."""
    run: str
    """The tuning run that the task is part of."""
    runs: frozenset[str]
    """All active runs of the sending process; a worker drops the state of others."""
    parent: int
    """Number (PID) of the process that stores the result."""
    gpu: int | None = None
    """Number of the GPU that the sending process's own threads use; workers in other processes choose their own."""
    ticket: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Identifier that makes every task unique.

    Dask answers a task that it has seen before with the earlier result or failure.
    """


@dataclass(frozen=True)
class TaskAnswer:
    """The result of a task."""

    trial: Trial
    lost: bool = False
    """True if the trial left the worker's GPU context unusable."""
    pid: int = field(default_factory=os.getpid)
    """Number (PID) of the process that tried it."""

    def of(self, attempt: Attempt) -> Attempt:
        """Return the attempt with this end; it is ``lost`` if it left this process's own context unusable."""
        return replace(attempt, trial=self.trial, ended=True, lost=self.lost and self.pid == os.getpid())


@dataclass(frozen=True)
class Fatal:
    """Reason why a task failed and no other can be tried there either."""

    reason: WorkbenchError


def run_task(task: Task) -> TaskAnswer | Fatal:
    """Try the task's configuration in this process, or in a process that this thread keeps for it."""
    end_with_pool(task.parent)
    if _LOST.is_set() and os.getpid() != task.parent:
        os._exit(1)  # A lost context stays lost for the life of the process; its successor has a new one.
    try:
        if os.getpid() == task.parent:
            use_gpu(task.gpu)
        attempt = task.attempt.restored()
        if difference := task.stamp.difference(stamp_of(attempt.variant, attempt.device)):
            return Fatal(
                WorkbenchError(
                    f"a worker of the executor differs from this process, so its result was not kept: {difference}. "
                    "Give every worker the same workbench, compilers and GPU model."
                )
            )
        measure = _measurer(task, attempt.device)
        attempt = measure.measured(measure.compiled(measure.legal(attempt)))
        if attempt.lost:
            _LOST.set()
        return TaskAnswer(attempt.trial, attempt.lost)
    except WorkbenchError as error:
        kinds = (MissingToolError, DeviceUnavailableError, CaseTooLargeError, WorkbenchError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        return Fatal(kind(f"a worker of the executor can try nothing: {error}"))


def close(run: str) -> None:
    """End the measurers that the threads of this process keep for a tuning run."""
    for (made_for, _), made in list(_MADE.items()):
        if made_for == run:
            made.close()


def _measurer(task: Task, device: Device) -> InProcess | InWorker:
    """Return the measurer that this thread keeps for the task's tuning run."""
    kept = _HERE.__dict__.setdefault("measurers", {})
    for run in kept.keys() - task.runs:
        kept.pop(run).close()
    if task.run not in kept:
        kept[task.run] = measurer(Setting(device, task.model, task.limits, task.isolation, task.gpu))
        _MADE[task.run, threading.get_ident()] = kept[task.run]
    return kept[task.run]
