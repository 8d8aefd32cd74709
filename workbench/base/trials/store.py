"""The tuning store: every attempted configuration with its outcome, in one SQLite file.

A finished row is committed before the next configuration is measured, so a killed run loses none. Several processes may
share a store. A process claims a row before it works on it; a claim is taken over if its process is gone. A
configuration whose measurement keeps ending the process is given up as a ``crash``.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workbench.base.home import home
from workbench.base.trials.processes import owner_alive, this_process
from workbench.base.trials.store_file import StoreFile
from workbench.base.trials.store_schema import JSON_COLUMNS
from workbench.base.trials.trial import Trial, canonical, digest
from workbench.errors import StoreError

CRASH_AFTER = 3
"""Number of processes that a measurement may end before its configuration is recorded as a crash."""

_Decoded = TypeVar("_Decoded")

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
    """Return the path of the store unless another is named."""
    return home() / "tuning.sqlite"


@dataclass(frozen=True)
class Identity:
    """Everything that two attempts must share to be the same attempt. ``key`` identifies the row."""

    op: str
    variant: str
    language: str
    case_name: str
    case_json: str
    config: Mapping[str, Any]
    device: str
    device_description: str
    arch: str
    source_hash: str
    toolchain: str
    versions: Mapping[str, str]

    @property
    def case_hash(self) -> str:
        """Digest of the case, 32 hex digits, by which the rows of one case are found."""
        return digest(self.case_json)

    @property
    def key(self) -> str:
        """Digest, 32 hex digits, of everything that a row must share to stand for this attempt."""
        names = (self.op, self.variant, self.source_hash, self.case_json, canonical(dict(self.config)))
        return digest(*names, self.device, self.arch, self.toolchain)


@dataclass(frozen=True)
class Claim:
    """Answer to a claim: ``state`` is "mine" (work on it), "done" (with its ``trial``) or "busy" (another does)."""

    state: str
    trial: Trial | None = None


class Store:
    """A tuning store in the file ``path``, which is made if missing. Use it as a context manager.

    Raises StoreError for a file that is not a tuning store, was written by a newer version, or cannot be written. A
    damaged store is mended, with a StoreWarning.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path) if path is not None else default_path()
        self.run = uuid.uuid4().hex[:12]
        self._started = time.time()
        self._owner = canonical({**this_process(), "token": self.run})
        self._claimed: dict[str, Identity] = {}
        self._file = StoreFile(self.path)
        _LIVE_TOKENS.add(self.run)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up claimed rows that are not finished, and close the file."""
        _LIVE_TOKENS.discard(self.run)
        with contextlib.suppress(StoreError, sqlite3.ProgrammingError):
            self.release_all()
        self._file.close()

    # -- claiming and finishing ---------------------------------------------------------------------------------

    def claim(self, identities: Sequence[Identity], *, retry_failed: bool = False) -> list[Claim]:
        """Claim configurations to work on, all in one transaction; return one answer each, in order.

        With ``retry_failed`` a row that failed before this store was opened is given out again.
        """
        return self._file.write(lambda db: [self._claim(db, identity, retry_failed) for identity in identities])

    def begin(self, key: str) -> None:
        """Record that the measurement of a claimed row starts; the row keeps it if the process dies in it."""
        begun = "status = 'measuring', attempts = attempts + 1, started = ?"
        query = f"UPDATE trials SET {begun} WHERE key = ? AND owner = ?"
        self._file.write(lambda db: db.execute(query, (time.time(), key, self._owner)))

    def finish(self, key: str, trial: Trial) -> None:
        """Commit the result of a claimed row."""
        values = {name: getattr(trial, name) for name in _PLAIN}
        values |= {name: _json(getattr(trial, name)) for name in _JSON}
        for name in ("max_error", "predicted_seconds", "measured_seconds"):
            values[name] = None if values[name] is not None and math.isnan(values[name]) else values[name]
        identity = self._claimed.get(key)

        def write(db: sqlite3.Connection) -> None:
            if not _set(db, key, status="done", attempts=0, extra="{}", **values) and identity is not None:
                # The claim went with a store that was damaged or removed.
                self._insert(db, identity)
                _set(db, key, status="done", **values)

        self._file.write(write)
        self._claimed.pop(key, None)

    def amend(self, key: str, trial: Trial) -> None:
        """Replace the times of a finished row: a new prediction from its counts, or runs against the other leaders."""
        names = ("leader_samples", "timing", "prediction")
        plain = ("measured_seconds", "predicted_seconds", "predicted_for")
        values = {name: _json(getattr(trial, name)) for name in names}
        values |= {name: getattr(trial, name) for name in plain}
        self._file.write(lambda db: _set(db, key, **values))

    def release(self, *keys: str) -> None:
        """Give back claimed rows that are not finished; a failure from before a retry is restored."""
        mine = "SELECT extra FROM trials WHERE key = ? AND owner = ? AND status != 'done'"

        def release(db: sqlite3.Connection) -> None:
            for key in keys:
                row = db.execute(mine, (key, self._owner)).fetchone()
                before = json.loads(row["extra"]).get("before") if row else None
                if before:
                    _set(db, key, status="done", attempts=0, extra="{}", **before)
                elif row:
                    db.execute("DELETE FROM trials WHERE key = ?", (key,))

        if keys:
            self._file.write(release)
        for key in keys:
            self._claimed.pop(key, None)

    def forget(self, *keys: str) -> None:
        """Remove finished rows, so that their configurations are tried again."""
        self._file.write(lambda db: db.executemany("DELETE FROM trials WHERE key = ?", [(key,) for key in keys]))

    def release_all(self) -> None:
        """Give back every row that is claimed and not finished."""
        self.release(*tuple(self._claimed))

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Trial | None:
        """Return the finished trial of a row, or None."""

        def get(db: sqlite3.Connection) -> Trial | None:
            row = db.execute("SELECT * FROM trials WHERE key = ? AND status = 'done'", (key,)).fetchone()
            return _trial(row) if row else None

        return self._file.read(get)

    def trials(self, *, op: str | None = None, device: str | None = None, case: str | None = None) -> list[Trial]:
        """Return finished trials in the order they finished, restricted to an op, device or case name if given."""
        return self._rows(_trial, op=op, device=device, case_name=case)

    def records(self, *, op: str | None = None, device: str | None = None, case: str | None = None) -> list[dict]:
        """Return finished rows as plain dictionaries with every column, JSON columns decoded."""
        return self._rows(_record, op=op, device=device, case_name=case)

    def __len__(self) -> int:
        return self._file.read(lambda db: db.execute("SELECT count(*) FROM trials WHERE status = 'done'").fetchone()[0])

    # -- inside -------------------------------------------------------------------------------------------------

    def _claim(self, db: sqlite3.Connection, identity: Identity, retry_failed: bool) -> Claim:
        row = db.execute("SELECT * FROM trials WHERE key = ?", (identity.key,)).fetchone()
        if row is None:
            self._insert(db, identity)
            return self._mine(identity)
        if row["status"] == "done":
            again = retry_failed and row["outcome"] != "ok" and (row["finished"] or 0) < self._started
            if not again:
                return Claim("done", _trial(row))
        elif row["owner"] != self._owner and owner_alive(row["owner"], row["claimed"], _LIVE_TOKENS):
            return Claim("busy")
        elif row["attempts"] >= CRASH_AFTER:
            message = f"the process that measured it ended {row['attempts']} times without a result"
            _set(db, identity.key, status="done", outcome="crash", message=message, attempts=0, finished=time.time())
            row = db.execute("SELECT * FROM trials WHERE key = ?", (identity.key,)).fetchone()
            return Claim("done", _trial(row))
        # An earlier failure is kept aside until there is a new result; giving up restores it.
        before = {name: row[name] for name in (*_PLAIN, *_JSON)} if row["status"] == "done" else None
        claim = {"status": "claimed", "owner": self._owner, "claimed": time.time(), "run": self.run}
        if before:
            claim |= {"outcome": None, "extra": canonical({"before": before})}
        _set(db, identity.key, **claim)
        return self._mine(identity)

    def _insert(self, db: sqlite3.Connection, identity: Identity) -> None:
        """Insert a row of our own that has no result yet."""
        columns = {name: getattr(identity, name) for name in identity.__dataclass_fields__}
        columns |= {"config": canonical(dict(identity.config)), "versions": canonical(dict(identity.versions))}
        columns |= {"key": identity.key, "case_hash": identity.case_hash}
        columns |= {"status": "claimed", "owner": self._owner, "claimed": time.time(), "run": self.run}
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        db.execute(f"INSERT INTO trials ({names}) VALUES ({places})", tuple(columns.values()))

    def _mine(self, identity: Identity) -> Claim:
        self._claimed[identity.key] = identity
        return Claim("mine")

    def _rows(self, decode: Callable[[sqlite3.Row], _Decoded], **wanted: str | None) -> list[_Decoded]:
        given = {name: value for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in given)
        query = f"SELECT * FROM trials WHERE status = 'done'{where} ORDER BY finished, key"
        return self._file.read(lambda db: [decode(row) for row in db.execute(query, tuple(given.values()))])


def _set(db: sqlite3.Connection, key: str, **values: Any) -> bool:
    """Change columns of a row; return False if there is no such row."""
    assignments = ", ".join(f"{name} = ?" for name in values)
    return db.execute(f"UPDATE trials SET {assignments} WHERE key = ?", (*values.values(), key)).rowcount > 0


def _record(row: sqlite3.Row) -> dict:
    hidden = {"owner", "claimed", "attempts", "status"}
    names = [name for name in row.keys() if name not in hidden]  # noqa: SIM118
    return {name: json.loads(row[name]) if name in JSON_COLUMNS else row[name] for name in names}


def _trial(row: sqlite3.Row) -> Trial:
    plain = {name: row[name] for name in (*_PLAIN, "op", "variant", "language", "device", "arch")}
    decoded = {name: json.loads(row[name]) for name in (*_JSON, "config")}
    decoded |= {name: tuple(decoded[name]) for name in ("samples", "leader_samples")}
    plain["from_cache"] = None if row["from_cache"] is None else bool(row["from_cache"])
    return Trial(case=row["case_name"], reused=True, **plain, **decoded)


def _json(value: Any) -> str:
    """Return canonical JSON, with infinity and NaN as text."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str, allow_nan=False)
    except ValueError:
        return canonical(_finite(value))


def _finite(value: Any) -> Any:
    """Return the value with infinity and NaN as text, as JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
