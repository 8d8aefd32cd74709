"""The SQLite file behind a tuning store: opened, shared with other processes, and mended when it is damaged.

The file has a write-ahead log with ``synchronous = FULL``: a committed row survives a killed process and a power cut.
Reading and writing go through `read` and `write`, which turn SQLite's errors into StoreError. A store whose content is
damaged is kept aside; rows that can be read and prove right go into a new one, and a StoreWarning reports it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from workbench.base.trials import store_schema
from workbench.base.trials.store_salvage import salvage
from workbench.errors import StoreError, StoreWarning

BUSY_SECONDS = 30.0
"""Longest wait for another process that is writing, in seconds."""

_MAGIC, _ID_AT = b"SQLite format 3\0", slice(68, 72)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

Result = TypeVar("Result")


class StoreFile:
    """An open tuning store.

    Raises StoreError for a file that is not a tuning store, is newer than this workbench, or cannot be written.
    """

    def __init__(self, path: Path):
        self.path = path
        self.connection: sqlite3.Connection
        self._inode: tuple[int, int] = (0, 0)
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()

    def read(self, body: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return ``body(connection)``, called again if the file had to be mended or was replaced."""
        return self._run(body)

    def write(self, body: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return ``body(connection)``, run in a transaction that is committed, or rolled back on an exception."""

        def transaction(connection: sqlite3.Connection) -> Result:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = body(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._run(transaction)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _run(self, body: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._errors():
            if _inode(self.path) != self._inode:
                # Moved, deleted, or mended by another process: rows written to the old file would be lost.
                self.connection.close()
                self._open()
            try:
                return body(self.connection)
            except (sqlite3.DatabaseError, UnicodeDecodeError, json.JSONDecodeError) as error:
                if not _is_damage(error):
                    raise
                self._mend(str(error))
            return body(self.connection)

    def _open(self) -> None:
        try:
            self._connect()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's own messages quote the file
            if not _is_damage(error) or not _looks_ours(self.path):
                raise
            self._mend(str(error))

    def _connect(self) -> None:
        self.connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.connection.close()
            raise
        self._inode = _inode(self.path)

    def _prepare(self) -> None:
        db = self.connection
        db.row_factory = sqlite3.Row
        # In one transaction, so that a store which another process is just making is seen before or after, not between.
        db.execute("BEGIN")
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        identity = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute("COMMIT")
        if tables and identity != store_schema.APPLICATION_ID:
            raise StoreError(f"store {self.path}: an SQLite file, but not a tuning store. Name another file in store=.")
        if version > store_schema.SCHEMA_VERSION:
            raise StoreError(
                f"store {self.path}: its schema is version {version}, this workbench knows up to "
                f"{store_schema.SCHEMA_VERSION}. Update the workbench, or name another file in store=."
            )
        self._use_wal()
        # FULL: a committed row survives a power cut, not only a killed process.
        db.execute("PRAGMA synchronous = FULL")
        if not tables or version < store_schema.SCHEMA_VERSION:
            db.execute("BEGIN IMMEDIATE")
            # Looked up again inside the transaction: another process may have been faster.
            if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                store_schema.create(db)
            else:
                store_schema.migrate(db, db.execute("PRAGMA user_version").fetchone()[0])
            db.execute("COMMIT")

    def _use_wal(self) -> None:
        """Switch to the write-ahead log, trying again as SQLite does not wait for other processes here."""
        deadline = time.monotonic() + BUSY_SECONDS
        while self.connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                mode = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            else:  # where SQLite cannot have this log, it keeps another mode and raises nothing
                if mode == "memory" or (mode != "wal" and time.monotonic() > deadline):
                    raise StoreError(
                        f"store {self.path}: SQLite has no write-ahead log there (journal mode {mode}). "
                        "Name a file on a local disk in store=."
                    )
            time.sleep(0.02)

    def _mend(self, reason: str) -> None:
        """Copy the readable rows of a damaged file into a new one, keep the damaged one aside, and warn."""
        self.connection.close()
        with _locked(self.path.with_name(f"{self.path.name}.lock")):
            if self._inode in ((0, 0), _inode(self.path)):  # else another process has mended it in the meantime
                aside = _free_name(self.path)
                rebuilt = self.path.with_name(f"{self.path.name}.rebuilt")
                rebuilt.unlink(missing_ok=True)
                kept = salvage(self.path, rebuilt)
                for suffix in ("-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
                os.rename(rebuilt, self.path)
                warnings.warn(
                    f"store {self.path} was damaged ({reason}). The {kept} rows that could still be read are in a new "
                    f"store in its place; the damaged one is kept as {aside}. Missing rows will be tuned again.",
                    StoreWarning,
                    stacklevel=2,
                )
        self._connect()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's and the file system's errors into one that names the file and the remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"store {self.path}: {error}. Check that the folder can be written and has space, and that no other "
                "program holds the file; or name another file in store= or $WORKBENCH_HOME."
            ) from error
        except sqlite3.IntegrityError as error:
            raise StoreError(f"store {self.path}: refused a row: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"store {self.path}: no SQLite file, or damaged beyond recognition ({error}). Nothing was changed. "
                f"Move it aside (mv {self.path} {self.path}.broken) and tune again, or name another file in store=."
            ) from error
        except OSError as error:
            raise StoreError(
                f"store {self.path}: {error}. Name a file in a folder that can be written in store= or $WORKBENCH_HOME."
            ) from error


def _is_damage(error: Exception) -> bool:
    """Return True if an error means damaged content: SQLite's own code, or a cell that cannot be decoded."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
    return True


def _looks_ours(path: Path) -> bool:
    """Return True if the header, which is written once, is that of a tuning store."""
    with path.open("rb") as file:
        header = file.read(100)
    return header.startswith(_MAGIC) and header[_ID_AT] == store_schema.APPLICATION_ID.to_bytes(4, "big")


def _inode(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *map("-{}".format, range(1, 1000))))
    return next(name for name in names if not name.exists())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on the file; it ends with this process at the latest."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
