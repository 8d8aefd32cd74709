"""Sandboxes that serve one candidate after the other: each gets folders and name spaces of its own in them.

Making a sandbox and importing everything in it takes seconds, a candidate's own folders milliseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from workbench.base.processes.fork_server import ForkServer
from workbench.judge import private_folders, sandbox

_Server = TypeVar("_Server", bound=ForkServer)
Within = Callable[[Path], Sequence[str]]
"""Function from a server's temporary folder to a command that is put in front of the server's own."""


class OwnFolders(NamedTuple):
    """Folders that a candidate has of its own: what stays readable in them, and how many MiB each of them holds."""

    kept: Sequence[str]
    mib: int

    def take(self, folder: str) -> None:
        """Take them in this process; what its server has written in its own ``folder`` stays readable, too."""
        kept = [*self.kept, *(str(one) for one in Path(folder).iterdir())]
        private_folders.take(sandbox.private(folder), kept, self.mib)


class WarmSandbox(Generic[_Server]):
    """The latest server in a sandbox, as long as it has the files that the next candidate needs.

    ``make`` makes a server of a kind, whose processes that run a candidate's code take the folders that it is given; it
    gets none where the kernel lets a sandbox serve one candidate alone. Hold a lock while a candidate is served.
    """

    def __init__(self, make: Callable[[str, int, Within, OwnFolders | None], _Server]):
        self._make = make
        self._latest: tuple[str, OwnFolders, _Server] | None = None

    @contextlib.contextmanager
    def serving(self, kind: str, readable: Sequence[Path], mib: int) -> Iterator[_Server]:
        """Yield a server in a sandbox in which ``readable`` files are found. Raises NoSandbox."""
        kept, several = sandbox.needed(readable), sandbox.serves_several()
        if self._latest is not None:
            before, own, server = self._latest
            if before == kind and own.mib == mib and _covers(own.kept, kept):
                yield server
                return
            self._latest = None
            server.close()
        given = OwnFolders(kept, mib)
        server = self._make(
            kind,
            mib,
            lambda folder: sandbox.command(readable, mib, folder, several=several),
            given if several else None,
        )
        try:
            server.start()
            if several:
                self._latest = kind, given, server
            yield server
        finally:
            if not several:
                server.close()


def _covers(folders: Sequence[str], paths: Sequence[str]) -> bool:
    return all(any(path == one or path.startswith(f"{one}/") for one in folders) for path in paths)
