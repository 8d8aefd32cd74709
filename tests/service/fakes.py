"""Judging functions for tests of the queue: a candidate's text says what becomes of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.forking import Main
from workbench.base.processes.worker import work
from workbench.judge.verdict import Judgement, Verdict
from workbench.service.judging import Work, record
from workbench.service.progress import write_stages
from workbench.service.stages import VerdictStage


def fake(work: Work) -> dict[str, Any]:
    """Obey a text: an outcome, ``stage``, ``sleep``, ``die``, ``fail``, ``wait FILE``; ``log FILE`` notes the call."""
    outcome, stages = "ok", []
    for word, _, rest in (line.partition(" ") for line in work.text.splitlines()):
        if word == "log":
            with Path(rest).open("a") as file:
                file.write(f"{work.text.splitlines()[-1]}\n")
        elif word == "stage":
            stages.append(VerdictStage(rest, "passed", 1.0, 0.5))
            write_stages(work.told, stages)
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "wait":
            while not Path(rest).exists():
                time.sleep(0.01)
        elif word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "fail":
            raise ValueError("the problem is broken")
        elif word == "outcome":
            outcome = rest
    verdict = Verdict("twice", "kernel", "small", {}, outcome, "" if outcome == "ok" else f"it is {outcome}")
    return record(outcome, verdict.message, (), Judgement("twice", "candidate.py", (verdict,)))


class KeptServer(ForkServer):
    """Forks workers that have imported this module, for one executor after the other: only its own end closes it."""

    def __init__(self) -> None:
        super().__init__(f"{__name__}:prepare", marked=True)

    def close(self) -> None:
        """Forget a server that has ended; leave one that runs to the next executor."""
        if self.process is None or not self.process.running:
            super().close()


def prepare() -> Callable[[str], Main]:
    """Return the function of a copy in a role, which is that of a worker."""
    return lambda role: work
