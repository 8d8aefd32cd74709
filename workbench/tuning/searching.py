"""The search of a call of `tune`: scouting first, then the strategies, the leaders again, and the winners."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from workbench.analysis.device_models import placed
from workbench.base.trials.trial import Trial, canonical, geometric_mean
from workbench.errors import ArgumentError
from workbench.tuning.job import Options, Scouting, TuningJob
from workbench.tuning.measuring.answers import Answers
from workbench.tuning.measuring.attempt import Progress
from workbench.tuning.measuring.attempts import Attempts
from workbench.tuning.measuring.gpu_choice import use_gpu
from workbench.tuning.measuring.measure import NotTimedError, with_prediction
from workbench.tuning.recorded.replay import RecordedAnswers
from workbench.tuning.recorded.replayed import ReplayedDevice
from workbench.tuning.result import table
from workbench.tuning.result.run import TuningRun, table_entries
from workbench.tuning.search.space import Space

if TYPE_CHECKING:
    from workbench.ops.variant import Case, Config, Variant

LEADERS, LEADER_FACTOR, LEADER_ROUNDS = 8, 1.05, 30
"""Largest number of leaders that a GPU times again in turns, their largest factor to the best, and the rounds."""

MOST_APART = 100_000
"""Most configurations of a case of its own that are looked up in the store; in a larger space none is."""


def run_job(
    job: TuningJob, progress: Callable[[Progress], None] | None, stop: threading.Event | None = None
) -> TuningRun:
    """Scout, search, and record the winners. Setting ``stop`` ends the run as Ctrl-C does."""
    begun = time.monotonic()
    use_gpu(job.gpu)
    scouted = 0
    for scouting in job.scoutings:
        run = _scouted(scouting, progress, stop)
        scouted += len(run.trials)
        if run.interrupted:
            seconds = time.monotonic() - begun
            return job.result((), new=0, reused=0, interrupted=True, scouted=scouted, seconds=seconds)
    run = _search(job, progress, stop)
    return dataclasses.replace(run, scouted=scouted, seconds=time.monotonic() - begun)


def _scouted(
    scouting: Scouting, progress: Callable[[Progress], None] | None, stop: threading.Event | None
) -> TuningRun:
    """Scout and set the space's estimate.

    An interrupted scouting sets none; the same call again goes on from where it ended.
    """

    def tell(attempt: Progress) -> None:
        if progress is not None:
            progress(dataclasses.replace(attempt, scouting=scouting.name))

    run = run_job(scouting.job, tell, stop)
    if run.interrupted:
        return run
    seconds: dict[str, list[float]] = {}
    for trial in run.trials:
        found = with_prediction(trial, scouting.model).seconds if trial.counts else None
        seconds.setdefault(canonical(dict(trial.config)), []).append(math.inf if found is None else found)
    scouting.space.estimate = _estimate({config: geometric_mean(times) for config, times in seconds.items()})
    return run


def _estimate(seconds: Mapping[str, float]) -> Callable[[Config], float]:
    return lambda config: seconds.get(canonical(dict(config)), math.inf)


def _search(job: TuningJob, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> TuningRun:
    kind = RecordedAnswers if isinstance(job.device, ReplayedDevice) else Attempts
    answers = kind(job, progress, stop)
    interrupted = False
    notes: list[str] = []
    apart: list[Trial] = []
    try:
        with answers:
            for variant, space in job.spaces.items():
                problem = job.cases[0].problem(arch=job.device.arch)
                start = variant.default_config(placed(problem, job.device, job.model))
                drive(answers, variant, space, start if start in space else None, job.options)
            if isinstance(answers, Attempts) and not job.device.counts:
                notes = _remeasure(answers, list(job.spaces), job.cases)
            if isinstance(answers, Attempts) and len(job.cases) > 1:
                apart = _known_apart(answers, job)
    except KeyboardInterrupt:
        interrupted = True
    counts = {"new": answers.new, "reused": answers.reused, "interrupted": interrupted}
    if isinstance(answers, Attempts):
        notes += answers.notes
    run = dataclasses.replace(job.result(answers.trials.values(), notes, **counts), apart=tuple(apart))
    if job.options.exact and not interrupted:
        from workbench.tuning.measuring.exactly import with_exact_answers

        run = with_exact_answers(run, stop)
    if not interrupted and job.options.record and run.best is not None:
        file, taken = table.record(
            table_entries(run),
            name=table.name_for(job.device, job.model),
            arch=job.device.arch,
            description=job.model.name if job.device.counts else job.device.description,
        )
        run = dataclasses.replace(run, table_path=file, recorded=len(taken))
    return run


def _known_apart(answers: Attempts, job: TuningJob) -> list[Trial]:
    """Return trials of earlier runs whose configurations are legal on one of the cases and not on all of them."""
    found = []
    for variant, space in job.spaces.items():
        for case in job.cases:
            own = Space.of(variant, case, arch=job.device.arch)
            if len(space) < len(own) <= MOST_APART:
                found += answers.known(variant, (config for config in own if config not in space), case)
    return found


def drive(answers: Answers, variant: Variant, space: Space, start: Config | None, options: Options) -> None:
    """Let the strategy search one variant's space until it ends or its budget is spent.

    ``start`` is the untuned default configuration, None if it is not in the space. The random numbers depend only on
    the seed and the variant's name, so that a run can be repeated. Raises ArgumentError for a strategy that is no
    generator function, or yields anything but lists.
    """
    deadline = time.monotonic() + options.budget.seconds
    left = options.budget.configurations
    batches = options.strategy(space, start, random.Random(f"{options.seed} {variant.name}"))
    if not isinstance(batches, Generator):
        _refuse(f"a function that returns {type(batches).__name__}")
    try:
        batch = next(batches)
        while left > 0:
            if not isinstance(batch, Sequence):
                _refuse(f"a generator that yields {type(batch).__name__}")
            taken = batch[: int(min(left, len(batch)))]
            left -= len(taken)
            if not answers.run(variant, taken, deadline) or len(taken) < len(batch):
                return
            batch = batches.send([_score(answers, variant, config) for config in taken])
    except StopIteration:
        return
    finally:
        batches.close()


def _refuse(got: str) -> NoReturn:
    allowed = "a generator function that yields lists of configurations"
    raise ArgumentError("strategy", got, allowed, "See workbench.tuning.search.strategies for examples.")


def _score(answers: Answers, variant: Variant, config: Config) -> float:
    """Return the geometric mean of a configuration's times over the cases; infinity unless correct in all of them."""
    key = canonical(dict(config))
    times = [answers.trials[variant.name, case.name, key].seconds for case in answers.cases]
    return geometric_mean(math.inf if seconds is None else seconds for seconds in times)


def _remeasure(attempts: Attempts, variants: Sequence[Variant], cases: Sequence[Case]) -> list[str]:
    """Time the leaders of each case again, in turns, so that noise and drifting clocks do not choose the winner.

    Where that fails they keep their first times, and the returned notes report it.
    """
    notes = []
    by_name = {variant.name: variant for variant in variants}
    for case in cases:
        timed = [
            (trial.measured_seconds, trial)
            for trial in attempts.trials.values()
            if trial.case == case.name and trial.measured_seconds is not None
        ]
        timed.sort(key=lambda one: one[0])
        leaders = [trial for seconds, trial in timed if seconds <= LEADER_FACTOR * timed[0][0]][:LEADERS]
        if len(leaders) < 2 or all(trial.leader_samples for trial in leaders):
            continue
        try:
            attempts.time_again([(by_name[trial.variant], trial) for trial in leaders], case, LEADER_ROUNDS)
        except NotTimedError as error:
            notes.append(
                f"{case.name}: the {len(leaders)} fastest could not be timed again in turns ({error}). Their first "
                "times stand, and may be in the wrong order; the same call tries it again."
            )
    return notes
