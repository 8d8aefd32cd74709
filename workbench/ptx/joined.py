"""One report of several launches that make up one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from workbench.ptx.report import LaunchReport

_PER_LAUNCH = ("kernel", "grid", "block", "threads", "shared_bytes", "has_statistics", "has_checks")


@dataclass(repr=False)
class JoinedReport(LaunchReport):
    """Sum of the reports of several launches, one after the other.

    Counts and times are added up; distinct bytes too, since the bytes that one kernel writes cross memory once more
    when the next one reads them. ``grid`` and ``block`` are those of the first launch, which does the main work.
    """

    reports: tuple[LaunchReport, ...] = ()

    @property
    def parts(self) -> tuple[LaunchReport, ...]:
        """Report of each launch."""
        return self.reports


def join_reports(reports: Sequence[LaunchReport]) -> LaunchReport:
    """Join the reports of several launches; the first launch does the main work."""
    first = reports[0]
    values: dict[str, Any] = {}
    for item in fields(LaunchReport):
        values[item.name] = of_first = getattr(first, item.name)
        if (
            item.name in _PER_LAUNCH
            or isinstance(of_first, bool)
            or not isinstance(of_first, int | float | str | list | tuple)
        ):
            continue
        total = of_first
        for report in reports[1:]:
            total = total + getattr(report, item.name)
        values[item.name] = total
    values["kernel"] = " + ".join(report.kernel for report in reports)
    return JoinedReport(**values, reports=tuple(reports))


def with_findings_of(report: LaunchReport, checked: LaunchReport) -> LaunchReport:
    """Return a report with the findings and notes of ``checked``, another run of the same launches with checks."""

    def taken(one: LaunchReport, other: LaunchReport) -> LaunchReport:
        return replace(one, findings=other.findings, notes=other.notes, has_checks=True)

    if isinstance(report, JoinedReport):
        parts = tuple(taken(*pair) for pair in zip(report.reports, checked.parts, strict=True))
        report = replace(report, reports=parts)
    return taken(report, checked)
