"""Compilation and measurement of configurations, in this process or in one that may hang, crash and be replaced.

On a GPU the default is another process: a kernel that hangs cannot be ended otherwise, and one that fails may spoil the
CUDA context of its process for good. The simulator checks every access and stops a kernel at its limits. Its default is
this process, which saves the seconds that another one takes to start.

With ``isolation="process"`` Triton's compiler has a process of its own, too (NVRTC always has one), so that a crash or
a hang costs only its configuration.
"""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel
from workbench.base import by_value
from workbench.base.processes.process import ProcessEnded, ProcessTimeout
from workbench.base.processes.worker import Worker
from workbench.base.trials.trial import Trial, canonical
from workbench.errors import WorkbenchError
from workbench.tuning.measuring.attempt import Setting
from workbench.tuning.measuring.gpu_choice import current_gpu, use_gpu
from workbench.tuning.measuring.gpu_timing import Clock, GpuClock, interleave
from workbench.tuning.measuring.inputs import Inputs
from workbench.tuning.measuring.measure import (
    Compiled,
    DeviceLostError,
    Limits,
    attempted,
    compile_configuration,
    evaluate,
    with_compiled,
)
from workbench.tuning.measuring.shipping import Shipments, Shipped

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant

    Leaders = Sequence[tuple[Variant, Config]]

BESIDE_SECONDS = 60.0
"""Seconds that a measurement in a process may take beyond its kernels' limit, for inputs, reference and check."""

_IMPORTS = ("workbench.tuning.measuring.isolation", "torch")


class NotTimedError(WorkbenchError):
    """Correct configurations could not be timed against each other: a hang, a crash, too little memory."""


class InProcess:
    """Measurer in this process.

    A kernel that breaks the GPU's context ends the run with DeviceLostError.
    """

    def __init__(self, device: Device, model: DeviceModel, limits: Limits | None = None, clock: Clock | None = None):
        self._device, self._model, self._limits, self._clock = device, model, limits or Limits(), clock
        self._inputs: dict[str, Inputs] = {}

    def compile(self, variant: Variant, config: Config, problem: Any) -> Compiled:
        """Compile a configuration before its measurement."""
        return compile_configuration(variant, config, problem, self._device.arch, self._limits.compile_seconds)

    def evaluate(self, variant: Variant, config: Config, case: Case, compiled: Compiled | None = None) -> Trial:
        """Try a configuration, as :func:`workbench.tuning.evaluate` does."""
        return evaluate(
            variant,
            config,
            case,
            self._device,
            model=self._model,
            limits=self._limits,
            inputs=self._inputs_of(case),
            compiled=compiled,
            clock=self.clock,
        )

    def time_again(self, leaders: Leaders, case: Case, rounds: int) -> list[tuple[float, ...]]:
        """Time several (variant, configuration) on one case in turns; return ``rounds`` samples of each, in seconds.

        Raises NotTimedError with the reason if that fails.
        """
        try:
            inputs, runs = Inputs(case, self._device.name, keep=len(leaders)), []
            for variant, config in leaders:
                problem = case.problem(config, arch=self._device.arch)
                runs.append(functools.partial(variant.run, config, problem, inputs.of(problem), self._device))
            clock = self.clock or GpuClock()
            return interleave(clock, [clock.prepare(run) for run in runs], rounds)
        except Exception as error:
            raise NotTimedError(f"{type(error).__name__}: {error}") from error

    @property
    def clock(self) -> Clock | None:
        """Clock that times a run; None on the simulator, which predicts."""
        if self._clock is None and not self._device.counts:
            self._clock = GpuClock()
        return self._clock

    def close(self) -> None:
        """Do nothing: this measurer holds no process."""

    def _inputs_of(self, case: Case) -> Inputs:
        key = canonical([type(case).__qualname__, case.to_dict()])
        if key not in self._inputs:
            self._inputs[key] = Inputs(case, self._device.name)
        return self._inputs[key]


class InWorker:
    """Measurer in processes that are replaced when they hang, crash or lose the GPU's context."""

    def __init__(self, device: Device, model: DeviceModel, limits: Limits | None = None):
        self._limits = limits or Limits()
        self._device = device
        self._setting = pickle.dumps((current_gpu(device), Shipped(device), model, self._limits))
        self._shipments = Shipments()
        self._worker, self._compiler = Worker(_IMPORTS), Worker(_IMPORTS)
        self._closed = False
        self._worker.start()

    def compile(self, variant: Variant, config: Config, problem: Any) -> Compiled:
        """Compile a configuration before its measurement: CUDA C++ here, Triton in a process."""
        if variant.language != "triton":
            return compile_configuration(variant, config, problem, self._device.arch, self._limits.compile_seconds)
        begun, limit = time.perf_counter(), self._limits.compile_seconds
        request = self._sent(variant), dict(config), by_value.dumps(problem)
        try:
            return self._compiler.call(_compile_there, self._setting, *request, seconds=limit)
        except ProcessTimeout:
            outcome, message = "timeout", f"the compiler took longer than {limit:g} s, and was stopped"
        except ProcessEnded as error:
            outcome, message = "compile_error", f"the compiler crashed: {error}"
        return Compiled((), outcome, message, time.perf_counter() - begun)

    def evaluate(self, variant: Variant, config: Config, case: Case, compiled: Compiled | None = None) -> Trial:
        """Try a configuration, as :func:`workbench.tuning.evaluate` does; a hang is a "timeout", a crash a "crash"."""
        started = time.time()
        limit = None if self._limits.seconds is None else self._limits.seconds + BESIDE_SECONDS
        request = self._sent(variant), dict(config), self._sent(case), compiled
        try:
            trial, lost = self._worker.call(_evaluate_there, self._setting, *request, seconds=limit)
        except (ProcessTimeout, ProcessEnded) as error:
            outcome = "timeout" if isinstance(error, ProcessTimeout) else "crash"
            facts = {"message": str(error), "started": started, "finished": time.time()}
            trial, lost = attempted(variant, config, case, self._device, outcome, **facts), True
            trial = trial if compiled is None else with_compiled(trial, compiled)
        if lost or trial.outcome == "crash":
            self._replace_worker()
        return trial

    def time_again(self, leaders: Leaders, case: Case, rounds: int) -> list[tuple[float, ...]]:
        """Time leaders in turns as `InProcess.time_again` does, each with the time limit of one measurement.

        Raises NotTimedError for a hang and a crash, too.
        """
        sent = [(self._sent(variant), dict(config)) for variant, config in leaders]
        limit = None if self._limits.seconds is None else len(leaders) * self._limits.seconds + BESIDE_SECONDS
        try:
            return self._worker.call(_time_again_there, self._setting, sent, self._sent(case), rounds, seconds=limit)
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

    def _sent(self, value: object) -> Shipped:
        try:
            return self._shipments.of(value).packed()
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


def _compile_there(setting: bytes, variant: Shipped, config: dict, problem: bytes) -> Compiled:
    return _measurer(setting).compile(variant.value, config, by_value.loads(problem))


def _evaluate_there(
    setting: bytes, variant: Shipped, config: dict, case: Shipped, compiled: Compiled | None
) -> tuple[Trial, bool]:
    """Return the trial, and True if it left this process's GPU context unusable."""
    try:
        return _measurer(setting).evaluate(variant.value, config, case.value, compiled), False
    except DeviceLostError as error:
        return error.trial, True


def _time_again_there(setting: bytes, leaders: list, case: Shipped, rounds: int) -> list[tuple[float, ...]]:
    made = [(variant.value, config) for variant, config in leaders]
    return _measurer(setting).time_again(made, case.value, rounds)
