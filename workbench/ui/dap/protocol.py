"""The wire format of the Debug Adapter Protocol: JSON messages behind a header with their length.

Source: https://microsoft.github.io/debug-adapter-protocol/overview (version 1.70).
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from workbench.errors import WorkbenchError

_LONGEST_HEADER = 4096
_MOST_BYTES = 64 << 20


class ProtocolError(WorkbenchError):
    """The client sent something that is no message of the Debug Adapter Protocol."""


class Connection:
    """Messages to and from one client.

    Args:
        incoming: stream that the client writes.
        outgoing: stream that the client reads.
    """

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO):
        self._incoming, self._outgoing = incoming, outgoing
        self._sent = 0

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, None if the client has hung up. Raises ProtocolError for anything else."""
        length = None
        while line := self._incoming.readline(_LONGEST_HEADER):
            if line in (b"\r\n", b"\n"):
                if length is None:
                    raise ProtocolError("a message of the client has no Content-Length")
                return self._body(length)
            name, _, value = line.decode("ascii", "replace").partition(":")
            if name.strip().lower() == "content-length":
                if not value.strip().isdecimal() or int(value) > _MOST_BYTES:
                    raise ProtocolError(f"a message of the client has the Content-Length {value.strip()[:40]!r}")
                length = int(value)
        return None

    def _body(self, length: int) -> dict[str, Any] | None:
        content = self._incoming.read(length)
        if len(content) < length:
            return None
        try:
            found = json.loads(content)
        except ValueError as error:
            raise ProtocolError(f"a message of the client is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ProtocolError(f"a message of the client is {type(found).__name__}, not an object")
        return found

    def respond(self, request: dict[str, Any], body: dict[str, Any] | None = None) -> None:
        """Send the response to a request that succeeded."""
        self._send("response", request_seq=request["seq"], success=True, command=request["command"], body=body or {})

    def refuse(self, request: dict[str, Any], message: str) -> None:
        """Send the response to a request that failed; the client shows the message."""
        body = {"error": {"id": 1, "format": "{text}", "variables": {"text": message}, "showUser": True}}
        self._send(
            "response", request_seq=request.get("seq", 0), success=False, command=request.get("command", ""),
            message=message, body=body,
        )  # fmt: skip

    def event(self, name: str, **body: Any) -> None:
        """Send an event."""
        self._send("event", event=name, body=body)

    def _send(self, kind: str, **fields: Any) -> None:
        self._sent += 1
        content = json.dumps({"seq": self._sent, "type": kind, **fields}).encode()
        self._outgoing.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        self._outgoing.flush()
