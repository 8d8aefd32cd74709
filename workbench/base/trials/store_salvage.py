"""Salvage of a damaged tuning store: copy the rows that SQLite still reads into a new one.

The other rows can be computed again. A row's key is the digest of its identity, so a row with a damaged identity gives
itself away. A row whose result is not as the store writes it (a JSON column without JSON, an unknown outcome) is left
behind, too.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.trials import store_schema
from workbench.base.trials.trial import digest

_IDENTITY = ("op", "variant", "source_hash", "case_json", "config", "device", "arch", "toolchain")
_BATCH = 256
_LEAST_ROW_BYTES = 256  # a row with its key, hashes and versions; bounds the number of rows in a file


def row_key(row: Mapping[str, Any] | sqlite3.Row) -> str:
    """Return the digest that identifies a row, from its columns."""
    return digest(*(row[name] for name in _IDENTITY))


def salvage(damaged: Path, new: Path) -> int:
    """Copy the readable, valid rows into ``new``, which is made, and return how many they are."""
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as target:
        target.execute("BEGIN IMMEDIATE")
        store_schema.create(target)
        known = [row[1] for row in target.execute("PRAGMA table_info(trials)")]
        with contextlib.closing(sqlite3.connect(damaged)) as source:
            source.row_factory = sqlite3.Row
            source.execute("PRAGMA writable_schema = ON")  # else SQLite reads nothing of a file that was cut
            rows = ({name: row[name] for name in row.keys()} for row in _rows(source, damaged.stat().st_size))  # noqa: SIM118
            kept = sum(_insert(target, row, known) for row in rows)
        target.execute("COMMIT")
    return kept


def _insert(target: sqlite3.Connection, row: Mapping[str, Any], known: Sequence[str]) -> bool:
    """Insert a row if it is valid and not there already; return True if it was inserted."""
    values = {name: row[name] for name in row if name in known}
    names, places = ", ".join(values), ", ".join("?" * len(values))
    with contextlib.suppress(sqlite3.IntegrityError):
        if _right(values):
            target.execute(f"INSERT INTO trials ({names}) VALUES ({places})", tuple(values.values()))
            return True
    return False


def _rows(source: sqlite3.Connection, size: int) -> Iterator[sqlite3.Row]:
    """Yield every readable row, batch by batch, and one by one where a batch cannot be read."""
    query = "SELECT * FROM trials NOT INDEXED WHERE rowid BETWEEN ? AND ?"
    try:
        last = source.execute("SELECT max(rowid) FROM trials NOT INDEXED").fetchone()[0] or 0
    except sqlite3.Error:
        last = size // _LEAST_ROW_BYTES
    for first in range(1, last + 1, _BATCH):
        try:
            yield from source.execute(query, (first, first + _BATCH - 1)).fetchall()
        except sqlite3.Error:
            for rowid in range(first, first + _BATCH):
                with contextlib.suppress(sqlite3.Error):
                    yield from source.execute(query, (rowid, rowid)).fetchall()


def _right(values: dict) -> bool:
    try:
        for name in store_schema.JSON_COLUMNS:
            json.loads(values[name])
        return row_key(values) == values["key"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
