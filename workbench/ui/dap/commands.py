"""The command ``workbench debug``: a debug adapter on stdin and stdout, or on a port."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from workbench.base.options import complete_op
from workbench.base.terminal import say
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.launch.debug import DebugSession
    from workbench.ui.dap.protocol import Connection


_HANG_UP_SECONDS = 2.0


@click.command()
@click.argument("target", metavar="[FILE.py:OP]", required=False, shell_complete=complete_op)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Listen on this port of localhost, 0 for a free one, not on stdin."
)
def debug(target: str | None, port: int | None) -> None:
    """Let an editor step through a kernel of OP, forward and back: a server of the Debug Adapter Protocol.

    The editor's launch request may name another op as "program", and "case", "variant", "config" (an object), "arch",
    "stop" (a stop or a list), "checks" and "stopOnEntry". docs/DEBUG.md has settings for VS Code and Neovim.
    """
    if port is None:
        _serve_on_stdio(target)
    else:
        _serve_on_port(target, port)


def _serve_on_stdio(target: str | None) -> None:
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not come between messages
    _serve(target, sys.stdin.buffer, outgoing)


def _serve_on_port(target: str | None, port: int) -> None:
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ArgumentError("--port", f"{port}: {error.strerror}", "a free port", "0 takes any free one.") from None
    with listening:
        say(f"listening on port {listening.getsockname()[1]} of localhost", err=True)
        while True:
            client, _ = listening.accept()
            with client, client.makefile("rb") as incoming, client.makefile("wb") as outgoing:
                _serve(target, incoming, outgoing)
                _hang_up(client)


def _hang_up(client: socket.socket) -> None:
    """End a connection once the client has: data that nobody reads would reset it, and lose the last response."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(_HANG_UP_SECONDS)
        while client.recv(4096):
            pass


def _serve(target: str | None, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    from workbench.ui.dap.adapter import DebugAdapter
    from workbench.ui.dap.protocol import Connection

    connection = Connection(incoming, outgoing)
    before, sys.stdout = sys.stdout, _Output(connection)
    try:
        with contextlib.suppress(ConnectionError):  # the client has gone
            DebugAdapter(connection, lambda arguments: opened(target, arguments)).serve()
    finally:
        sys.stdout = before


def opened(target: str | None, arguments: Mapping[str, Any]) -> DebugSession:
    """Return the session of a launch request; ``target`` is the op that it need not name."""
    from workbench.ops.debugging import debug as open_session
    from workbench.ops.files import load_op

    program = arguments.get("program") or target
    if not isinstance(program, str):
        remedy = 'Name it in the launch request, "program": "my_ops.py:my_op", or behind workbench debug.'
        raise ArgumentError("program", repr(program), "FILE.py:OP", remedy)
    names = ("case", "variant", "config", "arch", "stop", "checks", "launch", "budget")
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    return open_session(load_op(program), **given)


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
