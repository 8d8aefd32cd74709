"""Workers forked with servers of their own share nothing but memory, and leave nothing behind, however they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forked_workers
import pytest
from waiting import gone, wait_until

from workbench.base.processes.executor import OwnProcesses
from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.process import ProcessEnded
from workbench.base.processes.worker import Worker

ALL = ("pid", "orphan", "server", "worker")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer("forked_workers:prepare", scratch="workers-", marked=True)
    yield made
    made.close()


@pytest.fixture
def workers(server: ForkServer) -> Iterator[list[Worker]]:
    made = [Worker(server=server) for _ in range(2)]
    yield made
    for one in made:
        one.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_each_worker_has_a_server_a_folder_and_a_mark_of_its_own(server: ForkServer, workers: list[Worker]):
    found = [one.call(forked_workers.told) for one in workers]
    for one in found:
        assert parent(one["server"]) == one["worker"]
        assert parent(one["worker"]) == server.process.pid
        assert Path(one["folder"]).parent == Path(one["temporary"]) == server.folder / str(one["worker"])
        assert sorted(one["files"]) == ["/dev/null", "pipe", "pipe", "socket"], "a file of another process"
    first, second = (set(one["marks"]) for one in found)
    assert (len(first & second), len(first), len(second)) == (1, 2, 2)
    assert [one.call(forked_workers.told, 5)["printed"] for one in workers] == [5, 5]
    assert [one.call(forked_workers.told)["server"] for one in workers] == [one["server"] for one in found]


def test_a_killed_worker_takes_all_of_its_own_with_it_and_nothing_else(workers: list[Worker], tmp_path: Path):
    before, other = tmp_path / "before", workers[1].call(forked_workers.told, 1)
    with pytest.raises(ProcessEnded, match="SIGKILL"):
        workers[0].call(forked_workers.die, str(before))
    killed = json.loads(before.read_text())
    assert all(gone(killed[name]) for name in ALL), killed
    assert not Path(killed["temporary"]).exists()
    assert not any(gone(other[name]) for name in ALL), other
    assert workers[1].call(forked_workers.told)["server"] == other["server"]
    assert workers[0].call(forked_workers.told)["worker"] != killed["worker"]
    workers[1].close()
    assert all(gone(other[name]) for name in ALL), other


def test_a_lost_server_is_replaced_and_what_it_left_is_ended(workers: list[Worker]):
    before = workers[0].call(forked_workers.told, 1)
    workers[0].call(forked_workers.lose_server)
    after = workers[0].call(forked_workers.told)
    assert (after["worker"], parent(after["server"])) == (before["worker"], before["worker"])
    assert after["server"] != before["server"]
    wait_until(lambda: all(gone(before[name]) for name in ("pid", "orphan")))


def test_a_killed_caller_leaves_no_process_and_no_file(tmp_path: Path):
    command = [sys.executable, forked_workers.__file__]
    caller = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found = json.loads(caller.stdout.readline())
    assert not any(gone(found[name]) for name in (*ALL, "first")), found
    caller.send_signal(signal.SIGKILL)
    caller.communicate()
    wait_until(lambda: all(gone(found[name]) for name in (*ALL, "first")) and not Path(found["of all"]).exists())


def test_tasks_go_to_the_workers_of_their_kind_and_the_servers_end_with_the_executor():
    kinds = {kind: ForkServer("forked_workers:prepare", scratch="workers-", marked=True) for kind in (1, 2)}
    with OwnProcesses(count=1, server=kinds.get) as executor:
        found = [executor.submit(forked_workers.told, kind).result() for kind in (1, 2, 1)]
        parents = [parent(one["worker"]) for one in found]
        assert parents == [kinds[kind].process.pid for kind in (1, 2, 1)]
        assert found[0]["worker"] == found[2]["worker"]
    assert all(gone(one[name]) for one in found for name in ALL)
    assert all(map(gone, parents))
