"""Fresh processes at the cost of a fork: a server process prepares everything once, and forks copies of itself.

Each copy has a connection of its own. The caller's side keeps the time limits: every answer has one, the server's too.
The server kills a copy on request. A server that does not answer is itself ended, with all of its descendants.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.base.busy import patience
from workbench.base.processes.channel import Channel
from workbench.base.processes.ending import how_ended, kill_group
from workbench.base.processes.forking import END, FORK, Main, serve_copies
from workbench.base.processes.process import Peer, Process, ProcessEnded, ProcessStartError, ProcessTimeout, new_mark
from workbench.errors import WorkbenchError

REPLY_SECONDS = 20.0
"""Longest wait, in seconds, for a running server to fork or report: it takes milliseconds unless it was stopped."""


class Child(Peer):
    """A forked process, from the caller's side."""

    def __init__(self, server: ForkServer, channel: Channel, number: int, watch: int | None):
        super().__init__(channel, watch)
        self.number = number
        """Process number (PID) in the PID namespace of the server, which may be a sandbox."""
        self._server, self._process = server, server.process
        self._end: ProcessEnded | None = None

    def request(self, value: object, seconds: float) -> None:
        """Send a request, pickled: the forked process trusts this one."""
        self.send(pickle.dumps(value), patience() * seconds)

    @property
    def root(self) -> int:
        """Process number (PID) of the server: that of the copy may be in a sandbox's namespace."""
        assert self._process is not None
        return self._process.pid

    @property
    def gone(self) -> bool:
        """True if the process has ended."""
        return self._channel.hung_up

    def ended(self) -> ProcessEnded:
        """Kill the process and its descendants, if any are left; return the error that tells how it ended."""
        if self._end is None:
            self._channel.close()  # this ends an idle copy even where the server may kill no other process
            status = self._server.end(self.number, self._process)
            if self._watch is not None:
                os.close(self._watch)
            how = "the process that forked it ended" if status is None else f"its process {how_ended(status)}"
            self._end = ProcessEnded(how, status)
        return self._end

    def end(self) -> None:
        """Kill the process and its descendants; a second call does nothing."""
        self.ended()

    def kill(self) -> None:
        """Kill the process alone, of a server that is in no sandbox. Any thread may call this."""
        if self._end is None:
            kill_group(self.number)


class ForkServer:
    """A server process that forks copies of itself, started for the first copy, and again if it ends or hangs.

    Several threads may use it. A fork of this process starts a server of its own.

    Args:
        prepare: name of the function that prepares the server; see `workbench.base.processes.forking.serve`.
        arguments: arguments of ``prepare``.
        scratch: prefix of a temporary folder's name. The folder is made for the server, passed to ``prepare`` as its
            last argument, and removed when the server ends. Without a prefix there is none.
        marked: True to end all descendants together with the server.
        variables: see `Process`.
        bare: see `Process`.
        within: function from the temporary folder to a command that is put in front of the server's own.
    """

    def __init__(
        self,
        prepare: str,
        *arguments: object,
        scratch: str = "",
        marked: bool = False,
        variables: dict[str, str] | None = None,
        bare: bool = False,
        within: Callable[[Path], Sequence[str]] | None = None,
    ):
        self._prepare, self._arguments, self._scratch, self._marked = prepare, arguments, scratch, marked
        self._variables, self._bare, self._within = variables, bare, within
        self.process: Process | None = None
        self.folder: Path | None = None
        self._exchanging = threading.RLock()
        self._printed = 0
        _SERVERS.add(self)

    @property
    def printed(self) -> int:
        """Number of bytes that the servers so far, and their copies, have printed."""
        with self._exchanging:
            return self._printed + (0 if self.process is None else self.process.printed)

    def start(self) -> None:
        """Start the server, without waiting for it, unless it runs already."""
        with self._exchanging:
            if self.process is not None and self.process.running:
                return
            self.close()
            arguments = self._with_folder()
            mark = new_mark() if self._marked else ""
            self.process = Process(
                "workbench.base.processes.forking:serve",
                *(self._prepare, arguments, mark, str(self.folder or "")),
                variables=self._variables,
                within=self._within(self.folder) if self._within is not None and self.folder is not None else (),
                mark=mark,
                bare=self._bare,
            )

    def start_as_fork(self, prepared: Callable[..., Callable[[str], Main]]) -> None:
        """Start the server as a fork of this process, where ``prepared`` stands for ``prepare``.

        All that this process has imported stays shared with it. See `Process.forked` for where this works.
        """
        with self._exchanging:
            self.close()
            arguments, mark = self._with_folder(), new_mark()
            folder = str(self.folder or "")
            self.process = Process.forked(
                lambda control: serve_copies(control, prepared(*arguments), mark, folder), mark
            )

    def _with_folder(self) -> list[object]:
        """Make the temporary folder, if there is to be one; return the arguments of ``prepare``."""
        if not self._scratch:
            return [*self._arguments]
        self.folder = Path(tempfile.mkdtemp(prefix=self._scratch))
        return [*self._arguments, str(self.folder)]

    def fork(self, role: str, memory_mib: int | None = None) -> Child:
        """Return a new copy in a role, limited to ``memory_mib`` MiB if given.

        A server that was ended or stopped, and so does not answer, is replaced once. Raises ProcessStartError if none
        can be started.
        """
        with self._exchanging:
            try:
                return self._forked(role, memory_mib)
            except ProcessStartError:
                raise
            except WorkbenchError:
                pass
            try:
                return self._forked(role, memory_mib)
            except (ProcessEnded, ProcessTimeout) as error:
                raise ProcessStartError(f"the fork server ended: {error}") from error

    def _forked(self, role: str, memory_mib: int | None) -> Child:
        self.start()
        process = self.process
        assert process is not None
        ours, theirs = socket.socketpair()
        fds: list[int] = []
        try:
            with theirs:
                process.await_start()
                message = json.dumps([FORK, role, memory_mib]).encode()
                number = process.ask(message, REPLY_SECONDS, gives=[theirs.fileno()], takes=fds)
        except BaseException:
            ours.close()
            self.close()
            raise
        return Child(self, Channel(ours), int(number), fds[0] if fds else None)

    def end(self, number: int, process: Process | None) -> int | None:
        """Kill a copy of the server ``process`` and its descendants; return its return code.

        Returns None if the server has ended or no longer answers; then it is ended, with all of its copies. So it is if
        it could not kill all that the copy has left: the next copy must not meet that.
        """
        with self._exchanging:
            if process is None or process is not self.process:
                return None
            try:
                answer, left = json.loads(process.ask(json.dumps([END, number, None]).encode(), REPLY_SECONDS))
            except WorkbenchError:
                self.close()
                return None
            except BaseException:  # Ctrl-C: its answer must not be taken for the answer to the next question
                self.close()
                raise
            if left:
                self.close()
            return None if answer is None else os.waitstatus_to_exitcode(answer)

    def kill(self) -> None:
        """Kill the server, if it runs, without waiting. Any thread may call this, also while another one waits."""
        process = self.process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the server and all of its descendants, stopped ones too; the next copy starts a new server."""
        with self._exchanging:
            if self.process is not None:
                self.process.end()
                self._printed += self.process.printed
                self.process = None
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None

    def forget(self) -> None:
        """Leave the server to the process that started it; call this in a fork of that process."""
        self._exchanging = threading.RLock()
        if self.process is not None:
            self.process.forget()
        self.process = self.folder = None


_SERVERS: weakref.WeakSet[ForkServer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for server in list(_SERVERS):
        server.close()


def _forget_all() -> None:
    for server in list(_SERVERS):
        server.forget()


os.register_at_fork(after_in_child=_forget_all)
