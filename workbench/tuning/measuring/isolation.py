"""Compilation and measurement of configurations, in this process or in one that may hang, crash and be replaced.

On a GPU the default is another process: a kernel that hangs cannot be ended otherwise, and one that fails may spoil the
CUDA context of its process for good. The simulator checks every access and stops a kernel at its limits. Its default is
this process, which saves the seconds that another one takes to start.

With ``isolation="process"`` Triton's compiler has a process of its own, too (NVRTC always has one), so that a crash or
a hang costs only its configuration.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel
from workbench.base.processes.process import ProcessEnded, ProcessTimeout
from workbench.base.processes.worker import Worker
from workbench.base.trials.trial import Trial
from workbench.errors import WorkbenchError
from workbench.tuning.measuring.attempt import Attempt, Limits, Setting
from workbench.tuning.measuring.gpu_choice import current_gpu, use_gpu
from workbench.tuning.measuring.measure import InProcess, NotTimedError, refused
from workbench.tuning.measuring.shipping import SentAttempt, Shipments, Shipped

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case
    from workbench.toolchain import CompiledKernel
    from workbench.tuning.measuring.measure import Leaders

BESIDE_SECONDS = 60.0
"""Seconds that a measurement in a process may take beyond its kernels' limit, for inputs, reference and check."""

_IMPORTS = ("workbench.tuning.measuring.isolation", "torch")


class InWorker:
    """Measurer in processes that are replaced when they hang, crash or lose the GPU's context."""

    def __init__(self, device: Device, model: DeviceModel, limits: Limits | None = None):
        self._limits = limits or Limits()
        self._here = InProcess(device, model, self._limits)
        self._setting = pickle.dumps((current_gpu(device), Shipped(device), model, self._limits))
        self._shipments = Shipments()
        self._worker, self._compiler = Worker(_IMPORTS), Worker(_IMPORTS)
        self._closed = False
        self._worker.start()

    def legal(self, attempt: Attempt) -> Attempt:
        """Ask the rules, as `InProcess.legal` does, in this process."""
        return self._here.legal(attempt)

    def compiled(self, attempt: Attempt) -> Attempt:
        """Compile the kernels before the measurement: CUDA C++ in this process, Triton in one of its own."""
        if attempt.ended or attempt.variant.language != "triton":
            return self._here.compiled(attempt)
        begun, limit = time.perf_counter(), self._limits.compile_seconds
        try:
            trial, ended, kernels = self._compiler.call(
                _compile_there, self._setting, self._sent(attempt), seconds=limit
            )
            return replace(attempt, trial=trial, ended=ended, kernels=kernels)
        except ProcessTimeout:
            outcome, message = "timeout", f"the compiler took longer than {limit:g} s, and was stopped"
        except ProcessEnded as error:
            outcome, message = "compile_error", f"the compiler crashed: {error}"
        return refused(attempt, outcome, message, time.perf_counter() - begun)

    def measured(self, attempt: Attempt) -> Attempt:
        """Measure, as `InProcess.measured` does; a hang is a "timeout", a crash a "crash"."""
        started = time.time()
        limit = None if self._limits.seconds is None else self._limits.seconds + BESIDE_SECONDS
        try:
            trial, lost = self._worker.call(_measure_there, self._setting, self._sent(attempt), seconds=limit)
        except (ProcessTimeout, ProcessEnded) as error:
            outcome = "timeout" if isinstance(error, ProcessTimeout) else "crash"
            ended = attempt.ending(outcome, str(error)).trial
            trial, lost = replace(ended, started=started, finished=time.time()), True
        if lost or trial.outcome == "crash":
            self._replace_worker()
        return replace(attempt, trial=trial, ended=True)

    def time_again(self, leaders: Leaders, case: Case, rounds: int) -> list[tuple[float, ...]]:
        """Time leaders in turns as `InProcess.time_again` does, each with the time limit of one measurement.

        Raises NotTimedError for a hang and a crash, too.
        """
        sent = [(self._packed(variant), dict(config)) for variant, config in leaders]
        limit = None if self._limits.seconds is None else len(leaders) * self._limits.seconds + BESIDE_SECONDS
        try:
            return self._worker.call(_time_again_there, self._setting, sent, self._packed(case), rounds, seconds=limit)
        except (NotTimedError, ProcessTimeout, ProcessEnded) as error:
            self._replace_worker()
            raise NotTimedError(str(error)) from error

    def close(self) -> None:
        """End the processes, whatever they are doing. Any thread may call this."""
        self._closed = True
        self._worker.close()
        self._compiler.close()

    def _replace_worker(self) -> None:
        """Replace the worker, as the old one may keep failing. The new one starts while the next attempt compiles."""
        self._worker.close()
        if not self._closed:
            self._worker.start()

    def _sent(self, attempt: Attempt) -> SentAttempt:
        with _told_the_way_out():
            return SentAttempt.of(attempt, self._shipments).packed()

    def _packed(self, value: object) -> Shipped:
        with _told_the_way_out():
            return self._shipments.of(value).packed()


@contextlib.contextmanager
def _told_the_way_out() -> Iterator[None]:
    """Add a remedy to the error for a value that cannot be sent to a process: measure without one."""
    try:
        yield
    except WorkbenchError as error:
        raise WorkbenchError(f'{error} Or measure in this process, with isolation="none".') from error


def measurer(setting: Setting) -> InProcess | InWorker:
    """Return the measurer for the setting's isolation: "process", "none", or "auto", which is a process on a GPU."""
    apart = setting.isolation == "process" or (setting.isolation == "auto" and not setting.device.counts)
    return (InWorker if apart else InProcess)(setting.device, setting.model, setting.limits)


# -- in the other process -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _measurer(setting: bytes) -> InProcess:
    gpu, device, model, limits = pickle.loads(setting)
    use_gpu(gpu)
    return InProcess(device.value, model, limits)


def _compile_there(setting: bytes, sent: SentAttempt) -> tuple[Trial, bool, tuple[CompiledKernel, ...]]:
    attempt = _measurer(setting).compiled(sent.restored())
    return attempt.trial, attempt.ended, attempt.kernels


def _measure_there(setting: bytes, sent: SentAttempt) -> tuple[Trial, bool]:
    """Return the trial, and True if it left this process's GPU context unusable."""
    attempt = _measurer(setting).measured(sent.restored())
    return attempt.trial, attempt.lost


def _time_again_there(setting: bytes, leaders: list, case: Shipped, rounds: int) -> list[tuple[float, ...]]:
    made = [(variant.value, config) for variant, config in leaders]
    return _measurer(setting).time_again(made, case.value, rounds)
