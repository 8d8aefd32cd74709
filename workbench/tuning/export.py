"""A store's rows for other programs: JSON, CSV, a DataFrame."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from workbench.errors import ArgumentError
from workbench.files import replace_file
from workbench.frames import data_frame
from workbench.tuning.store import Store
from workbench.tuning.store_schema import SCHEMA_VERSION

FORMATS = (".json", ".csv")


def export(store: Store, path: str | Path, *, op: str | None = None) -> int:
    """Write the finished rows (of one op) to a .json or .csv file; returns how many.

    JSON keeps the nested columns (configuration, counts, samples, ...) as they are; in CSV they are JSON texts. Raises
    ArgumentError for another kind of file.
    """
    path = Path(path)
    records = store.records(op=op)
    if path.suffix == ".json":
        replace_file(path, json.dumps({"schema": SCHEMA_VERSION, "trials": records}, indent=1) + "\n")
    elif path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(records[0]) if records else [])
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in record.items()} for record in records)
        replace_file(path, text.getvalue())
    else:
        raise ArgumentError("path", str(path), f"a file ending in {' or '.join(FORMATS)}", "Rename it.")
    return len(records)


def to_frame(store: Store, *, op: str | None = None):
    """The finished rows (of one op) as a pandas DataFrame. Needs pandas (``[lab]``)."""
    return data_frame(store.records(op=op))


def _cell(value):
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
