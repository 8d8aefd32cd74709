"""One configuration, from its rules to its time: the one place that compiles, checks, counts and times.

    restricted?  ->  compile  ->  fits the device?  ->  run  ->  correct?  ->  count (sim) or time (cuda)

Each step can end the attempt with its own outcome; only a correct result gets as far as a time. The simulator counts
and checks one and the same run. A sampled case (`workbench.ops.sampled_case`) is checked first at its small size,
without machine code; at its large size a sample of blocks is counted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.analysis.prediction.counting import counts_of
from workbench.analysis.prediction.predict import predict_counts
from workbench.base.files import raise_if_full
from workbench.base.trials.trial import Trial
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
from workbench.tuning.measuring.gpu_state import GpuState, disturbance, gpu_lost
from workbench.tuning.measuring.gpu_timing import Clock, GpuClock, take_samples
from workbench.tuning.measuring.inputs import Inputs, enough_memory

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant
    from workbench.toolchain import CompiledKernel


@dataclass(frozen=True)
class Limits:
    """Limits of a run and of a compilation.

    Raises ArgumentError for a limit that is not above 0.
    """

    seconds: float | None = 120.0
    """Wall-clock seconds of a run; None for no limit.

    On a GPU the limit holds where a process of its own measures (:mod:`workbench.tuning.measuring.isolation`).
    """
    instructions: int | None = None
    """Warp instructions of a run on the simulator; None for no limit."""
    compile_seconds: float = 120.0
    """Seconds of a compilation."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ArgumentError(f"limits.{name}", value, "a number above 0", "Leave it out for the default.")


class DeviceLostError(WorkbenchError):
    """A kernel left the GPU's context unusable; ``trial`` is the row of this attempt."""

    def __init__(self, trial: Trial):
        self.trial = trial
        super().__init__(
            f"the CUDA context was lost while measuring {trial.variant} {trial.config_text}: {trial.message}. The row "
            "is kept as launch_error and not tried again; start the same command again to go on with the others."
        )


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a configuration: its kernels, or the outcome and message that ended it."""

    kernels: tuple[CompiledKernel, ...]
    outcome: str = "ok"
    message: str = ""
    seconds: float = 0.0


def compile_configuration(
    variant: Variant, config: Config, problem: Any, arch: str, seconds: float = 120.0, *, machine_code: bool = True
) -> Compiled:
    """Compile a configuration, and turn whatever goes wrong with it into an outcome.

    ``machine_code`` doubles the time; the simulator runs a kernel without it. A compilation by NVRTC ends after
    ``seconds``. Raises MissingToolError without a compiler, because then no configuration can be compiled.
    """
    begun = time.perf_counter()
    kernels: tuple[CompiledKernel, ...] = ()
    outcome, message = "ok", ""
    try:
        with compile_limit(seconds):
            kernels = variant.kernels(config, problem, arch, machine_code=machine_code)
    except MissingToolError:
        raise
    except CompileTimeout as error:
        outcome, message = "timeout", str(error)
    except ConfigurationError as error:
        outcome, message = "restricted", str(error)
    except CompileError as error:
        outcome, message = "compile_error", str(error)
    except Exception as error:
        raise_if_full(error)
        # Triton reports what it cannot compile with exceptions of its own, of several kinds.
        known = isinstance(error, WorkbenchError) or type(error).__module__.startswith("triton")
        outcome, message = "compile_error" if known else "crash", f"{type(error).__name__}: {error}"
    return Compiled(kernels, outcome, message, time.perf_counter() - begun)


def to_compile(variant: Variant, config: Config, case: Case, device: Device) -> Any:
    """Return the problem for which to compile a configuration ahead of its measurement; None if none is needed.

    On a GPU Triton's own JIT compiles while the kernel is measured, so nothing is compiled ahead.
    """
    if not variant.compiles or (variant.language == "triton" and not device.counts):
        return None
    try:
        problem = case.problem(config, arch=device.arch)
        return None if variant.broken(config, problem) else problem
    except ConfigurationError:
        return None


def attempted(variant: Variant, config: Config, case: Case, device: Device, outcome: str, **facts: Any) -> Trial:
    """Return the trial of an attempt with its outcome; ``facts`` are further fields of `Trial`."""
    return Trial(
        op=variant.op,
        variant=variant.name,
        language=variant.language,
        case=case.name,
        config=dict(config),
        device=device.name,
        arch=device.arch,
        outcome=outcome,
        **facts,
    )


def with_compiled(trial: Trial, compiled: Compiled) -> Trial:
    """Return the trial with its compile time and the resources of the compiled kernels."""
    trial, kernels = replace(trial, compile_seconds=compiled.seconds), compiled.kernels
    if not kernels:
        return trial
    return replace(trial, from_cache=all(kernel.from_cache for kernel in kernels), resources=resources_of(kernels))


def evaluate(
    variant: Variant,
    config: Config,
    case: Case,
    device: Device,
    *,
    model: str | DeviceModel | None = None,
    limits: Limits | None = None,
    inputs: Inputs | None = None,
    compiled: Compiled | None = None,
    clock: Clock | None = None,
) -> Trial:
    """Try one configuration of ``variant`` on ``case`` and return the trial, whatever is wrong with the configuration.

    A caller that tries many keeps ``inputs`` and ``clock`` between calls. ``compiled`` is the result of an earlier
    :func:`compile_configuration`. ``model`` is the device model for which the simulator's counts become a predicted
    time. Raises MissingToolError, DeviceUnavailableError, CaseTooLargeError, DeviceLostError, and FileError for a full
    disk, because then no further configuration can be tried either.
    """
    limits = limits or Limits()
    trial = attempted(variant, config, case, device, "crash", started=time.time())
    inputs = inputs or Inputs(case, device.name)
    try:
        trial = _evaluate(trial, variant, config, case, device, device_model(model), limits, inputs, compiled, clock)
    except (MissingToolError, DeviceUnavailableError, CaseTooLargeError, FileError):
        raise
    except Exception as error:
        raise_if_full(error)
        trial = replace(trial, outcome="crash", message=f"{type(error).__name__}: {error}")
    if trial.outcome not in ("ok", "restricted", "compile_error"):
        inputs.forget()
    trial = replace(trial, finished=time.time())
    if not device.counts and trial.outcome in ("launch_error", "crash") and gpu_lost():
        raise DeviceLostError(trial)
    return trial


def _evaluate(
    trial: Trial,
    variant: Variant,
    config: Config,
    case: Case,
    device: Device,
    model: DeviceModel,
    limits: Limits,
    inputs: Inputs,
    compiled: Compiled | None,
    clock: Clock | None,
    *,
    counted: bool = True,
) -> Trial:
    judged = None
    if isinstance(case, SampledCase):
        problem = None if compiled else to_compile(variant, config, case, device)
        if problem is not None:  # ahead of the small case, so that code which both use is compiled once
            compiled = compile_configuration(variant, config, problem, device.arch, limits.compile_seconds)
        small, others = case.judged_on, (model, limits, inputs.judging(case.judged_on), None, clock)
        judged = _evaluate(trial, variant, config, small, device, *others, counted=False)
        if not judged.ok:
            judged = judged if compiled is None else with_compiled(judged, compiled)
            return replace(judged, message=f"{judged.message} (on case {small.name})")
        device = case.device(variant, device.arch)
    try:
        problem = case.problem(config, arch=device.arch)
        broken = variant.broken(config, problem)
    except ConfigurationError as error:
        return replace(trial, outcome="restricted", message=str(error))
    if broken:
        return replace(trial, outcome="restricted", message="; ".join(f"{rule.name}: {rule.rule}" for rule in broken))
    kernels: tuple[CompiledKernel, ...] = ()
    if variant.compiles:
        compiled = compiled or compile_configuration(
            variant, config, problem, device.arch, limits.compile_seconds, machine_code=counted
        )
        kernels = compiled.kernels
        trial = with_compiled(trial, compiled) if counted else trial
        if not kernels:
            return replace(trial, outcome=compiled.outcome, message=compiled.message)
        for kernel in kernels if counted else ():
            if kernel.occupancy.blocks_per_sm == 0:
                # The simulator would run it; no GPU of this architecture does.
                message = f"not one block fits on a multiprocessor of {device.arch}: {kernel.occupancy.limited_by}"
                return replace(trial, outcome="launch_error", message=message)
    tensors = inputs.of(problem)
    options: dict[str, Any] = {}
    if device.counts and kernels:
        options = {
            "statistics": counted,
            "seconds_limit": limits.seconds,
            "instruction_limit": limits.instructions,
        }
    try:
        report = variant.run(config, problem, tensors, device, **options)
        if not device.counts:
            import torch

            torch.cuda.synchronize()
    except (MissingToolError, DeviceUnavailableError):
        raise
    except Exception as error:
        raise_if_full(error)
        outcome, message = _outcome_of(error)
        return replace(trial, outcome=outcome, message=message)
    if device.counts and kernels and report is None:
        return replace(trial, outcome="launch_error", message="no kernel has a block to run for the case")
    if judged is None:
        trial = _checked(trial, variant, case, tensors, kernels)
    else:
        trial = replace(trial, outcome="ok", max_error=judged.max_error, error_bound=judged.error_bound)
    if not (trial.ok and counted):
        return trial
    if not device.counts:
        return _timed(trial, variant, config, problem, case, device, tensors, clock or GpuClock())
    if not kernels:
        return replace(trial, message="computed by torch on the CPU: there is no kernel to predict a time for")
    report = variant.with_parts(report, config, problem, tensors, device, seconds_limit=limits.seconds)
    counts = counts_of(report, kernels, model)
    message = str(case.sampled(counts)) if isinstance(case, SampledCase) else ""
    trial = replace(trial, counts=counts, message=message)
    return with_prediction(trial, model)


def _checked(trial: Trial, variant: Variant, case: Case, tensors: Any, kernels: Sequence[CompiledKernel] = ()) -> Trial:
    """Return the trial with the verdict on its outputs; of the reference's own outputs it has the error alone."""
    with enough_memory(case, "cpu"):
        check = case.check(tensors.out)
    if variant.is_reference:
        check = replace(check, ok=True)
    if not check.ok:
        from workbench.ops.kept_zeros import forget

        forget()
    message = "" if check.ok else f"largest error {check.max_error:.3g}, allowed {check.bound:.3g}"
    message += f": {check.place}" if message and check.place else ""
    if not check.ok:
        causes = causes_of(check, [one.ptx for one in kernels], is_float32(tensors.named().values()))
        message = "; ".join([message, *causes])
    return replace(
        trial,
        outcome="ok" if check.ok else "wrong_result",
        message=message,
        max_error=float(check.of_case[0]),
        error_bound=float(check.of_case[1]),
    )


def _timed(
    trial: Trial,
    variant: Variant,
    config: Config,
    problem: Any,
    case: Case,
    device: Device,
    tensors: Any,
    clock: Clock,
) -> Trial:
    prepared = clock.prepare(lambda: variant.run(config, problem, tensors, device))
    tensors.renew()
    before = clock.look(prepared)
    samples = take_samples(clock, prepared)
    after = clock.look(prepared)
    # Checked again after all those runs: a race that shows once in a while is a wrong result, not a fast one.
    if getattr(tensors, "in_place", ()):  # each run went on from what the one before had left
        tensors.renew()
        variant.run(config, problem, tensors, device)
    trial = _checked(trial, variant, case, tensors)
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
