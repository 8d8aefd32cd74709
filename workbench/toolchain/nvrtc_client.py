"""Compiling with NVRTC in processes of its own: the caller's side of :mod:`workbench.toolchain.nvrtc_server`.

One server for each process, started when it is first needed and again when it is gone. Threads may compile at once; a
fork of this process starts a server of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from workbench.base.worker import how_ended
from workbench.errors import CompileError, CompilerCrash, CompileTimeout, MissingToolError
from workbench.toolchain import nvrtc_server

DEFAULT_SECONDS = 120.0
"""How long one program may take, unless :func:`compile_limit` says otherwise."""

_START_SECONDS = 60.0
_limit: contextvars.ContextVar[float] = contextvars.ContextVar("compile_limit", default=DEFAULT_SECONDS)


@contextlib.contextmanager
def compile_limit(seconds: float) -> Iterator[None]:
    """Within the block, and in this thread, end a compilation with NVRTC after ``seconds``, with CompileTimeout."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


def compile_program(library: str, request: dict[str, Any], label: str) -> dict[str, Any]:
    """What ``nvrtc_server.Library.compile(**request)`` returns, from a process that has compiled nothing before.

    ``label`` names the program in messages. Raises CompileTimeout at the limit, CompilerCrash, CompileError if the
    compiler refuses to work for a reason that is not the program's; MissingToolError if the server cannot be started.
    """
    seconds = _limit.get()
    request = {**request, "folder": _folder()}
    # Once more if the server was killed from outside: it is not the program's doing, so another one can do it.
    for _ in range(2):
        server = _server_of(library)
        data = server.ask(request, time.monotonic() + seconds)
        if data is None:
            raise CompileTimeout(f"NVRTC took longer than {seconds:g} s to compile {label}, and was stopped.")
        answer, rest = nvrtc_server.unframe(data) or (None, data)
        if answer is not None:
            if "error" in answer:
                raise CompileError(f"NVRTC could not compile {label}: {answer['error']}")
            return answer
        if len(rest) == 4:
            status = os.waitstatus_to_exitcode(int.from_bytes(rest, "little"))
            raise CompilerCrash(f"NVRTC crashed while compiling {label}: its process {how_ended(status)}.")
        server.close()  # no word of how the child ended: the server is gone, but may not look so yet
    raise CompileError(f"The process that compiles with NVRTC ended twice while compiling {label}.")


def _folder() -> str:
    """Where relative include paths start; anywhere if this process's folder was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


class _Server:
    """A running server; ``ask`` may be called by several threads."""

    def __init__(self, library: str):
        self.library = library
        self.control, theirs = socket.socketpair()
        with theirs:
            # -P, -s, -S and no PYTHON* variable: only the standard library, whatever the caller's folder and settings
            # are. A session of its own: Ctrl-C is the caller's business.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", nvrtc_server.__file__, library, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            )
        self.control.settimeout(_START_SECONDS)
        data = b""
        while (message := nvrtc_server.unframe(data)) is None:
            try:
                more = self.control.recv(1 << 16)
            except TimeoutError:
                more = b""
            if not more:
                self.close()
                raise MissingToolError(
                    f"the process that compiles with {library} did not start: {sys.executable} exited with status "
                    f"{self.process.returncode}. Its own message, if it had one, is on the standard error output."
                )
            data += more
        self.control.settimeout(None)
        if message[0]:
            self.close()
            raise MissingToolError(f"{library} cannot be loaded: {message[0]}")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def ask(self, request: dict[str, Any], deadline: float) -> bytes | None:
        """All that comes back for a request; None if it does not by ``deadline`` (time.monotonic)."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs, contextlib.suppress(OSError):
                    socket.send_fds(self.control, [b"."], [theirs.fileno()])
                    ours.settimeout(max(deadline - time.monotonic(), 1e-3))
                    nvrtc_server.send(ours, request)
                data = b""
                while True:
                    ours.settimeout(max(deadline - time.monotonic(), 1e-3))
                    try:
                        more = ours.recv(1 << 20)
                    except ConnectionError:
                        more = b""
                    except TimeoutError:
                        return None
                    if not more:
                        return data
                    data += more
            finally:
                # Hanging up ends the child, on Ctrl-C too; close() alone would not if a fork had inherited the socket.
                with contextlib.suppress(OSError):
                    ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server and wait for it."""
        self.control.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_server: _Server | None = None


def _server_of(library: str) -> _Server:
    global _server
    with _lock:
        if _server is None or not _server.running or _server.library != library:
            if _server is not None:
                _server.close()
                _server = None
            _server = _Server(library)
        return _server


@atexit.register
def stop() -> None:
    """End this process's server; the next compile starts another one."""
    if _server is not None:
        _server.close()


def _forget_after_fork() -> None:
    """A forked process may not share its parent's server: it would keep it alive, and cannot see whether it lives."""
    global _server, _lock
    _lock = threading.Lock()
    if _server is not None:
        _server.control.close()
        _server.process.returncode = 0  # not this process's child: nothing to wait for
        _server = None


os.register_at_fork(after_in_child=_forget_after_fork)
