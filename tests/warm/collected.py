"""The tests, collected once for all workers of pytest-xdist, each of which is a fork of the process that did so.

It does what a worker does up to its first test, with a list in place of the channel to the process that leads the run;
a fork sends what is in the list, and goes on.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import execnet
import pytest
from _pytest.config import _prepareconfig


class Events(list):
    """Stands for a channel: keeps what is sent."""

    gateway = SimpleNamespace(execmodel=execnet.gateway_base.get_execmodel("main_thread_only"))
    send = list.append


_interactor: Any = None


def collect(arguments: list[str], path: list[str], workers: int, argv: list[str]) -> None:
    """Collect as a worker would, in the current folder."""
    global _interactor
    os.environ |= {"PYTEST_XDIST_WORKER": "collects", "PYTEST_XDIST_WORKER_COUNT": str(workers)}
    sys.path[:] = path
    config = _prepareconfig(arguments, None)
    from xdist import remote  # not before its assertions can be rewritten

    remote.setup_config(config, None)
    config.workerinput = {"workerid": "collects", "workercount": workers, "testrunuid": "", "mainargv": argv}
    config.workeroutput = {}
    remote.interactor = _interactor = remote.WorkerInteractor(config, Events())
    config._do_configure()
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)
    config.hook.pytest_collection(session=session)
    config.pluginmanager.getplugin("capturemanager").stop_global_capturing()


def work(channel: execnet.Channel) -> None:
    """Run what the other side of the channel asks for, to the end of the session. For a fork."""
    workerinput, _, options, _ = channel.receive()
    session, config, events = _interactor.session, _interactor.config, _interactor.channel
    config.workerinput.update(workerinput)
    names = {"TESTRUNUID": "testrunuid", "WORKER": "workerid", "WORKER_COUNT": "workercount"}
    os.environ |= {f"PYTEST_XDIST_{name}": str(workerinput[key]) for name, key in names.items()}
    _interactor.workerid, _interactor.testrunuid = workerinput["workerid"], workerinput["testrunuid"]
    if options.get("basetemp"):
        config._tmp_path_factory._given_basetemp = Path(options["basetemp"])
    random.seed()
    faulthandler.enable(file=os.dup(2))
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.start_global_capturing()  # into files of its own
    capture.suspend_global_capture()
    _interactor.channel = channel
    for event in events:
        channel.send(event)
    status = _status(session, config)
    config.hook.pytest_sessionfinish(session=session, exitstatus=status)
    config._ensure_unconfigure()


def _status(session: pytest.Session, config: pytest.Config) -> Any:
    """Run the tests, and tell an interruption and an error outside of them, as `_pytest.main.wrap_session` does."""
    try:
        _interactor.pytest_runtestloop(session)
    except (KeyboardInterrupt, pytest.exit.Exception):
        return pytest.ExitCode.INTERRUPTED
    except session.Failed:
        return pytest.ExitCode.TESTS_FAILED
    except BaseException:
        config.notify_exception(pytest.ExceptionInfo.from_current(), config.option)
        return pytest.ExitCode.INTERNAL_ERROR
    return pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
