"""Verdicts that a store keeps beside its trials: one row for each judged candidate, keyed by its content."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.trials.store import default_path
from workbench.base.trials.store_file import StoreFile


class JudgementStore:
    """Judgements in a tuning store's file, as the plain values of `workbench.judge.Judgement.to_dict`.

    Raises StoreError as `workbench.base.trials.store.Store` does. Use it as a context manager.
    """

    def __init__(self, path: str | Path | None = None):
        self._file = StoreFile(Path(path) if path is not None else default_path())

    def __enter__(self) -> JudgementStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def get(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the records of those keys that have one."""
        query = "SELECT record FROM judgements WHERE key = ?"
        rows = self._file.read(lambda db: [(key, db.execute(query, (key,)).fetchone()) for key in keys])
        return {key: json.loads(row["record"]) for key, row in rows if row is not None}

    def keep(self, key: str, record: Mapping[str, Any]) -> None:
        """Commit a record, replacing an earlier one of that key."""
        values = (key, record["op"], record["candidate"], record["outcome"], json.dumps(record), time.time())
        query = "INSERT OR REPLACE INTO judgements VALUES (?, ?, ?, ?, ?, ?)"
        self._file.write(lambda db: db.execute(query, values))
