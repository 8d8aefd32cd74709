"""Work of the processes that tests/base/test_fork_server.py forks, by the names of their roles."""

import os
import signal
import sys
import time

from workbench.base.processes import forking


def prepare():
    ready = [os.getpid()]
    roles = {
        "answers": lambda request, send: send(repr((request, ready, os.getppid())).encode()),
        "exits": lambda request, send: os._exit(request),
        "crashes": lambda request, send: signal.raise_signal(signal.SIGSEGV),
        "raises": lambda request, send: 1 / 0,
        "hangs": lambda request, send: signal.pause(),
        "allocates": lambda request, send: send(str(len(bytes(request))).encode()),
        "dribbles": dribble,
        "burns": burn,
        "floods": flood,
        "leaves an orphan": leave,
    }
    return roles.__getitem__


def prepare_helpless():
    """Return the roles of a server that finds a process which it cannot kill."""
    forking._KILLED_SECONDS = 0.5
    forking._orphans = lambda copies: [1 << 30]
    return prepare()


def refuse():
    raise ValueError("there is nothing to prepare")


def burn(request, send):
    """Compute for ever: 0 in this process, 1 in one that it starts."""
    if request == 1 and os.fork():
        os.wait()
    while True:
        pass


def flood(request, send):
    for _ in range(request >> 20):
        os.write(1, b"A" * (1 << 20))
    os.write(1, b"the end\n")
    send(b"done")


def says_and_ends(channel, count):
    sys.stdout.write("A" * count + "\nlast words\n")
    sys.stdout.flush()
    os._exit(7)


def dribble(request, send):
    """Begin an answer of so many bytes, and go on for ever without an end."""
    connection = send.__self__.socket
    connection.sendall(request.to_bytes(8, "little"))
    while True:
        connection.sendall(b".")
        time.sleep(0.02)


def leave(request, send):
    """Leave a process without a parent, in a session of its own, with nothing in its environment, that has stopped."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        program = f"import os, signal; os.write({writer}, str(os.getpid()).encode()); os.kill(os.getpid(), 19)"
        if os.fork() == 0:
            os.set_inheritable(writer, True)
            os.execve(sys.executable, [sys.executable, "-S", "-c", program], {})
        os._exit(0)
    os.wait()
    send(os.read(reader, 20))
