"""Workers that a server forks, each with a server of its own forked from itself, for tests/base/test_forked_workers.py.

The judge's are like this; these import nothing that takes seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.forking import own_folder
from workbench.base.processes.worker import work

kept = []
own_server = ForkServer(f"{__name__}:roles", scratch="own-", marked=True)


def prepare(folder):
    def role(name):
        own_folder(folder)
        own_server.start_as_fork(roles)
        return work

    return role


def roles(folder):
    def told(request, send):
        os.write(1, b"A" * request)
        orphan = leave() if request else 0
        files = [os.readlink(f"/proc/self/fd/{name}").partition(":")[0] for name in os.listdir("/proc/self/fd")[:-1]]
        environment = Path("/proc/self/environ").read_text().split("\0")
        marks = sorted(one for one in environment if one.startswith("WORKBENCH_PROCESS_"))
        send(json.dumps({"pid": os.getpid(), "files": files, "marks": marks, "orphan": orphan}).encode())

    return lambda name: told


def leave() -> int:
    """Start a process that nothing connects with this one; return its number."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (pid := os.fork()) == 0:
            time.sleep(3600)
        os.write(write, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))


def told(printed: int = 0) -> dict:
    """In a worker: return facts of it, of its server, and of a copy of that, which may print and leave an orphan."""
    child, before = own_server.fork("told"), own_server.printed
    child.request(printed, 60)
    found = child.json(60)
    found |= {"worker": os.getpid(), "server": own_server.process.pid, "folder": str(own_server.folder)}
    found |= {"printed": own_server.printed - before, "temporary": tempfile.gettempdir()}
    if printed:
        kept.append(child)
    else:
        child.end()
    return found


def die(said: str) -> None:
    """In a worker: leave an orphan of a copy, write the facts to a file, and be killed."""
    Path(said).write_text(json.dumps(told(1)))
    os.kill(os.getpid(), signal.SIGKILL)


def lose_server() -> None:
    """In a worker: kill its server."""
    os.kill(own_server.process.pid, signal.SIGKILL)


if __name__ == "__main__":  # a caller that is killed
    import forked_workers

    from workbench.base.processes.worker import Worker

    server = ForkServer("forked_workers:prepare", scratch="workers-", marked=True)
    worker = Worker(server=server)
    found = worker.call(forked_workers.told, 1)
    print(json.dumps(found | {"first": server.process.pid, "of all": str(server.folder)}), flush=True)
    sys.stdin.read()
