"""The service without HTTP: submissions come in, workers judge, the store keeps what they find."""

from __future__ import annotations

import functools
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.files import replace_file
from workbench.base.processes.handing_out import HandedOut, check_executor
from workbench.base.trials.judgements import JudgementStore
from workbench.base.trials.trial import canonical, digest
from workbench.base.versions import versions
from workbench.errors import ArgumentError, UnknownNameError, WorkbenchError
from workbench.service.clients import Client
from workbench.service.judging import Work, is_kept, judge_work, own_processes, record, result_of
from workbench.service.problems import JudgingOptions, Problem, Problems
from workbench.service.progress import StageFiles
from workbench.service.queue import Job, JobQueue
from workbench.service.rewards import Reward, ServiceResult, staged
from workbench.service.stages import VerdictStage
from workbench.service.static_stages import FORBIDDEN
from workbench.service.tickets import ATTEMPTS, DONE, RUNNING, Ticket, Tickets

LONGEST_TEXT = 256 << 10
"""Longest candidate, in bytes of UTF-8."""

KEPT_DAYS = 30
"""Days after which a finished ticket is forgotten; its verdict stays in the store."""

_log = logging.getLogger("workbench.service")

Judging = Callable[[Work], dict[str, Any]]
Heard = Callable[[Ticket, Mapping[str, Any] | None], None]


class LimitReached(WorkbenchError):
    """A submission of a client that has as many unfinished ones as it may have; it can try again later."""


@dataclass(frozen=True)
class Submission:
    """A candidate as a client submits it. ``variant`` names the op's own variant whose source a ``.cu`` replaces."""

    problem: str
    text: str
    language: str = "python"
    variant: str = ""
    priority: int = 0


@dataclass(frozen=True)
class ServiceOptions:
    """Options of a service.

    Attributes:
        judging: options of every judgement.
        forbidden: modules that a Python candidate must not import.
        reward: function of a `ServiceResult`, applied whenever a result is asked for.
        workers: judgements at one time; None: one for each core of this machine.
    """

    judging: JudgingOptions = field(default_factory=JudgingOptions)
    forbidden: tuple[str, ...] = FORBIDDEN
    reward: Reward = staged
    workers: int | None = None


class Service:
    """A queue of submissions, workers that judge them, and a store of what they find. Use it as a context manager.

    Args:
        state: folder of the tickets (``tickets.sqlite``), the verdicts (``tuning.sqlite``, a store as `wb.check_many`
            has it), the ``secret`` that seeds are made of, and the ``stages`` of what is judged; made if missing.
        problems: what it judges by.
        options: how.
        executor: any `concurrent.futures.Executor`; None: processes of its own.
        judge: the function that a worker calls.
    """

    def __init__(
        self,
        state: Path,
        problems: Problems,
        options: ServiceOptions | None = None,
        executor: Executor | None = None,
        judge: Judging = judge_work,
    ):
        check_executor(executor)
        self.problems, self.options = problems, options or ServiceOptions()
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._secret = _secret(state / "secret")
        self._tickets = Tickets(state / "tickets.sqlite")
        self._stages = StageFiles(state / "stages")
        self._verdicts = functools.partial(_verdicts, threading.local(), state / "tuning.sqlite")
        self._judge = judge
        self._own = own_processes(judge, self.options.workers) if executor is None else None
        self._executor = executor or self._own
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue = JobQueue()
        self._closing = False
        self.failure = ""
        self.heard: Heard = lambda ticket, found: None  # who wants to know that a ticket has changed
        self._resume()
        self._thread = threading.Thread(target=self._dispatch, name="dispatch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop judging. What is queued or was judged stays, and goes on when a service has this folder again."""
        with self._lock:
            self._closing = True
            self._changed.notify_all()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)
        self._thread.join()
        self._tickets.close()

    # -- for clients --------------------------------------------------------------------------------------------

    def submit(self, client: Client, given: Submission) -> Ticket:
        """Queue a candidate and return its ticket; it is done at once if the store has the verdict.

        Raises UnknownNameError for a problem that is not served, ArgumentError for a language, text or priority that
        cannot be used, and LimitReached.
        """
        work = self._work(given)
        if not (given.priority <= client.priority):
            remedy = "The server's table of clients has the highest one."
            raise ArgumentError("priority", given.priority, f"at most {client.priority}", remedy)
        named = (uuid.uuid4().hex, client.name, given.problem, given.language, given.variant, given.priority, work.key)
        now = time.time()
        with self._lock:
            if self._found(work.key) is not None:
                ticket = Ticket(*named, state=DONE, submitted=now, finished=now)
                self._tickets.add(ticket)
                return ticket
            if self._tickets.count(client.name) >= client.queued:
                raise LimitReached(f"{client.name} has {client.queued} unfinished submissions. Wait for some of them.")
            ticket = Ticket(*named, text=given.text, submitted=now)
            self._tickets.add(ticket)
            self._queue.put(work, given.priority, client.name)
            self._changed.notify_all()
        return ticket

    def ticket(self, client: Client, name: str) -> Ticket:
        """Return a client's ticket. Raises UnknownNameError if it has none of that id."""
        found = self._tickets.get(name)
        if found is None or found.client != client.name:
            raise UnknownNameError("ticket", repr(name), "an id that this client got", "Submit the candidate again.")
        return found

    def result(self, ticket: Ticket) -> ServiceResult | None:
        """Return what was found for a ticket; None unless it is done."""
        if ticket.state != DONE:
            return None
        found = record("not_judged", ticket.failure) if ticket.failure else self._found(ticket.key)
        if found is None:
            found = record("not_judged", "the store has lost its verdict: submit the candidate again")
        return result_of(ticket.problem, found)

    def stages_so_far(self, ticket: Ticket) -> tuple[VerdictStage, ...]:
        """Return the stages that have ended of a ticket that is judged; a later case may still change them."""
        return self._stages.of(ticket.key) if ticket.state == RUNNING else ()

    def cancel(self, client: Client, name: str) -> Ticket:
        """Cancel a ticket, and end the worker if nobody else waits for its verdict; return the ticket.

        A finished one stays as it is.
        """
        ticket = self.ticket(client, name)
        job = None
        with self._lock:
            if self._tickets.cancel(name) and not self._tickets.of_key(ticket.key):
                job = self._queue.cancel(ticket.key)
        if job is not None and job.future is not None and self._own is not None:
            self._own.end(job.future)
        ticket = self.ticket(client, name)
        self.heard(ticket, None)
        return ticket

    @property
    def load(self) -> tuple[int, int]:
        """Number of judgements that wait, and of those that workers have."""
        with self._lock:
            return self._queue.waiting, len(self._queue.running)

    # -- inside -------------------------------------------------------------------------------------------------

    def _work(self, given: Submission) -> Work:
        problem: Problem | None = self.problems.get(given.problem)
        if problem is None:
            known = ", ".join(self.problems)
            raise UnknownNameError("problem", repr(given.problem), known, "GET /problems lists them.")
        if given.language not in problem.languages:
            remedy = f"That is what {problem.id} takes."
            raise ArgumentError("language", repr(given.language), " or ".join(problem.languages), remedy)
        size = len(given.text.encode(errors="replace"))
        if not given.text.strip() or size > LONGEST_TEXT:
            raise ArgumentError("text", f"{size:,} bytes", f"1 to {LONGEST_TEXT:,}", "Submit one candidate's source.")
        for name, value in (("text", given.text), ("variant", given.variant)):
            if not value.isascii() and value != value.encode(errors="replace").decode():
                raise ArgumentError(name, "half of a surrogate pair", "text that UTF-8 can encode", "Correct the JSON.")
        options = problem.options(self.options.judging, self._secret, given.variant)
        forbidden = self.options.forbidden
        about = (problem.sha256, given.language, given.text, *map(canonical, (options, forbidden, dict(versions()))))
        key = digest("service", *about)
        return Work(key, problem.task(options), given.text, given.language, forbidden, self._stages.file(key))

    def _found(self, key: str) -> Mapping[str, Any] | None:
        return self._verdicts().get([key]).get(key)

    def _resume(self) -> None:
        """Queue what an earlier service left."""
        self._tickets.forget(time.time() - KEPT_DAYS * 86_400)
        for one in self._tickets.unfinished():
            try:
                work = self._work(Submission(one.problem, one.text, one.language, one.variant))
            except ArgumentError as error:  # the problem is gone
                self._tickets.finish(one.key, str(error))
                continue
            self._tickets.rename(one.id, work.key)
            if self._found(work.key) is not None:
                self._tickets.finish(work.key)
            elif one.state == RUNNING and one.attempts >= ATTEMPTS:
                message = f"the server ended {one.attempts} times while this was judged"
                self._verdicts().keep(work.key, record("crashed", message))
                self._tickets.finish(work.key)
            else:
                self._queue.put(work, one.priority, one.client)

    def _submit(self, executor: Executor, job: Job) -> Future[dict[str, Any]]:
        if job.cancelled:
            nothing: Future[dict[str, Any]] = Future()
            nothing.set_result({})
            return nothing
        future = job.future = executor.submit(self._judge, job.work)
        if job.cancelled and self._own is not None:  # since it was asked: `cancel` may not have seen the future
            self._own.end(future)
        return future

    def _dispatch(self) -> None:
        assert self._executor is not None
        most = self.options.workers or (self._own.count if self._own is not None else 1)
        handed: HandedOut[Job, dict[str, Any]]
        handed = HandedOut(self._executor, self._submit, "start the service again.", most)
        try:
            while self._hand_out(handed):
                for job, found, error in handed.take():
                    self._finish(job, found, error)
                    self._stages.forget(job.key)
                self._tell_stages()
        except Exception as error:
            if not self._closing:  # else the workers were ended under it
                self.failure = f"{type(error).__name__}: {error}"
                _log.exception("the service judges no more")
        finally:
            handed.close()

    def _hand_out(self, handed: HandedOut) -> bool:
        """Give jobs to the workers that are free; wait until there is something to do. Return False at the end."""
        with self._lock:
            while not (self._closing or handed.working or self._queue.waiting):
                self._changed.wait()
            jobs = [job for _ in range(handed.room) if not self._closing and (job := self._queue.take())]
            for job in jobs:
                self._tickets.begin(job.key)
        for job in jobs:
            handed.put(job)
            for ticket in self._tickets.of_key(job.key):
                self.heard(ticket, None)
        return not self._closing

    def _tell_stages(self) -> None:
        """Tell who waits for a ticket whose judgement has come to another stage."""
        with self._lock:
            keys = [job.key for job in self._queue.running]
        for key in self._stages.changed(keys):
            for ticket in self._tickets.of_key(key):
                self.heard(ticket, None)

    def _finish(self, job: Job, found: dict[str, Any] | None, error: str) -> None:
        if self._closing:  # its worker was ended
            return
        if found is None:
            lost = error.startswith("the worker")
            found = record("crashed" if lost else "not_judged", error)
        if not found:  # it was cancelled
            with self._lock:
                if job.cancelled:
                    self._queue.done(job)
                else:  # somebody wanted it again while its worker was ended
                    self._queue.put_back(job)
            return
        if is_kept(found):
            self._verdicts().keep(job.key, found)  # without the lock: it waits for the disk
        with self._lock:
            self._queue.done(job)
            waiting = self._tickets.of_key(job.key)
            self._tickets.finish(job.key, "" if is_kept(found) else str(found["message"]))
        for ticket in waiting:
            self.heard(ticket, found)


def _verdicts(local: threading.local, path: Path) -> JudgementStore:
    """Return this thread's connection to the store."""
    if not hasattr(local, "store"):
        local.store = JudgementStore(path)
    found: JudgementStore = local.store
    return found


def _secret(file: Path) -> bytes:
    if not file.exists():
        replace_file(file, secrets.token_bytes(32), durable=True, mode=0o600)
    return file.read_bytes()
