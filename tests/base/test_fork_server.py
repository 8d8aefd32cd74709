"""A fork server's copies: a fresh process each, limits that hold, a named end, and nothing left behind."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import gone, wait_until

from workbench.base.busy import told
from workbench.base.processes import fork_server
from workbench.base.processes.deadline import Deadline
from workbench.base.processes.ending import OUT_OF_MEMORY
from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.output import KEPT_BYTES
from workbench.base.processes.process import BadAnswer, Process, ProcessEnded, ProcessStartError, ProcessTimeout

ROLES = Path(__file__).with_name("forked.py")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer(f"{ROLES}:prepare", bare=True)
    yield made
    made.close()


def asked(server: ForkServer, role: str, request: object = None, seconds: float = 60, memory_mib: int | None = None):
    child = server.fork(role, memory_mib)
    try:
        child.request(request, seconds)
        return child.receive(Deadline(seconds))
    finally:
        child.end()
        assert gone(child.number)


def test_each_copy_is_another_one_of_what_was_prepared_once(server: ForkServer):
    answers = [ast.literal_eval(asked(server, "answers", at).decode()) for at in range(3)]
    assert [request for request, _, _ in answers] == [0, 1, 2]
    assert {(*ready, parent) for _, ready, parent in answers} == {(server.process.pid,) * 2}


def test_several_threads_ask_at_once(server: ForkServer):
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda at: ast.literal_eval(asked(server, "answers", at).decode())[0], range(12))
        assert list(found) == list(range(12))


@pytest.mark.parametrize(
    ("role", "request_", "said", "status"),
    [
        ("exits", 3, "exited with status 3", 3),
        ("crashes", None, "ended by SIGSEGV", -signal.SIGSEGV),
        ("raises", None, "exited with status 1", 1),
        ("allocates", 1 << 30, "ran out of memory", OUT_OF_MEMORY),
    ],
)
def test_how_a_copy_ended_is_said(server: ForkServer, role: str, request_: object, said: str, status: int):
    with pytest.raises(ProcessEnded, match=said) as raised:
        asked(server, role, request_, memory_mib=128)
    assert raised.value.status == status
    assert asked(server, "allocates", 1 << 20, memory_mib=128) == b"1048576", "it costs no other"


@pytest.mark.parametrize(("role", "request_"), [("hangs", None), ("dribbles", 1 << 20)])
def test_a_limit_holds_for_the_whole_answer(server: ForkServer, role: str, request_: object):
    with pytest.raises(ProcessTimeout, match=r"stopped after 0\.3 s"):
        asked(server, role, request_, seconds=0.3)


def judged(server: ForkServer, role: str, request: object, seconds: float) -> str:
    child = server.fork(role)
    try:
        child.request(request, seconds)
        with pytest.raises(ProcessTimeout) as raised:
            child.json(seconds)
        return str(raised.value)
    finally:
        child.end()


def test_a_limit_of_cpu_time_ends_what_computes_and_later_what_waits(server: ForkServer):
    begun = time.monotonic()
    assert judged(server, "burns", 0, 0.5).startswith("stopped after 0.5 s of CPU time")
    assert judged(server, "burns", 1, 0.5).startswith("stopped after 0.5 s of CPU time"), "so does what it started"
    assert time.monotonic() - begun >= 0.9
    begun = time.monotonic()
    assert re.match(
        r"stopped after \S+ s, \d+ times the limit, with 0\S* s of CPU time: it waited",
        judged(server, "hangs", 0, 0.25),
    )
    assert time.monotonic() - begun >= 1


@pytest.mark.parametrize(
    ("used", "passed", "words"),
    [
        (1.0, 1.2, "1 s of CPU time"),
        (1.0, 3.1, r"1 s of CPU time; 3\.1 s passed: the machine was busy \(load \S+ on \d+ cores\)"),
        (0.2, 4.5, r"4\.5 s, 4 times the limit, with 0\.2 s of CPU time: it waited, .* \(load \S+ on \d+ cores\)"),
    ],
)
def test_a_limit_says_how_busy_the_machine_was(used: float, passed: float, words: str):
    assert re.fullmatch(words, told(1.0, used, passed))


def test_output_is_counted_and_its_end_kept(server: ForkServer):
    before = server.printed
    begun = set(Path(f"/proc/{os.getpid()}/fd").iterdir())
    child = server.fork("floods")
    child.request(30 << 20, 60)
    child.receive(Deadline(60))
    wait_until(lambda: server.printed - before >= 30 << 20)
    output = server.process._output
    assert len(output._kept) <= 2 * KEPT_BYTES
    assert output.text().endswith("AAAthe end\n")
    child.end()
    assert server.printed - before == (30 << 20) + len("the end\n")
    assert len(set(Path(f"/proc/{os.getpid()}/fd").iterdir()) - begun) == 0


def test_the_end_of_the_output_is_in_the_error_of_a_process_that_ends():
    process = Process(f"{ROLES}:says_and_ends", 3 << 20)
    with pytest.raises(ProcessEnded, match=r"exited with status 7\n.*\nlast words$") as raised:
        process.receive(Deadline(60))
    assert len(str(raised.value)) < 5000
    assert process.printed == (3 << 20) + len("\nlast words\n")


def test_no_more_is_read_than_was_asked_for(server: ForkServer):
    child = server.fork("dribbles")
    child.request(1 << 62, 60)
    with pytest.raises(BadAnswer, match="at most 67,108,864 are allowed"):
        child.json(60)
    child.end()


def test_what_a_copy_leaves_ends_with_it(server: ForkServer):
    assert gone(int(asked(server, "leaves an orphan")))


def test_a_server_that_cannot_end_what_a_copy_left_is_replaced():
    with contextlib.closing(ForkServer(f"{ROLES}:prepare_helpless", bare=True)) as server:
        asked(server, "answers")
        assert server.process is None
        asked(server, "answers")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_does_not_answer_is_replaced(server: ForkServer, monkeypatch: pytest.MonkeyPatch, sent: int):
    asked(server, "answers")
    child, before = server.fork("hangs"), server.process.pid
    monkeypatch.setattr(fork_server, "REPLY_SECONDS", 0.3)
    os.kill(before, sent)
    with pytest.raises(ProcessEnded, match="the process that forked it ended"):
        raise child.ended()
    monkeypatch.undo()
    asked(server, "answers")
    assert server.process.pid != before
    assert gone(before)
    assert gone(child.number)


def test_what_cannot_be_prepared_is_said():
    with pytest.raises(ProcessStartError, match="ValueError: there is nothing to prepare"):
        ForkServer(f"{ROLES}:refuse").fork("answers")
