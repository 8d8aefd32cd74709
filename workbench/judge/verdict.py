"""What a judge says: one verdict for each variant, configuration and case, and all of them together."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.tables import Table, Tabular
from workbench.judge.outcomes import OK, exit_status

SCHEMA = "workbench-check/1"
"""The version of the JSON; its schema is the file `SCHEMA_FILE`."""

SCHEMA_FILE = Path(__file__).with_name("schema.json")
"""A JSON schema of what ``workbench check --json`` prints."""


@dataclass(frozen=True)
class Found:
    """One finding of the machine: its kind and message, ``file:line`` in the source, block, thread, and how often."""

    kind: str
    message: str
    line: str
    block: tuple[int, ...]
    thread: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Verdict:
    """How one configuration of a variant fared on one case.

    Attributes:
        op, variant, case, config: what was judged; the candidate itself says its variant's name and configuration.
        outcome: the first failure, a name of `workbench.judge.OUTCOMES`, or ``"ok"``.
        message: the failure in words; empty for ``"ok"``.
        line: ``file:line`` of the kernel's source, where the failure has one.
        place: the element with the largest error and both values, of a wrong result.
        max_error, bound: the largest error and what was allowed there; None where nothing was compared.
        seeds: those that the inputs were drawn with; ``seeds=`` repeats them.
        elsewhere: names of `workbench.judge.elsewhere.CHANGES`, changed inputs on which it was right, too. Where it is
            not, a verdict of its own follows, ``"wrong_elsewhere"``.
        findings: what the machine's checks found, each once.
        seconds: for describing and running it.
        launches, operators, predicted_seconds: of a solution in KernelBench's format, in its first call: how many
            kernels it launched, torch's operators that computed with their counts, and the time predicted for it.
        torch_compile_seconds: beside it the time predicted for what ``torch.compile`` writes for the reference; None
            where it was not asked for, or `torch_compile_message` says why there is none. `torch_compile_operators`
            are those that it leaves to torch's libraries, whose predicted time is that of their bytes alone.
    """

    op: str
    variant: str
    case: str
    config: Mapping[str, Any]
    outcome: str
    message: str = ""
    line: str = ""
    place: str = ""
    max_error: float | None = None
    bound: float | None = None
    seeds: tuple[int, ...] = ()
    elsewhere: tuple[str, ...] = ()
    findings: tuple[Found, ...] = ()
    seconds: float = 0.0
    launches: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    predicted_seconds: float | None = None
    torch_compile_seconds: float | None = None
    torch_compile_operators: tuple[str, ...] = ()
    torch_compile_message: str = ""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """Return the verdict of `to_dict`'s values."""
        several = {name: tuple(record[name]) for name in ("seeds", "elsewhere", "torch_compile_operators")}
        findings = (one | {"block": tuple(one["block"]), "thread": tuple(one["thread"])} for one in record["findings"])
        return cls(**{**record, **several, "findings": tuple(Found(**one) for one in findings)})

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.outcome == OK

    def to_dict(self) -> dict:
        """Plain values that any JSON parser takes: an error that is no finite number is None."""
        record = dataclasses.asdict(self)
        for name in ("max_error", "bound"):
            if record[name] is not None and not math.isfinite(record[name]):
                record[name] = None
        return record

    def _who(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.variant} ({config})" if config else self.variant

    def _error(self) -> str:
        return "" if self.max_error is None else f"{self.max_error:.2e} of {self.bound:.2e}"

    def _times(self) -> str:
        if self.predicted_seconds is None:
            return ""
        words = [f"; predicted {self.predicted_seconds * 1e6:.2f} µs"]
        if self.torch_compile_seconds is not None:
            libraries = f" with {', '.join(self.torch_compile_operators)} of libraries, by their bytes"
            left = libraries if self.torch_compile_operators else ""
            words.append(f"the reference by torch.compile {self.torch_compile_seconds * 1e6:.2f} µs{left}")
        elif self.torch_compile_message:
            words.append(f"none for the reference by torch.compile ({self.torch_compile_message})")
        return ", ".join(words)

    def __str__(self) -> str:
        head, error = f"{self.op}/{self._who()} on {self.case}: {self.outcome}", self._error()
        if self.ok:
            also = f"; also {', '.join(self.elsewhere)}" if self.elsewhere else ""
            torch = f"; torch: {', '.join(self.operators)}" if self.operators else ""
            return f"{head}, error {error}{also}{self._times()}{torch}" if error else head
        return f"{head}: {self.message}"


@dataclass(frozen=True, repr=False)
class Judgement(Tabular):
    """All verdicts on an op's variants, or on a candidate, in the order in which they were reached.

    Attributes:
        op: its name.
        candidate: the file that was judged; empty for the op's own variants.
        verdicts: one for each variant, configuration and case.
        op_file: the file that declares the op; empty for a built-in one and one of a notebook's cell.
        op_sha256: SHA-256 of that file as it was read; without one, of what decides about the op.
    """

    op: str
    candidate: str
    verdicts: tuple[Verdict, ...] = field(default=())
    op_file: str = ""
    op_sha256: str = ""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Judgement:
        """Return the judgement of `to_dict`'s values."""
        verdicts = tuple(Verdict.from_dict(one) for one in record["verdicts"])
        return cls(record["op"], record["candidate"], verdicts, record["op_file"], record["op_sha256"])

    @property
    def ok(self) -> bool:
        """Whether there is a verdict, and every one is ``"ok"``."""
        return bool(self.verdicts) and all(verdict.ok for verdict in self.verdicts)

    @property
    def first_failure(self) -> Verdict | None:
        """The first verdict that is not ``"ok"``."""
        return next((verdict for verdict in self.verdicts if not verdict.ok), None)

    @property
    def exit_status(self) -> int:
        """What ``workbench check`` returns: that of `outcome`."""
        return exit_status(self.outcome)

    @property
    def outcome(self) -> str:
        """The first failure's, or ``"ok"``; nothing judged is nothing passed."""
        failure = self.first_failure
        return failure.outcome if failure is not None else OK if self.verdicts else "no_kernel"

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def to_dict(self) -> dict:
        """Plain values."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "op_file": self.op_file,
            "op_sha256": self.op_sha256,
            "candidate": self.candidate,
            "ok": self.ok,
            "outcome": self.outcome,
            "exit_status": self.exit_status,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """As ``workbench check --json`` prints it; ``schema.json`` beside this module says what stands where."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        passed = sum(verdict.ok for verdict in self.verdicts)
        what = f"{self.op}, {self.candidate}" if self.candidate else self.op
        lines = [f"{what}: {passed} of {len(self.verdicts)} passed", *(f"  {one}" for one in self.verdicts)]
        if self.op_file:
            lines.append(f"  by {self.op_file}, SHA-256 {self.op_sha256}")
        return "\n".join(lines)

    __repr__ = __str__

    def tables(self) -> list[Table]:
        """Return a table of one row per verdict."""
        names = ("variant", "case", "outcome", "what", "where", "error")
        cells = [
            (one._who(), one.case, f"{'✓' if one.ok else '✗'} {one.outcome}", one.message, one.line, one._error())
            for one in self.verdicts
        ]
        return [Table(names, cells, "l" * len(names), title=str(self).splitlines()[0])]
