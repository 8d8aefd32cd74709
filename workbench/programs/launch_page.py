"""The page of ``workbench run --trace``: every launch with its predicted time, and its source view, in one file."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.files import replace_file
from workbench.reports.host_calls import counted

if TYPE_CHECKING:
    from workbench.reports.host_calls import HostCall
    from workbench.reports.launches import Launch, Launches

_STATIC = Path(__file__).resolve().parent / "static"
_MOST_ROWS = 5000


def write_page(launches: Launches, path: Path, *, title: str) -> None:
    """Write the page to ``path``. It needs no network, and is dark where the reader's system is."""
    rows = list(launches)
    shown = rows[:_MOST_ROWS]
    views = {launch.number: _view(launch) for launch in rows if launch.like is None and launch.report.has_statistics}
    replace_file(path, _page(title, launches, shown, views))


def _view(launch: Launch) -> dict[str, Any]:
    """What the source view shows of a launch: its lines, and the details of each."""
    from workbench.ui.source_widget import SourceView

    view = SourceView(launch.trace, checks=launch.findings)
    details = {}
    for row in view.state["rows"]:
        if row.get("line"):
            view.select(row["line"], row["path"])
            if view.detail["ptx"] or view.detail["findings"]:
                details[f"{row['path']}:{row['line']}"] = view.detail
    return {"state": view.state, "details": details}


def _page(title: str, launches: Launches, shown: list[Launch], views: dict[int, Any]) -> str:
    from workbench.ui.source_widget import STATIC as of_view

    rows, faults = list(launches), [str(fault) for fault in launches.faults]
    models = ", ".join(dict.fromkeys(str(launch.model) for launch in rows))
    total = sum(launch.seconds or 0.0 for launch in rows)
    head = (
        f"{len(rows)} launch{'es' if len(rows) != 1 else ''}, {total * 1e6:,.2f} µs in all, predicted for {models}"
        if rows
        else "no launches"
    )
    if len(rows) > len(shown):
        head += f"; the first {len(shown)} are listed"
    if launches.host_calls:
        head += f"; {counted(launches.host_calls)} on the host, not simulated"
    texts = {
        "title": escape(title),
        "head": escape(head),
        "faults": "".join(f'<p class="fault">✗ ended early: {escape(text)}</p>' for text in faults),
        "rows": "\n".join(_rows(launches, shown)),
        "css": _text(of_view / "source_view.css"),
        "own_css": _text(_STATIC / "launch_page.css"),
        "data": json.dumps(views).replace("</", "<\\/"),
        "view": _text(of_view / "source_view.js").replace("export default", "const sourceView ="),
        "script": _text(_STATIC / "launch_page.js"),
    }
    page = _text(_STATIC / "launch_page.html")
    for name, text in texts.items():
        page = page.replace(f"<!--{name}-->" if name != "data" else "/*data*/ {}", text)
    return page


def _rows(launches: Launches, shown: list[Launch]) -> list[str]:
    """The rows of launches, and between them those of calls on the host, in the program's order."""
    rows = [(launch.number, 0, _row(launch)) for launch in shown]
    calls = launches.host_calls[:_MOST_ROWS]
    rows += [(call.after, 1 + at, _call_row(call)) for at, call in enumerate(calls)]
    return [row for _, _, row in sorted(rows)]


def _call_row(call: HostCall) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in ("", call.name, call.shape))
    return f'<tr class="host">{cells}<td colspan="6">on the host, not simulated</td></tr>'


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _row(launch: Launch) -> str:
    report = launch.report
    sizes = ["x".join(map(str, size)) for size in (report.grid, report.block)]
    time = "" if launch.seconds is None else f"{launch.seconds * 1e6:,.2f}"
    found = f"✗ {len(launch.findings)}" if launch.findings else ""
    like = f"as {launch.like}" if launch.like else ""
    cells = [launch.number, launch.kernel.label, *sizes, f"{report.instructions:,}", time, launch.bound_by, found, like]
    number = launch.like or launch.number
    inner = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    return f'<tr tabindex="0" data-view="{number}">{inner}</tr>'
