"""The judge's result: one verdict for each variant, configuration and case, and all of them together."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base.tables import Table, Tabular
from workbench.judge.debugging import debug_command
from workbench.judge.outcomes import OK, exit_status

SCHEMA = "workbench-check/1"
"""Version of the JSON, whose schema is the file `SCHEMA_FILE`."""

_SHOWN = 5
"""Findings listed below the message, which has the first one."""

SCHEMA_FILE = Path(__file__).with_name("schema.json")
"""Path of the JSON schema of the output of ``workbench check --json``."""


@dataclass(frozen=True)
class Found:
    """One finding of the machine: its kind and message, ``file:line`` in the source, block, thread, and count.

    ``source`` has the text of the line and of a race's other side, each after its place, where the judge knows it.
    """

    kind: str
    message: str
    line: str
    block: tuple[int, ...]
    thread: tuple[int, ...]
    count: int
    source: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the finding as ``workbench run --check`` prints it: its line, its message, and the source lines."""
        return [f"{self.line}: {self.message}" if self.line else self.message, *(f"    {one}" for one in self.source)]

    def __str__(self) -> str:
        where = self.line or f"thread {self.thread} of block {self.block}"
        return f"{self.kind} at {where}" + (f", {self.count:,} times" if self.count > 1 else "")


def _found(record: Mapping[str, Any]) -> Found:
    """Return the finding of a verdict's JSON; an older one has no source lines."""
    return Found(**{**record, "source": tuple(record.get("source", ()))})


@dataclass(frozen=True)
class KernelProof:
    """The verdict of a proof on a kernel: ``status`` is "proved", "refuted" or "unknown".

    ``scope`` is how far it reaches, such as "all sizes"; ``text`` has preconditions, sizes and lines, and ``line`` the
    same in one line.
    """

    kernel: str
    status: str
    scope: str
    text: str
    line: str


@dataclass(frozen=True)
class Verdict:
    """The result of judging one configuration of a variant on one case.

    Attributes:
        op, variant, case, config: what was judged; the candidate itself reports its variant's name and configuration.
        outcome: the first failure, a name of `workbench.judge.OUTCOMES`, or ``"ok"``.
        message: the failure in words; empty for ``"ok"``.
        line: ``file:line`` of the kernel's source, if the failure has one.
        place: for a wrong result, the element with the largest error and both values.
        max_error, bound: the largest error and the error allowed there; None if nothing was compared.
        seeds: the seeds that the inputs were drawn with; ``seeds=`` repeats them.
        elsewhere: changed inputs on which it was right, too, named in `workbench.ops.declared.elsewhere.CHANGES`. If
            it is wrong on some, a verdict of its own follows, ``"wrong_elsewhere"``.
        findings: the findings of the machine's checks, each once.
        seconds: time to describe and run it.
        launches, operators, predicted_seconds: for the first call of a solution in KernelBench's format, the number of
            its kernel launches, torch's operators that computed with their counts, and the predicted time.
        torch_compile_seconds: the time predicted for the reference under ``torch.compile``, to compare with; None if it
            was not asked for, or if `torch_compile_message` says why there is none. `torch_compile_operators` are the
            operators left to torch's libraries, whose predicted time is that of their bytes alone.
        printed_bytes: the bytes that the candidate's processes had printed by then, if more than the 1 MiB that is
            kept; else 0.
        notes: what does not fail and a reader should know: a sum whose result depends on the order of its additions, a
            float32 problem that is summed in 16 bits, instructions that ptxas ignores or serializes.
        proofs: with ``prove=True`` what a proof says of each kernel. If one is refuted, a verdict of its own follows,
            ``"refuted"``.
        stage_seconds: seconds by stage: "compiles" (it was loaded and described), "launches" (its PTX was decoded, the
            inputs made), "clean" (it ran with all checks), "right" (the reference, and the comparison), "elsewhere",
            "proved".
        exact: with ``exact=True``, of a verdict ``"ok"``: whether its kernels are the same computation as the reference
            (docs/EXACT.md); it never changes the outcome.
        exact_difference: where they are not: the places, the terms that are missing, doubled or scaled, and a small
            input that shows it, in words.
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
    printed_bytes: int = 0
    notes: tuple[str, ...] = ()
    proofs: tuple[KernelProof, ...] = ()
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    exact: str = ""
    exact_difference: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """Return the verdict of `to_dict`'s values."""
        several = {name: tuple(record[name]) for name in ("seeds", "elsewhere", "torch_compile_operators")}
        for name in ("notes", "exact_difference"):
            several[name] = tuple(record.get(name, ()))  # a store may have older verdicts
        several["proofs"] = tuple(KernelProof(**one) for one in record.get("proofs", ()))
        findings = (one | {"block": tuple(one["block"]), "thread": tuple(one["thread"])} for one in record["findings"])
        return cls(**{**record, **several, "findings": tuple(map(_found, findings))})

    @property
    def ok(self) -> bool:
        """True if it passed."""
        return self.outcome == OK

    @property
    def further(self) -> tuple[str, ...]:
        """Kind and place of the findings after the first, which the message has: some, and the number of the others."""
        others = self.findings[1:]
        left = len(others) - _SHOWN
        return (*map(str, others[:_SHOWN]), *([f"{left} more, which the JSON has"] if left > 0 else []))

    def to_dict(self) -> dict:
        """Return plain values that any JSON parser accepts; an error that is not finite becomes None."""
        record = dataclasses.asdict(self)
        for name in ("max_error", "bound"):
            if record[name] is not None and not math.isfinite(record[name]):
                record[name] = None
        return record

    def _head(self) -> str:
        """Return what was judged; a candidate that was not loaded has neither variant nor case."""
        return f"{self.op}/{self._who()} on {self.case}" if self.variant else f"{self.op}, the candidate"

    def _who(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.variant} ({config})" if config else self.variant

    def _error(self) -> str:
        return "" if self.max_error is None else f"{self.max_error:.2e} of {self.bound:.2e}"

    def _output(self) -> str:
        if not self.printed_bytes:
            return ""
        return f"; it printed {self.printed_bytes / (1 << 20):,.0f} MiB, of which the last is kept"

    def _times(self) -> str:
        if self.predicted_seconds is None:
            return ""
        words = [f"; predicted {self.predicted_seconds * 1e6:.2f} µs"]
        if self.torch_compile_seconds is not None:
            libraries = f" with {', '.join(self.torch_compile_operators)} of libraries, by their bytes"
            left = libraries if self.torch_compile_operators else ""
            words.append(f"the reference by torch.compile {self.torch_compile_seconds * 1e6:.2f} µs{left}")
        elif self.torch_compile_message:
            words.append(f"no time for the reference by torch.compile ({self.torch_compile_message})")
        return ", ".join(words)

    def __str__(self) -> str:
        head, error = f"{self._head()}: {self.outcome}", self._error()
        if self.ok:
            count = len(self.elsewhere)
            also = f"; right for {count} other input{'s' * (count > 1)}" if count else ""
            torch = f"; torch: {', '.join(self.operators)}" if self.operators else ""
            said = f"{head}, error {error}{also}{self._times()}{torch}{self._output()}" if error else head
            return "\n    ".join([said, *self._noted])
        if not self.findings:
            return "\n    ".join([f"{head}: {self.message}{self._output()}", *self._noted])
        first, *others = self.findings
        shown = [replace(first, message=self.message), *others[:_SHOWN]]
        left = [f"{len(others) - _SHOWN} more, which the JSON has"] * (len(others) > _SHOWN)
        lines = [line for one in shown for line in one.lines()]
        return "\n    ".join([head + self._output(), *lines, *left, *self._noted])

    @property
    def _noted(self) -> tuple[str, ...]:
        exact = (f"exact: {self.exact}", *(f"    {one}" for one in self.exact_difference)) if self.exact else ()
        proofs = (f"proof: {one.kernel}{': ' * bool(one.kernel)}{one.line}" for one in self.proofs)
        return (*exact, *(f"note: {note}" for note in self.notes), *proofs)


@dataclass(frozen=True, repr=False)
class Judgement(Tabular):
    """All verdicts on an op's variants, or on a candidate, in the order in which they were reached.

    Attributes:
        op: name of the op.
        candidate: the file that was judged; empty for the op's own variants.
        verdicts: one for each variant, configuration and case.
        op_file: the file that declares the op; empty for a built-in op and one of a notebook's cell.
        op_sha256: SHA-256 of that file as it was read; without a file, of everything that the judging of the op uses.
        notes: the op's own variants that were left out of a case, because they are not declared for it.
    """

    op: str
    candidate: str
    verdicts: tuple[Verdict, ...] = field(default=())
    op_file: str = ""
    op_sha256: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Judgement:
        """Return the judgement of `to_dict`'s values."""
        verdicts = tuple(Verdict.from_dict(one) for one in record["verdicts"])
        notes = tuple(record.get("notes", ()))  # a store may have older judgements
        return cls(record["op"], record["candidate"], verdicts, record["op_file"], record["op_sha256"], notes)

    @property
    def ok(self) -> bool:
        """True if there is a verdict, and every verdict is ``"ok"``."""
        return bool(self.verdicts) and all(verdict.ok for verdict in self.verdicts)

    @property
    def first_failure(self) -> Verdict | None:
        """The first verdict that is not ``"ok"``; None if there is none."""
        return next((verdict for verdict in self.verdicts if not verdict.ok), None)

    @property
    def exit_status(self) -> int:
        """The exit status of ``workbench check`` for `outcome`."""
        return exit_status(self.outcome)

    @property
    def outcome(self) -> str:
        """Outcome of the first failure, or ``"ok"``; ``"no_kernel"`` if nothing was judged."""
        failure = self.first_failure
        return failure.outcome if failure is not None else OK if self.verdicts else "no_kernel"

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def to_dict(self) -> dict:
        """Return the judgement as plain values."""
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
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the output of ``workbench check --json``; ``schema.json`` beside this module describes it."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        passed = sum(verdict.ok for verdict in self.verdicts)
        what = f"{self.op}, {self.candidate}" if self.candidate else self.op
        lines = [f"{what}: {passed} of {len(self.verdicts)} passed"]
        for one, same in zip(self.verdicts, self._alike(), strict=True):
            lines.append(f"  {one._head()}: {one.outcome}, the findings that it has on {same}" if same else f"  {one}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.debug_command:
            lines.append(f"  inside: {self.debug_command}")
        if self.op_file:
            lines.append(f"  by {self.op_file}, SHA-256 {self.op_sha256}")
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def debug_command(self) -> str:
        """Command that stops inside the first kernel of the op's own which failed; "" without one."""
        if self.candidate:
            return ""
        commands = (
            debug_command(self.op, self.op_file, one.variant, one.case, one.config, one.outcome, bool(one.findings))
            for one in self.verdicts
        )
        return next(filter(None, commands), "")

    def _alike(self) -> list[str]:
        """Return for each verdict the case of an earlier one of the variant with findings of its kinds and places."""
        seen: dict[tuple, str] = {}
        found = []
        for one in self.verdicts:
            kinds = tuple((finding.kind, finding.line) for finding in one.findings)
            key = one.variant, str(dict(one.config)), one.outcome, kinds
            found.append(seen.get(key, "") if kinds and not one._noted else "")
            seen.setdefault(key, one.case)
        return found

    def about(self) -> Mapping[str, str]:
        """Return what was judged, by which file, and with which seeds."""
        seeds = dict.fromkeys(seed for one in self.verdicts for seed in one.seeds)
        return {
            "op": self.op,
            "candidate": self.candidate,
            "declared by": self.op_file,
            "SHA-256": self.op_sha256,
            "seeds": ", ".join(map(str, seeds)),
            "outcome": self.outcome,
        }

    def tables(self) -> list[Table]:
        """Return a table of one row per verdict."""
        names = ("variant", "case", "outcome", "what", "where", "error")
        cells = [
            (
                one._who(), one.case, f"{'✓' if one.ok else '✗'} {one.outcome}",
                f"the findings that it has on {same}" if same
                else "\n".join(filter(None, [one.message, *one.further, *one._noted])), one.line, one._error(),
            )
            for one, same in zip(self.verdicts, self._alike(), strict=True)
        ]  # fmt: skip
        return [Table(names, cells, "l" * len(names), str(self).splitlines()[0], "\n".join(self.notes))]
