"""Tickets: every submission of a client, in an SQLite file, so that a restart loses none."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import StoreError

QUEUED, RUNNING, DONE, CANCELLED = "queued", "running", "done", "cancelled"
FINISHED = (DONE, CANCELLED)

ATTEMPTS = 3
"""Number of times that the server may end while a candidate is judged before that counts as its verdict."""

_APPLICATION_ID = 0x6B777376  # "kwsv"
_SCHEMA = """
CREATE TABLE tickets (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, problem TEXT NOT NULL, language TEXT NOT NULL, variant TEXT NOT NULL,
    priority INTEGER NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, text TEXT NOT NULL, failure TEXT NOT NULL,
    attempts INTEGER NOT NULL, submitted REAL NOT NULL, started REAL, finished REAL
) STRICT;
CREATE INDEX tickets_by_key ON tickets (key) WHERE state IN ('queued', 'running');
CREATE INDEX tickets_by_client ON tickets (client) WHERE state IN ('queued', 'running');
"""
_UNFINISHED = "state IN ('queued', 'running')"


@dataclass(frozen=True)
class Ticket:
    """One submission.

    Attributes:
        key: digest of candidate, problem, options and versions, by which the store has its verdict.
        state: "queued", "running", "done" or "cancelled".
        text: the candidate; empty when the ticket is finished.
        failure: a message if it is done and the store has no verdict.
        attempts: how many times a worker began.
        submitted, started, finished: seconds since the epoch; None for what has not happened.
    """

    id: str
    client: str
    problem: str
    language: str
    variant: str
    priority: int
    key: str
    state: str = QUEUED
    text: str = ""
    failure: str = ""
    attempts: int = 0
    submitted: float = 0.0
    started: float | None = None
    finished: float | None = None

    @property
    def is_finished(self) -> bool:
        """True if nothing changes any more."""
        return self.state in FINISHED


class Tickets:
    """The tickets in the file ``path``, which is made if missing. Threads may share it.

    Raises StoreError for a file that holds something else, or cannot be opened.
    """

    def __init__(self, path: Path):
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # a ticket survives a killed process
            self._prepare(path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the service's tickets in {path}: {error}. Name another folder by --state.") from error

    def _prepare(self, path: Path) -> None:
        if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID}; COMMIT;")
        elif self._db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise StoreError(f"the service's tickets in {path}: an SQLite file of something else. Name another folder.")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def add(self, ticket: Ticket) -> None:
        """Commit a new ticket."""
        values = vars(ticket)
        names, places = ", ".join(values), ", ".join("?" * len(values))
        self._write(f"INSERT INTO tickets ({names}) VALUES ({places})", tuple(values.values()))

    def get(self, name: str) -> Ticket | None:
        """Return the ticket of that id, or None."""
        found = self._read("SELECT * FROM tickets WHERE id = ?", (name,))
        return found[0] if found else None

    def unfinished(self) -> list[Ticket]:
        """Return the tickets that wait or are judged, the earliest first."""
        return self._read(f"SELECT * FROM tickets WHERE {_UNFINISHED} ORDER BY submitted", ())

    def count(self, client: str) -> int:
        """Return the number of a client's tickets that wait or are judged."""
        query = f"SELECT count(*) FROM tickets WHERE {_UNFINISHED} AND client = ?"
        with self._lock:
            found: int = self._db.execute(query, (client,)).fetchone()[0]
        return found

    def of_key(self, key: str) -> list[Ticket]:
        """Return the unfinished tickets that wait for one verdict."""
        return self._read(f"SELECT * FROM tickets WHERE {_UNFINISHED} AND key = ?", (key,))

    def begin(self, key: str) -> None:
        """Record that a worker begins to judge for the unfinished tickets of a key."""
        change = "SET state = 'running', attempts = attempts + 1, started = ?"
        self._write(f"UPDATE tickets {change} WHERE {_UNFINISHED} AND key = ?", (time.time(), key))

    def finish(self, key: str, failure: str = "") -> None:
        """Record that the unfinished tickets of a key are done: the store has their verdict, or there is a failure."""
        change = "SET state = 'done', failure = ?, text = '', finished = ?"
        self._write(f"UPDATE tickets {change} WHERE {_UNFINISHED} AND key = ?", (failure, time.time(), key))

    def cancel(self, name: str) -> bool:
        """Record that a ticket is cancelled; return False if it was finished."""
        change = "SET state = 'cancelled', text = '', finished = ?"
        return self._write(f"UPDATE tickets {change} WHERE {_UNFINISHED} AND id = ?", (time.time(), name)) > 0

    def rename(self, name: str, key: str) -> None:
        """Give an unfinished ticket another key, by another problem, options or versions; it waits again."""
        self._write("UPDATE tickets SET key = ?, state = 'queued' WHERE id = ?", (key, name))

    def forget(self, before: float) -> int:
        """Remove tickets that were finished before a time, in seconds since the epoch; return their number."""
        return self._write("DELETE FROM tickets WHERE finished < ?", (before,))

    def _read(self, query: str, values: Sequence[object]) -> list[Ticket]:
        with self._lock:
            return [Ticket(**row) for row in map(dict, self._db.execute(query, tuple(values)))]

    def _write(self, query: str, values: Sequence[object]) -> int:
        with self._lock:
            return self._db.execute(query, tuple(values)).rowcount
