"""Framed messages over a socket: eight bytes with the length, then the message."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Sequence

from workbench.base.processes.deadline import Deadline

_HEAD_BYTES = 8


class TooLong(Exception):
    """A message is longer than its receiver accepts."""


class Channel:
    """One side of a connection over a Unix socket."""

    def __init__(self, connection: socket.socket):
        self.socket = connection

    def send(self, content: bytes, seconds: float | None = None, fds: Sequence[int] = ()) -> None:
        """Send one message, with file descriptors. Raises TimeoutError if it is not taken within ``seconds``."""
        self.socket.settimeout(None if seconds is None else max(seconds, 1e-3))
        frame = len(content).to_bytes(_HEAD_BYTES, "little") + content
        self.socket.sendall(frame[socket.send_fds(self.socket, [frame], fds) if fds else 0 :])

    def receive(
        self,
        deadline: Deadline | None = None,
        *,
        most: int | None = None,
        watch: int | None = None,
        fds: list[int] | None = None,
    ) -> bytes | None:
        """Return the next message; None if the other side has hung up or ended.

        ``watch`` is a descriptor that becomes readable when the other side's process ends. Descriptors that come with
        the message are added to ``fds``. Raises TimeoutError if it is not complete at the ``deadline``, and TooLong for
        more than ``most`` bytes.
        """
        head = self._exactly(_HEAD_BYTES, deadline, watch, fds)
        if head is None:
            return None
        size = int.from_bytes(head, "little")
        if most is not None and size > most:
            raise TooLong(f"{size:,} bytes, where at most {most:,} are allowed")
        return self._exactly(size, deadline, watch, fds)

    def _exactly(self, size: int, deadline: Deadline | None, watch: int | None, fds: list[int] | None) -> bytes | None:
        data = bytearray()
        self.socket.settimeout(None)
        while len(data) < size:
            if (deadline is not None or watch is not None) and not self._readable(deadline, watch):
                return None
            room = min(size - len(data), 1 << 20)
            if fds is None:
                more = self.socket.recv(room)
            else:
                more, found, *_ = socket.recv_fds(self.socket, room, 4)
                fds += found
            if not more:
                return None
            data += more
        return bytes(data)

    def _readable(self, deadline: Deadline | None, watch: int | None) -> bool:
        """Wait until there is something to read; return False if nothing came before ``watch`` became readable."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if watch is not None:
            poll.register(watch, select.POLLIN)
        while not (ready := [fd for fd, _ in poll.poll(None if deadline is None else deadline.left * 1e3)]):
            if deadline is not None and deadline.reached():
                raise TimeoutError
        return self.socket.fileno() in ready

    def readable(self, seconds: float, watch: int | None = None) -> bool:
        """Return True once there is something to read or the other side has ended, False after ``seconds``."""
        poll = select.poll()
        for one in (self.socket.fileno(), watch):
            if one is not None:
                poll.register(one, select.POLLIN)
        return bool(poll.poll(seconds * 1e3))

    @property
    def hung_up(self) -> bool:
        """True if the other side has closed its connection."""
        poll = select.poll()
        poll.register(self.socket, 0)  # no event but the one that cannot be masked
        return bool(poll.poll(0))

    def close(self) -> None:
        """Hang up, even if a fork of this process has inherited the socket."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
