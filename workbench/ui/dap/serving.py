"""A debug adapter on stdin and stdout, or on a port."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from workbench.base.config_text import ConfigText
from workbench.base.terminal import say
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.ui.dap.adapter import Opener
    from workbench.ui.dap.protocol import Connection


_HANG_UP_SECONDS = 2.0


def serve_on_stdio(opened: Opener) -> None:
    """Serve the client on stdin and stdout; all else that this process prints goes to stderr, or to the client."""
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not come between messages
    _serve(opened, sys.stdin.buffer, outgoing)


def serve_on_port(opened: Opener, port: int) -> None:
    """Serve one client after the other on a port of localhost. Raises ArgumentError if it is taken."""
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ArgumentError("--port", f"{port}: {error.strerror}", "a free port", "0 takes any free one.") from None
    with listening:
        say(f"listening on port {listening.getsockname()[1]} of localhost", err=True)
        while True:
            client, _ = listening.accept()
            with client, client.makefile("rb") as incoming, client.makefile("wb") as outgoing:
                _serve(opened, incoming, outgoing)
                _hang_up(client)


def _hang_up(client: socket.socket) -> None:
    """End a connection once the client has: data that nobody reads would reset it, and lose the last response."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(_HANG_UP_SECONDS)
        while client.recv(4096):
            pass


def _serve(opened: Opener, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    from workbench.ui.dap.adapter import DebugAdapter
    from workbench.ui.dap.protocol import Connection

    connection = Connection(incoming, outgoing)
    before, sys.stdout = sys.stdout, _Output(connection)
    try:
        with contextlib.suppress(ConnectionError):  # the client has gone
            DebugAdapter(connection, opened).serve()
    finally:
        sys.stdout = before


def requested(arguments: Mapping[str, Any], op: str | None) -> tuple[str, dict[str, Any]]:
    """Return the op that a launch request names, or else ``op``, and its options by their names on the command line."""
    program = arguments.get("program") or op
    if not isinstance(program, str):
        remedy = 'Name it in the launch request, "program": "my_ops.py:my_op", or behind workbench debug.'
        raise ArgumentError("program", repr(program), "FILE.py:OP", remedy)
    names = ("case", "variant", "arch", "stop", "checks", "launch")
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    if "config" in arguments:
        pairs = (f"{name}={value}" for name, value in dict(arguments["config"]).items())
        given["configs"] = [ConfigText.parse(" ".join(pairs))]
    return program, given


class _Output(io.TextIOBase):
    """A stream for ``sys.stdout`` that sends what a program prints to the client."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Send the text; return its length."""
        self._connection.event("output", category="stdout", output=text)
        return len(text)
