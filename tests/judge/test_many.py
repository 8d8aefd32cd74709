"""`check_many`: every candidate has its verdict, in its place, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path

import pytest

import workbench as wb
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import ArgumentError
from workbench.judge.many import judged, servers_of
from workbench.judge.sandbox import NoSandbox, command

SOURCE = r"""
extern "C" __global__ void twice(float *out, const float *x, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) out[i] = x[i] * FACTOR;
}
"""
FACTORS = {"ok": "2.f", "wrong_result": "3.f", "not_compiled": "two"}
OPTIONS = {"seeds": 1, "elsewhere": False}
_TORCH = installed_torch()


def twice(x):
    return x * 2


@pytest.fixture(scope="module")
def op():
    made = wb.op(twice)
    made.case("small", x=wb.randn(70))
    declared = {"sizes": lambda x: {"n": x.shape[0]}, "grid": "(n + 31) // 32", "block": 32, "args": ("out", "x", "n")}
    made.cuda(candidate(0, "2.f"), kernel="twice", **declared)
    return made


def candidate(number: int, factor: str) -> str:
    """A source that no other number has."""
    return SOURCE.replace("FACTOR", f"{factor} + 0.f * {number}")


def outcomes(count: int) -> list[str]:
    return [("ok", "wrong_result", "ok", "ok", "not_compiled")[number % 5] for number in range(count)]


def items(op, count: int) -> list[tuple]:
    return [(op, candidate(number, FACTORS[outcome])) for number, outcome in enumerate(outcomes(count))]


class DyingPool(Executor):
    """A worker in this process. A candidate in ``deadly`` ends it so many times, and with it all that is queued."""

    def __init__(self, deadly: dict[str, int]):
        self.deadly, self.judged = dict(deadly), 0
        self._queue: list[tuple[Future, object]] = []
        self._lock = threading.Lock()

    def submit(self, call, task):
        future = Future()
        with self._lock:
            self._queue.append((future, task))
            if len(self._queue) == 1:
                threading.Timer(0.01, self._work, (call,)).start()
        return future

    def _work(self, call):
        with self._lock:
            while self._queue:
                future, task = self._queue.pop(0)
                if self.deadly.get(task.candidate, 0) > 0:
                    self.deadly[task.candidate] -= 1
                    for lost in (future, *(one for one, _ in self._queue)):
                        lost.set_exception(BrokenExecutor("a worker died"))
                    self._queue.clear()
                else:
                    self.judged += 1
                    future.set_result(call(task))


def test_a_dying_worker_costs_its_own_candidate_and_a_second_call_judges_what_is_new(op, tmp_path):
    given, store = items(op, 12), tmp_path / "store.sqlite"
    always, once = 3, 10
    pool = DyingPool({given[always][1]: 99, given[once][1]: 1})
    found = list(wb.check_many([*given, given[0]], executor=pool, store=store, **OPTIONS))
    wanted = [*outcomes(12), "ok"]
    wanted[always] = "crashed"
    assert [one.outcome for one in found] == wanted
    assert "worker process" in found[always].verdicts[0].message
    assert pool.judged == 11  # each once, and the one that stands twice, too
    assert found[1].verdicts[0].place.startswith("out[")
    pool = DyingPool({})
    again = list(wb.check_many([*given, (op, candidate(99, "2.f"))], executor=pool, store=store, **OPTIONS))
    assert pool.judged == 1
    assert [one.to_dict() for one in again[:12]] == [one.to_dict() for one in found[:12]]
    retried = list(wb.check_many([given[0], given[always]], executor=pool, store=store, retry_failed=True, **OPTIONS))
    assert [one.outcome for one in retried] == ["ok", "ok"]
    assert pool.judged == 2


def test_what_a_worker_cannot_judge_is_no_verdict_on_the_candidate_and_is_tried_again(tmp_path):
    problem, solution = tmp_path / "problem.py", tmp_path / "solution.py"
    problem.write_text("raise RuntimeError('no such data')")
    solution.write_text("class ModelNew: ...")
    pool = DyingPool({})
    for _ in range(2):
        (found,) = wb.check_many([(problem, solution)], executor=pool, store=tmp_path / "store.sqlite")
        assert (found.outcome, found.exit_status) == ("not_judged", 26)
        assert "no such data" in found.verdicts[0].message
    assert pool.judged == 2


def test_a_worker_with_other_files_judges_nothing(tmp_path):
    problem, solution = tmp_path / "problem.py", tmp_path / "solution.py"
    problem.write_text("")
    solution.write_text("")

    class Elsewhere(Executor):
        def submit(self, call, task):
            solution.write_text("changed")
            future = Future()
            future.set_result(call(task))
            return future

    (found,) = wb.check_many([(problem, solution)], executor=Elsewhere(), store=tmp_path / "store.sqlite")
    assert found.outcome == "not_judged"
    assert "solution.py differs" in found.verdicts[0].message


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([("paged_attention",)], {}, r"items\[0\]: got .*paged_attention.*allowed: \(op, candidate\)"),
        (["paged_attention"], {}, r"items\[0\]"),
        ([("paged_attention", None), (3, None)], {}, r"items\[1\]: got int; allowed: an op"),
        ([("paged_attention", "no.cu")], {}, r"items\[0\]: got .*no\.cu; allowed: a file that can be read"),
        ([("problem.py", "no.py")], {}, "problem.py; allowed: a file that can be read"),
        ([], {"executor": 3}, "executor: got int"),
        ([], {"seeds": 0}, "seeds: got 0"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is(given, options, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        wb.check_many(given, store=tmp_path / "store.sqlite", **options)


def kill_or_judge(mark: str, task) -> object:
    """In a worker: the first one that comes to a candidate with the mark is killed."""
    if Path(mark).exists() and "+ 0.f * 50;" in str(task.candidate):
        Path(mark).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return judged(task)


class KillsOne(Executor):
    """Another executor, one of whose workers is killed."""

    def __init__(self, executor: Executor, mark: Path):
        self._executor, self._mark = executor, str(mark)
        mark.touch()

    def submit(self, call, task):
        return self._executor.submit(kill_or_judge, self._mark, task)


PROBLEM = """
import torch

assert not torch.cuda.is_available() and torch.cuda.device_count() == 0

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(70)]
"""
SOLUTION = """
import torch
import triton
from triton import language as tl

assert torch.cuda.is_available()

@triton.jit
def relu(y, x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(1,)](y, x, x.numel(), B=128)
        return y
"""


@pytest.mark.long
@pytest.mark.skipif(_TORCH is None or _TORCH.problem is not None, reason="takes torch's build for CUDA 13")
@pytest.mark.parametrize("sandbox", [False, True])
def test_own_processes_judge_both_kinds_and_only_solutions_see_a_gpu(op, tmp_path, sandbox):
    if sandbox:
        try:
            command((), 64)
        except NoSandbox as error:
            pytest.skip(str(error))
    (tmp_path / "problem.py").write_text(PROBLEM)
    given = items(op, 3)
    for number in range(3):
        (tmp_path / f"solution_{number}.py").write_text(SOLUTION.replace("0.)", f"{number % 2}.)") + f"# {number}")
        given.append((tmp_path / "problem.py", tmp_path / f"solution_{number}.py"))
    options = OPTIONS | {"sandbox": sandbox, "torch_compile": False}
    found = list(wb.check_many(given, store=tmp_path / "store", **options))
    assert [one.outcome for one in found] == [*outcomes(3), "ok", "wrong_result", "ok"], found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["own processes", "dask"])
def test_two_hundred_candidates_and_a_killed_worker_give_two_hundred_verdicts(op, tmp_path, kind):
    given = items(op, 200)
    mark = tmp_path / "mark"
    with _executor(kind) as executor:
        found = list(wb.check_many(given, executor=KillsOne(executor, mark), store=tmp_path / "store", **OPTIONS))
    assert not mark.exists(), "no worker was killed"
    assert [one.outcome for one in found] == outcomes(200)


def _executor(kind: str):
    if kind == "own processes":
        from workbench.base.processes.executor import OwnProcesses

        server = servers_of(())
        return OwnProcesses(server=lambda mark, task: server(task))
    distributed = pytest.importorskip("distributed", reason='no Dask: python -m pip install -e ".[dask]"')
    import contextlib

    import dask

    @contextlib.contextmanager
    def cluster():
        settings = {"distributed.scheduler.allowed-failures": 0, "distributed.worker.daemon": True}
        with (
            dask.config.set(settings),
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made,
            distributed.Client(made) as client,
        ):
            yield client.get_executor()

    return cluster()
