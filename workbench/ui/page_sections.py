"""Sections of pages: source views that work without Python, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from workbench.base.pages import Section, framed, json_script, static_text
from workbench.ui.figures import image, svg_of
from workbench.ui.source_lines import STATIC, SourceLines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.launch import Trace
    from workbench.ptx import Finding

SOURCE_STYLES = (static_text(STATIC / "source_view.css"),)
SOURCE_SCRIPTS = (
    static_text(STATIC / "source_view.js").replace("export default", "const sourceView ="),
    static_text(STATIC / "source_page.js"),
)
"""JavaScript of source views; its ``showSource(place, view)`` shows the data that `view_data` returns."""


def view_data(trace: Trace, findings: Iterable[Finding] | None = None) -> dict[str, Any]:
    """Return the data of a source view: its lines, and the details of each line that has any."""
    lines = SourceLines(trace, trace.findings if findings is None else findings)
    state, details = lines.state(), {}
    for row in state["rows"]:
        if row.get("line"):
            detail = lines.detail(row["line"], row["path"])
            if detail["ptx"] or detail["findings"]:
                details[f"{row['path']}:{row['line']}"] = detail
    return {"state": state, "details": details}


def source_section(trace: Trace) -> Section:
    """Return the source of a trace's kernels with the counts of each line, and its details on a click."""
    if not trace.lines:
        return Section("")
    view = f'<div class="source-view"></div>{json_script(view_data(trace))}'
    return Section(view, SOURCE_STYLES, SOURCE_SCRIPTS)


def picture(draw: Callable[[], Axes], label: str) -> list[Section]:
    """Return a section with a plot of matplotlib, or none where that is not installed."""
    try:
        import matplotlib.pyplot  # noqa: F401
    except ImportError:
        return []
    return [Section(framed(image(svg_of(draw().figure), label)))]
