"""Comparisons of an op's variants on several cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.base.documents import Document
from workbench.base.frames import data_frame
from workbench.base.pages import Section, framed
from workbench.base.tables import Table, Tabular
from workbench.comparison.compared_facts import compare_document
from workbench.comparison.comparison import Comparison
from workbench.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class ComparedCases(Tabular, Document):
    """Comparisons of an op's variants on several cases, by the names of the cases.

    ``str`` and notebooks show one below the other; a saved file has the rows of all.
    """

    comparisons: Mapping[str, Comparison]

    @property
    def all_correct(self) -> bool:
        """True if every variant ran and met its error bound on every case."""
        return all(one.all_correct for one in self.comparisons.values())

    def __getitem__(self, case: str) -> Comparison:
        """Return the comparison on the case of that name.

        Raises:
            UnknownNameError: there is none; lists the cases there are.
        """
        if case not in self.comparisons:
            raise UnknownNameError("case", repr(case), ", ".join(self.comparisons), "Only these were compared.")
        return self.comparisons[case]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per case and variant, as those of a `Comparison`."""
        return [row for one in self.comparisons.values() for row in one.rows]

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, indexed by case name and variant. Needs pandas (``[lab]``)."""
        return data_frame(self.rows).set_index(["case_name", "variant"])

    def to_json(self) -> str:
        """Return the rows of all cases as JSON; see `workbench.base.documents`."""
        return compare_document([*self.comparisons.values()])

    @property
    def headline(self) -> str:
        """Op, cases and device."""
        first = next(iter(self.comparisons.values()))
        return f"{first.op} on {', '.join(self.comparisons)}, device {first.device}"

    def about(self) -> Mapping[str, str]:
        """Return what was compared, and on which GPU or for which one."""
        found = [one.about() for one in self.comparisons.values()]
        return {name: "; ".join(dict.fromkeys(filter(None, (one[name] for one in found)))) for name in found[0]}

    def sections(self) -> Sequence[Section]:
        """Return the table of each case with its roofline."""
        tables = [Section(framed(table.html())) for table in self.tables()]
        rooflines = (one.roofline_section() for one in self.comparisons.values())
        return [section for table, more in zip(tables, rooflines, strict=True) for section in (table, *more)]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.comparisons.values()))

    def __repr__(self) -> str:
        verdict = "all correct" if self.all_correct else "NOT all correct"
        return f"<comparisons of {self.headline}; {verdict}>"

    def tables(self) -> list[Table]:
        """Return the table of each comparison."""
        return [table for one in self.comparisons.values() for table in one.tables()]
