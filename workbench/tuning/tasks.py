"""One attempt, tried: by `tried` in whatever process; as a task that is sent to another one, and what comes back.

A task is plain data. Nothing but a worker's death or a fault of ours makes a task raise: exceptions with
arguments of their own do not survive the way back, so what ended an attempt returns as an `Answer`.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel
from workbench.base.processes.ending import end_with_pool
from workbench.base.trials.trial import Trial
from workbench.base.versions import toolchain
from workbench.errors import CaseTooLargeError, DeviceUnavailableError, MissingToolError, WorkbenchError
from workbench.tuning.attempt import Setting
from workbench.tuning.gpu_choice import device_label, use_gpu
from workbench.tuning.isolation import InProcess, InWorker, measurer
from workbench.tuning.measure import Compiled, DeviceLostError, Limits, to_compile
from workbench.tuning.shipping import Shipped

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant

_HERE = threading.local()
"""What a worker keeps from task to task, each of its threads for itself: inputs are written to."""
_MADE: weakref.WeakValueDictionary[tuple[str, int], InProcess | InWorker] = weakref.WeakValueDictionary()
"""The measurers of all threads, by tuning run and thread."""
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


def stamp_of(variant: Variant, device: Device) -> Stamp:
    """The stamp of this process."""
    return Stamp(device_label(device), device.arch, toolchain(variant.language), variant.source_hash)


@dataclass(frozen=True)
class Task:
    """One configuration of a variant, to be tried on one case."""

    variant: Shipped
    config: Config
    case: Shipped
    device: Shipped
    model: DeviceModel
    limits: Limits | None
    isolation: str
    stamp: Stamp
    """That of the process which stores the result."""
    run: str
    """The tuning run that it is part of."""
    runs: frozenset[str]
    """All that go on where it comes from; for others a worker keeps nothing."""
    parent: int
    """The process that stores the result."""
    gpu: int | None = None
    """The GPU that its threads use; the workers' GPUs are their own affair."""
    ticket: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Makes every task another one: Dask answers a task that it knows with the result, or the failure, that it has."""


@dataclass(frozen=True)
class Answer:
    """What a task came to."""

    trial: Trial
    lost: bool = False
    """Whether the trial left the worker's GPU context unusable."""
    pid: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class Fatal:
    """The reason why a task came to nothing, and no other can be tried there either."""

    reason: WorkbenchError


def tried(
    measure: InProcess | InWorker,
    variant: Variant,
    config: Config,
    case: Case,
    device: Device,
    compiling: Future[Compiled] | None = None,
) -> Answer:
    """Compile a configuration, unless that has begun, and measure it."""
    if compiling is None:
        problem = to_compile(variant, config, case, device)
        compiled = None if problem is None else measure.compile(variant, config, problem)
    else:
        compiled = compiling.result()
    try:
        return Answer(measure.evaluate(variant, config, case, compiled))
    except DeviceLostError as error:
        return Answer(error.trial, lost=True)


def run_task(task: Task) -> Answer | Fatal:
    """Try the configuration in this process, or in one that this thread has for it."""
    end_with_pool(task.parent)
    if _LOST.is_set() and os.getpid() != task.parent:
        os._exit(1)  # A context that is lost stays lost as long as the process lives; its successor has a new one.
    try:
        if os.getpid() == task.parent:
            use_gpu(task.gpu)
        variant, case, device = task.variant.value, task.case.value, task.device.value
        if difference := task.stamp.difference(stamp_of(variant, device)):
            return Fatal(
                WorkbenchError(
                    f"a worker of the executor is not like this process, so its result was not kept: {difference}. "
                    "Give every worker the same workbench, compilers and GPU model."
                )
            )
        answer = tried(_measurer(task, device), variant, task.config, case, device)
        if answer.lost:
            _LOST.set()
        return answer
    except WorkbenchError as error:
        kinds = (MissingToolError, DeviceUnavailableError, CaseTooLargeError, WorkbenchError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        return Fatal(kind(f"a worker of the executor can try nothing: {error}"))


def close(run: str) -> None:
    """End what the threads of this process keep for a tuning run."""
    for (made_for, _), made in list(_MADE.items()):
        if made_for == run:
            made.close()


def _measurer(task: Task, device: Device) -> InProcess | InWorker:
    """What this thread compiles and measures with in a tuning run."""
    kept = _HERE.__dict__.setdefault("measurers", {})
    for run in kept.keys() - task.runs:
        kept.pop(run).close()
    if task.run not in kept:
        kept[task.run] = measurer(Setting(device, task.model, task.limits, task.isolation, task.gpu))
        _MADE[task.run, threading.get_ident()] = kept[task.run]
    return kept[task.run]
