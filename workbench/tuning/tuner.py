"""``tune``: search the configurations of an op's variants, keep every outcome, record the winners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, cast, overload

from workbench.analysis.device_models import DeviceModel
from workbench.base.argument_kinds import checked_kinds
from workbench.base.terminal import say
from workbench.base.trials.store import Store
from workbench.launch.devices import Device
from workbench.ops import selection
from workbench.ops.op import Op
from workbench.ops.sampled_case import sampled
from workbench.ops.variant import Case, Variant
from workbench.tuning import called_with
from workbench.tuning.job import Options, TuningJob
from workbench.tuning.measuring.attempt import Limits, Progress
from workbench.tuning.measuring.gpu_choice import current_gpu
from workbench.tuning.measuring.proving import check_provable
from workbench.tuning.recorded import replay
from workbench.tuning.result import table
from workbench.tuning.result.live import LiveTuning
from workbench.tuning.result.run import TuningRun
from workbench.tuning.search import strategies as search
from workbench.tuning.search.budget import Budget, budget_of
from workbench.tuning.search.scouting import scoutings
from workbench.tuning.search.space import Strategy
from workbench.tuning.searching import run_job

QUICK_CONFIGURATIONS = 8
"""Number of configurations of each variant that ``quick`` tries."""


_Arguments = ParamSpec("_Arguments")


class _Tune(Protocol[_Arguments]):
    """The type of `tune`, whose result depends on ``background``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a type checker takes the first that fits
        self, *args: Any, background: Literal[True], **options: Any
    ) -> LiveTuning: ...
    @overload
    def __call__(self, *args: _Arguments.args, **options: _Arguments.kwargs) -> TuningRun: ...


def _two_results(function: Callable[_Arguments, TuningRun | LiveTuning]) -> _Tune[_Arguments]:
    return cast("_Tune[_Arguments]", function)


@_two_results
@checked_kinds(but=("op", "executor"))
def tune(
    op: str | Op,
    cases: str | Case | Iterable[str | Case] | None = None,
    variants: str | Variant | Iterable[str | Variant] | None = None,
    device: str | Device = "auto",
    strategy: str | Strategy = "exhaustive",
    budget: int | str | Budget | None = None,
    store: str | Path | Store | None = None,
    quick: bool = False,
    progress: Callable[[Progress], None] | None = None,
    record: bool = True,
    *,
    model: str | DeviceModel | None = None,
    retry_failed: bool = False,
    seed: int = 0,
    limits: Limits | None = None,
    executor: Executor | None = None,
    background: bool = False,
    isolation: str = "auto",
    sample: int | None = None,
    judged_on: str | Case | None = None,
    prove: bool = False,
    exact: bool = False,
) -> TuningRun | LiveTuning:
    """Find the fastest configuration of an op's variants for one or several cases.

    Every attempt is checked against the reference before it is timed. The store keeps it whatever its outcome, and the
    same call again goes on from there. With several cases a configuration must be legal and correct for all of them; it
    is judged by the geometric mean of its times relative to the best of each case; ``by_case`` of the result has the
    fastest of each case, and what the best single one costs there. Ctrl-C ends the search: finished attempts are kept
    and returned, with ``interrupted`` set.

    Strategy "predicted" scouts first, in runs of its own that the store keeps (`workbench.tuning.search.scouting`).
    They count neither for the budget nor for the result, which gives their number as ``scouted``.

    Args:
        op: name or `Op`.
        cases: name or `Case`, or several; default the op's first (quick) one.
        variants: name or `Variant`, or several; default every variant that has something to tune.
        device: "auto", "sim", "cuda" (torch's current GPU) or a device; "replay:FILE" for a recorded sweep that answers
            instead of one. A replay compiles, runs, stores and records nothing, even with ``record``; it refuses
            arguments that say how to (model, store, retry_failed, limits, executor, isolation="process").
        strategy: "exhaustive", "random", "greedy", "predicted", "bayesian", "kernel_tuner:NAME", or a generator as in
            `workbench.tuning.search.strategies`.
        budget: for each variant, a number of configurations, which includes those from the store, or a time, "30s".
        store: file or `Store`; default ``$WORKBENCH_HOME/tuning.sqlite``.
        quick: a random sample of 8 configurations of each variant, unless strategy or budget say otherwise.
        progress: called after each attempt with a `Progress`; may raise KeyboardInterrupt to end the search.
        record: put the winners into the tuned table, where the op finds them.
        model: on the simulator, the device model to predict for, whose architecture is compiled for. Default: an A100,
            or the first model that has what every variant named here needs.
        retry_failed: try failed configurations again; otherwise their stored outcomes stand.
        seed: seed of the strategy's random numbers.
        limits: when to stop a kernel or a compiler.
        executor: any `concurrent.futures.Executor`, whose workers try the configurations while this process keeps the
            store; see `workbench.tuning.measuring.cluster`.
        background: return a `LiveTuning` at once: its ``widget()`` shows the progress and can stop the run, its
            ``result()`` is the TuningRun. The call itself still raises the errors of its arguments.
        isolation: "process" measures, and compiles Triton, in other processes, where a hang or a crash costs only one
            configuration; "none" does so in this one; "auto" is "process" on a GPU (see
            `workbench.tuning.measuring.isolation`). Workers of an executor do the same.
        sample: on the simulator, for cases that are too large to run in full, count about so many blocks of each launch
            and scale to all of them (16 are a good number); the notes of the run say how well they stand for the rest.
            Kernels whose blocks can depend on each other run in full. On a GPU all blocks run.
        judged_on: with ``sample``, the small case that runs in full and on which values are checked; default the op's
            quick one.
        prove: before a configuration is tried, prove its kernels for all sizes of the op (`prove`, some seconds each,
            one after the other in this process). One that is refuted is not run or timed, whatever the store knows of
            it; its outcome is "refuted", with sizes and lines. A note has the number of proved and unknown ones.
        exact: after the search, also say of each correct configuration whether it is the same computation as the
            untuned one of its variant, without a tolerance (docs/EXACT.md): ``run.exact``. Two runs in the simulator
            for each, in this process. A difference fails no configuration.

    Raises:
        UnknownNameError, ArgumentError, ConfigurationError: an unknown name, nothing to tune, an empty space (the error
            names the rules that exclude everything).
        StoreError: the store or the tuned table cannot be used.
        DeviceUnavailableError, MissingToolError: nothing can be run or compiled here, or ``prove`` without Z3.
        CaseTooLargeError: a case does not fit into memory.
        DeviceLostError: with isolation="none" a kernel broke the GPU's context; its row is kept, and the same call goes
            on with the others.
    """
    if quick and strategy == "exhaustive" and budget is None:
        strategy, budget = "random", QUICK_CONFIGURATIONS
    if background and isinstance(store, Store):
        store = store.path  # a connection belongs to the thread that opened it
    options = Options(
        strategy=search.strategy(strategy),
        budget=budget_of(budget),
        store=store,
        record=record,
        model=model,
        retry_failed=retry_failed,
        seed=seed,
        limits=limits,
        executor=executor,
        isolation=isolation,
        sample=sample,
        judged_on=judged_on,
        prove=prove,
        exact=exact,
    )
    if isinstance(device, str) and device.startswith(replay.PREFIX):
        job: TuningJob = replay.job_of(device, op, cases, variants, options)
    else:
        job = _job_of(op, cases, variants, device, options)
    if background:
        return LiveTuning(job, run_job, progress)
    run = run_job(job, progress)
    if run.interrupted:
        say(run.how_to_go_on, err=True)
    return run


def _job_of(op: str | Op, cases: Any, variants: Any, device: str | Device, options: Options) -> TuningJob:
    searched = selection.op_of(op)
    judged = selection.cases_of(searched, cases)
    chosen = None if variants is None else selection.variants_of(searched, variants)
    where, predicting = called_with.device_of(device, options.model, called_with.model_for(chosen, judged))
    judged, small = sampled(searched, judged, where, options.sample, options.judged_on)
    spaces, notes = called_with.spaces_of(searched, chosen, (*judged, *small), where.arch)
    if options.prove:
        check_provable(searched, spaces)
    notes += called_with.left_out_of(spaces, judged, small, where.arch)
    notes += called_with.legal_for_some(spaces, judged, where.arch)
    if options.record:
        table.check_usable(table.name_for(where, predicting))
    job = TuningJob(searched, judged, spaces, tuple(notes), where, predicting, options, gpu=current_gpu(where))
    if options.strategy is not search.predicted:
        return job
    ahead = scoutings(job)
    return dataclasses.replace(job, scoutings=ahead, notes=(*notes, *(scouting.note for scouting in ahead)))
