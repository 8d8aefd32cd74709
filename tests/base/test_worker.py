"""A worker answers, and a call that hangs, crashes or exits costs that call and nothing else."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import gone, wait_until

from workbench.base.processes.process import Process, ProcessEnded, ProcessStartError, ProcessTimeout
from workbench.base.processes.worker import RemoteError, Worker
from workbench.errors import ConfigurationError


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


def test_calls_are_answered_by_one_process_that_stays(worker: Worker):
    pids = {worker.call(os.getpid) for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}
    assert worker.call(os.getsid, 0) in pids, "Ctrl-C in the caller's terminal does not reach it"


def test_exceptions_come_back(worker: Worker):
    with pytest.raises(ValueError, match="invalid literal"):
        worker.call(int, "x")
    with pytest.raises(RemoteError, match="ConfigurationError: config: got 1; allowed: 2"):
        worker.call(refuse)


def refuse() -> None:
    raise ConfigurationError("config", 1, "2", "Choose it.")


def test_a_result_that_cannot_be_sent_is_an_error_and_the_process_stays(worker: Worker):
    before = worker.call(os.getpid)
    with pytest.raises(RemoteError, match="cannot pickle"):
        worker.call(threading.Lock)
    assert worker.call(os.getpid) == before


def test_closing_ends_a_call_that_begins_at_the_same_time():
    for _ in range(8):
        worker = Worker()
        call = threading.Thread(target=_paused, args=(worker,))
        call.start()
        wait_until(functools.partial(_ended, worker, call))  # the call may begin after the worker was closed


def _paused(worker: Worker) -> None:
    with contextlib.suppress(ProcessEnded, ProcessStartError):
        worker.call(signal.pause)


def _ended(worker: Worker, call: threading.Thread) -> bool:
    worker.close()
    return not call.is_alive()


def test_what_hangs_is_ended_at_its_limit_and_the_next_call_has_a_new_process(worker: Worker):
    before = worker.call(os.getpid)
    with pytest.raises(ProcessTimeout, match=r"stopped after 0\.2 s, in pause"):
        worker.call(signal.pause, seconds=0.2)
    wait_until(lambda: gone(before))
    assert worker.call(os.getpid) != before


@pytest.mark.parametrize(
    ("call", "said"),
    [((signal.raise_signal, signal.SIGSEGV), "ended by SIGSEGV"), ((os._exit, 3), "exited with status 3")],
)
def test_a_crash_says_how_it_ended(worker: Worker, call, said: str):
    with pytest.raises(ProcessEnded, match=said):
        worker.call(*call)
    assert worker.call(os.getpid)


def test_a_crash_tells_the_last_words(worker: Worker):
    with pytest.raises(ProcessEnded, match="exited with status 1\nlast words"):
        worker.call(say_and_exit, "last words")


def say_and_exit(text: str) -> None:
    print(text, flush=True)
    os._exit(1)


def test_a_process_that_cannot_start_is_another_error():
    with Worker(["workbench.no_such_module"]) as worker, pytest.raises(ProcessStartError, match="no_such_module"):
        worker.call(os.getpid)


def test_ctrl_c_in_the_caller_ends_the_call(worker: Worker):
    before = worker.call(os.getpid)
    main = threading.main_thread().ident
    threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        worker.call(signal.pause)
    assert worker.call(os.getpid) != before, "or its answer would be taken for the next one's"


def test_it_ends_with_a_caller_that_was_killed(tmp_path: Path):
    program = """
import signal
import socket
from workbench.base.processes.worker import Worker
worker = Worker()
print(worker.call(__import__("os").getpid), flush=True)
worker.call(signal.pause)
"""
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(caller.stdout.readline())
    caller.kill()
    caller.communicate()
    wait_until(lambda: gone(pid))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [("worker:serve", ([], os.getpid())), ("forking:serve", (f"{__file__}:prepare_nothing", [], "", ""))],
)
def test_a_process_whose_caller_is_gone_before_it_is_ready_says_nothing(function: str, arguments: tuple):
    process = Process(f"workbench.base.processes.{function}", *arguments)
    process._channel.close()
    process._popen.wait()
    process.end()
    assert process._output.text() == ""


def prepare_nothing():
    return lambda role: None
