"""``tune``: search the configurations of an op's variants, keep every outcome, record the winners."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ArgumentError
from workbench.tuning import replay, search, table
from workbench.tuning.attempts import Attempts, Progress, trial_key
from workbench.tuning.cluster import ClusterAttempts, check_executor
from workbench.tuning.device_models import DeviceModel, device_model, model_of_gpu
from workbench.tuning.gpu_state import disturbances
from workbench.tuning.isolation import check_isolation
from workbench.tuning.live import LiveTuning
from workbench.tuning.measure import Limits
from workbench.tuning.run import TuningRun, table_entries
from workbench.tuning.scouting import scout
from workbench.tuning.space import Space
from workbench.tuning.store import Store, default_path
from workbench.tuning.trial import Trial, canonical, geometric_mean

if TYPE_CHECKING:
    from workbench.devices import Device
    from workbench.ops.op import Op
    from workbench.ops.variant import Variant

QUICK_CONFIGURATIONS = 8
"""What ``quick`` tries of each variant."""

LEADERS, LEADER_FACTOR, LEADER_ROUNDS = 8, 1.05, 30
"""On a GPU up to this many, within this factor of the best, are timed again in turns, this often."""


def tune(
    op,
    cases=None,
    variants=None,
    device="auto",
    strategy: str | search.Strategy = "exhaustive",
    budget: int | str | search.Budget | None = None,
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
) -> TuningRun | LiveTuning:
    """Find the fastest configuration of an op's variants for one or several cases.

    Every attempt is checked against the reference before it is timed, and kept in the store with its outcome, whatever
    that is; the same call again starts from there. With several cases a configuration must be legal and correct for
    all of them, and is judged by the geometric mean of its times relative to the best of each case. Ctrl-C ends the
    search: what is finished is kept and returned, with ``interrupted`` set. (While strategy "predicted" still scouts,
    before the search, there is nothing to return: KeyboardInterrupt.)

    Args:
        op: name or `Op`.
        cases: name or `Case`, or several; default the op's first (quick) one.
        variants: names or values; default every variant that has something to tune.
        device: "auto", "sim", "cuda" or a device; "replay:FILE" for a recorded sweep that answers instead of one.
        strategy: "exhaustive", "random", "greedy", "predicted", "bayesian", "kernel_tuner:NAME", or a generator as in
            `workbench.tuning.search`.
        budget: for each variant, a number of configurations (those from the store count) or a time, "30s".
        store: file or `Store`; default ``$WORKBENCH_HOME/tuning.sqlite``.
        quick: a random sample of 8 configurations of each variant, unless strategy or budget say otherwise.
        progress: called after each attempt with a `Progress`; may raise KeyboardInterrupt to end the search.
        record: put the winners into the tuned table, where the op finds them.
        model: on the simulator, the device model to predict for (default A100), whose architecture is compiled for.
        retry_failed: try again what failed before; otherwise its stored outcome stands.
        seed: of the strategy's random numbers.
        limits: when to stop a kernel or a compiler.
        executor: any `concurrent.futures.Executor`, whose workers try the configurations while this process keeps the
            store; see `workbench.tuning.cluster`.
        background: return at once with a `LiveTuning`: its ``widget()`` shows how far it is and can stop it, its
            ``result()`` is the TuningRun.
        isolation: "process" measures, and compiles Triton, in processes that may hang and crash, which costs one
            configuration; "none" in this one; "auto" is "process" on a GPU (see `workbench.tuning.isolation`). Workers
            of an executor do the same.

    Raises:
        UnknownNameError, ArgumentError, ConfigurationError: an unknown name, nothing to tune, an empty space (says
            which rules leave nothing over).
        StoreError: the store or the tuned table cannot be used.
        DeviceUnavailableError, MissingToolError: nothing can be run or compiled here.
        CaseTooLargeError: a case does not fit into memory.
        DeviceLostError: with isolation="none" a kernel broke the GPU's context; its row is kept, and the same call goes
            on with the others.
    """
    check_executor(executor)
    check_isolation(isolation)
    if quick and strategy == "exhaustive" and budget is None:
        strategy, budget = "random", QUICK_CONFIGURATIONS
    plan, allowed = search.strategy(strategy), search.budget_of(budget)
    if isinstance(device, str) and device.startswith(replay.PREFIX):
        job = replay.ReplayJob(replay.open_replay(device, op, cases, variants, model, executor), plan, allowed, seed)
    else:
        op = _op(op)
        cases = _cases(op, cases)
        device, model = _device(device, model)
        spaces, notes = _spaces(op, variants, cases, device.arch)
        if plan is search.predicted:
            where = {"executor": executor, "isolation": isolation}
            notes += scout(op, cases, spaces, device, model, store=store, progress=progress, limits=limits, **where)
        if background and isinstance(store, Store):
            store = store.path  # a connection belongs to the thread that opened it
        job = _Job(
            op=op,
            cases=cases,
            spaces=spaces,
            notes=tuple(notes),
            device=device,
            model=model,
            strategy=plan,
            budget=allowed,
            store=store,
            record=record,
            retry_failed=retry_failed,
            seed=seed,
            limits=limits,
            executor=executor,
            isolation=isolation,
        )
    if background:
        return LiveTuning(job, progress)
    run = job.run(progress)
    if run.interrupted:
        print(run.how_to_go_on, file=sys.stderr)
    return run


@dataclass(frozen=True)
class _Job:
    """A call of `tune` whose arguments have been understood: what to do, and on what."""

    op: Op
    cases: tuple
    spaces: Mapping[Variant, Space]
    notes: tuple[str, ...]
    device: Device
    model: DeviceModel
    strategy: search.Strategy
    budget: search.Budget
    store: str | Path | Store | None
    record: bool
    retry_failed: bool
    seed: int
    limits: Limits | None
    executor: Executor | None
    isolation: str

    @property
    def total(self) -> int | None:
        """Attempts that will be made at most; None where time decides."""
        if math.isfinite(self.budget.seconds):
            return None
        sizes = (int(min(len(space), self.budget.configurations)) for space in self.spaces.values())
        return sum(sizes) * len(self.cases)

    def run(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None = None) -> TuningRun:
        """Search, and record the winners. Ends as by Ctrl-C when ``stop`` is set."""
        begun = time.monotonic()
        own_store = not isinstance(self.store, Store)
        opened = Store(self.store) if own_store else self.store
        options = {"limits": self.limits, "retry_failed": self.retry_failed, "progress": progress}
        options |= {"total": self.total, "stop": stop, "isolation": self.isolation}
        if self.executor is None:
            attempts = Attempts(self.cases, self.device, self.model, opened, **options)
        else:
            attempts = ClusterAttempts(self.cases, self.device, self.model, opened, executor=self.executor, **options)
        interrupted = False
        try:
            with attempts:
                for variant, space in self.spaces.items():
                    start = variant.default_config(self.cases[0].problem(arch=self.device.arch))
                    start = start if start in space else None
                    _search(attempts, variant, space, start, self.strategy, self.budget, self.seed)
                if self.device.name == "cuda":
                    _remeasure(attempts, self.spaces, self.cases, opened)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            path = opened.path
            if own_store:
                opened.close()
            else:
                opened.release_all()
        run = self.result(
            attempts.trials.values(),
            new=attempts.new,
            reused=attempts.reused,
            interrupted=interrupted,
            store_path=path,
            seconds=time.monotonic() - begun,
        )
        if not interrupted and self.record and run.best is not None:
            file, taken = table.record(
                table_entries(run),
                name=table.name_for(self.device, self.model),
                arch=self.device.arch,
                description=self.model.name if self.device.name == "sim" else self.device.description,
            )
            run = dataclasses.replace(run, table_path=file, recorded=len(taken))
        return run

    def result(self, trials: Iterable[Trial], **counts) -> TuningRun:
        """These trials as a run."""
        if "store_path" not in counts:
            counts["store_path"] = default_path() if self.store is None else Path(self.store)
        return TuningRun(
            op=self.op,
            cases=self.cases,
            variants=tuple(self.spaces),
            spaces=self.spaces,
            device=self.device,
            model=self.model if self.device.name == "sim" else None,
            trials=(ordered := _ordered(trials, self.spaces, self.cases)),
            notes=(*self.notes, *disturbances(ordered)),
            **counts,
        )


def _search(attempts: Attempts, variant, space: Space, start: Mapping | None, plan, budget, seed: int) -> None:
    """Drive one strategy over one variant until it has no more to ask or its budget is spent."""
    deadline = time.monotonic() + budget.seconds
    left = budget.configurations
    # The sequence depends on the seed and the variant's name only, so that a run can be repeated.
    batches = plan(space, start, random.Random(f"{seed} {variant.name}"))
    try:
        batch = next(batches)
        while left > 0:
            taken = batch[: int(min(left, len(batch)))]
            left -= len(taken)
            if not attempts.run(variant, taken, deadline) or len(taken) < len(batch):
                return
            batch = batches.send([_score(attempts, variant, config) for config in taken])
    except StopIteration:
        return
    finally:
        batches.close()


def _score(attempts: Attempts, variant, config: Mapping) -> float:
    """Geometric mean of a configuration's times over the cases; infinity unless it is right in all of them."""
    key = canonical(dict(config))
    times = [attempts.trials[variant.name, case.name, key].seconds for case in attempts.cases]
    return geometric_mean(math.inf if seconds is None else seconds for seconds in times)


def _remeasure(attempts: Attempts, spaces: Mapping, cases: Sequence, store: Store) -> None:
    """Time the leaders of each case again, in turns, so that noise and drifting clocks do not choose the winner."""
    by_name = {variant.name: variant for variant in spaces}
    for case in cases:
        timed = [t for t in attempts.trials.values() if t.case == case.name and t.measured_seconds is not None]
        timed.sort(key=lambda trial: trial.measured_seconds)
        leaders = [t for t in timed if t.measured_seconds <= LEADER_FACTOR * timed[0].measured_seconds][:LEADERS]
        if len(leaders) < 2 or all(trial.leader_samples for trial in leaders):
            continue
        configs = [(by_name[trial.variant], trial.config) for trial in leaders]
        taken = attempts.measurer.time_again(configs, case, LEADER_ROUNDS)
        for trial, samples in zip(leaders, taken, strict=True):
            better = dataclasses.replace(trial, leader_samples=samples, measured_seconds=statistics.median(samples))
            attempts.trials[trial_key(trial)] = better
            variant = by_name[trial.variant]
            store.amend(attempts.identity(variant, trial.config, case).key, better)


def _ordered(trials: Iterable[Trial], spaces: Mapping, cases: Sequence) -> tuple[Trial, ...]:
    """Trials by variant, place in its space (restricted ones last) and case, whoever finished first."""
    variants = {variant.name: (at, space) for at, (variant, space) in enumerate(spaces.items())}
    names = [case.name for case in cases]

    def place(trial: Trial) -> tuple:
        at, space = variants[trial.variant]
        inside = trial.config in space
        return at, not inside, space.index(trial.config) if inside else trial.config_text, names.index(trial.case)

    return tuple(sorted(trials, key=place))


def _op(op):
    if not isinstance(op, str):
        return op
    from workbench import ops

    return ops.get(op)


def _cases(op, cases) -> tuple:
    if cases is None:
        cases = [next(iter(op.cases))]
    elif isinstance(cases, str) or not isinstance(cases, Sequence):
        cases = [cases]
    if not cases:
        raise ArgumentError("cases", "[]", "one or more cases", f"The cases of {op.name}: {', '.join(op.cases)}.")
    found = tuple(op.case(case) if isinstance(case, str) else case for case in cases)
    if len({case.name for case in found}) < len(found):
        names = [case.name for case in found]
        raise ArgumentError("cases", names, "cases of different names", "Rename one with .override(name=...).")
    return found


def _device(device, model) -> tuple:
    """The device to run on and the device model to predict for."""
    from workbench import devices

    found = devices.get(device) if isinstance(device, str) else device
    if found.name != "sim":
        if model is not None:
            raise ArgumentError("model", model, "None on a GPU", "Times are measured there, not predicted.")
        gpu = sys.modules["torch"].cuda.get_device_name() if found.name == "cuda" else ""
        return found, model_of_gpu(gpu) or device_model()
    model = device_model(model)
    if found.arch != model.arch:
        from workbench.devices.sim import Simulator

        found = Simulator(arch=model.arch)
    return found, model


def _spaces(op, variants, cases: Sequence, arch: str) -> tuple[dict, list[str]]:
    """The space of each variant that can be tuned, and a note on each that was left out."""
    named = variants is not None
    if isinstance(variants, str) or (named and not isinstance(variants, Sequence)):
        variants = [variants]
    chosen = [op.variant(v) if isinstance(v, str) else v for v in variants] if named else op.variants
    spaces, notes = {}, []
    for variant in chosen:
        if not named and not variant.space:
            continue
        space = Space.of(variant, *cases, arch=arch)
        if len(space):
            spaces[variant] = space
            continue
        note = f"{variant.name}: {space.explain_emptiness()}"
        if named:
            raise ArgumentError("variants", variant.name, "variants with a legal configuration", note)
        notes.append(note)
    if not spaces:
        what = "; ".join(notes) or f"{op.name} has no variant with something to tune"
        raise ArgumentError("variants", "none left", "variants with a legal configuration", what)
    return spaces, notes
