"""Proofs of launches that were seen, for all sizes that they stand for: those of programs and of tests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.analysis.seen_launches import SeenLaunch
from workbench.analysis.watching import unwatched
from workbench.base.documents import Document, document
from workbench.base.tables import Table, Tabular, wrap
from workbench.errors import ArgumentError, WorkbenchError
from workbench.proof.launch_patterns import ALL, LAUNCHED, LaunchPattern, Reading
from workbench.proof.proving import prove_family
from workbench.proof.solver import require_solver
from workbench.proof.verdict import PROPERTIES, PROVED, REFUTED, STATUSES, UNKNOWN, Counterexample, Proof
from workbench.toolchain import CompiledKernel

EFFORT = 30_000_000
"""Resources of one proof of a launch, in Z3's own count: about a quarter of a minute."""
_MOST_ALONE = 3
"""Launches of a kernel that are proved one by one if they cannot be proved together."""


@dataclass(frozen=True)
class LaunchProof:
    """Verdict on a kernel as a program launched it.

    Attributes:
        proof: the verdict, with its preconditions.
        scope: how far it reaches: "all sizes", "sizes like those launched" (what coincided in the launches, such as
            equal sizes and divisors, is a precondition), "sizes up to those launched" (with the arrays of a single
            launch; between those of several), or "the launch" alone.
        reading: what is general and what is fixed, in words.
        launches: number of different launches that were seen.
        remark: a counterexample among sizes beyond the scope; "" if there is none.
    """

    proof: Proof
    scope: str
    reading: str
    launches: int
    remark: str = ""

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.proof.kernel

    @property
    def status(self) -> str:
        """``"proved"``, ``"refuted"`` or ``"unknown"``."""
        return self.proof.status

    @property
    def counterexample(self) -> Counterexample | None:
        """The counterexample that the machine confirmed, if it is refuted."""
        return next((one for one in self.proof.counterexamples if one.holds), None)

    @property
    def line(self) -> str:
        """The verdict in one line, without the kernel's name."""
        if self.proof.ok:
            told = f"proved {self.proof.conditions} ({self.scope})"
        else:
            shown = self.counterexample or next(iter((*self.proof.reasons, *self.proof.counterexamples)), "no answer")
            told = f"{self.status}: {shown}"
        return told + (f"; beyond that {self.remark}" if self.remark else "")

    def lines(self) -> list[str]:
        """Return the verdict as lines: the headline first."""
        told = f"{self.scope}; {self.launches} launch{'es' if self.launches != 1 else ''} seen"
        first, *others = self.proof.lines()
        return [first, f"  scope: {told}" + (f"; {self.reading}" if self.reading else ""), *others,
                *([f"  beyond that: {self.remark}"] if self.remark else [])]  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        own = {"scope": self.scope, "reading": self.reading, "launches": self.launches, "remark": self.remark}
        return self.proof.to_dict() | own


@dataclass(frozen=True, repr=False)
class ProgramProofs(Tabular, Document):
    """Verdicts on the kernels that a program launched."""

    program: str
    proofs: tuple[LaunchProof, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """True if there are kernels, and all are proved."""
        return bool(self.proofs) and all(one.proof.ok for one in self.proofs)

    def __bool__(self) -> bool:
        """Return True if there are kernels, and all are proved."""
        return self.ok

    def __iter__(self) -> Iterator[LaunchProof]:
        return iter(self.proofs)

    @property
    def exit_status(self) -> int:
        """Exit status of ``workbench prove``: that of the first refuted kernel, else of the first unknown one."""
        statuses = {one.status for one in self.proofs}
        return STATUSES[next((one for one in (REFUTED, UNKNOWN) if one in statuses), PROVED)]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.proofs), counted(self.proofs)])

    __repr__ = __str__

    def about(self) -> Mapping[str, str]:
        """Return what was proved."""
        return {"program": self.program}

    def tables(self) -> list[Table]:
        """Return one table: a row for each kernel."""
        rows = [
            [
                one.kernel,
                one.status,
                one.scope,
                "\n".join(part for line in one.lines()[1:] for part in wrap(line.strip())),
            ]
            for one in self.proofs
        ]
        return [Table(("kernel", "verdict", "scope", ""), rows, "llll", title=counted(self.proofs))]

    def to_json(self) -> str:
        """Return the document as JSON."""
        return document("prove", proofs=[one.to_dict() for one in self.proofs])


def _wrapped(lines: Iterable[str]) -> str:
    return "\n".join(part for line in lines for part in wrap(line.strip()))


def counted(proofs: Iterable[LaunchProof]) -> str:
    """Return the number of kernels by verdict, and of the proved ones those that are not proved for all sizes."""
    found = [*proofs]
    counts = Counter(one.status for one in found)
    narrow = sum(one.status == PROVED and one.scope != ALL for one in found)
    less = f" ({narrow} not for all sizes)" if narrow else ""
    return f"{counts[PROVED]} proved{less}, {counts[REFUTED]} refuted, {counts[UNKNOWN]} unknown"


Known = dict[tuple[object, ...], Proof]
"""Proofs by the family that they are about."""


def prove_launches(
    launches: Iterable[SeenLaunch],
    *,
    effort: int = EFFORT,
    known: Known | None = None,
    facts: Mapping[str, str] | None = None,
) -> list[LaunchProof]:
    """Prove the kernels of launches that were seen, each for the most general family of launches that can be proved.

    Launches of a kernel with the same block, null pointers, dtypes and arrays in common memory belong together.
    A kernel is refuted by a launch that was seen, or, where their sizes differ, by one with sizes between
    theirs that follows the formulas that fit all of them. Proofs that are ``known`` are not made again, and new ones
    are added to them. ``facts`` are about elements, by parameter.
    Raises MissingToolError without Z3.
    """
    require_solver()
    together: dict[tuple[object, ...], list[SeenLaunch]] = {}
    for one in launches:
        together.setdefault((one.kernel.key, one.block, one.arrangement), []).append(one)
    with unwatched():
        prover = _Prover(effort, {} if known is None else known, facts or {})
        return [prover.proved(group) for group in together.values()]


@dataclass(frozen=True)
class _Prover:
    effort: int
    known: Known
    facts: Mapping[str, str]

    def of(self, reading: Reading, launches: int) -> LaunchProof:
        """Prove one family of launches."""
        family = reading.family
        key = (
            family.kernel.key,
            family.grid,
            family.block,
            family.shared_bytes,
            repr(family.args),
            repr(family.facts),
            repr(family.aligned),
            repr(reading.contents),
        )
        if key not in self.known:
            try:
                proof = prove_family(
                    family, family.kernel, effort=self.effort, any_data=False, contents=reading.contents
                )
            except ArgumentError as error:  # such as facts that contradict each other
                proof = _nothing(family.kernel, error)
            self.known[key] = proof
        return LaunchProof(self.known[key], reading.scope, reading.text, launches)

    def proved(self, launches: Sequence[SeenLaunch]) -> LaunchProof:
        """Prove launches of one kernel together, as far as they go."""
        kernel = launches[0].kernel
        try:
            pattern = LaunchPattern(launches, self.facts)
            readings = [*pattern.readings()]
            alone_ones = [*itertools.islice(pattern.alone(), _MOST_ALONE)]
        except WorkbenchError as error:  # arguments that overlap, or a dtype that proofs do not know
            return LaunchProof(_nothing(kernel, error), LAUNCHED, "", len(launches))
        general: list[LaunchProof] = []
        for reading in readings:
            found = self.of(reading, len(launches))
            if found.proof.ok:
                return replace(found, remark=_beyond(general))
            if found.status == REFUTED and reading.refutes:
                return found
            general.append(found)
        alone = []
        for reading in alone_ones:
            found = self.of(reading, len(launches))
            if found.status == REFUTED:
                return found
            alone.append(found)
        if all(one.proof.ok for one in alone):
            few = f"{len(alone)} of {len(launches)} launches" if len(alone) < len(launches) else alone[0].scope
            return replace(alone[0], scope=few, remark=_beyond(general))
        open_one = (general or alone)[0]
        proof = replace(open_one.proof, status=UNKNOWN, properties=_undecided(open_one.proof.properties))
        return replace(open_one, proof=proof)


def _nothing(kernel: CompiledKernel, error: WorkbenchError) -> Proof:
    return Proof(kernel.label, UNKNOWN, "", (), dict.fromkeys(PROPERTIES, UNKNOWN), (), (str(error),))


def _undecided(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: UNKNOWN if status == REFUTED else status for name, status in properties.items()}


def _beyond(general: Sequence[LaunchProof]) -> str:
    """Return the first counterexample of families that are more general, else why the first one is unknown."""
    refuted = next((one.counterexample for one in general if one.counterexample is not None), None)
    if refuted is not None:
        return f"refuted: {refuted}"
    return f"unknown: {general[0].proof.reasons[0]}" if general and general[0].proof.reasons else ""
