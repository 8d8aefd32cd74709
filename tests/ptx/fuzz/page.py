"""Generator of CHECKS.md, from page.md and a table of the planted races that the checks find.

``python tests/ptx/fuzz --page`` writes the page.
"""

from __future__ import annotations

from pathlib import Path

from fuzz import races

PAGE = Path(__file__).parents[3] / "workbench" / "ptx" / "CHECKS.md"
TEXT = Path(__file__).with_suffix(".md")
ROWS = "(rows)\n"  # stands in the text for the table's rows
SEEDS = range(6)  # for each class


def markdown() -> str:
    """Return the page."""
    found, seen = races.count(races.KINDS, SEEDS)
    rows = []
    for kind in races.KINDS:
        alarms = sum(bool(one.false_alarm) for one in seen if one.kind == kind)
        columns = kind.memory, kind.between, kind.pair, f"`{kind.order}`", f"{found[kind]} of {len(SEEDS)}", str(alarms)
        rows.append("| " + " | ".join(columns) + " |")
    return TEXT.read_text().replace(ROWS, "\n".join(rows) + "\n")
