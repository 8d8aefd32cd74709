"""``check_many``, which judges many candidates on the workers of any executor, each only once.

A worker judges one candidate after the other, in the processes that `check` and `check_kernelbench` make for it. This
process alone keeps the verdicts, in the store of tuning runs, each as soon as it is there: a second call judges what
is new.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from workbench.base import by_value
from workbench.base.argument_kinds import checked_kinds
from workbench.base.processes.ending import end_with_pool
from workbench.base.processes.executor import OwnProcesses
from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.handing_out import HandedOut, check_executor
from workbench.base.progress import bar
from workbench.base.trials.judgements import JudgementStore
from workbench.base.trials.trial import canonical, digest
from workbench.base.versions import versions
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.errors import ArgumentError, WorkbenchError
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS, check_limits, checked_seeds, source_label
from workbench.judge.judge import Judge
from workbench.judge.kernelbench.judging import check_kernelbench
from workbench.judge.kernelbench.nursery import SolutionNursery
from workbench.judge.kernelbench.problem import OF_PROBLEMS
from workbench.judge.nursery import Nursery
from workbench.judge.one_thread import one_thread
from workbench.judge.op_files import OpFiles
from workbench.judge.verdict import Judgement, Verdict
from workbench.ops.files import load_op
from workbench.ops.op import Op

_JUDGES = 8
"""Judges that a worker keeps, each with its processes."""


@dataclass(frozen=True)
class JudgingTask:
    """One candidate on its way to a worker.

    ``op`` is the op by value, empty for KernelBench's format; ``files`` have their digests in the process that keeps
    the verdict. ``ticket`` makes every task unique: Dask would answer a known task with its earlier result.
    """

    op: bytes
    problem: str
    candidate: str | Path | None
    options: Mapping[str, Any]
    files: Mapping[Path, str]
    parent: int
    ticket: str = field(default_factory=lambda: uuid4().hex)


@dataclass
class _Item:
    """A candidate with its positions in the input."""

    op: Op | None
    problem: str
    candidate: str | Path | None
    places: list[int]
    name: str
    op_file: str
    op_sha256: str
    key: str
    files: Mapping[Path, str]
    modules: Sequence[ModuleType] = ()

    @property
    def label(self) -> str:
        return source_label(self.candidate) or str(self.candidate or "")

    def judgement(self, outcome: str, message: str) -> Judgement:
        """Return the judgement of a candidate that no worker could judge."""
        verdict = Verdict(self.name, "", "", {}, outcome, message)
        return Judgement(self.name, self.label, (verdict,), self.op_file, self.op_sha256)


@checked_kinds(but=("items", "executor"))
def check_many(
    items: Iterable[Any],
    *,
    executor: Executor | None = None,
    store: str | Path | None = None,
    retry_failed: bool = False,
    seeds: int | Sequence[int] = SEEDS,
    seconds: float = SECONDS,
    memory_mib: int = MEMORY_MIB,
    elsewhere: bool = True,
    schedules: int = 0,
    sandbox: bool = False,
    prove: bool = False,
    exact: bool = False,
    variants: str | Sequence[str] | None = None,
    cases: str | Sequence[str] | None = None,
    full: bool = False,
    torch_compile: bool = True,
    model: str = DEFAULT_MODEL,
) -> Iterator[Judgement]:
    """Judge many candidates; yield their judgements in the order of ``items``, each when all before it are there.

    An item is ``(op, candidate)``, as `check` takes them, or ``(problem, solution)``, two Python files, as
    `check_kernelbench` takes them; both kinds may be mixed::

        pairs = [(problem, solution) for solution in folder.glob("*.py")]
        for judgement in wb.check_many(pairs):
            print(judgement)

    Verdicts go to the store: what it has for an op or problem, candidate, options and versions is not judged again. A
    candidate that ends the worker which judges it twice is ``"crashed"``; one whose op or problem fails is
    ``"not_judged"``, and is judged again by the next call.

    Args:
        items: the candidates. An op is a name, ``FILE.py:NAME`` or an op; a candidate None judges its own variants.
        executor: any `concurrent.futures.Executor`, such as ``client.get_executor()`` of a Dask cluster, whose workers
            have the files under the same paths. None: a process for each core.
        store: the file of a tuning store; None: that of `tune`.
        retry_failed: judge those again that did not pass.
        seeds: number of seeds to draw, or the seeds of a verdict.
        seconds: limit of describing a case, and of running it; as for `check`.
        memory_mib: limit of a process, as for `check`.
        elsewhere: judge also at inputs of other magnitudes and structures.
        schedules: also run each case in so many other orders of its blocks and warps.
        sandbox: run the candidate's code without network and with every file read-only.
        prove: also prove each kernel for all sizes that its launches stand for.
        exact: also say whether right kernels are the same computation as the reference (docs/EXACT.md).
        variants: names of the op's own variants. This and the next one are for ops alone, as for `check`.
        cases: names of cases; by default the op's `judged_cases`.
        full: judge at the problem's own sizes. This and the next two are for KernelBench's problems alone, as for
            `check_kernelbench`.
        torch_compile: also predict the time of the reference under ``torch.compile``.
        model: the GPU to simulate and to predict times for.

    Raises:
        ArgumentError: an argument or item that cannot be used; nothing was judged then.
        WorkbenchError: an executor that broke as a whole; what was judged is in the store.
    """
    check_executor(executor)
    check_limits(seconds, memory_mib)
    common = {
        "seeds": checked_seeds(seeds), "seconds": seconds, "memory_mib": memory_mib, "elsewhere": elsewhere,
        "schedules": schedules,
        "sandbox": sandbox,
        "prove": prove,
        "exact": exact,
    }  # fmt: skip
    of_op = {"variants": variants, "cases": cases} | common
    options: dict[bool, Mapping[str, Any]] = {
        False: of_op,
        True: {"full": full, "torch_compile": torch_compile, "model": model} | common,
    }
    found: dict[str, _Item] = {}
    count = 0
    for place, given in enumerate(items):
        item = _item(place, given, options)
        found.setdefault(item.key, item).places.append(place)
        count += 1
    return _judgements(list(found.values()), count, executor, store, retry_failed, options)


def _item(place: int, given: Any, options: Mapping[bool, Mapping[str, Any]]) -> _Item:
    name = f"items[{place}]"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        allowed = "(op, candidate), or (problem.py, solution.py)"
        raise ArgumentError(name, repr(given), allowed, "An op's own variants are (op, None).")
    first, candidate = given
    modules: Sequence[ModuleType] = ()
    if isinstance(first, str | Path) and str(first).endswith(".py"):
        files = {path: _digest(name, path) for path in map(_absolute, given)}
        problem, solution = files
        about: tuple[str, ...] = ("kernelbench", *files.values())
        op, label, op_file, sha256 = None, problem.stem, str(problem), files[problem]
        candidate = str(solution)
    else:
        op = load_op(first) if isinstance(first, str) else first
        if not isinstance(op, Op):
            raise ArgumentError(name, type(op).__name__, "an op, its name, or a problem's file", "Name one of these.")
        own = OpFiles.of(op)
        files, modules = dict(own.digests), own.modules
        content = candidate or ""
        if candidate is not None and source_label(candidate) is None:
            candidate = _absolute(candidate)
            content = files[candidate] = _digest(name, candidate)
        about = ("op", op.name, own.sha256, canonical(sorted(own.digests.values())), content)
        label, op_file, sha256 = op.name, str(own.file or ""), own.sha256
    key = digest(*about, canonical(options[op is None]), canonical(dict(versions())))
    return _Item(op, str(first) if op is None else "", candidate, [], label, op_file, sha256, key, files, modules)


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _digest(name: str, path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ArgumentError(name, str(path), "a file that can be read", str(error)) from error


def _judgements(
    items: list[_Item],
    count: int,
    executor: Executor | None,
    store: str | Path | None,
    retry_failed: bool,
    options: Mapping[bool, Mapping[str, Any]],
) -> Iterator[Judgement]:
    """Yield the judgements of the places in their order, while the executor's workers go on."""
    ready: dict[int, Judgement] = {}
    following = 0
    with JudgementStore(store) as kept, bar(" candidates", count) as shown:
        waiting: deque[_Item] = deque()
        known = kept.get([item.key for item in items])
        for item in items:
            earlier = Judgement.from_dict(known[item.key]) if item.key in known else None
            if earlier is None or (retry_failed and not earlier.ok):
                waiting.append(item)
            else:
                ready |= dict.fromkeys(item.places, earlier)
                shown.update(len(item.places))
        handed: HandedOut[_Item, Judgement | str] | None = None
        with contextlib.ExitStack() as stack:
            if waiting:
                given = executor or stack.enter_context(_own_processes())
                handed = HandedOut(given, functools.partial(_submit, options, {}), "check them again.")
                stack.callback(handed.close)
            while following < count:
                while following in ready:
                    yield ready.pop(following)
                    following += 1
                if handed is None or not (waiting or handed.working):
                    continue
                for _ in range(min(handed.room, len(waiting))):
                    handed.put(waiting.popleft())
                for item, answer, error in handed.take():
                    found = _found(item, answer, error)
                    if found.outcome != "not_judged":
                        kept.keep(item.key, found.to_dict())
                    ready |= dict.fromkeys(item.places, found)
                    shown.update(len(item.places))


def servers_of(imports: Sequence[str]) -> Callable[[JudgingTask], ForkServer]:
    """Return a function from a task to the server that forks workers for its kind, with ``imports``.

    Workers for solutions in KernelBench's format have the libraries of the simulated device, others do not.
    """
    made: dict[tuple[object, ...], ForkServer] = {}

    def server(task: JudgingTask) -> ForkServer:
        if task.op:
            return made.setdefault((), Nursery(imports=imports))
        gpu = task.options["model"], task.options["memory_mib"]
        return made.setdefault(gpu, SolutionNursery(*gpu, imports=[*imports, *OF_PROBLEMS]))

    return server


@contextlib.contextmanager
def _own_processes() -> Iterator[OwnProcesses]:
    made = OwnProcesses(server=servers_of((__name__,)))
    try:
        yield made
    finally:
        made.shutdown(cancel_futures=True)


def _found(item: _Item, answer: Judgement | str | None, error: str) -> Judgement:
    """Return the judgement in a worker's result."""
    if isinstance(answer, Judgement):
        return replace(answer, op_file=item.op_file, op_sha256=item.op_sha256)
    lost = error.startswith("the worker")
    return item.judgement("crashed" if lost else "not_judged", answer if isinstance(answer, str) else error)


def _submit(
    options: Mapping[bool, Mapping[str, Any]], dumped: dict[int, bytes], executor: Executor, item: _Item
) -> Future[Judgement | str]:
    op = item.op
    if op is not None and id(op) not in dumped:
        dumped[id(op)] = by_value.dumps(op, item.modules)
    content = b"" if op is None else dumped[id(op)]
    task = JudgingTask(content, item.problem, item.candidate, options[op is None], item.files, os.getpid())
    return executor.submit(judged, task)


# -- in a worker --------------------------------------------------------------------------------------------------


def judged(task: JudgingTask) -> Judgement | str:
    """Judge one candidate in this process; a text gives the reason if nothing was judged."""
    end_with_pool(task.parent)
    try:
        if changed := [path for path, sha in task.files.items() if _digest("files", path) != sha]:
            names = ", ".join(map(str, changed))
            return f"{names} differs from what the process read that keeps the verdicts: give every worker its files"
        if not task.op:
            with one_thread():  # the other cores have workers of their own
                return check_kernelbench(task.problem, str(task.candidate), **task.options)
        options = dict(task.options)
        variants = options.pop("variants")
        return _judge(task.op, canonical(options)).check(task.candidate, variants=variants)
    except WorkbenchError as error:
        return str(error)


@functools.lru_cache(maxsize=_JUDGES)
def _judge(op: bytes, options: str) -> Judge:
    return Judge(by_value.loads(op), **json.loads(options))
