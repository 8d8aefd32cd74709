"""Writing of the tuned tables: the winners of a tuning run, where the ops find them.

Reading (:func:`lookup`) lives in :mod:`workbench.ops.tuned`, because ops may not import tuning.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from workbench.analysis.device_models import DeviceModel
from workbench.base.files import replace_file
from workbench.errors import StoreError
from workbench.launch.devices import Device
from workbench.ops.tuned import (
    SIM_TABLE,
    TunedEntry,
    TunedLookup,
    TunedTable,
    forget,
    lookup,
    read_table,
    sim_table,
    slug,
    table_name,
    table_record,
    user_folder,
)

__all__ = [
    "SIM_TABLE",
    "TunedEntry",
    "TunedLookup",
    "TunedTable",
    "check_usable",
    "lookup",
    "name_for",
    "read_table",
    "record",
    "slug",
    "table_name",
]


def name_for(device: Device, model: DeviceModel) -> str:
    """Return the table that results on ``device`` belong to; on the simulator it is the device model's."""
    if device.name != "sim":
        return table_name(device)
    return sim_table(model)


def check_usable(name: str) -> None:
    """Raise StoreError if results for a device cannot be recorded; call it before a long search, not after."""
    path = user_folder() / f"{name}.json"
    with _locked(path):
        if path.exists():
            read_table(path)


def record(
    entries: Iterable[TunedEntry], *, name: str, arch: str, description: str, folder: Path | None = None
) -> tuple[Path, list[TunedEntry]]:
    """Merge entries into a device's table; return its file and the entries that changed it.

    An entry replaces the one for the same op, variant and problem, unless that one is faster, of the same basis and
    from the same source: a short search does not undo a longer one, nor a sample of blocks a run of all. Safe between
    processes; the file is replaced whole, so that a reader sees the old one or the new one. Raises StoreError if the
    present file is damaged (it is left as it is) or cannot be written.
    """
    folder = folder or user_folder()
    path = folder / f"{name}.json"
    taken = []
    with _locked(path):
        present = read_table(path) if path.exists() else TunedTable(name, arch, description, (), path)
        merged = {entry.key: entry for entry in present.entries}
        for entry in entries:
            old = merged.get(entry.key)
            if old is not None and _keeps(old, entry):
                continue
            merged[entry.key] = entry
            taken.append(entry)
        if taken or not path.exists():
            ordered = tuple(sorted(merged.values(), key=lambda entry: entry.key))
            _replace(path, replace(present, arch=arch, description=description, entries=ordered))
    forget()
    return path, taken


def _keeps(old: TunedEntry, new: TunedEntry) -> bool:
    """Return True if the old entry stays.

    It stays if it says the same, or if its time is comparable and better, or is of all blocks and the new one of a
    sample.
    """
    comparable = (old.basis, old.source_hash, old.versions) == (new.basis, new.source_hash, new.versions)
    if comparable and bool(old.sample) != bool(new.sample):
        return not old.sample
    if old.config == new.config:
        return comparable and (old.seconds, old.sample) == (new.seconds, new.sample)
    return comparable and old.seconds <= new.seconds


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the table's lock: one process at a time reads, merges and replaces it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("w")
    except OSError as error:
        raise StoreError(
            f"tuned table {path}: {error}. Name a folder that can be written in $WORKBENCH_HOME."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, table: TunedTable) -> None:
    text = json.dumps(table_record(table), indent=1) + "\n"
    try:
        replace_file(path, text, durable=True)
    except OSError as error:
        raise StoreError(f"tuned table: {error} Set $WORKBENCH_HOME to another folder.") from error
