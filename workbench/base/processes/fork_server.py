"""Fresh processes at the price of a fork: a process that has prepared everything, and forks copies of itself.

A copy is asked over a connection of its own. Limits are kept here, each answer has one, those of the process that forks
too; it kills a copy when it is asked to, and is itself ended, with all that came of it, where it does not answer.
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

from workbench.base.processes.channel import Channel
from workbench.base.processes.ending import how_ended
from workbench.base.processes.forking import END, FORK
from workbench.base.processes.process import Peer, Process, ProcessEnded, ProcessStartError, ProcessTimeout, new_mark
from workbench.errors import WorkbenchError

REPLY_SECONDS = 20.0
"""How long it may take to fork or to report once it is there: milliseconds, unless somebody has stopped it."""


class Child(Peer):
    """One forked process, from the caller's side."""

    def __init__(self, server: ForkServer, channel: Channel, number: int, watch: int | None):
        super().__init__(channel, watch)
        self.number = number
        """Its number where the process that forks is, which may be a sandbox."""
        self._server, self._process = server, server.process
        self._end: ProcessEnded | None = None

    def request(self, value: object, seconds: float) -> None:
        """Send what it is to do, pickled: this process is trusted."""
        self.send(pickle.dumps(value), seconds)

    @property
    def gone(self) -> bool:
        """True where it has ended."""
        return self._channel.hung_up

    def ended(self) -> ProcessEnded:
        """Kill it and what it started, if anything is left; return the error that says how it ended."""
        if self._end is None:
            self._channel.close()  # which ends it, unless it is busy, where the process that forks may kill no other
            status = self._server.end(self.number, self._process)
            if self._watch is not None:
                os.close(self._watch)
            how = "the process that forked it ended" if status is None else f"its process {how_ended(status)}"
            self._end = ProcessEnded(how, status)
        return self._end

    def end(self) -> None:
        """Kill it and what it started; the second call does nothing."""
        self.ended()


class ForkServer:
    """The process that forks, started when a first copy is asked for and again when it is gone or does not answer.

    Several threads may ask. A fork of this process starts one of its own.

    Args:
        prepare: see `workbench.base.processes.forking.serve`.
        arguments: of that function.
        scratch: how the name of a folder begins that is made for it, passed to it as the last of its arguments, and
            removed when it ends.
        marked: end everything that came of it with it.
        variables, bare: as of a `Process`.
        within: a command to put in front of its own, by the folder.
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
        _SERVERS.add(self)

    def start(self) -> None:
        """Begin to make the process, unless it is there."""
        with self._exchanging:
            if self.process is not None and self.process.running:
                return
            self.close()
            arguments = [*self._arguments]
            within: Sequence[str] = ()
            if self._scratch:
                self.folder = Path(tempfile.mkdtemp(prefix=self._scratch))
                arguments.append(str(self.folder))
                within = self._within(self.folder) if self._within is not None else ()
            mark = new_mark() if self._marked else ""
            self.process = Process(
                "workbench.base.processes.forking:serve",
                *(self._prepare, arguments, mark, str(self.folder or "")),
                variables=self._variables,
                within=within,
                mark=mark,
                bare=self._bare,
            )

    def fork(self, role: str, memory_mib: int | None = None) -> Child:
        """Return a new copy in a role, with a limit of memory. Raises ProcessStartError.

        A process that forks and does not answer, as somebody has ended or stopped it, is replaced once.
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
                raise ProcessStartError(f"the process that forks others ended: {error}") from error

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
        """Kill a copy of ``process``; return its return code, when what it left behind has been ended too.

        None where the process that forks has ended or does not answer any more; then it is ended, with all its others.
        """
        with self._exchanging:
            if process is None or process is not self.process:
                return None
            try:
                answer = json.loads(process.ask(json.dumps([END, number, None]).encode(), REPLY_SECONDS))
            except WorkbenchError:
                self.close()
                return None
            except BaseException:  # Ctrl-C: its answer must not be taken for that to the next question
                self.close()
                raise
            return None if answer is None else os.waitstatus_to_exitcode(answer)

    def close(self) -> None:
        """End it and everything that came of it, stopped or not; the next copy that is asked for has a new one."""
        with self._exchanging:
            if self.process is not None:
                self.process.end()
                self.process = None
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None

    def forget(self) -> None:
        """In a fork of this process: leave the one that is there to its maker."""
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
