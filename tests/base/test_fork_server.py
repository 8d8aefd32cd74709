"""A fork server's copies: a fresh process each, limits that hold, a named end, and nothing left behind."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import gone

from workbench.base.processes import fork_server
from workbench.base.processes.ending import OUT_OF_MEMORY
from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.process import BadAnswer, ProcessEnded, ProcessStartError, ProcessTimeout

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
        return child.receive(seconds)
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


def test_no_more_is_read_than_was_asked_for(server: ForkServer):
    child = server.fork("dribbles")
    child.request(1 << 62, 60)
    with pytest.raises(BadAnswer, match="at most 67,108,864 are taken"):
        child.json(60)
    child.end()


def test_what_a_copy_leaves_ends_with_it(server: ForkServer):
    assert gone(int(asked(server, "leaves an orphan")))


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
