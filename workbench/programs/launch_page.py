"""The page of ``workbench run --trace``: one HTML file with all launches, their predicted times and source views."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.host_calls import counted
from workbench.base.pages import Page, Section, json_script, static_text

if TYPE_CHECKING:
    from workbench.analysis.host_calls import HostCall
    from workbench.analysis.launches import Launches, RecordedLaunch

_STATIC = Path(__file__).resolve().parent / "static"
_MOST_ROWS = 5000
_HEADS = "".join(
    f"<th>{name}</th>"
    for name in ("kernel", "grid", "block", "warp instructions", "predicted µs", "bound by", "findings", "lines")
)


@dataclass(frozen=True)
class PageRow:
    """One launch of a page, in values that JSON can hold; ``process`` is 0 for the program's own process.

    ``key`` identifies the kernel. Among launches of the same kernel, grid and block only the first has a source
    ``view``; ``like`` is its number in the others. ``findings`` is None for a launch without checks.
    """

    number: int
    kernel: str
    key: str
    grid: str
    block: str
    instructions: int
    seconds: float | None
    bound_by: str
    findings: int | None
    model: str
    view: dict[str, Any] | None
    like: int | None = None
    process: int = 0


def page_row(launch: RecordedLaunch) -> PageRow:
    """Return the row of a launch, with its source view if it has counts by line and is the first of its kind."""
    from workbench.ui.page_sections import view_data

    report = launch.report
    grid, block = ("x".join(map(str, size)) for size in (report.grid, report.block))
    return PageRow(
        launch.number, launch.kernel.label, launch.kernel.key, grid, block, report.instructions, launch.seconds,
        launch.bound_by, len(launch.findings) if launch.checked else None, str(launch.model),
        view_data(launch.trace, launch.findings if launch.checked else None)
        if launch.like is None and report.has_statistics
        else None,
    )  # fmt: skip


def write_page(
    launches: Launches, path: Path, *, title: str, elsewhere: Sequence[PageRow] = (), faults: Sequence[str] = ()
) -> None:
    """Write the page of this process's launches and of those ``elsewhere``, in other processes, to ``path``.

    The page needs no network and follows the reader's light or dark theme. ``faults`` are messages from other
    processes; this process's own faults are added.
    """
    rows = _numbered([*map(page_row, launches), *elsewhere])
    views = {row.number: row.view for row in rows if row.view is not None}
    own = [str(fault) for fault in launches.faults]
    _page(title, rows, launches.host_calls, views, [*own, *faults]).save(path)


def _numbered(rows: Sequence[PageRow]) -> list[PageRow]:
    """Return the rows with numbers across all processes; only the first launch of a kind keeps its view."""
    first: dict[tuple[str, str, str], int] = {}
    numbered = []
    for number, row in enumerate(rows, 1):
        kind = row.key, row.grid, row.block
        like = first.setdefault(kind, number) if row.view is not None else first.get(kind, number)
        same = like == number
        numbered.append(replace(row, number=number, like=None if same else like, view=row.view if same else None))
    return numbered


def _page(title: str, rows: list[PageRow], calls: Sequence[HostCall], views: dict[int, Any], faults: list[str]) -> Page:
    from workbench.ui.page_sections import SOURCE_SCRIPTS, SOURCE_STYLES

    shown = rows[:_MOST_ROWS]
    several = any(row.process for row in rows)
    models = ", ".join(dict.fromkeys(row.model for row in rows))
    total = sum(row.seconds or 0.0 for row in rows)
    several_launches = f"{len(rows)} launch{'es' if len(rows) != 1 else ''}"
    head = (
        f"{several_launches}, {total * 1e6:,.2f} µs predicted for {'it' if len(rows) == 1 else 'them'} on {models}"
        if rows
        else "no launches"
    )
    if len(rows) > len(shown):
        head += f"; the first {len(shown)} are listed"
    host = ["torch's operators"] * _torch_computes_on_the_host() + [counted(calls)] * bool(calls)
    if host:
        head += f"; without the time of {' and of '.join(host)} on the host, which is not predicted"
    if any(row.findings is None for row in rows):
        head += "; not checked: workbench run --check checks"
    heads = f"<th>#</th>{'<th>process</th>' if several else ''}{_HEADS}"
    ended = "".join(f'<p class="fault">✗ ended early: {escape(text)}</p>' for text in faults)
    body = "\n".join(_rows(shown, calls[:_MOST_ROWS], several))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"
    section = Section(
        f'<p>{escape(head)}</p>{ended}<div class="launches">{table}</div><div id="view"></div>'
        + json_script(views, ' id="views"'),
        (*SOURCE_STYLES, static_text(_STATIC / "launch_page.css")),
        (*SOURCE_SCRIPTS, static_text(_STATIC / "launch_page.js")),
    )
    return Page(title, [section])


def _torch_computes_on_the_host() -> bool:
    """Return True if this process has used torch's simulated device, whose operators run on the host."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _rows(shown: Sequence[PageRow], calls: Sequence[HostCall], several: bool) -> list[str]:
    """Return the rows of launches and of library calls on the host, in the program's order."""
    rows = [(row.number, 0, _row(row, several)) for row in shown]
    rows += [(call.after, 1 + at, _call_row(call, several)) for at, call in enumerate(calls)]
    return [row for _, _, row in sorted(rows)]


def _call_row(call: HostCall, several: bool) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in ["", *[""] * several, call.name, call.shape])
    return f'<tr class="host">{cells}<td colspan="6">on the host, not simulated</td></tr>'


def _row(row: PageRow, several: bool) -> str:
    time = "" if row.seconds is None else f"{row.seconds * 1e6:,.2f}"
    found = "not checked" if row.findings is None else f"✗ {row.findings}" if row.findings else "none"
    like = f"as {row.like}" if row.like else ""
    cells = [row.number, row.kernel, row.grid, row.block, f"{row.instructions:,}", time, row.bound_by, found, like]
    if several:
        cells.insert(1, row.process or "")
    inner = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    return f'<tr tabindex="0" data-view="{row.like or row.number}">{inner}</tr>'
