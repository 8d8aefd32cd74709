"""The verdict of a proof: proved, refuted or unknown, with its preconditions, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.base.documents import Document, document
from workbench.base.tables import Table, Tabular, wrap

if TYPE_CHECKING:
    from workbench.analysis.check_report import CheckReport
    from workbench.ptx.proved import ProvedAccesses

PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"
STATUSES = {PROVED: 0, REFUTED: 1, UNKNOWN: 3}
"""Exit status of ``workbench prove`` for each verdict; 2 is that of a wrong argument."""
PROPERTIES = {
    "bounds": "no access out of bounds or misaligned",
    "races": "no race in a block or between blocks",
    "barriers": "barriers reached by all threads",
}


@dataclass(frozen=True)
class Counterexample:
    """A launch for which a property, the ``kind``, fails: ``sizes`` by name, ``threads`` as text.

    ``confirmed`` is the report of the machine, which ran that launch; ``remark`` says why there is none, or what it
    says. ``lines`` are those of the accesses.
    """

    kind: str
    text: str
    sizes: Mapping[str, int]
    threads: str
    lines: Sequence[str]
    remark: str = ""
    confirmed: CheckReport | None = field(default=None, compare=False)

    @property
    def holds(self) -> bool:
        """True if the machine confirms it."""
        return self.remark.startswith("confirmed")

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value:,}" for name, value in self.sizes.items())
        where = ", ".join(filter(None, (sizes, self.threads)))
        return f"{self.text}" + (f" ({where})" if where else "") + (f"; {self.remark}" if self.remark else "")


@dataclass(frozen=True, repr=False)
class Proof(Tabular, Document):
    """Verdict on one kernel for all launches of a family.

    Attributes:
        kernel: name of the kernel.
        status: ``"proved"``, ``"refuted"`` or ``"unknown"``.
        grid: the grid as formulas, with the block.
        preconditions: under which it is proved, in words; also those that a launch has to keep anyway.
        properties: verdict on bounds, races and barriers.
        counterexamples: the one that the machine confirmed, or those that it did not.
        reasons: why it is unknown.
        overflow: where the index arithmetic wraps without the preconditions.
        questions: number of questions to the solver.
        seconds: CPU seconds.
        accesses: what is proved as a plain value, with which checks of a run leave it out (`check_kernel`).
    """

    kernel: str
    status: str
    grid: str
    preconditions: tuple[str, ...]
    properties: Mapping[str, str]
    counterexamples: tuple[Counterexample, ...] = ()
    reasons: tuple[str, ...] = ()
    overflow: str = ""
    questions: int = 0
    seconds: float = field(default=0.0, compare=False)
    accesses: ProvedAccesses | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """True if everything is proved."""
        return self.status == PROVED

    def __bool__(self) -> bool:
        """Return True if everything is proved."""
        return self.ok

    @property
    def covered(self) -> tuple[ProvedAccesses, ...]:
        """Accesses that checks leave out: `accesses`, if there are any."""
        return () if self.accesses is None else (self.accesses,)

    @property
    def exit_status(self) -> int:
        """Exit status of ``workbench prove``."""
        return STATUSES[self.status]

    @property
    def conditions(self) -> str:
        """The preconditions in one line."""
        return "for all " + ", ".join([*self.preconditions, self.grid])

    def lines(self) -> list[str]:
        """Return the verdict as lines: the headline first."""
        if self.ok:
            words = ", ".join(PROPERTIES.values())
            found = [f"{self.kernel}: proved {self.conditions}: {words}"]
            return [*found, *([f"  {self.overflow}"] if self.overflow else [])]
        kept = [name for name, status in self.properties.items() if status == PROVED]
        found = [f"{self.kernel}: {self.status}, {self.grid}"]
        found += [f"  {one}" for one in (*self.counterexamples, *self.reasons)]
        return [*found, *([f"  proved: {', '.join(PROPERTIES[one] for one in kept)}"] if kept else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def about(self) -> Mapping[str, str]:
        """Return what was proved."""
        return {"kernel": self.kernel, "launches": self.grid}

    def tables(self) -> list[Table]:
        """Return one table: a row for each property."""
        rows = [[PROPERTIES[name], status] for name, status in self.properties.items()]
        note = "\n".join(line.strip() for text in self.lines()[1:] for line in wrap(text))
        return [Table(("property", "verdict"), rows, "ll", title=self.lines()[0], note=note)]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        examples = [
            {
                "kind": one.kind, "text": one.text, "sizes": dict(one.sizes), "threads": one.threads,
                "remark": one.remark, "confirmed": one.holds,
            }
            for one in self.counterexamples
        ]  # fmt: skip
        return {
            "kernel": self.kernel, "status": self.status, "grid": self.grid, "preconditions": list(self.preconditions),
            "properties": dict(self.properties), "counterexamples": examples, "reasons": list(self.reasons),
            "overflow": self.overflow, "questions": self.questions,
        }  # fmt: skip

    def to_json(self) -> str:
        """Return the document as JSON."""
        return document("prove", proofs=[self.to_dict()])


@dataclass(frozen=True, repr=False)
class Proofs(Tabular, Document):
    """Verdicts on the kernels of an op, one for each kernel of each variant."""

    op: str
    proofs: tuple[Proof, ...]

    @property
    def ok(self) -> bool:
        """True if everything is proved."""
        return all(one.ok for one in self.proofs)

    def __bool__(self) -> bool:
        """Return True if everything is proved."""
        return self.ok

    def __iter__(self) -> Iterator[Proof]:
        return iter(self.proofs)

    @property
    def covered(self) -> tuple[ProvedAccesses, ...]:
        """Accesses that checks leave out, of all kernels."""
        return tuple(accesses for one in self.proofs for accesses in one.covered)

    @property
    def exit_status(self) -> int:
        """Exit status of ``workbench prove``: that of the first refuted kernel, else of the first unknown one."""
        statuses = {one.status for one in self.proofs}
        return STATUSES[next((one for one in (REFUTED, UNKNOWN) if one in statuses), PROVED)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.proofs))

    __repr__ = __str__

    def about(self) -> Mapping[str, str]:
        """Return what was proved."""
        return {"op": self.op}

    def tables(self) -> list[Table]:
        """Return one table: a row for each kernel."""
        rows = [[one.kernel, one.status, "\n".join(line.strip() for line in one.lines()[1:])] for one in self.proofs]
        return [Table(("kernel", "verdict", ""), rows, "lll", title=self.headline)]

    def to_json(self) -> str:
        """Return the document as JSON."""
        return document("prove", proofs=[one.to_dict() for one in self.proofs])
