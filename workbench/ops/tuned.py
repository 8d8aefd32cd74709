"""Lookup of the configuration that an op should run, in the tuned tables.

A table is one JSON file per device, ``$WORKBENCH_HOME/tuned/<device>.json`` of the user, or
``recorded/tuned/<device>.json`` in a package that ships some (entry point ``workbench.recorded``). The user's entries
come first. Each entry is the best configuration that a tuning run found for one problem (sizes, dtype, layout, page
size). A lookup takes, in this order,

1. ``exact``: an entry for this very problem,
2. ``nearest``: the entry whose sizes are nearest in log space, while all the rest (dtype, layout, features) is equal,
3. ``architecture``: an entry found so in the tables of other devices of the same architecture,
4. ``default``: the variant's untuned rule,

and skips every entry that is illegal for the problem. (The page size of a running cache is part of the problem and of
the variant's rules, so it restricts the choice by itself.) The simulator has tables of its own, whose times are
predicted for the GPU in the table's name.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from workbench.analysis.device_models import DEFAULT_MODEL, DeviceModel
from workbench.base.callers import caller_level
from workbench.base.home import home
from workbench.base.recorded import recorded_folders
from workbench.errors import ConfigurationError, StaleTuningWarning, StoreError, StoreWarning
from workbench.ops.registry import get
from workbench.ops.remedies import tune_remedy

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.ops.variant import Variant

FORMAT = 1

SIM_TABLE = "sim-a100-sxm-80gb"
"""Name of the simulator's table, with times predicted for its default device model."""

LOOK_SECONDS = 0.05
"""Seconds for which a table written by another process may go unnoticed.

Checking the folder costs more than the lookup.
"""

# More problems than a serving process meets between two tunings; beyond this number the cache is cleared.
_REMEMBERED = 4096


@dataclass(frozen=True)
class TunedEntry:
    """One winner of a tuning run. Times are in seconds; ``basis`` is "measured" or "predicted"."""

    op: str
    variant: str
    problem: Mapping[str, Any]
    config: Mapping[str, Any]
    seconds: float
    basis: str
    source_hash: str
    case: str = ""
    default_config: Mapping[str, Any] | None = None
    default_seconds: float | None = None
    recorded: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    sample: str = ""
    """For a case counted by a sample of blocks: the number of blocks, and the case that values were judged on."""

    @property
    def key(self) -> str:
        """Key of the entry: a newer entry for an equal op, variant and problem replaces it."""
        return json.dumps([self.op, self.variant, self.problem], sort_keys=True)


@dataclass(frozen=True)
class TunedTable:
    """The entries of one device, from one file."""

    device: str
    arch: str
    description: str
    entries: tuple[TunedEntry, ...]
    path: Path


@dataclass(frozen=True)
class TunedLookup:
    """The answer to a lookup.

    ``str()`` explains it; ``considered`` (with ``explain=True``) has the reasons against the others.
    """

    variant: str
    config: Mapping[str, Any]
    level: str
    """"exact", "nearest", "architecture" or "default"."""
    source: str
    """The table's file, or a description of the default rule."""
    entry: TunedEntry | None = None
    distance: float = 0.0
    """Distance between the entry's and the problem's sizes; 1 is a factor of two in one size."""
    stale: bool = False
    """True if the variant's source has changed since. The entry is still legal, but may no longer be the best.

    A lookup warns of it.
    """
    considered: tuple[str, ...] = ()

    @property
    def gain(self) -> float | None:
        """Speed relative to the default configuration when it was tuned, 2.0 for twice as fast; None if unknown."""
        if self.entry is None or not self.entry.default_seconds:
            return None
        return self.entry.default_seconds / self.entry.seconds

    def __str__(self) -> str:
        config = " ".join(f"{name}={value}" for name, value in self.config.items()) or "(nothing to tune)"
        if self.entry is None:
            return "\n".join([f"{self.variant} {config}: default, {self.source}", *self.considered])
        gain = "" if self.gain is None else f", {self.gain:.2f} times the speed of the default"
        lines = [
            f"{self.variant} {config}: {self.level} match, tuned for {self.entry.case} on {self.entry.recorded}",
            f"  {self.entry.basis} {self.entry.seconds * 1e6:.2f} µs{gain}; from {self.source}",
        ]
        if self.level != "exact":
            lines.append(f"  its sizes differ by {self.distance:.2f} (1 is a factor of two in one size)")
        if self.stale:
            lines.append("  stale: the variant's source has changed since; tune again")
        return "\n".join([*lines, *self.considered])


def lookup(
    op: str | Op,
    variant: str | Variant | None,
    problem: Any,
    device: Any = "sim",
    *,
    explain: bool = False,
) -> TunedLookup | None:
    """Look up the configuration to run for a problem.

    Args:
        op: name or value.
        variant: name or value; None for the fastest of all variants.
        problem: a value of the op's own class; its numbers are its sizes.
        device: "sim", "cuda", a device, or a table's name.
        explain: also give the reason why each other entry was not taken.

    Warns:
        StaleTuningWarning: the answer was tuned for an older source of the variant; once for each problem.
        StoreWarning: a table cannot be read and is left out; names the file and the remedy.

    Returns:
        The configuration and its origin; None if not even a default configuration is legal.
    """
    name = op if isinstance(op, str) else op.name
    variant_name = variant if variant is None or isinstance(variant, str) else variant.name
    tables = _tables_now()
    key = (name, variant_name, problem, table_name(device))
    found: Any = tables.answers.get(key, tables)
    if found is tables or explain:
        found = _find(tables, get(op), variant_name, problem, key[-1], explain)
        if not explain:
            if len(tables.answers) >= _REMEMBERED:
                tables.answers.clear()
            tables.answers[key] = found
            if found is not None and found.stale:
                remedy = f"it may no longer be the best. Tune again: {tune_remedy(get(op))}"
                what = f"{name}: {found.variant} {dict(found.config)} was tuned for an older source of the variant"
                warnings.warn(f"{what}; {remedy}", StaleTuningWarning, stacklevel=caller_level())
    return found


def recorded(op: Op, variant: Variant, problem: Any, device: Any) -> TunedLookup | None:
    """Return the tuned configuration of a problem or one like it; None without one or without tunables."""
    found = lookup(op, variant, problem, device) if variant.space else None
    return None if found is None or found.level == "default" else found


def table_name(device: Any) -> str:
    """Return the name of a device's table; ``device`` is "sim", "cuda", a device, or a table's name itself."""
    name = device if isinstance(device, str) else device.name
    if name == "sim":
        return SIM_TABLE
    if name == "cuda":
        import torch

        return slug(torch.cuda.get_device_name())
    return name


def sim_table(model: DeviceModel | None) -> str:
    """Return the name of the table with results that are predicted for a model; None stands for the default one."""
    return SIM_TABLE if model is None or model.key == DEFAULT_MODEL else f"sim-{slug(model.key)}"


def slug(name: str) -> str:
    """Return a GPU's name as a file name: ``"nvidia-h200"`` for ``"NVIDIA H200"``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def user_folder() -> Path:
    """Return the folder of this user's tables."""
    return home() / "tuned"


def read_table(path: Path) -> TunedTable:
    """Return a table from its file. Raises StoreError, naming the file and the remedy, if it cannot be read."""
    remedy = f"Move it aside (mv {path} {path}.broken) and tune again."
    try:
        record = json.loads(path.read_text())
        if record["format"] > FORMAT:
            raise StoreError(
                f"tuned table {path}: format {record['format']} is newer than {FORMAT}. Update the workbench."
            )
        entries = tuple(_checked(TunedEntry(**entry)) for entry in record["entries"])
        return TunedTable(record["device"], record["arch"], record["description"], entries, path)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise StoreError(f"tuned table {path}: damaged ({type(error).__name__}: {error}). {remedy}") from error


def _checked(entry: TunedEntry) -> TunedEntry:
    """Return an entry whose values are of their kinds. Raises ValueError for another, by name."""
    kinds: dict[str, Any] = {"op": str, "variant": str, "basis": str, "source_hash": str}
    kinds |= {"problem": Mapping, "config": Mapping, "seconds": int | float}
    for name, kind in kinds.items():
        value = getattr(entry, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} of an entry is {value!r:.40}")
    if not 0 < entry.seconds < math.inf:
        raise ValueError(f"seconds of an entry is {entry.seconds}")
    return entry


def table_record(table: TunedTable) -> dict:
    """Return the content that :func:`read_table` reads, ready for JSON."""
    record = {"format": FORMAT} | {name: value for name, value in asdict(table).items() if name != "path"}
    for entry in record["entries"]:
        if not entry["sample"]:
            del entry["sample"]
    return record


def problem_record(problem: Any) -> dict:
    """Return a problem as plain values, without the GPU, which the table names."""
    record = problem.to_dict() if hasattr(problem, "to_dict") else asdict(problem)
    record = json.loads(json.dumps(record))
    return {name: value for name, value in record.items() if name not in ("arch", "multiprocessors")}


def entries_of(op: str) -> list[tuple[TunedTable, TunedEntry]]:
    """Return every entry of an op with its table, by device.

    The user's own replaces a shipped one for an equal problem.
    """
    tables = _tables_now().by_name
    return [pair for name in sorted(tables) for pair in _entries(tables[name]) if pair[1].op == op]


# -- the tables in memory ---------------------------------------------------------------------------------------


@dataclass
class _Tables:
    """All tables in one state of the user's folder, and the answers already found in them."""

    by_name: dict[str, tuple[TunedTable, ...]]
    answers: dict[tuple, TunedLookup | None] = field(default_factory=dict)
    hashes: dict[Any, str] = field(default_factory=dict)


@dataclass
class _State:
    """The tables and the state of the user's folder when it was last checked."""

    variable: str | None
    folder: Path
    changed: int | None
    looked: float
    tables: _Tables


_state: _State | None = None


def _tables_now() -> _Tables:
    """Return the tables, read again if the user's folder has changed.

    Replacing a table renames a file, which changes the folder.
    """
    global _state
    variable = os.environ.get("WORKBENCH_HOME")
    now = time.monotonic()
    state = _state if _state is not None and _state.variable == variable else None
    if state is not None and now - state.looked < LOOK_SECONDS:
        return state.tables
    folder = user_folder() if state is None else state.folder
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        changed = None
    tables = state.tables if state is not None and state.changed == changed else _Tables(_read_all(folder))
    _state = _State(variable, folder, changed, now, tables)
    return tables


def forget() -> None:
    """Read the tables again at the next lookup, even if the folder looks unchanged.

    Two changes within one tick of the file system's clock look alike.
    """
    global _state
    _state = None


def _read_all(folder: Path) -> dict[str, tuple[TunedTable, ...]]:
    tables: dict[str, tuple[TunedTable, ...]] = {}
    for path in (path for each in (folder, *recorded_folders("tuned")) for path in sorted(each.glob("*.json"))):
        try:
            table = read_table(path)
        except StoreError as error:
            warnings.warn(f"{error} Until then it is left out, and defaults apply.", StoreWarning, stacklevel=2)
            continue
        tables[path.stem] = (*tables.get(path.stem, ()), table)
    return tables


def _entries(tables: tuple[TunedTable, ...]) -> Iterator[tuple[TunedTable, TunedEntry]]:
    """Yield the entries of a device; the user's own come before, and replace, shipped ones for an equal problem."""
    seen = set()
    for table in tables:
        for entry in table.entries:
            if entry.key not in seen:
                seen.add(entry.key)
                yield table, entry


# -- choosing ---------------------------------------------------------------------------------------------------


def _find(tables: _Tables, op: Op, variant: str | None, problem: Any, device: str, explain: bool) -> TunedLookup | None:
    names = {one.name: one for one in op.variants if variant in (None, one.name)}
    if variant is not None and not names:
        op.variant(variant)  # raises UnknownNameError, which lists the variants
    record = problem_record(problem)
    arch = getattr(problem, "arch", None)
    notes: list[str] = []
    best: tuple[tuple, TunedLookup] | None = None
    for name in (device, *(other for other in tables.by_name if other != device)):
        if name != device and not any(table.arch == arch for table in tables.by_name[name]):
            continue
        for table, entry in _entries(tables.by_name.get(name, ())):
            if entry.op != op.name or entry.variant not in names:
                continue
            distance = _distance(entry.problem, record)
            label = f"  not {entry.variant} {dict(entry.config)} ({name}, {entry.case}): "
            if distance is None:
                notes.append(label + "tuned for another dtype, layout or feature")
                continue
            broken = _broken(names[entry.variant], entry.config, problem)
            if broken:
                notes.append(label + broken)
                continue
            level = "architecture" if name != device else "exact" if distance == 0 else "nearest"
            stale = _source_hash(tables, names[entry.variant]) != entry.source_hash
            found = TunedLookup(entry.variant, dict(entry.config), level, str(table.path), entry, distance, stale)
            rank = (level == "architecture", round(distance, 6), stale, entry.basis != "measured", entry.seconds)
            if best is None or rank < best[0]:
                if best:
                    notes.append(_passed_over(best[1]))
                best = rank, found
            else:
                notes.append(_passed_over(found))
    answer = best[1] if best else _default(op, names, problem, device)
    return answer if answer is None or not explain else TunedLookup(**{**answer.__dict__, "considered": tuple(notes)})


def _passed_over(found: TunedLookup) -> str:
    assert found.entry is not None  # it comes from a table
    stale = ", stale" if found.stale else ""
    return (
        f"  not {found.variant} {dict(found.config)} ({Path(found.source).stem}): {found.level}, at distance "
        f"{found.distance:.2f}{stale}, {found.entry.basis} {found.entry.seconds * 1e6:.2f} µs"
    )


def _default(op: Op, names: Mapping[str, Variant], problem: Any, device: str) -> TunedLookup | None:
    """Return the untuned rule's choice for the last variant in teaching order that can run the problem, or None.

    A torch variant is taken only if it is the only one asked for.
    """
    for one in reversed(list(names.values())):
        if not one.compiles and len(names) > 1:
            continue
        if one.unsupported(problem):
            continue
        try:
            config = one.default_config(problem)
        except ConfigurationError:  # not one is legal; of a variant that was asked for alone the reason is told
            if len(names) == 1:
                raise
            continue
        if not _broken(one, config, problem):
            return TunedLookup(
                one.name, config, "default", f"the untuned rule: nothing tuned for {op.name} on {device} fits"
            )
    return None


def _broken(variant: Variant, config: Mapping, problem: Any) -> str:
    """Return the reason why a configuration is illegal, or "". An entry of an older space may lack a tunable."""
    if set(config) != set(variant.space):
        return f"its tunables {sorted(config)} are not those of the variant, {sorted(variant.space)}"
    return "; ".join(f"{rule.name}: {rule.rule}" for rule in variant.broken(config, problem))


def _distance(tuned: Mapping[str, Any], wanted: Mapping[str, Any]) -> float | None:
    """Return the Euclidean distance of two problems' sizes in log2; None if they differ in anything but sizes.

    A size that is None in the wanted problem is free and matches any.
    """
    total = 0.0
    for name, value in wanted.items():
        other = tuned.get(name)
        if value == other or (value is None and _is_size(other)):
            continue
        if not (_is_size(value) and _is_size(other)):
            return None
        total += math.log2((value + 1) / (other + 1)) ** 2
    return math.sqrt(total)


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _source_hash(tables: _Tables, variant: Variant) -> str:
    if variant not in tables.hashes:
        tables.hashes[variant] = variant.source_hash
    return tables.hashes[variant]
