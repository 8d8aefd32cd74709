"""The tuning store: every attempted configuration with its outcome, in one SQLite file.

A finished row is committed before the next configuration is measured, so a killed run loses none. Several processes
may share a store: a row is claimed before it is worked on, a claim whose process is gone is taken over, and a
configuration whose measurement ended the process again and again is given up as a ``crash``.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import StoreError
from workbench.home import home
from workbench.tuning import store_schema
from workbench.tuning.processes import owner_alive, this_process
from workbench.tuning.trial import Trial, canonical, digest

BUSY_SECONDS = 30.0
"""How long to wait for another process that is writing."""

CRASH_AFTER = 3
"""A configuration whose measurement ended this many processes is recorded as a crash."""

_LIVE_TOKENS: set[str] = set()
_JSON = ("resources", "counts", "samples", "leader_samples", "timing", "prediction")
_PLAIN = (
    "outcome",
    "message",
    "compile_seconds",
    "from_cache",
    "measured_seconds",
    "predicted_seconds",
    "predicted_for",
    "max_error",
    "error_bound",
    "started",
    "finished",
)


def default_path() -> Path:
    """Where the store lives unless another is named."""
    return home() / "tuning.sqlite"


@dataclass(frozen=True)
class Identity:
    """What makes two attempts the same attempt. ``key`` identifies the row."""

    op: str
    variant: str
    language: str
    case_name: str
    case_json: str
    config: Mapping[str, object]
    device: str
    device_description: str
    arch: str
    source_hash: str
    toolchain: str
    versions: Mapping[str, str]

    @property
    def case_hash(self) -> str:
        return digest(self.case_json)

    @property
    def key(self) -> str:
        names = (self.op, self.variant, self.source_hash, self.case_json, canonical(dict(self.config)))
        return digest(*names, self.device, self.arch, self.toolchain)


@dataclass(frozen=True)
class Claim:
    """Answer to a claim: ``state`` is "mine" (work on it), "done" (here is its ``trial``) or "busy" (another does)."""

    state: str
    trial: Trial | None = None


class Store:
    """A tuning store in the file ``path``, made if it is not there. Use it as a context manager.

    Raises StoreError for a file that is no tuning store, is damaged, was written by a newer version, or cannot be
    written.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path) if path is not None else default_path()
        self.run = uuid.uuid4().hex[:12]
        self._started = time.time()
        self._owner = canonical({**this_process(), "token": self.run})
        self._claimed: set[str] = set()
        with self._guard():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._guard():
                self._open()
        except BaseException:
            self._db.close()
            raise
        _LIVE_TOKENS.add(self.run)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is claimed and not finished, and close the file."""
        _LIVE_TOKENS.discard(self.run)
        with contextlib.suppress(StoreError, sqlite3.ProgrammingError):
            self.release_all()
        self._db.close()

    # -- claiming and finishing ---------------------------------------------------------------------------------

    def claim(self, identities: Sequence[Identity], *, retry_failed: bool = False) -> list[Claim]:
        """Claim configurations to work on, all in one transaction; one answer each, in order.

        With ``retry_failed`` a row that failed before this store was opened is given out again.
        """
        with self._transaction():
            return [self._claim(identity, retry_failed) for identity in identities]

    def begin(self, key: str) -> None:
        """Say that the measurement of a claimed row starts; if the process dies in it, the row remembers."""
        with self._transaction():
            self._db.execute(
                "UPDATE trials SET status = 'measuring', attempts = attempts + 1, started = ? "
                "WHERE key = ? AND owner = ?",
                (time.time(), key, self._owner),
            )

    def finish(self, key: str, trial: Trial) -> None:
        """Commit the result of a claimed row."""
        values = {name: getattr(trial, name) for name in _PLAIN}
        values |= {name: canonical(_finite(getattr(trial, name))) for name in _JSON}
        for name in ("max_error", "predicted_seconds", "measured_seconds"):
            values[name] = None if values[name] is not None and math.isnan(values[name]) else values[name]
        with self._transaction():
            self._set(key, status="done", attempts=0, extra="{}", **values)
        self._claimed.discard(key)

    def amend(self, key: str, trial: Trial) -> None:
        """Replace the times of a finished row: a new prediction from its counts, or runs against the other leaders."""
        names = ("leader_samples", "timing", "prediction")
        plain = ("measured_seconds", "predicted_seconds", "predicted_for")
        values = {name: canonical(_finite(getattr(trial, name))) for name in names}
        with self._transaction():
            self._set(key, **values, **{name: getattr(trial, name) for name in plain})

    def release(self, *keys: str) -> None:
        """Give back claimed rows that were not finished; only what failed before a retry stays of them."""
        with self._transaction():
            for key in keys:
                row = self._db.execute(
                    "SELECT extra FROM trials WHERE key = ? AND owner = ? AND status != 'done'", (key, self._owner)
                ).fetchone()
                before = json.loads(row["extra"]).get("before") if row else None
                if before:
                    self._set(key, status="done", attempts=0, extra="{}", **before)
                elif row:
                    self._db.execute("DELETE FROM trials WHERE key = ?", (key,))
        self._claimed.difference_update(keys)

    def forget(self, *keys: str) -> None:
        """Remove finished rows, so that their configurations are tried again."""
        with self._transaction():
            self._db.executemany("DELETE FROM trials WHERE key = ?", [(key,) for key in keys])

    def release_all(self) -> None:
        """Give back everything that is claimed and not finished."""
        self.release(*tuple(self._claimed))

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Trial | None:
        """The finished trial of a row, or None."""
        with self._guard():
            row = self._db.execute("SELECT * FROM trials WHERE key = ? AND status = 'done'", (key,)).fetchone()
        return _trial(row) if row else None

    def trials(self, *, op: str | None = None, device: str | None = None, case: str | None = None) -> list[Trial]:
        """Finished trials in the order they finished, of one op, device or case name if given."""
        return [_trial(row) for row in self._rows(op=op, device=device, case_name=case)]

    def records(self, *, op: str | None = None, device: str | None = None, case: str | None = None) -> list[dict]:
        """Finished rows as plain dictionaries with every column, JSON columns decoded."""
        rows = self._rows(op=op, device=device, case_name=case)
        decoded = {*_JSON, "case_json", "config", "versions", "extra"}
        hidden = {"owner", "claimed", "attempts", "status"}
        return [
            {name: json.loads(row[name]) if name in decoded else row[name] for name in row.keys() if name not in hidden}  # noqa: SIM118
            for row in rows
        ]

    def __len__(self) -> int:
        with self._guard():
            return self._db.execute("SELECT count(*) FROM trials WHERE status = 'done'").fetchone()[0]

    # -- inside -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._db.row_factory = sqlite3.Row
        # In one transaction, so that a store which another process is just making is seen before or after, not between.
        self._db.execute("BEGIN")
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        identity = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        self._db.execute("COMMIT")
        if tables and identity != store_schema.APPLICATION_ID:
            raise StoreError(f"store {self.path}: an SQLite file, but not a tuning store. Name another file in store=.")
        if version > store_schema.SCHEMA_VERSION:
            raise StoreError(
                f"store {self.path}: its schema is version {version}, this workbench knows up to "
                f"{store_schema.SCHEMA_VERSION}. Update the workbench, or name another file in store=."
            )
        self._use_wal()
        # FULL: a committed row survives a power cut, not only a killed process.
        self._db.execute("PRAGMA synchronous = FULL")
        if not tables or version < store_schema.SCHEMA_VERSION:
            with self._transaction():
                # Looked at again inside the transaction: another process may have been faster.
                if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    store_schema.create(self._db)
                else:
                    version = self._db.execute("PRAGMA user_version").fetchone()[0]
                    store_schema.migrate(self._db, version)

    def _use_wal(self) -> None:
        """Switch to the write-ahead log. SQLite does not wait for others by itself here, so it is tried again."""
        deadline = time.monotonic() + BUSY_SECONDS
        while self._db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _claim(self, identity: Identity, retry_failed: bool) -> Claim:
        row = self._db.execute("SELECT * FROM trials WHERE key = ?", (identity.key,)).fetchone()
        if row is None:
            columns = {name: getattr(identity, name) for name in identity.__dataclass_fields__}
            columns |= {"config": canonical(dict(identity.config)), "versions": canonical(dict(identity.versions))}
            columns |= {"key": identity.key, "case_hash": identity.case_hash}
            columns |= {"status": "claimed", "owner": self._owner, "claimed": time.time(), "run": self.run}
            names = ", ".join(columns)
            places = ", ".join("?" * len(columns))
            self._db.execute(f"INSERT INTO trials ({names}) VALUES ({places})", tuple(columns.values()))
            return self._mine(identity.key)
        if row["status"] == "done":
            again = retry_failed and row["outcome"] != "ok" and (row["finished"] or 0) < self._started
            if not again:
                return Claim("done", _trial(row))
        elif row["owner"] != self._owner and owner_alive(row["owner"], row["claimed"], _LIVE_TOKENS):
            return Claim("busy")
        elif row["attempts"] >= CRASH_AFTER:
            message = f"the process that measured it ended {row['attempts']} times without a result"
            message = f"the process that measured it ended {row['attempts']} times without a result"
            self._set(identity.key, status="done", outcome="crash", message=message, attempts=0, finished=time.time())
            return Claim("done", self._read(identity.key))
        # What failed before is kept aside until there is a new result: giving up restores it.
        before = {name: row[name] for name in (*_PLAIN, *_JSON)} if row["status"] == "done" else None
        claim = {"status": "claimed", "owner": self._owner, "claimed": time.time(), "run": self.run}
        if before:
            claim |= {"outcome": None, "extra": canonical({"before": before})}
        self._set(identity.key, **claim)
        return self._mine(identity.key)

    def _mine(self, key: str) -> Claim:
        self._claimed.add(key)
        return Claim("mine")

    def _read(self, key: str) -> Trial:
        return _trial(self._db.execute("SELECT * FROM trials WHERE key = ?", (key,)).fetchone())

    def _rows(self, **wanted) -> list[sqlite3.Row]:
        given = {name: value for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        with self._guard():
            query = f"SELECT * FROM trials WHERE status = 'done'{where} ORDER BY finished, key"
            return self._db.execute(query, tuple(given.values())).fetchall()

    def _set(self, key: str, **values) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        self._db.execute(f"UPDATE trials SET {assignments} WHERE key = ?", (*values.values(), key))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn SQLite's and the file system's errors into one that names the file and the remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"store {self.path}: {error}. Check that the folder can be written and has space, and that no other "
                "program holds the file; or name another file in store= or $WORKBENCH_HOME."
            ) from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"store {self.path}: damaged, or no SQLite file ({error}). Nothing was changed. Move it aside "
                f"(mv {self.path} {self.path}.broken) and tune again, or name another file in store=."
            ) from error
        except OSError as error:
            raise StoreError(
                f"store {self.path}: {error}. Name a file in a folder that can be written in store= or $WORKBENCH_HOME."
            ) from error


def _trial(row: sqlite3.Row) -> Trial:
    plain = {name: row[name] for name in (*_PLAIN, "op", "variant", "language", "device", "arch")}
    decoded = {name: json.loads(row[name]) for name in (*_JSON, "config")}
    decoded |= {name: tuple(decoded[name]) for name in ("samples", "leader_samples")}
    plain["from_cache"] = None if row["from_cache"] is None else bool(row["from_cache"])
    return Trial(case=row["case_name"], reused=True, **plain, **decoded)


def _finite(value):
    """Infinity and NaN as text: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
