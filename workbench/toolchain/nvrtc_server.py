"""The process that NVRTC compiles in: it loads the library, compiles nothing itself, and forks a child per program.

What NVRTC (13.0.88) makes of a source depends now and then on what the process compiled before: a load more or less, in
a few of a hundred later compiles. The first compile of a process is always the same, and a fork of a process that never
compiled makes every compile a first one. It also keeps a compiler that hangs or crashes away from the caller.

Run as a program by :mod:`workbench.toolchain.nvrtc_client`, with the library's path and the number of an inherited
socket. It imports the standard library only: so it starts in a few hundredths of a second, and nothing of the caller's
(its folder, its ``PYTHONPATH``) changes what it does.

Over that socket come file descriptors, one for each compile: the server's end of a connection of its own. On it the
child reads one framed request and writes one framed answer; when the child is gone the server adds its wait status (4
bytes) and closes. A caller that hangs up ends its child; when the caller's process is gone, so is the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import socket
import sys

SUCCESS = 0


class NvrtcError(Exception):
    """A function of NVRTC failed for a reason other than the program that it was given."""


class Library:
    """The functions of libnvrtc that we call, with their errors turned into exceptions."""

    def __init__(self, path: str):
        self.path = path
        # NVRTC opens its builtins by name only; loading them first makes that succeed from any folder.
        folder = os.path.dirname(path)
        for name in sorted(os.listdir(folder)):
            if name.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, name))
        self.functions = ctypes.CDLL(path)
        self.functions.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of NVRTC; NvrtcError with its name where that does not return SUCCESS."""
        code = getattr(self.functions, name)(*arguments)
        if code != SUCCESS:
            raise NvrtcError(f"{name} failed: {self.error_text(code)}")

    def error_text(self, code: int) -> str:
        """What NVRTC calls a code that one of its functions returned."""
        return self.functions.nvrtcGetErrorString(code).decode()

    def read(self, what: str, program: ctypes.c_void_p) -> bytes:
        """The bytes behind one of the pairs ``nvrtcGet<what>Size`` and ``nvrtcGet<what>``."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def compile(self, text: str, name: str, names: list[str], flags: list[str]) -> dict:
        """Compile one program: ``code`` and ``log``, and where ``code`` is SUCCESS ``ptx``, ``cubin`` and ``entries``.

        ``names`` are name expressions; ``entries`` maps each to its name in the PTX.
        """
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            for expression in names:
                self.call("nvrtcAddNameExpression", program, expression.encode())
            encoded = (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
            code = self.functions.nvrtcCompileProgram(program, len(flags), encoded)
            log = self.read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code != SUCCESS:
                return {"code": code, "log": log}
            entries = {}
            for expression in names:
                lowered = ctypes.c_char_p()
                self.call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(lowered))
                entries[expression] = (lowered.value or b"").decode()
            ptx = self.read("PTX", program).rstrip(b"\0").decode()
            return {"code": code, "log": log, "ptx": ptx, "cubin": self.read("CUBIN", program), "entries": entries}
        finally:
            self.functions.nvrtcDestroyProgram(ctypes.byref(program))


def send(connection: socket.socket, message: object) -> None:
    """Send one framed message."""
    payload = pickle.dumps(message)
    connection.sendall(len(payload).to_bytes(8, "little") + payload)


def unframe(data: bytes) -> tuple[dict, bytes] | None:
    """The message at the beginning of ``data`` and what follows it; None where it is not whole."""
    end = 8 + int.from_bytes(data[:8], "little")
    return (pickle.loads(data[8:end]), data[end:]) if len(data) >= max(end, 9) else None


def _serve(library: Library, control: socket.socket) -> None:
    """Fork a child for every connection that arrives on ``control``, until that is closed."""
    wake_reader, wake_writer = socket.socketpair()
    for end in (wake_reader, wake_writer):
        end.setblocking(False)
    signal.set_wakeup_fd(wake_writer.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler of Python's own is what writes to the wakeup socket
    poll = select.poll()
    for readable in (control, wake_reader):
        poll.register(readable, select.POLLIN)
    children: dict[int, socket.socket] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == wake_reader.fileno():
                with contextlib.suppress(BlockingIOError):
                    wake_reader.recv(4096)
                _reap(children, poll)
            elif fd == control.fileno():
                connection = _accept(control)
                if connection is None:
                    for child in children:
                        os.kill(child, signal.SIGKILL)
                    signal.set_wakeup_fd(-1)  # their end would find it closed, and a message printed
                    return
                child = os.fork()
                if child == 0:
                    for other in (control, wake_reader, wake_writer, *children.values()):
                        other.close()
                    _child(library, connection)
                children[child] = connection
                poll.register(connection, 0)  # no event but the one that cannot be masked: the caller hung up
            else:
                with contextlib.suppress(KeyError):  # its child has just been reaped
                    poll.unregister(fd)
                for child, connection in children.items():
                    if connection.fileno() == fd:
                        os.kill(child, signal.SIGKILL)


def _accept(control: socket.socket) -> socket.socket | None:
    """The connection that was sent over ``control``; None when nobody is there to send any more."""
    data, fds, *_ = socket.recv_fds(control, 1, 1)
    return socket.socket(fileno=fds[0]) if data and fds else None


def _reap(children: dict[int, socket.socket], poll: select.poll) -> None:
    """Tell the callers of the children that have ended how they ended."""
    for child in list(children):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            connection = children.pop(child)
            with contextlib.suppress(KeyError):
                poll.unregister(connection)
            with connection, contextlib.suppress(OSError):
                connection.sendall(status.to_bytes(4, "little"))


def _child(library: Library, connection: socket.socket) -> None:
    """Compile one program and exit, whatever happens."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        # If the server is killed, nobody is left to end this process at its limit.
        _end_with_parent()
        with contextlib.suppress(ConnectionError):
            request = _receive(connection)
            os.chdir(request.pop("folder"))
            try:
                answer = library.compile(**request)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            send(connection, answer)
        status = 0
    finally:
        os._exit(status)


def _receive(connection: socket.socket) -> dict:
    data = b""
    while (message := unframe(data)) is None:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError
        data += more
    return message[0]


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main(library_path: str, control_fd: str) -> None:
    """Tell the socket of number ``control_fd`` whether NVRTC can be loaded, and serve it until that closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(control_fd))
    try:
        library = Library(library_path)
    except OSError as error:
        send(control, str(error))
        return
    send(control, "")
    _serve(library, control)


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):  # the caller is gone, and nobody is there to be told
        main(*sys.argv[1:])
