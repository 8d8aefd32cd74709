"""The ledger of the benchmark: its rows in one JSON file that is complete after every cell.

The file is replaced, never modified in place, so that the results survive whenever the process ends. The same command
with the same file continues the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.base.documents import document
from workbench.base.packages import replace_file
from workbench.errors import ArgumentError

FORMAT = 2
"""Version of the file's format; since 2, a row has its contender's way and the ceiling measured after it."""

OUTCOMES = {
    "measured": "checked against float64 before and after it was timed",
    "predicted": "checked on a scaled-down cell and counted there; the time follows from the counts",
    "blank": "not run: the cell is not supported, or there was no memory or time for it",
    "wrong": "its output misses the error bound; it has no time",
    "failed": "it raised an error",
}
"""Outcomes of a contender at a cell; only the first two have a time."""

TIME_IS_UP = "the time was up"
"""Note of a row that is not kept, so that its contender runs when the benchmark is continued."""


@dataclass(frozen=True)
class LedgerRow:
    """Result of one contender on one cell; ``minimum_bytes`` are the bytes that any kernel must transfer."""

    cell: BenchmarkCell
    contender: str
    is_ours: bool
    outcome: str
    note: str = ""
    seconds: float | None = None
    spread_seconds: float | None = None
    """Median absolute deviation of the samples, in seconds."""
    samples: int = 0
    minimum_bytes: int = 0
    max_error: float | None = None
    error_bound: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    way: str = ""
    """Label of the contender's way that counts; ``note`` has the failures of the others."""
    ways: Mapping[str, float] = field(default_factory=dict)
    """Seconds of every correct way, by label."""
    unfinished: bool = False
    """True if a way was skipped because compiling took too long; it runs when the benchmark is continued."""
    ceiling: float | None = None
    """Bytes per second of the streaming kernel just after this cell."""
    bytes_in_flight: float | None = None
    """Bytes of keys and values in flight per multiprocessor (`workbench.attention.bench.paged_attention.in_flight`)."""
    prepare_seconds: float | None = None
    prediction: Mapping[str, Any] = field(default_factory=dict)

    @property
    def turn(self) -> tuple[BenchmarkCell, str]:
        """Key of the row: its cell and contender."""
        return self.cell, self.contender

    @property
    def bytes_per_second(self) -> float | None:
        """Speed in minimum bytes per second; a kernel that reads some bytes twice transferred more."""
        return None if self.seconds is None else self.minimum_bytes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, with bytes per second, as the benchmark's JSON file has them."""
        return asdict(self) | {"cell": self.cell.to_dict(), "bytes_per_second": self.bytes_per_second}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the row of a record that `to_dict` made; unknown keys are ignored."""
        known = {item.name: record[item.name] for item in fields(cls)}
        return cls(**known | {"cell": BenchmarkCell.from_dict(record["cell"])})


@dataclass
class Ledger:
    """The rows so far, and a description of the run.

    ``head`` holds plain values: "basis" ("measured" or "predicted"), "machine", "versions", "started", "ceiling" and
    others that describe the run. Those in `_SAME` must agree when a file is continued.
    """

    head: dict[str, Any]
    rows: list[LedgerRow] = field(default_factory=list)
    path: Path | None = None
    _places: dict[tuple[BenchmarkCell, str], int] = field(default_factory=dict, init=False, repr=False)
    """Index in ``rows`` of each cell and contender."""

    _SAME = ("basis", "machine", "versions")

    def __post_init__(self) -> None:
        self._places = {row.turn: at for at, row in enumerate(self.rows)}

    @classmethod
    def open(cls, head: Mapping[str, Any], path: Path | None) -> Self:
        """Make a new ledger, or continue the one in the file.

        Raises:
            ArgumentError: if the file is not a ledger, or is of another machine or other versions, so that its rows
                cannot be compared with new ones.
        """
        head = {"format": FORMAT, **head}
        if path is None or not path.exists():
            return cls(head, path=path)
        try:
            record = json.loads(path.read_text())
            kept = record["head"]
            same_format = kept["format"] == FORMAT
            rows = [LedgerRow.from_dict(row) for row in record["rows"]] if same_format else []
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError("out", str(path), "a new file, or one of this benchmark", "Name another.") from error
        if not same_format:
            raise ArgumentError(
                "out",
                f"{path}, of format {kept['format']}",
                f"a new file, or one of format {FORMAT}",
                "Name another file: rows of other versions of this benchmark have other fields.",
            )
        plain = json.loads(json.dumps(head))
        for name in cls._SAME:
            if kept.get(name) != plain.get(name):
                raise ArgumentError(
                    "out",
                    f"{path}, whose {name} is {kept.get(name)}",
                    f"a new file, or one with {name} {plain.get(name)}",
                    "Name another file: rows of different machines cannot be compared.",
                )
        return cls(kept, rows, path)

    def has(self, cell: BenchmarkCell, contender: str) -> bool:
        """Return True if there is a finished row of a contender for a cell."""
        place = self._places.get((cell, contender))
        return place is not None and not self.rows[place].unfinished

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Add the rows of a cell, replacing unfinished ones of the same contender, and write the file."""
        for row in rows:
            place = self._places.setdefault(row.turn, len(self.rows))
            self.rows[place : place + 1] = [row]
        self.save()

    def save(self) -> None:
        """Write the file anew, if the ledger has one: to a temporary file that then replaces it."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, self.to_json())

    def to_document(self) -> str:
        """Return the ledger as a JSON document; see `workbench.base.documents`."""
        return document("bench-attention", head=self.head, rows=[row.to_dict() for row in self.rows])

    def to_json(self) -> str:
        """Return the ledger as the JSON of its file."""
        return json.dumps({"head": self.head, "rows": [row.to_dict() for row in self.rows]}, indent=1)
