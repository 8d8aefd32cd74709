"""Tickets, priorities, limits, cancelling, restarts: the service with a judging function that obeys its candidates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import warm
from fakes import KeptServer, fake

from workbench.base.processes.executor import OwnProcesses
from workbench.base.processes.fork_server import ForkServer
from workbench.errors import ArgumentError, UnknownNameError
from workbench.service import Client, LimitReached, Problems, Service, ServiceOptions, Submission, Ticket
from workbench.service.rewards import ServiceResult
from workbench.service.tickets import ATTEMPTS, Tickets

CLIENT = Client("tests", "a-token-for-tests", queued=40, priority=5)
OTHER = Client("others", "another-token-for-tests", queued=2)
SECONDS = 60


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    """Workers are forks, as the judge's are: else each service starts processes that import torch for seconds."""
    server = KeptServer()
    with pytest.MonkeyPatch.context() as patch:
        made = lambda judge, count: OwnProcesses(count=count, server=lambda work: server)  # noqa: E731
        patch.setattr("workbench.service.service.own_processes", made)
        yield
    ForkServer.close(server)


@pytest.fixture(scope="module")
def problems() -> Problems:
    return Problems([f"{Path(__file__).parent}/served_ops.py:twice"])


@pytest.fixture
def start(problems: Problems, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def begin(workers: int = 1) -> Service:
        made.append(Service(tmp_path / "state", problems, ServiceOptions(workers=workers), judge=fake))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def submit(service: Service, text: str, client: Client = CLIENT, priority: int = 0) -> Ticket:
    return service.submit(client, Submission("twice", text, priority=priority))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def finished(service: Service, ticket: Ticket, client: Client = CLIENT) -> ServiceResult:
    until(lambda: service.ticket(client, ticket.id).is_finished)
    found = service.result(service.ticket(client, ticket.id))
    assert found is not None
    return found


def test_a_verdict_is_kept_and_answers_the_same_text_at_once(start, tmp_path):
    service, log = start(), tmp_path / "log"
    text = f"log {log}\noutcome race"
    first = submit(service, text)
    assert first.state == "queued"
    result = finished(service, first)
    again = submit(service, text)
    assert again.state == "done"
    assert service.result(again) == result
    assert submit(service, f"{text}\n").state == "queued"
    assert log.read_text().count("race") == 1 or finished(service, submit(service, f"{text}\n"))


def test_two_tickets_share_a_judgement_that_runs(start, tmp_path):
    service, log, gate = start(), tmp_path / "log", tmp_path / "gate"
    text = f"log {log}\nwait {gate}\noutcome ok"
    tickets = [submit(service, text) for _ in range(3)]
    service.cancel(CLIENT, tickets[0].id)
    gate.touch()
    assert finished(service, tickets[1]) == finished(service, tickets[2])
    assert service.ticket(CLIENT, tickets[0].id).state == "cancelled"
    assert log.read_text().splitlines() == ["outcome ok"]


def test_higher_priorities_come_first_and_clients_take_turns(start, tmp_path):
    service, log, gate = start(), tmp_path / "log", tmp_path / "gate"
    blocker = submit(service, f"wait {gate}")
    until(lambda: service.load == (0, 1))
    tickets = [submit(service, f"log {log}\n# a {number}") for number in range(4)]
    tickets += [submit(service, f"log {log}\n# urgent", priority=5)]
    others = [submit(service, f"log {log}\n# b {number}", OTHER) for number in range(2)]
    gate.touch()
    for one in (blocker, *tickets):
        finished(service, one)
    for one in others:
        finished(service, one, OTHER)
    assert log.read_text().splitlines() == ["# urgent", "# a 0", "# b 0", "# a 1", "# b 1", "# a 2", "# a 3"]


def test_a_client_has_limits_of_its_own(start, tmp_path):
    service, gate = start(), tmp_path / "gate"
    held = [submit(service, f"wait {gate}\n# {number}", OTHER) for number in range(2)]
    with pytest.raises(LimitReached, match="others has 2 unfinished"):
        submit(service, "outcome ok", OTHER)
    with pytest.raises(ArgumentError, match="priority: got 1; allowed: at most 0"):
        submit(service, "outcome ok", OTHER, priority=1)
    with pytest.raises(UnknownNameError):
        service.ticket(CLIENT, held[0].id)
    service.cancel(OTHER, held[0].id)
    submit(service, "outcome ok", OTHER)
    gate.touch()


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        (Submission("thrice", "x"), "problem"),
        (Submission("twice", "x", "rust"), "language"),
        (Submission("twice", " \n"), "text"),
        (Submission("twice", "#" * (1 << 20)), "text"),
    ],
)
def test_what_cannot_be_judged_is_refused(start, given, argument):
    with pytest.raises(ArgumentError, match=argument):
        start().submit(CLIENT, given)


def test_a_cancelled_judgement_frees_its_worker(start):
    service = start()
    hanging = submit(service, "sleep 3600")
    until(lambda: service.load == (0, 1))
    assert service.cancel(CLIENT, hanging.id).state == "cancelled"
    assert finished(service, submit(service, "outcome ok")).ok
    waiting = submit(service, "sleep 3600\n# submitted again")
    service.cancel(CLIENT, waiting.id)
    assert service.cancel(CLIENT, waiting.id).state == "cancelled"


def test_a_judgement_that_is_cancelled_while_it_is_handed_out_frees_its_worker(start, monkeypatch):
    service, given, known = start(), OwnProcesses.submit, threading.Event()
    tickets: list[Ticket] = []

    def cancelled_meanwhile(self, *arguments):
        future = given(self, *arguments)
        assert known.wait(SECONDS)
        while tickets:  # before the service notes the future
            service.cancel(CLIENT, tickets.pop().id)
        return future

    monkeypatch.setattr(OwnProcesses, "submit", cancelled_meanwhile)
    tickets.append(submit(service, "sleep 3600"))
    known.set()
    assert finished(service, submit(service, "outcome ok")).ok


def test_a_worker_that_dies_costs_one_verdict(start):
    service = start(workers=2)
    tickets = [submit(service, text) for text in ("die", *(f"sleep 0.1\n# {number}" for number in range(6)))]
    first, *others = [finished(service, one) for one in tickets]
    assert first.outcome == "crashed"
    assert "ended, 2 times" in first.message
    assert all(one.ok for one in others)
    assert service.failure == ""


def test_workers_of_another_executor_judge(problems, tmp_path):
    """A pool does not tell which task ended a worker: the service finds it, and nothing else is lost."""
    options = ServiceOptions(workers=2)
    with ProcessPoolExecutor(2, warm.pools()) as pool, Service(tmp_path, problems, options, pool, fake) as service:
        tickets = [submit(service, text) for text in ("# 1", "die", "# 2", "outcome race")]
        found = [finished(service, one).outcome for one in tickets]
    assert found == ["ok", "crashed", "ok", "race"]


def test_a_client_of_dask_is_no_executor(problems, tmp_path):
    with pytest.raises(ArgumentError, match="executor: got str"):
        Service(tmp_path, problems, executor="tcp://127.0.0.1:8786", judge=fake)


def test_a_failing_problem_is_not_held_against_the_candidate(start):
    service = start()
    result = finished(service, submit(service, "fail"))
    assert (result.outcome, result.message) == ("not_judged", "ValueError: the problem is broken")
    assert submit(service, "fail").state == "queued", "it is judged again"


def test_a_restart_loses_nothing(start, tmp_path):
    gate = tmp_path / "gate"
    service = start()
    done = submit(service, "outcome fault")
    assert finished(service, done).outcome == "fault"
    running = submit(service, f"wait {gate}")
    until(lambda: service.load == (0, 1))
    waiting = submit(service, "outcome barrier")
    service.close()
    service = start()
    assert service.result(service.ticket(CLIENT, done.id)).outcome == "fault"
    gate.touch()
    assert finished(service, running).ok
    assert finished(service, waiting).outcome == "barrier"


def test_a_candidate_that_ends_the_server_is_given_up(start, tmp_path):
    service = start()
    running = submit(service, "sleep 3600")
    until(lambda: service.load == (0, 1))
    service.close()
    tickets = Tickets(tmp_path / "state" / "tickets.sqlite")
    for _ in range(ATTEMPTS - 1):
        tickets.begin(running.key)
    tickets.close()
    result = finished(start(), running)
    assert (result.outcome, result.judgement) == ("crashed", None)
    assert f"ended {ATTEMPTS} times" in result.message


def test_a_problem_that_is_served_no_more_is_reported(start, tmp_path):
    service = start()
    submit(service, "sleep 3600")
    waiting = submit(service, "outcome ok")
    service.close()
    others = Problems(["puzzle:guard"])
    with Service(tmp_path / "state", others, judge=fake) as service:
        result = finished(service, waiting)
    assert result.outcome == "not_judged"
    assert "puzzle/guard" in result.message
