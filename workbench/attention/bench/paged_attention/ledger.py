"""What the benchmark found, row by row, in one JSON file that is complete after every cell.

The file is replaced, never written into: whenever the process ends, what was found before is there. The same command
with the same file goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from workbench.attention.bench.paged_attention.cells import Cell
from workbench.base.documents import document
from workbench.base.files import replace_file
from workbench.errors import ArgumentError

FORMAT = 2
"""Of the file: 2 since a row names its contender's way and has the ceiling of its own time."""

OUTCOMES = {
    "measured": "checked against float64 before and after it was timed",
    "predicted": "checked on a scaled-down cell and counted there; the time follows from the counts",
    "blank": "it does not do this, or there was no room or time for it; nothing was run",
    "wrong": "its output misses the error bound; it has no time",
    "failed": "it raised an error",
}
"""How a contender's turn at a cell can end; only the first two have a time."""

TIME_IS_UP = "the time was up"
"""The note of a row that is not kept: its contender has its turn when the run is gone on with."""


@dataclass(frozen=True)
class Row:
    """One contender on one cell. Times are in seconds; ``minimum_bytes`` is what must cross memory once."""

    cell: Cell
    contender: str
    is_ours: bool
    outcome: str
    note: str = ""
    seconds: float | None = None
    spread_seconds: float | None = None
    """Median absolute deviation of the samples."""
    samples: int = 0
    minimum_bytes: int = 0
    max_error: float | None = None
    error_bound: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    way: str = ""
    """Which of the contender's ways this is; the others' failures stand in ``note``."""
    ways: Mapping[str, float] = field(default_factory=dict)
    """Seconds of every way that was right."""
    unfinished: bool = False
    """Whether a way was left out because compiling took too long: it has its turn when the run is gone on with."""
    ceiling: float | None = None
    """Bytes per second of the stream read just after this cell."""
    bytes_in_flight: float | None = None
    """Bytes of keys and values, per multiprocessor (see `workbench.attention.bench.paged_attention.in_flight`)."""
    prepare_seconds: float | None = None
    prediction: Mapping[str, Any] = field(default_factory=dict)

    @property
    def turn(self) -> tuple[Cell, str]:
        """Whose turn at what this was."""
        return self.cell, self.contender

    @property
    def bytes_per_second(self) -> float | None:
        """The speed at which the least number of bytes passed; a kernel that reads more moved more."""
        return None if self.seconds is None else self.minimum_bytes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The fields, with bytes per second, as the benchmark's JSON file has them."""
        return asdict(self) | {"cell": self.cell.to_dict(), "bytes_per_second": self.bytes_per_second}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The row of such a record; what else that has is left out."""
        known = {item.name: record[item.name] for item in fields(cls)}
        return cls(**known | {"cell": Cell.from_dict(record["cell"])})


@dataclass
class Ledger:
    """The rows so far, and what they were obtained with.

    ``head`` holds plain values: "basis" ("measured" or "predicted"), "machine", "versions", "started", "ceiling", and
    what else describes the run; those in `_SAME` must agree where a file is gone on with.
    """

    head: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    path: Path | None = None
    _places: dict[tuple[Cell, str], int] = field(default_factory=dict, init=False, repr=False)
    """Whose turn at what -> where in ``rows``."""

    _SAME = ("basis", "machine", "versions")

    def __post_init__(self) -> None:
        self._places = {row.turn: at for at, row in enumerate(self.rows)}

    @classmethod
    def open(cls, head: Mapping[str, Any], path: Path | None) -> Self:
        """A new ledger, or the one in the file.

        Raises:
            ArgumentError: the file is no such ledger, or from another machine or other versions; its rows would not
                compare with new ones.
        """
        head = {"format": FORMAT, **head}
        if path is None or not path.exists():
            return cls(head, path=path)
        try:
            record = json.loads(path.read_text())
            kept = record["head"]
            same_format = kept["format"] == FORMAT
            rows = [Row.from_dict(row) for row in record["rows"]] if same_format else []
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError("out", str(path), "a new file, or one of this benchmark", "Name another.") from error
        if not same_format:
            raise ArgumentError(
                "out",
                f"{path}, of format {kept['format']}",
                f"a new file, or one of format {FORMAT}",
                "Name another file: the rows of other versions of this benchmark hold other things.",
            )
        plain = json.loads(json.dumps(head))
        for name in cls._SAME:
            if kept.get(name) != plain.get(name):
                raise ArgumentError(
                    "out",
                    f"{path}, whose {name} is {kept.get(name)}",
                    f"a new file, or one with {name} {plain.get(name)}",
                    "Name another file: rows of different machines do not compare.",
                )
        return cls(kept, rows, path)

    def has(self, cell: Cell, contender: str) -> bool:
        """Whether that contender has had its turn at that cell, and nothing of it was left out."""
        place = self._places.get((cell, contender))
        return place is not None and not self.rows[place].unfinished

    def add(self, rows: Iterable[Row]) -> None:
        """Add the rows of a cell, each in place of an unfinished one of its contender, and write the file."""
        for row in rows:
            place = self._places.setdefault(row.turn, len(self.rows))
            self.rows[place : place + 1] = [row]
        self.save()

    def save(self) -> None:
        """Write everything to a new file beside the old one, then put it in its place."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, self.to_json())

    def to_document(self) -> str:
        """All of it as JSON; see `workbench.base.documents`."""
        return document("bench-attention", head=self.head, rows=[row.to_dict() for row in self.rows])

    def to_json(self) -> str:
        """All of it, for its file."""
        return json.dumps({"head": self.head, "rows": [row.to_dict() for row in self.rows]}, indent=1)
