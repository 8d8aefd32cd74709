"""Attempts made by an executor's workers: the rows of a serial run, whatever becomes of the workers."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import toy
import warm
from toy import tune_steps
from waiting import gone, wait_until

from workbench import ops
from workbench.analysis.device_models import device_model
from workbench.base.trials.store import Store
from workbench.errors import ArgumentError, CaseTooLargeError, WorkbenchError
from workbench.launch import devices
from workbench.tuning import Limits, tune
from workbench.tuning.measuring import isolation, tasks
from workbench.tuning.measuring.attempt import Attempt
from workbench.tuning.measuring.shipping import SentAttempt, Shipments, Shipped

MAY_DIFFER = {"compile_seconds", "from_cache", "started", "finished"}


@pytest.fixture(scope="module")
def dask():
    """A Dask client of a cluster that gives up a task which kills a worker. It has two worker processes, each with one
    GPU slot, and with two threads that would both work if it were not for the slot."""
    distributed = pytest.importorskip("distributed", reason='no Dask: python -m pip install -e ".[dask]"')
    import dask

    # Without a dashboard and away from the user's own settings; a worker's death is blamed on its task at once.
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.worker.daemon": True}
    settings["distributed.worker.multiprocessing-method"] = warm.pools().get_start_method()
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, resources={"GPU": 1}
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def pool():
    with ProcessPoolExecutor(1, mp_context=warm.pools()) as made:
        yield made


def rows(run) -> list[dict]:
    """All that is stored of a run but how long compiling took, and when."""
    return [
        {name: value for name, value in vars(trial).items() if name not in MAY_DIFFER and name != "resources"}
        for trial in run.trials
    ]


def results(run) -> list[tuple]:
    return [(trial.config, trial.outcome, trial.seconds, trial.message) for trial in run.trials]


def kill_by_value(config: dict, mark: Path | None = None) -> None:
    """5 ends every process that tries it; 7 the first one."""
    if config["STEPS"] == 5 or (config["STEPS"] == 7 and mark is not None and not mark.exists()):
        if config["STEPS"] == 7:
            mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


# -- the rows of a serial run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "greedy"])
def test_threads_make_the_rows_of_a_serial_run(strategy, tmp_path):
    variant = toy.steps_variant(values=toy.ALL_ENDS[::-1], pages=(8, 16), behaviour=toy.fail_by_value)
    options = {"strategy": strategy, "budget": 10, "cases": [toy.ToyCase("a", 64), toy.ToyCase("b", 128)]}
    serial = tune_steps(variant, store=tmp_path / "serial.sqlite", **options)
    told = []
    with ThreadPoolExecutor(3) as threads:
        run = tune_steps(variant, store=tmp_path / "threads.sqlite", executor=threads, progress=told.append, **options)
        again = tune_steps(variant, store=tmp_path / "threads.sqlite", executor=threads, **options)
    assert rows(run) == rows(serial)
    assert (run.best.config, run.outcomes) == (serial.best.config, serial.outcomes)
    assert (again.new, again.reused, again.outcomes) == (0, len(run.trials), run.outcomes)
    assert [one.done for one in told] == list(range(1, len(run.trials) + 1))


@pytest.mark.long
def test_kernels_compiled_and_run_in_threads_count_what_they_count_in_a_serial_run(tmp_path):
    op = toy.scale_op()
    serial = tune(op, "small", device="sim", store=tmp_path / "serial.sqlite", record=False)
    with ThreadPoolExecutor(3) as threads:
        run = tune(op, "small", device="sim", store=tmp_path / "threads.sqlite", record=False, executor=threads)
    assert rows(run) == rows(serial)
    assert len(run.ranking) == len(run.trials) > 10


def test_an_executor_is_kept_full_and_a_row_is_stored_when_it_comes(tmp_path):
    """Every worker waits until all of them work; a run that did less at a time would not end."""
    together = threading.Barrier(4, timeout=60)

    def meet(config):
        together.wait()

    with ThreadPoolExecutor(4) as threads:
        run = tune_steps(toy.steps_variant(behaviour=meet), executor=threads)
    assert run.outcomes == {"ok": 12}


@pytest.mark.long
def test_two_tuners_with_executors_on_one_store_do_no_work_twice(tmp_path):
    log, store = tmp_path / "log", tmp_path / "store.sqlite"
    variant = toy.steps_variant(log=log, seconds=0.002)
    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(2) as tuners:
        call = functools.partial(tune_steps, variant, store=store, executor=threads, record=False)
        runs = [future.result() for future in [tuners.submit(call) for _ in range(2)]]
    assert Counter(log.read_text().split()[1::3]) == {str(steps): 2 for steps in range(1, 13)}, "compiled, run"
    assert sum(run.new for run in runs) == 12
    assert results(runs[0]) == results(runs[1])


# -- what goes to another process, and what comes back ----------------------------------------------------------


def test_variants_of_the_workbench_travel_by_name_and_others_by_value():
    variant = ops.variant("paged_attention", "cuda_thread_group")
    sent = pickle.dumps(Shipped(variant))
    assert pickle.loads(sent).value is variant
    assert len(sent) < 200
    case = ops.get("paged_attention").case("small", seq_lens=(5, 17))
    assert case.reference() is not None  # made once, and not sent along
    sent = pickle.dumps(Shipped(case))
    assert pickle.loads(sent).value == case
    assert len(sent) < 1000
    own = toy.scale_variant()
    arrived = pickle.loads(pickle.dumps(Shipped(own))).value
    problem = toy.CASES["small"].problem()
    assert arrived.source_hash == own.source_hash
    assert arrived.configurations(problem) == own.configurations(problem)
    with pytest.raises(WorkbenchError, match="cannot be sent"):
        pickle.dumps(Shipped(replace(own, defaults=threading.Lock())))


def test_a_worker_of_other_versions_is_refused_and_a_lost_context_ends_only_its_process(monkeypatch):
    variant = toy.steps_variant()
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(tasks, "toolchain", lambda language: "another compiler")
        with pytest.raises(WorkbenchError, match=r"toolchain: .* here, another compiler there"):
            tune_steps(variant, executor=threads)
        monkeypatch.undo()
        assert tune_steps(variant, executor=threads).new == 12, "no result was kept"


def test_a_forking_pool_is_refused():
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as forks,
        pytest.raises(ArgumentError, match="spawn"),
    ):
        tune_steps(executor=forks)


# -- workers that fail ------------------------------------------------------------------------------------------


def test_a_task_that_raises_costs_its_row(monkeypatch):
    class Failing(Executor):
        def submit(self, call, task):
            future = Future()
            if task.attempt.config["STEPS"] in (3, 4):
                future.set_exception(ModuleNotFoundError(f"No module named 'n{task.attempt.config['STEPS']}'"))
            else:
                future.set_result(call(task))
            return future

    run = tune_steps(executor=Failing())
    assert run.outcomes == {"ok": 10, "crash": 2}
    assert {trial.message for trial in run.trials if not trial.ok} == {
        "ModuleNotFoundError: No module named 'n3'",
        "ModuleNotFoundError: No module named 'n4'",
    }


class Cluster(Executor):
    """Workers in name only: what was handed in is tried in turns, one for each. Some configurations end their worker;
    all that are tried then are lost with it, and if it ``breaks``, those that are queued are, too."""

    def __init__(self, workers: int, kills: dict[int, int], breaks: bool):
        self.workers, self.kills, self.breaks = workers, dict(kills), breaks
        self.queue: list[tuple[Future, tasks.Task]] = []
        self.deaths = 0
        self._lock = threading.Lock()

    def submit(self, call, task):
        future = Future()
        with self._lock:
            self.queue.append((future, task))
            if len(self.queue) == 1:
                threading.Timer(0.002, self.work).start()
        return future

    def work(self):
        with self._lock:
            while self.queue:
                turn, self.queue = self.queue[: self.workers], self.queue[self.workers :]
                deadly = [steps for _, task in turn if self.kills.get(steps := task.attempt.config["STEPS"], 0) > 0]
                for steps in deadly:
                    self.kills[steps] -= 1
                self.deaths += bool(deadly)
                if deadly and self.breaks:
                    turn, self.queue = turn + self.queue, []
                for future, task in turn:
                    if deadly:
                        future.set_exception(BrokenExecutor("a worker died"))
                    else:
                        future.set_result(tasks.run_task(task))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_dies_the_guilty_are_found_and_nobody_else_is_lost(seed, tmp_path):
    rng = random.Random(seed)
    values = tuple(range(20, 60))
    often, once = rng.sample(values[:-1], 2), rng.sample(values, 2)
    kills = dict.fromkeys(once, 1) | dict.fromkeys(often, 1000)
    cluster = Cluster(rng.choice([1, 3, 8]), kills, breaks=bool(seed % 2))
    run = tune_steps(toy.steps_variant(values=values), executor=cluster, strategy=rng.choice(["exhaustive", "random"]))
    crashed = {trial.config["STEPS"]: trial.message for trial in run.trials if trial.outcome == "crash"}
    assert set(crashed) == set(often)
    assert set(crashed.values()) == {"the worker process that tried it ended, 2 times"}
    assert run.outcomes == {"ok": 38, "crash": 2}
    assert cluster.deaths <= 2 * (6 + 2) + 2, "halves, not one by one"


def test_a_killed_process_costs_the_guilty_row_only_and_the_pool_is_replaced(pool, tmp_path):
    check_deaths(pool, tmp_path, values=(1, 5), crashes=[5])


def test_a_worker_is_told_whom_to_end_with(monkeypatch, tmp_path):  # tests/test_killed_callers.py has what it does then
    told = set()
    monkeypatch.setattr(tasks, "end_with_pool", told.add)
    with ThreadPoolExecutor(1) as threads:
        tune_steps(executor=threads, store=tmp_path / "store.sqlite")
    assert told == {os.getpid()}


@pytest.mark.long
def test_a_killed_worker_of_a_dask_cluster_with_one_slot_per_gpu_loses_no_row(dask, tmp_path):
    check_deaths(dask.get_executor(resources={"GPU": 1}), tmp_path, values=(1, 2, 3, 4, 6, 7), crashes=[])


def run_alone(config: dict, folder: Path) -> None:
    """Fails if this process runs another at the same time."""
    mark = folder / str(os.getpid())
    mark.touch(exist_ok=False)
    time.sleep(0.02)
    mark.unlink()


def test_each_gpu_slot_of_a_dask_cluster_takes_one_measurement_at_a_time(dask, tmp_path):
    variant = toy.steps_variant(behaviour=functools.partial(run_alone, folder=tmp_path))
    run = tune_steps(variant, executor=dask.get_executor(resources={"GPU": 1}), record=False)
    assert run.outcomes == {"ok": 12}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pool", "dask"])
def test_killed_workers_again_and_again(kind, tmp_path, request):
    executor = request.getfixturevalue(kind)
    executor = executor.get_executor() if kind == "dask" else executor
    check_deaths(executor, tmp_path, values=(*range(1, 13), *range(20, 40)), crashes=[5])


def check_deaths(executor, folder: Path, values: tuple[int, ...], crashes: list[int]) -> None:
    log, mark, store = folder / "log", folder / "killed once", folder / "store.sqlite"
    variant = toy.steps_variant(values=values, log=log, behaviour=functools.partial(kill_by_value, mark=mark))
    run = tune_steps(variant, executor=executor, store=store, strategy=in_order)
    assert [trial.config["STEPS"] for trial in run.trials if trial.outcome == "crash"] == crashes
    assert len(run.ranking) == len(values) - len(crashes)
    assert mark.exists() == (7 in values)
    pids = {line.split()[-1] for line in log.read_text().splitlines()}
    assert str(os.getpid()) not in pids
    assert len(pids) >= 2, "another one in the place of the dead"
    again = tune_steps(toy.steps_variant(values=values), store=store)
    assert (again.new, results(again)) == (0, results(run))


def test_an_executor_that_breaks_for_good_ends_the_run_and_keeps_what_is_finished(tmp_path):
    class Breaking(Executor):
        calls = 0

        def submit(self, call, task):
            self.calls += 1
            if self.calls > 4:
                raise BrokenExecutor
            future = Future()
            future.set_result(call(task))
            return future

    with pytest.raises(WorkbenchError, match="What was finished is kept"):
        tune_steps(executor=Breaking(), store=tmp_path / "store.sqlite")
    rest = tune_steps(store=tmp_path / "store.sqlite")
    assert rest.new + rest.reused == 12
    assert rest.reused == 4


# -- configurations that hang or crash ---------------------------------------------------------------------------


class Hanging(toy.StepsVariant):
    """For one value the compiler hangs, for another the kernel."""

    language = "triton"

    def kernels(self, config, problem, arch="sm_80", *, machine_code=True):
        self._log("compile", config)
        if config["STEPS"] == 3:
            signal.pause()
        return (toy.FakeKernel(key=str(config)),)

    def run(self, config, problem, tensors, device, **options):
        if config["STEPS"] == 5:
            self._log("run", config)
            signal.pause()
        return super().run(config, problem, tensors, device, **options)


def measure_briefly(beside: float = 0.0) -> None:
    """What a measurement may take beside the kernel's own limit: for tests, nothing."""
    isolation.BESIDE_SECONDS = beside


def check_hangs(executor, folder: Path) -> set[int]:
    """Two of five configurations hang, and cost their rows. Returns the processes that compiled and measured."""
    run = tune_steps(
        toy.steps_variant(values=(1, 3, 4, 5, 6), kind=Hanging, log=folder / "log"),
        executor=executor,
        strategy=in_order,
        isolation="process",
        limits=Limits(seconds=4.0, compile_seconds=4.0),
    )
    outcomes = {trial.config["STEPS"]: trial.outcome for trial in run.trials}
    assert outcomes == {1: "ok", 3: "timeout", 4: "ok", 5: "timeout", 6: "ok"}
    messages = [trial.message for trial in run.trials if not trial.ok]
    assert "the compiler took longer than 4 s" in messages[0]
    assert "after 4 s" in messages[1]
    pids = {int(line.split()[-1]) for line in (folder / "log").read_text().splitlines()}
    assert os.getpid() not in pids
    return pids


@pytest.mark.long  # in every run: test_isolation.py
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_hang_in_a_worker_costs_one_row_and_leaves_no_process_behind(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "BESIDE_SECONDS", 0.0)
    processes = functools.partial(ProcessPoolExecutor, mp_context=warm.pools(), initializer=measure_briefly)
    with ThreadPoolExecutor(1) if kind == "threads" else processes(1) as executor:
        pids = check_hangs(executor, tmp_path)
        assert len(pids) == 4, "two compilers, two that measured"
        if kind == "threads":  # those of other processes end with them
            wait_until(lambda: all(map(gone, pids)))
    wait_until(lambda: all(map(gone, pids)))


@pytest.mark.long
def test_a_hang_in_a_worker_of_a_dask_cluster_costs_one_row_and_not_the_worker(dask, tmp_path):
    workers = dask.run(os.getpid)
    dask.run(measure_briefly)
    try:
        pids = check_hangs(dask.get_executor(resources={"GPU": 1}), tmp_path)
    finally:
        dask.run(measure_briefly, isolation.BESIDE_SECONDS)
    assert dask.run(os.getpid) == workers
    assert not pids & set(workers.values())


def test_a_worker_keeps_what_it_made_for_the_runs_that_go_on_and_for_no_other(tmp_path):
    sim, made, ended = devices.get("sim"), [], []

    class Measurer:
        def __init__(self, *_):
            made.append(self)

        def legal(self, attempt):
            return attempt

        compiled = legal

        def measured(self, attempt):
            return attempt.ending("ok", "a trial")

        def close(self):
            ended.append(self)

    def try_in(run, *runs):
        attempt = Attempt.of(toy.steps_variant(), {"STEPS": 1}, toy.ToyCase(), sim)
        setting = {"model": device_model(), "limits": None, "isolation": "none", "parent": os.getpid()}
        setting["stamp"] = tasks.stamp_of(attempt.variant, sim)
        sent = SentAttempt.of(attempt, Shipments())
        task = tasks.Task(sent, **setting, run=run, runs=frozenset(runs))
        assert tasks.run_task(task).trial.message == "a trial"

    def work():
        try_in("first", "first")
        try_in("second", "first", "second")
        try_in("first", "first", "second")
        assert len(made) == 2
        assert not ended
        try_in("second", "second")
        assert (len(made), ended) == (2, made[:1])
        tasks.close("second")
        assert ended == made

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(tasks, "measurer", Measurer)
        threads.submit(work).result()


def test_the_first_to_end_are_not_the_first_that_were_tried(tmp_path):
    """The last three crash alike, and end before all others: their own doing."""
    gate, told = threading.Event(), []

    def crash_first(config):
        if config["STEPS"] > 9:
            raise AttributeError("of their own")
        assert gate.wait(60)

    def tell(progress):
        told.append(progress.latest.outcome)
        if progress.done == 3:
            gate.set()

    with ThreadPoolExecutor(12) as threads:
        run = tune_steps(toy.steps_variant(behaviour=crash_first), executor=threads, strategy=in_order, progress=tell)
    assert told[:3] == ["crash"] * 3
    assert run.outcomes == {"ok": 9, "crash": 3}


def test_when_everything_crashes_alike_nothing_of_it_is_kept(tmp_path):
    store = tmp_path / "store.sqlite"

    def broken(config):
        raise AttributeError("a broken installation")

    with (
        ThreadPoolExecutor(8) as threads,
        pytest.raises(WorkbenchError, match=r"3 configurations.*a broken installation"),
    ):
        tune_steps(toy.steps_variant(behaviour=broken), executor=threads, store=store)
    assert tune_steps(store=store).new == 12


def test_what_no_worker_can_do_is_said_as_if_it_were_done_here(monkeypatch, tmp_path):
    store = tmp_path / "store.sqlite"
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(CaseTooLargeError, match=r"can try nothing: case huge does not fit into memory"):
            tune_steps(cases=toy.ToyCase("huge", 1 << 50), executor=threads, store=store)
        lock = threading.Lock()
        variant = toy.steps_variant(behaviour=lambda config: lock.locked())
        with pytest.raises(WorkbenchError, match='isolation="none"'):
            tune_steps(variant, executor=threads, isolation="process", store=store)
    with Store(store) as opened:
        assert len(opened) == 0


# -- ends -------------------------------------------------------------------------------------------------------


def test_a_stop_keeps_what_is_finished_and_gives_the_rest_back(tmp_path):
    store, log = tmp_path / "store.sqlite", tmp_path / "log"
    gate = threading.Event()

    given: list[Future] = []

    class Remembering(ThreadPoolExecutor):
        def submit(self, *call):
            given.append(super().submit(*call))
            return given[-1]

    def wait_at_the_gate(config):
        if config["STEPS"] > 3:
            assert gate.wait(60)

    values = tuple(range(1, 9))
    with Remembering(2) as threads:
        variant = toy.steps_variant(values=values, behaviour=wait_at_the_gate, log=log)
        live = tune_steps(variant, store=store, executor=threads, background=True, strategy=in_order)
        wait_until(lambda: live.progress is not None and live.progress.done == 3)
        live.stop()
        assert live.phase == "stopping"
        wait_until(lambda: all(future.cancelled() for future in given[5:]))
        gate.set()
        run = live.result(60)
    assert (run.interrupted, live.phase) == (True, "stopped")
    assert [trial.config["STEPS"] for trial in run.trials] == [1, 2, 3, 4, 5], "those under way came to their end"
    rest = tune_steps(toy.steps_variant(values=values, log=log), store=store)
    assert (rest.reused, rest.new) == (5, 3)
    assert set(Counter(log.read_text().split()[1::3]).values()) == {2}, "each compiled and run once"


def in_order(space, start, rng):
    yield list(space)


def test_a_time_budget_gives_back_what_no_worker_began(tmp_path):
    store = tmp_path / "store.sqlite"
    values = tuple(range(1, 201))
    with ThreadPoolExecutor(2) as threads:
        run = tune_steps(toy.steps_variant(values=values, seconds=0.02), store=store, executor=threads, budget="0.5s")
    assert 1 <= len(run.trials) < 200
    with Store(store) as opened:
        assert len(opened) == len(run.trials)
    assert device_model(None).key == run.model.key
