"""The process that imports, then forks one for each client: ``server.py SOCKET RUN READY WHAT...``.

It imports modules, or what pytest collects (collected.py), and ends when the process RUN has ended. A fork whose client
is gone is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
from typing import Any

SECONDS = 1.0
"""Between two looks at whether the run goes on."""
COLLECTED = "collected"
"""The kind of server that has collected the tests."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def load(kind: str, modules: list[str]) -> None:
    """Import modules, as far as they are installed."""
    if kind == "gpu":
        from workbench.driver.torch_device import library, starting

        starting.exchange_operators(library.installed_torch())
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    if "triton" in sys.modules:
        sys.modules["triton"].runtime.cache.triton_key()  # reads all of Triton, 461 MB, and is kept
    gc.collect()
    gc.freeze()


def serve(listening: socket.socket, run: int, ready: int) -> dict[str, Any]:
    """Fork until the run ends. Returns in a fork alone, with the request."""
    os.close(ready)
    with selectors.DefaultSelector() as waiting:
        waiting.register(listening, selectors.EVENT_READ)
        while os.path.exists(f"/proc/{run}"):
            for key, _ in waiting.select(SECONDS):
                if key.fileobj is listening:
                    client, _ = listening.accept()
                    if (request := _forked(client, waiting)) is not None:
                        listening.close()
                        return request
                elif key.data is not None:
                    _end(key.data, waiting)
    os._exit(0)


def _forked(client: socket.socket, waiting: selectors.BaseSelector) -> dict[str, Any] | None:
    """Fork for a client; return its request in the fork."""
    head, streams, _, _ = socket.recv_fds(client, 8, 3)
    if len(head) < 8:
        client.close()
        return None
    with client.makefile("rb") as received:
        text = received.read(int.from_bytes(head, "little"))
    server, number = os.getpid(), os.fork()
    if number == 0:
        for key in list(waiting.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif isinstance(key.fileobj, int):
                os.close(key.fileobj)
        client.close()
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
            os.close(stream)
        return json.loads(text)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(number)
    child = (number, client, ended)
    waiting.register(client, selectors.EVENT_READ, child)
    waiting.register(ended, selectors.EVENT_READ, child)
    client.sendall(f"{number}\n".encode())
    return None


def _end(child: tuple[int, socket.socket, int], waiting: selectors.BaseSelector) -> None:
    """Report how a fork ended, or kill it, because its client is gone."""
    number, client, ended = child
    if client not in {key.fileobj for key in waiting.get_map().values()}:
        return  # both have happened
    found, status = os.waitpid(number, os.WNOHANG)
    if not found:
        os.killpg(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
    waiting.unregister(client)
    waiting.unregister(ended)
    os.close(ended)
    with contextlib.suppress(OSError):
        client.sendall(f"{status}\n".encode())
    client.close()


def become(request: dict[str, Any], kind: str) -> None:
    """Run what the client was given, as a Python of its own would."""
    os.chdir(request["folder"])
    if kind != COLLECTED:  # else what the tests' modules have set stays
        os.environ.clear()
    os.environ.update(request["variables"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
        raw = open(descriptor, "wb", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
        at_once = name == "stderr" or raw.isatty()
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=at_once, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    words = request["words"]
    if words[:2] == ["-m", "ipykernel_launcher"]:
        os.environ.setdefault(
            "MPLBACKEND", "module://matplotlib_inline.backend_inline"
        )  # as a kernel does, too late here
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "matplotlib" in sys.modules and os.environ.get("MPLBACKEND"):  # which it reads when it is imported
        sys.modules["matplotlib"].rcParams["backend"] = os.environ["MPLBACKEND"]
    sys.path_importer_cache.clear()
    sys.orig_argv[:] = [sys.executable, *words]
    try:
        _run(*words)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (
            __file__,
            runpy.run_path.__code__.co_filename,
        ):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _run(first: str, *words: str) -> None:
    """Run ``-m MODULE``, ``-c PROGRAM`` or a file with its arguments; ``-u``, which execnet gives, changes nothing."""
    if first == "-u":
        _run(*words)
    elif first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *words[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        sys.argv[:] = [first, *words]
        runpy.run_path(first, run_name="__main__")


def main(path: str, run: str, ready: str, *what: str) -> None:
    """Load, serve, and be what a client asks for."""
    kind = os.path.basename(path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    if kind == COLLECTED:
        sys.path[0] = os.path.dirname(os.path.dirname(__file__))
        from warm import collected

        collected.collect(**json.loads(what[0]))
    else:
        del sys.path[0]  # this file's folder
        load(kind, list(what))
    become(serve(listening, int(run), int(ready)), kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
