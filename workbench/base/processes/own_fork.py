"""A fork of this process itself, for one that has loaded what the fork needs: it costs less than starting a server."""

from __future__ import annotations

import os
import socket

from workbench.base.processes.channel import Channel
from workbench.base.processes.ending import how_ended
from workbench.base.processes.forking import Main, killed, serve_copy
from workbench.base.processes.process import Peer, ProcessEnded


class OwnFork(Peer):
    """A copy of this process that handles requests with ``main`` until it is ended; it ends with this process too.

    Use it only while this process has one thread: the copy would wait forever for a lock that another thread holds.
    """

    def __init__(self, main: Main):
        ours, theirs = socket.socketpair()
        parent, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            ours.close()
            serve_copy(lambda _: main, "", None, Channel(theirs), parent)
        theirs.close()
        super().__init__(Channel(ours))
        self._end: ProcessEnded | None = None

    @property
    def root(self) -> int:
        """Process number (PID)."""
        return self._pid

    def ended(self) -> ProcessEnded:
        """Kill the process if it still runs; return the error that tells how it ended."""
        if self._end is None:
            self._channel.close()  # this ends an idle copy even where this process may kill no other
            found = killed(self._pid)
            status = None if found is None else os.waitstatus_to_exitcode(found)
            self._end = ProcessEnded("its process " + ("hangs" if status is None else how_ended(status)), status)
        return self._end

    def end(self) -> None:
        """Kill the process; a second call does nothing."""
        self.ended()
