"""The threads of launches: kept for the next one, no more than there are processors, and none over a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx

_FILL = module(
    "fill", ".param .u64 out",
    """ld.param.u64 %d1, [out]; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5; mad.wide.u32 %d2, %r6, 4, %d1; st.global.u32 [%d2], %r6;""",
)  # fmt: skip
_PROCESSORS = len(os.sched_getaffinity(0))


def fill(threads: int) -> None:
    out = np.zeros(64 * 32, np.uint32)
    report = ptx.Program.from_text(_FILL)["fill"].launch(64, 32, [out], threads=threads)
    assert report.threads == threads
    assert out.tolist() == list(range(64 * 32))


def threads_now() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.fixture
def others() -> set[str]:
    """The threads of this process that are not the machine's."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return threads_now()


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_threads_are_kept_for_the_next_launch(threads: int, others: set[str]) -> None:
    fill(threads)
    kept = threads_now() - others
    expected = 0 if threads == 1 else min(threads, _PROCESSORS)  # one works in the calling thread
    assert len(kept) == expected
    for _ in range(5):
        fill(threads)
    assert kept <= threads_now(), "a thread of the first launch has ended"
    assert len(threads_now() - others) == expected


def in_child(work) -> int:
    """Do the work in a child and return its exit status; -SIGKILL after ten seconds."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_starts_threads_of_its_own(others: set[str]) -> None:
    fill(2)

    def work() -> None:
        assert len(threads_now()) == 1
        fill(3)
        fill(3)
        assert len(threads_now()) == 1 + min(3, _PROCESSORS)

    assert in_child(work) == 0
    assert threads_now() == others
    fill(2)


def test_forks_while_others_launch() -> None:
    fill(2)  # a child of a process that imports never gets what its other threads were importing
    over = threading.Event()

    def launch() -> None:
        while not over.is_set():
            fill(2)

    launching = threading.Thread(target=launch)
    launching.start()
    try:
        assert [in_child(lambda: fill(2)) for _ in range(20)] == [0] * 20
    finally:
        over.set()
        launching.join()


@pytest.mark.parametrize(
    "end", ["", "import os; os.fork() and os.wait()", "import threading as t; t.Thread(target=go).start()"]
)
def test_a_process_ends_with_threads_kept(end: str) -> None:
    program = f"import test_workers\ndef go():\n    for _ in range(50): test_workers.fill(2)\ngo()\n{end}"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
