"""One attempt, from the rules of its variant to its time: the one place that compiles, checks, counts and times.

    legal  ->  compiled  ->  judged  ->  run  ->  checked  ->  timed

Each stage takes an `Attempt` and returns the next one, and may end it with an outcome of its own; only a correct result
gets as far as a time. The simulator counts and checks one and the same run. A sampled case
(`workbench.ops.sampled_case`) is judged at its small size, without machine code; at its large size a sample of blocks
is counted.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.analysis.prediction.counting import counts_of
from workbench.analysis.prediction.predict import predict_counts
from workbench.base.files import raise_if_full
from workbench.base.trials.trial import Trial, canonical
from workbench.base.trials.values import Resources, Timing
from workbench.errors import (
    ArgumentError,
    CaseTooLargeError,
    CompileError,
    CompileTimeout,
    ConfigurationError,
    DeviceUnavailableError,
    FileError,
    KernelFault,
    KernelTimeout,
    MissingToolError,
    UnsupportedInstructionError,
    WorkbenchError,
)
from workbench.ops.error_causes import causes_of, is_float32
from workbench.ops.sampled_case import SampledCase
from workbench.toolchain.nvrtc_client import compile_limit
from workbench.toolchain.remarks import messages
from workbench.tuning.measuring.attempt import Attempt, Limits
from workbench.tuning.measuring.gpu_state import GpuState, disturbance, gpu_lost
from workbench.tuning.measuring.gpu_timing import Clock, GpuClock, interleave, take_samples
from workbench.tuning.measuring.inputs import Inputs, enough_memory

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant
    from workbench.toolchain import CompiledKernel

    Leaders = Sequence[tuple[Variant, Config]]

_ENDS_THE_RUN = (MissingToolError, DeviceUnavailableError, CaseTooLargeError, FileError)
"""Errors after which no other configuration can be tried either."""


class DeviceLostError(WorkbenchError):
    """A kernel left the GPU's context unusable; ``trial`` is the row of this attempt."""

    def __init__(self, trial: Trial):
        self.trial = trial
        super().__init__(
            f"the CUDA context was lost while measuring {trial.variant} {trial.config_text}: {trial.message}. The row "
            "is kept as launch_error and not tried again; start the same command again to go on with the others."
        )


class NotTimedError(WorkbenchError):
    """Correct configurations could not be timed against each other: a hang, a crash, too little memory."""


def evaluate(
    variant: Variant,
    config: Config,
    case: Case,
    device: Device,
    *,
    model: str | DeviceModel | None = None,
    limits: Limits | None = None,
) -> Trial:
    """Try one configuration of ``variant`` on ``case`` and return the trial, whatever is wrong with the configuration.

    ``model`` is the device model for which the simulator's counts become a predicted time. Raises MissingToolError,
    DeviceUnavailableError, CaseTooLargeError, DeviceLostError, and FileError for a full disk, because then no further
    configuration can be tried either.
    """
    attempt = InProcess(device, device_model(model), limits).tried(Attempt.of(variant, config, case, device))
    if attempt.lost:
        raise DeviceLostError(attempt.trial)
    return attempt.trial


class InProcess:
    """Measurer in this process: the stages of an attempt, with the inputs and the clock that attempts share."""

    def __init__(self, device: Device, model: DeviceModel, limits: Limits | None = None, clock: Clock | None = None):
        self._device, self._model, self._limits, self._clock = device, model, limits or Limits(), clock
        self._inputs: dict[str | int, Inputs] = {}

    def tried(self, attempt: Attempt) -> Attempt:
        """Take an attempt through all stages."""
        return self.measured(self.compiled(self.legal(attempt)))

    def legal(self, attempt: Attempt) -> Attempt:
        """Find the problem of a case under a configuration, or end as "restricted" with the rules that it breaks."""
        try:
            problem = attempt.case.problem(attempt.config, arch=attempt.device.arch)
            broken = attempt.variant.broken(attempt.config, problem)
        except ConfigurationError as error:
            return attempt.ending("restricted", str(error))
        if broken:
            return attempt.ending("restricted", "; ".join(f"{rule.name}: {rule.rule}" for rule in broken))
        return replace(attempt, problem=problem)

    def compiled(self, attempt: Attempt) -> Attempt:
        """Compile the kernels, unless that is done; whatever goes wrong with it is an outcome.

        A compilation by NVRTC ends at its limit. Raises MissingToolError without a compiler.
        """
        if attempt.ended or attempt.kernels or not attempt.variant.compiles:
            return attempt
        begun = time.perf_counter()
        try:
            with compile_limit(self._limits.compile_seconds):
                kernels = attempt.variant.kernels(
                    attempt.config,
                    attempt.problem,
                    attempt.device.arch,
                    machine_code=not attempt.judging,  # which doubles the time; the simulator runs without it
                )
        except MissingToolError:
            raise
        except Exception as error:
            raise_if_full(error)
            return refused(attempt, *_compiling_outcome(error), time.perf_counter() - begun)
        attempt = replace(attempt, kernels=kernels)
        return attempt if attempt.judging else _with_resources(attempt, time.perf_counter() - begun)

    def measured(self, attempt: Attempt) -> Attempt:
        """Take a legal attempt through the stages that follow, and through `compiled` unless that is done.

        Raises an error only where no other configuration can be tried either.
        """
        attempt = replace(attempt, trial=replace(attempt.trial, started=time.time()))
        try:
            for stage in (self.compiled, self.judged, self.run, self.checked, self.timed):
                attempt = stage(attempt) if not attempt.ended else attempt
        except _ENDS_THE_RUN:
            raise
        except Exception as error:
            raise_if_full(error)
            attempt = attempt.ending("crash", f"{type(error).__name__}: {error}")
        outcome = attempt.trial.outcome
        if outcome not in ("ok", "restricted", "compile_error"):
            self._forget_inputs(attempt.case)  # a kernel that went wrong may have written to them
        lost = not attempt.device.counts and outcome in ("launch_error", "crash") and gpu_lost()
        return replace(
            attempt, trial=replace(attempt.trial, finished=time.time()), lost=lost, tensors=None, report=None
        )

    def judged(self, attempt: Attempt) -> Attempt:
        """Judge the values of a sampled case at its small size; other cases are judged by their own run."""
        case = attempt.case
        if not isinstance(case, SampledCase):
            return attempt
        small = self.legal(replace(attempt, case=case.judged_on, judging=True, kernels=()))
        for stage in (self.compiled, self.run, self.checked):
            small = stage(small) if not small.ended else small
        found = small.trial
        trial = replace(attempt.trial, max_error=found.max_error, error_bound=found.error_bound)
        attempt = replace(attempt, trial=trial, device=case.device(attempt.variant, attempt.device.arch))
        return (
            attempt if found.ok else attempt.ending(found.outcome, f"{found.message} (on case {case.judged_on.name})")
        )

    def run(self, attempt: Attempt) -> Attempt:
        """Run the kernels once, on inputs that attempts share."""
        variant, device = attempt.variant, attempt.device
        options: dict[str, Any] = {}
        if attempt.kernels:
            variant.remember(attempt.config, attempt.problem, device.arch, attempt.kernels)
        if device.counts and attempt.kernels:
            options["statistics"] = not attempt.judging
            options |= {"seconds_limit": self._limits.seconds, "instruction_limit": self._limits.instructions}
        tensors = self._inputs_of(attempt.case).of(attempt.problem)
        try:
            report = variant.run(attempt.config, attempt.problem, tensors, device, **options)
            if not device.counts:
                import torch

                torch.cuda.synchronize()
        except (MissingToolError, DeviceUnavailableError):
            raise
        except Exception as error:
            raise_if_full(error)
            return attempt.ending(*_outcome_of(error))
        if device.counts and attempt.kernels and report is None:
            return attempt.ending("launch_error", "no kernel has a block to run for the case")
        return replace(attempt, tensors=tensors, report=report)

    def checked(self, attempt: Attempt) -> Attempt:
        """Compare the outputs with the case's known answer, unless they were judged at a small size."""
        if isinstance(attempt.case, SampledCase):
            return replace(attempt, trial=replace(attempt.trial, outcome="ok"))
        trial = _checked(attempt)
        return replace(attempt, trial=trial, ended=not trial.ok)

    def timed(self, attempt: Attempt) -> Attempt:
        """Time the kernels on a GPU; on the simulator predict their time from the run's counts."""
        if not attempt.device.counts:
            return replace(attempt, trial=_timed(attempt, self.clock), ended=True)
        variant, case = attempt.variant, attempt.case
        if not attempt.kernels or attempt.report is None:
            return attempt.ending("ok", "computed by torch on the CPU: there is no kernel to predict a time for")
        report = variant.with_parts(
            attempt.report,
            attempt.config,
            attempt.problem,
            attempt.tensors,
            attempt.device,
            seconds_limit=self._limits.seconds,
        )
        counts = counts_of(report, attempt.kernels, self._model)
        message = str(case.sampled(counts)) if isinstance(case, SampledCase) else ""
        trial = replace(attempt.trial, counts=counts, message=message)
        return replace(attempt, trial=with_prediction(trial, self._model), ended=True)

    def time_again(self, leaders: Leaders, case: Case, rounds: int) -> list[tuple[float, ...]]:
        """Time several (variant, configuration) on one case in turns; return ``rounds`` samples of each, in seconds.

        Raises NotTimedError with the reason if that fails.
        """
        try:
            inputs, runs = Inputs(case, self._device.name, keep=len(leaders)), []
            for variant, config in leaders:
                problem = case.problem(config, arch=self._device.arch)
                runs.append(functools.partial(variant.run, config, problem, inputs.of(problem), self._device))
            return interleave(self.clock, [self.clock.prepare(run) for run in runs], rounds)
        except Exception as error:
            raise NotTimedError(f"{type(error).__name__}: {error}") from error

    @property
    def clock(self) -> Clock:
        """Clock that times a run on a GPU."""
        if self._clock is None:
            self._clock = GpuClock()
        return self._clock

    def close(self) -> None:
        """Do nothing: this measurer holds no process."""

    def _inputs_of(self, case: Case) -> Inputs:
        key = _key_of(case)
        if key not in self._inputs:
            self._inputs[key] = Inputs(case, self._device.name)
        return self._inputs[key]

    def _forget_inputs(self, case: Case) -> None:
        for one in (case, case.judged_on) if isinstance(case, SampledCase) else (case,):
            self._inputs.pop(_key_of(one), None)


def _key_of(case: Case) -> str | int:
    """Return a key that equal cases share; a case without a record, of a model's tensors, shares its key with none."""
    try:
        return canonical([type(case).__qualname__, case.to_dict()])
    except ArgumentError:
        return id(case)  # which stays valid, as its inputs hold the case


def refused(attempt: Attempt, outcome: str, message: str, seconds: float) -> Attempt:
    """Return an attempt that ended in its compilation, which took ``seconds``."""
    return replace(attempt, trial=replace(attempt.trial, compile_seconds=seconds)).ending(outcome, message)


def _with_resources(attempt: Attempt, seconds: float) -> Attempt:
    """Return the attempt with what its kernels take; ended if not one block fits on a multiprocessor."""
    kernels = attempt.kernels
    trial = replace(
        attempt.trial,
        compile_seconds=seconds,
        from_cache=all(kernel.from_cache for kernel in kernels),
        resources=resources_of(kernels),
    )
    attempt = replace(attempt, trial=trial)
    for kernel in kernels:
        if kernel.occupancy.blocks_per_sm == 0:
            # The simulator would run it; no GPU of this architecture does.
            limit = f"not one block fits on a multiprocessor of {attempt.device.arch}: {kernel.occupancy.limited_by}"
            return attempt.ending("launch_error", limit)
    return attempt


def _checked(attempt: Attempt) -> Trial:
    """Return the trial with the verdict on its outputs; of the reference's own outputs it has the error alone."""
    with enough_memory(attempt.case, "cpu"):
        check = attempt.case.check(attempt.tensors.out)
    if attempt.variant.is_reference:
        check = replace(check, ok=True)
    if not check.ok:
        from workbench.ops.tensors.zeros import forget_kept_zeros

        forget_kept_zeros()
    message = "" if check.ok else f"largest error {check.max_error:.3g}, allowed {check.bound:.3g}"
    message += f": {check.place}" if message and check.place else ""
    if not check.ok:
        texts = [one.ptx for one in attempt.kernels]
        causes = causes_of(check, texts, is_float32(attempt.tensors.named().values()))
        message = "; ".join([message, *causes])
    return replace(
        attempt.trial,
        outcome="ok" if check.ok else "wrong_result",
        message=message,
        max_error=float(check.of_case[0]),
        error_bound=float(check.of_case[1]),
    )


def _timed(attempt: Attempt, clock: Clock) -> Trial:
    """Return the trial with its samples, or as a wrong result if the outputs of the last run are wrong."""
    tensors = attempt.tensors
    run = functools.partial(attempt.variant.run, attempt.config, attempt.problem, tensors, attempt.device)
    prepared = clock.prepare(run)
    tensors.renew()
    before = clock.look(prepared)
    samples = take_samples(clock, prepared)
    after = clock.look(prepared)
    # Checked again after all those runs: a race that shows once in a while is a wrong result, not a fast one.
    if getattr(tensors, "in_place", ()):  # each run went on from what the one before had left
        tensors.renew()
        run()
    trial = _checked(replace(attempt, kernels=()))
    if not trial.ok:
        return replace(trial, message=f"{trial.message}, after {len(samples)} repeated runs")
    timing: Timing = {"method": clock.method, "samples": len(samples), "disturbed": disturbance(before, after)}
    if isinstance(before, GpuState):
        timing["clock_mhz_before"] = before.clock_mhz
    if isinstance(after, GpuState):
        timing["clock_mhz_after"] = after.clock_mhz
    return replace(trial, samples=samples, timing=timing, measured_seconds=statistics.median(samples))


def with_prediction(trial: Trial, model: DeviceModel) -> Trial:
    """Return the trial with the time that its stored counts predict for a device model."""
    prediction = predict_counts(trial.counts, model)
    if math.isinf(prediction.seconds):
        return replace(
            trial,
            outcome="launch_error",
            message=f"not one block fits on a multiprocessor of {model}",
            predicted_seconds=None,
            predicted_for=model.key,
            prediction={},
        )
    return replace(
        trial,
        predicted_seconds=prediction.seconds,
        predicted_for=model.key,
        prediction=prediction.to_dict(),
    )


def resources_of(kernels: Sequence[CompiledKernel]) -> Resources:
    """Return the resources of the first, main kernel: registers per thread, shared memory per block, occupancy.

    Spills and stack are the largest of any kernel, and ``kernel_key`` joins the keys of all kernels.
    """
    kernel = kernels[0]
    occupancy = kernel.occupancy
    return {
        "registers": kernel.registers,
        "spill_bytes": max(each.spill_bytes for each in kernels),
        "stack_bytes": max(each.stack_bytes for each in kernels),
        "shared_bytes": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
        "threads_per_block": kernel.threads_per_block,
        "occupancy": occupancy.fraction,
        "blocks_per_sm": occupancy.blocks_per_sm,
        "limited_by": occupancy.limited_by,
        "compiler": kernel.compiler,
        "kernel_key": "+".join(each.key for each in kernels),
        "remarks": [said for each in kernels for said in messages(each.remarks)],
    }


def _compiling_outcome(error: Exception) -> tuple[str, str]:
    """Return the outcome that an exception of a compilation stands for, and its message."""
    if isinstance(error, CompileTimeout):
        return "timeout", str(error)
    if isinstance(error, ConfigurationError):
        return "restricted", str(error)
    if isinstance(error, CompileError):
        return "compile_error", str(error)
    # Triton reports what it cannot compile with exceptions of its own, of several kinds.
    known = isinstance(error, WorkbenchError) or type(error).__module__.startswith("triton")
    return "compile_error" if known else "crash", f"{type(error).__name__}: {error}"


def _outcome_of(error: Exception) -> tuple[str, str]:
    """Return the outcome that an exception of a run stands for, and its message."""
    origin = type(error).__module__.split(".")[0]
    if isinstance(error, KernelTimeout):
        return "timeout", str(error)
    if isinstance(error, KernelFault | UnsupportedInstructionError):
        return "launch_error", str(error)
    if isinstance(error, ConfigurationError):
        return "restricted", str(error)
    if isinstance(error, CompileError) or (origin == "triton" and "Compilation" in type(error).__name__):
        return "compile_error", str(error)
    # PyCUDA's, Triton's (OutOfResources) and torch's own errors of a launch on the GPU.
    if origin in ("pycuda", "triton") or isinstance(error, WorkbenchError) or "CUDA error" in str(error):
        return "launch_error", f"{type(error).__name__}: {error}"
    return "crash", f"{type(error).__name__}: {error}"
