"""PTX and machine code of two kernels side by side: instruction counts by class, then the aligned instructions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.analysis.code_alignment import AlignedLines, align
from workbench.analysis.code_listing import CodeLine, ptx_listings, sass_listing
from workbench.base.argument_kinds import checked_kinds
from workbench.base.documents import document
from workbench.base.frames import data_frame
from workbench.base.tables import Table, Tabular
from workbench.comparison.compiled import NamedKernel, compiled_of
from workbench.errors import ArgumentError, MissingToolError
from workbench.launch.checking import refuse_for_an_op
from workbench.ops.selection import listed
from workbench.ops.variant import Case, Config, Variant

if TYPE_CHECKING:
    import pandas

    from workbench.analysis.exact import ExactAnswer
    from workbench.ops.op import Op

_CONTEXT = 3
"""Instructions alike that are shown before and after a difference."""
_WIDTH = 120
"""Columns of the two listings where there is no terminal."""

_STYLES = {
    "~": ("background:rgba(230,159,0,0.18)", "background:rgba(230,159,0,0.18)"),
    "<": ("background:rgba(213,94,0,0.18)", ""),
    ">": ("", "background:rgba(0,114,178,0.18)"),
    "": ("", ""),
}
"""Colours of a difference on the left and on the right (Okabe-Ito), always beside its sign."""
_SIGNS = "< only on the left, > only on the right, ~ changed. Names of registers and labels do not count."


@dataclass(frozen=True)
class CodeDifference(Tabular):
    """Two listings in one language: their counts by class, and their instructions side by side.

    Attributes:
        language: "machine code" or "PTX".
        names: short names of the two sides.
        lines: the aligned instructions and labels.
    """

    language: str
    names: tuple[str, str]
    lines: tuple[AlignedLines, ...]

    @cached_property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Static instructions of each class on the left and on the right, the largest difference first."""
        left, right = (Counter(one.kind for one in side if one.kind) for side in self._sides)
        both = {kind: (left[kind], right[kind]) for kind in {**left, **right}}
        return dict(sorted(both.items(), key=lambda row: (-abs(row[1][0] - row[1][1]), -sum(row[1]), row[0])))

    @property
    def totals(self) -> tuple[int, int]:
        """Static instructions of each side."""
        return sum(left for left, _ in self.counts.values()), sum(right for _, right in self.counts.values())

    @property
    def alike(self) -> int:
        """Number of instructions that differ in the names of registers and labels at most."""
        return sum(one.alike and one.left is not None and bool(one.left.kind) for one in self.lines)

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per class, as a pandas DataFrame. Needs pandas (``[lab]``)."""
        return data_frame(self._rows())

    def tables(self) -> list[Table]:
        """Return the table of classes and the listing."""
        return [self.classes(), self.listing()]

    def classes(self) -> Table:
        """Return the table of counts by class; classes of which both sides have as many are one row."""
        left, right = self.totals
        rows = [(kind, f"{a:,}", f"{b:,}", f"{b - a:+,}") for kind, (a, b) in self.counts.items() if a != b]
        same = [kind for kind, (a, b) in self.counts.items() if a == b]
        if same:
            as_many = sum(self.counts[kind][0] for kind in same)
            rows.append((f"{len(same)} others", f"{as_many:,}", f"{as_many:,}", ""))
        rows.append(("all", f"{left:,}", f"{right:,}", f"{right - left:+,}" if right != left else ""))
        marks = ["", *[""] * (len(rows) - 2), "best"] if len(rows) > 1 else ["best"]
        title = f"{self.language}: static instructions by class, {self.alike:,} of them alike on both sides"
        return Table(("class", *self.names, "difference"), rows, "lrrr", title=title, marks=marks)

    def listing(self, context: int | None = _CONTEXT) -> Table:
        """Return the instructions side by side, with ``context`` alike ones around each difference; None for all.

        A notebook shows the title until a reader opens it.
        """
        rows, styles = [], []
        for one in _folded(self.lines, context):
            if isinstance(one, int):
                rows.append((f"⋮ {one:,} alike", "", ""))
                styles.append(["opacity:0.6", "", ""])
                continue
            left, right = (side.text if side else "" for side in one)
            shade = _STYLES[one.mark]
            rows.append((left, one.mark, right))
            styles.append([shade[0], "", shade[1]])
        title = f"{self.language} side by side. {_SIGNS}"
        return Table((self.names[0], "", self.names[1]), rows, "clc", title=title, styles=styles, folded=True)

    def __str__(self) -> str:
        return f"{self.classes()}\n\n{self.listing().text(_columns())}"

    def __repr__(self) -> str:
        left, right = self.totals
        return f"<{self.language} of {self.names[0]} and {self.names[1]}: {left:,} and {right:,}, {self.alike:,} alike>"

    @property
    def _sides(self) -> Iterator[list[CodeLine]]:
        for at in (0, 1):
            yield [side for one in self.lines if (side := one[at]) is not None]

    def _rows(self) -> list[dict[str, Any]]:
        return [{"class": kind, "left": a, "right": b, "difference": b - a} for kind, (a, b) in self.counts.items()]

    def _plain(self) -> dict[str, Any]:
        """Return counts and lines for JSON."""
        lines = [
            {"mark": one.mark, "left": one.left and one.left.text, "right": one.right and one.right.text}
            for one in self.lines
        ]
        return {"alike": self.alike, "classes": self._rows(), "lines": lines}


@dataclass(frozen=True)
class CodeComparison(Tabular):
    """PTX and machine code of two kernels; `compare_code` makes it."""

    left: NamedKernel
    right: NamedKernel
    names: tuple[str, str]
    exact: ExactAnswer | None = None
    """Answer to whether the two are the same computation; None where that was not asked."""

    @cached_property
    def ptx(self) -> CodeDifference:
        """Differences in the PTX."""
        return self._difference("PTX", *ptx_listings(self.left.kernel, self.right.kernel))

    @cached_property
    def sass(self) -> CodeDifference:
        """Differences in the machine code. Raises MissingToolError without a disassembler."""
        return self._difference("machine code", *(sass_listing(one.kernel) for one in (self.left, self.right)))

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per language and class, as a pandas DataFrame. Needs pandas (``[lab]``)."""
        return data_frame({"language": one.language, **row} for one in self._differences() for row in one._rows())

    def to_json(self) -> str:
        """Return titles, resources, counts and aligned lines as JSON; see `workbench.base.documents`."""
        sides = [{"title": one.title, "arch": one.kernel.arch, **_resources(one)} for one in (self.left, self.right)]
        found = {one.language: one._plain() for one in self._differences()}
        return document(
            "compare-code", left=sides[0], right=sides[1], sass=found.get("machine code"), ptx=found.get("PTX"),
            exact=None if self.exact is None else str(self.exact),
            exact_difference=[] if self.exact is None else [*self.exact.difference],
        )  # fmt: skip

    def tables(self) -> list[Table]:
        """Return the table of resources, those of classes, and the listings; without a disassembler those of PTX."""
        found = self._differences()
        return [self._head(), *(one.classes() for one in found), *(one.listing() for one in found)]

    def __str__(self) -> str:
        found = self._differences()
        heads = [self._head().text(_columns()), *(str(one.classes()) for one in found)]
        return "\n\n".join([*heads, *(one.listing().text(_columns()) for one in found)])

    def __repr__(self) -> str:
        return f"<code of {self.left.title} and of {self.right.title}>"

    @property
    def headline(self) -> str:
        """Both titles in one line."""
        return f"{self.left.title} and {self.right.title}"

    def _head(self) -> Table:
        left, right = _resources(self.left), _resources(self.right)
        rows = [(name.replace("_", " "), f"{left[name]:,}", f"{right[name]:,}") for name in left]
        without = "Without a disassembler (nvdisasm, of Triton's wheel) there is no machine code."
        note = [] if self._has_sass else [without]
        return Table(("", *self.names), rows, "hrr", title=self.headline, note="\n".join([*self.exact_notes, *note]))

    @property
    def exact_notes(self) -> list[str]:
        """The answer of exact comparison as lines below a table; none where it was not asked."""
        return [] if self.exact is None else self.exact.lines

    def _differences(self) -> list[CodeDifference]:
        return [self.sass, self.ptx] if self._has_sass else [self.ptx]

    @cached_property
    def _has_sass(self) -> bool:
        try:
            return bool(self.sass)
        except MissingToolError:
            return False

    def _difference(self, language: str, left: list[CodeLine], right: list[CodeLine]) -> CodeDifference:
        return CodeDifference(language, self.names, tuple(align(left, right)))


@checked_kinds
def compare_code(
    op: str | Op | Any,
    other: Any = None,
    case: str | Case | None = None,
    *,
    variants: str | Variant | Sequence[str | Variant] | None = None,
    configs: Config | Sequence[Config] | None = None,
    arch: str | Sequence[str] | None = None,
    exact: bool = False,
    grid: Any = None,
    block: Any = None,
    args: Sequence[Any] = (),
) -> CodeComparison:
    """Compare the PTX and the machine code of two variants, configurations, architectures or kernels side by side.

    Instructions are aligned by their text with registers and labels renamed; what differs in counts by class stands
    first::

        print(wb.compare_code(row_softmax, configs=[{"VEC": 1}, {"VEC": 4}]))
        print(wb.compare_code(module.first, module.second).sass)

    With ``exact`` both also run on elements of a ring, which says whether they are the same computation, without a
    tolerance and without a reference (docs/EXACT.md)::

        wb.compare_code(first.k, second.k, exact=True, grid=[8, 4], block=[32, 64],
                        args=[wb.randn(8, 70), wb.randn(8, 70), 70]).exact

    Args:
        op: its name, or the op, of whose variants the kernels with the main work are compared; or a kernel of
            `load_cuda` or `load_ptx`, or a CompiledKernel.
        other: with a kernel, the second one.
        case: name or value of a case of the op; default: the quick one.
        variants: one or two variants with kernels; default: that of an op which has only one.
        configs: one or two configurations; tunables that are left out have their untuned values.
        arch: one or two architectures; default: the first of `MACHINE_ARCHS` that has what a variant needs.
        exact: also compare what both compute: variants on the case, kernels launched with ``args``.
        grid: with ``exact``, the blocks of kernels, a number or a tuple; a list has one for each side.
        block: likewise the threads of a block; Triton's kernels have their own.
        args: with ``exact``, of kernels, what both are launched with; what `randn`, `rand` and `randint` describe is
            drawn, twice or three times. The tensors of floats that a kernel changes are compared.

    Returns:
        `CodeComparison`: .sass .ptx .exact .to_frame()

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: more than two variants, configurations or architectures, or none of which there are two.
        ConfigurationError: an illegal configuration; names the rule.
        CompileError: the compiler refused a source.
    """
    configs = [configs] if isinstance(configs, Mapping) else configs
    sides = [_pair(name, values) for name, values in (("variants", variants), ("configs", configs), ("arch", arch))]
    if other is None and all(one[0] is one[1] for one in sides):
        allowed = "a second variant, configuration, architecture or kernel"
        raise ArgumentError("other", None, allowed, "For example: variants=[first, second].")
    both = zip((op, op if other is None else other), *sides, strict=True)
    left, right = (compiled_of(one, case, *choice) for one, *choice in both)
    kernels = (op, op if other is None else other)
    for name, value in (("grid", grid), ("block", block), ("args", args or None)):
        if value is not None and not exact:
            raise ArgumentError(name, repr(value), "no value without exact", "exact=True launches the kernels.")
    answer = _exact_answer(left, right, kernels, grid, block, args) if exact else None
    return CodeComparison(left, right, _short_names(left, right), answer)


def _exact_answer(
    left: NamedKernel, right: NamedKernel, kernels: tuple[Any, Any], grid: Any, block: Any, args: Sequence[Any]
) -> ExactAnswer:
    """Compare two variants of an op, or two kernels launched with arguments."""
    from workbench.analysis.exact import compared
    from workbench.comparison.exact_code import DrawnLaunch, exactly

    if left.side is not None and right.side is not None:
        given = {"grid": grid, "block": block, "args": args or None}
        refuse_for_an_op(compare_code, {name: value for name, value in given.items() if value is not None})
        return compared(left.side, right.side)
    sides = zip(kernels, _pair("grid", grid), _pair("block", block), strict=True)
    first, second = (DrawnLaunch(one, blocks, threads, args) for one, blocks, threads in sides)
    return exactly(first, second)


def _pair(name: str, values: Any) -> tuple[Any, Any]:
    """Return the value of each side."""
    one = values is None or (name in ("grid", "block") and not isinstance(values, list))  # a tuple is one of these
    given = [values] if one else listed(values)
    if not 1 <= len(given) <= 2:
        raise ArgumentError(name, f"{len(given)} values", "one or two", "Compare two at a time.")
    return given[0], given[-1]


def _short_names(left: NamedKernel, right: NamedKernel) -> tuple[str, str]:
    """Return the words of each title that the other has not; of equal titles the architectures, or their order."""
    a, b = (f"{one.title} {one.kernel.arch}".split() for one in (left, right))
    names = " ".join(word for word in a if word not in b), " ".join(word for word in b if word not in a)
    if all(names):
        return names
    return "first", "second"


def _resources(one: NamedKernel) -> dict[str, int]:
    """Return the resources of a kernel by name; without an assembler only its shared memory."""
    kernel = one.kernel
    shared = {"shared_bytes": kernel.static_shared_bytes + kernel.dynamic_shared_bytes}
    try:
        return {"registers": kernel.registers, "spill_bytes": kernel.spill_bytes, **shared}
    except MissingToolError:
        return shared


def _folded(lines: Iterable[AlignedLines], context: int | None) -> Iterator[AlignedLines | int]:
    """Yield the lines near a difference, and the number of those alike in place of the others."""
    lines = list(lines)
    differ = [at for at, one in enumerate(lines) if not one.alike]
    near = {at + step for at in differ for step in range(-(context or 0), (context or 0) + 1)}
    hidden = 0
    for at, one in enumerate(lines):
        if context is not None and at not in near:
            hidden += 1
            continue
        if hidden:
            yield hidden
            hidden = 0
        yield one
    if hidden:
        yield hidden


def _columns() -> int:
    """Columns for two listings: those of a terminal."""
    return shutil.get_terminal_size((_WIDTH, 0)).columns
