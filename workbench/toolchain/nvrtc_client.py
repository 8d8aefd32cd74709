"""Compilation with NVRTC in separate processes, each a fork of a server that has loaded it (`nvrtc_library.prepare`).

The server starts on first use, and again if it ended. Several threads may compile at once. A process that has loaded
NVRTC and lives for one program only forks itself instead (`compile_in_own_forks`): a server takes longer to start than
most programs to compile.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import pickle
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.base.processes.fork_server import Child, ForkServer
from workbench.base.processes.own_fork import OwnFork
from workbench.base.processes.process import ProcessEnded, ProcessStartError, ProcessTimeout
from workbench.errors import CompileError, CompilerCrash, CompileTimeout, MissingToolError
from workbench.toolchain import nvrtc_library

DEFAULT_SECONDS = 120.0
"""Seconds that one program may take, unless :func:`compile_limit` sets another limit."""

_limit: contextvars.ContextVar[float] = contextvars.ContextVar("compile_limit", default=DEFAULT_SECONDS)


@contextlib.contextmanager
def compile_limit(seconds: float) -> Iterator[None]:
    """End a compilation with NVRTC after ``seconds``, with CompileTimeout, within the block and in this thread."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


def compile_program(library: str, request: dict[str, Any], label: str) -> dict[str, Any]:
    """Return ``nvrtc_library.Library.compile(**request)``, run in a process that has compiled nothing before.

    ``label`` names the program in messages. Raises CompileTimeout at the limit, CompilerCrash if NVRTC ends its
    process, CompileError if NVRTC fails for a reason other than the program, and MissingToolError if the server cannot
    be started.
    """
    seconds = _limit.get()
    content = pickle.dumps({**request, "folder": _folder()})
    # Once more if the server was killed from outside: the program is not to blame, so a new server can compile it.
    for _ in range(2):
        try:
            child = _fresh(library)
        except ProcessStartError as error:
            raise MissingToolError(f"{library} cannot be loaded: {error}") from error
        try:
            answer = pickle.loads(child.ask(content, seconds))
        except ProcessTimeout:
            raise CompileTimeout(f"NVRTC took longer than {seconds:g} s to compile {label}, and was stopped.") from None
        except ProcessEnded as error:
            if error.status is None:
                continue
            raise CompilerCrash(f"NVRTC crashed while compiling {label}: {error}.") from None
        finally:
            child.end()
        if "error" in answer:
            raise CompileError(f"NVRTC could not compile {label}: {answer['error']}")
        return answer
    raise CompileError(f"The process that compiles with NVRTC ended twice while compiling {label}.")


def _folder() -> str:
    """Return the folder from which relative include paths start; "/" if this process's folder was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


_own_forks = False
_OWN_FORK_BYTES = 1 << 30
"""Address space that a compilation may need; a fork of this process has only what this process leaves of its limit."""


def compile_in_own_forks() -> None:
    """Let this process compile in forks of itself while it has one thread and enough memory, never in itself."""
    global _own_forks
    _own_forks = True


def _fresh(library: str) -> Child | OwnFork:
    """Return a process that has loaded NVRTC and has compiled nothing."""
    if _own_forks and threading.active_count() == 1 and _room() >= _OWN_FORK_BYTES:
        return OwnFork(nvrtc_library.prepare(library)("compile"))
    return _server_of(library).fork("compile")


def _room() -> int:
    """Return how many bytes of address space this process may still take."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    return limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


_lock = threading.Lock()
_server: tuple[str, ForkServer] | None = None


def _server_of(library: str) -> ForkServer:
    global _server
    with _lock:
        if _server is None or _server[0] != library:
            stop()
            _server = library, ForkServer(f"{nvrtc_library.__file__}:prepare", library, bare=True)
        return _server[1]


def stop() -> None:
    """End this process's server; the next compilation starts another one."""
    if _server is not None:
        _server[1].close()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held the old one


os.register_at_fork(after_in_child=_forget_after_fork)
