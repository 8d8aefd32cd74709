"""Interactive view of a kernel's source, with a gutter of facts per line and the details of the selected line."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from workbench.analysis.stages import NAMES
from workbench.analysis.trace import heat_colour
from workbench.base.tables import WIDTH, cut
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ui.picture import folded
from workbench.ui.source_facts import LABELS
from workbench.ui.source_lines import STATIC, SourceLines

if TYPE_CHECKING:
    from workbench.launch import Trace
    from workbench.ptx import Finding

_MOST_PTX = 16  # of the text form
_BAR = 8


class SourceView(anywidget.AnyWidget):
    """Source lines with a gutter that shows one fact, made by `source_view`; put it last in a notebook cell.

    If ``stage`` is set, the compiler's output of that stage is shown below the source. Lines that belong together have
    the same colour, and selecting one selects the other. Setting a trait has the same effect as a click. Without
    JavaScript, the lines to which the chosen fact applies are shown instead, with their bars as text.

    Raises:
        UnknownNameError: if ``fact`` is set to a name not in `LABELS`, or ``stage`` to one not in ``stages``.
        ArgumentError: if ``selected_line`` is set to a line that is not shown.
    """

    _esm = (STATIC / "source_view.js").read_text(encoding="utf-8")
    _css = (STATIC / "source_view.css").read_text(encoding="utf-8")

    fact = traitlets.Unicode("instructions", help="Fact in the gutter, one of `LABELS`.").tag(sync=True)
    selected_line = traitlets.Int(0, help="Line of `selected_file` whose details are shown; 0 for none.").tag(sync=True)
    selected_file = traitlets.Unicode("", help="Path of the selected file; empty for the main one.").tag(sync=True)
    state = traitlets.Dict(help="Source lines, and the values of every fact.").tag(sync=True)
    detail = traitlets.Dict(help="Details of the selected line: facts, ptx, sass, findings.").tag(sync=True)
    stage = traitlets.Unicode("", help="Stage to show, one of `stages` (ttir, ttgir, llir, ptx, sass), or empty.").tag(
        sync=True
    )
    stages: traitlets.List[Any] = traitlets.List(help="Name and label of each stage that can be shown.").tag(sync=True)
    code: traitlets.List[Any] = traitlets.List(
        help="Lines of the chosen stage: text, source path and line, and number of executions."
    ).tag(sync=True)

    def __init__(self, trace: Trace, fact: str = "instructions", checks: Any = None, line: int = 0, file: str = ""):
        self.trace = trace
        self._lines = SourceLines(trace, trace.findings if checks is None else checks)
        self.findings: tuple[Finding, ...] = self._lines.findings
        super().__init__()
        self.state = self._lines.state()
        names = ([*trace.kernel.stages, "ptx", "sass"] if trace.kernel.assembly else ["ptx"]) if trace.kernels else []
        self.stages = [[name, NAMES[name]] for name in names]
        self.fact = fact
        self.select(line, file)
        self.observe(self._on_selection, ["selected_line", "selected_file"])
        self.observe(self._on_stage, "stage")

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files with facts, the one with the most instructions first."""
        return self._lines.files

    def value(self, line: int, file: str = "") -> str:
        """Return the text of the gutter beside a line for the chosen fact; empty if the fact does not apply."""
        return self._lines.values[self.fact].get((self._lines.path_of(file), line), ("", 0.0))[0]

    def select(self, line: int, file: str = "") -> None:
        """Select a line by number and file (path or name); 0 for none."""
        path = self._lines.path_of(file)
        with self.hold_trait_notifications():
            self.selected_file, self.selected_line = path, line
        self.detail = self._detail()

    # -- forms without JavaScript -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        selected = f", line {self.selected_line} selected" if self.selected_line else ""
        return f"<source view of {self.trace.title}: {self.fact}{selected}>"

    def __str__(self) -> str:
        """Return the lines to which the chosen fact applies, with values and bars, and the selected line's details."""
        heads = (self.trace.title, ": ".join(self._heading))
        out = [piece for head in heads for piece in textwrap.wrap(head, WIDTH)]
        width = self._value_width
        out += [f"{number:>5} {value:>{width}} {bar:{_BAR}} {text}" for number, value, bar, text in self._strip()]
        return "\n".join(cut(line.rstrip(), WIDTH) for line in [*out, *self._detail_lines()])

    def to_html(self) -> str:
        """Return the view as HTML that is readable without styles, because its bars are characters."""
        rows = []
        for number, value, bar, text in self._strip():
            heat = heat_colour(len(bar.strip()) / _BAR)
            gutter = html.escape(f"{number:>5} {value:>{self._value_width}} {bar:{_BAR}}")
            rows.append(f'<span style="background:{heat}">{gutter}</span> {html.escape(text)}')
        label, meaning = map(html.escape, self._heading)
        body = "\n".join([*rows, *map(html.escape, self._detail_lines())])
        return (
            f"<p>{html.escape(self.trace.title)}<br><b>{label}</b>: {meaning}</p>"
            '<pre style="font:12px/1.35 monospace;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere">'
            f"{body}</pre>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return data | {"text/plain": str(self), "text/html": self.to_html()}, metadata

    # -- internal steps -----------------------------------------------------------------------------------------

    @traitlets.validate("fact")
    def _check_fact(self, proposal: traitlets.Bunch) -> str:
        if proposal.value not in LABELS:
            raise UnknownNameError("fact", repr(proposal.value), ", ".join(LABELS), "Name one of these.")
        return proposal.value

    @traitlets.validate("stage")
    def _check_stage(self, proposal: traitlets.Bunch) -> str:
        known = [name for name, _ in self.stages]
        if proposal.value not in ("", *known):
            raise UnknownNameError("stage", repr(proposal.value), ", ".join(known) or "none", "The trace has these.")
        return proposal.value

    @traitlets.validate("selected_line")
    def _check_line(self, proposal: traitlets.Bunch) -> int:
        path = self.selected_file or self._lines.path_of("")
        shown = [row["line"] for row in self.state.get("rows", ()) if row.get("path") == path and row["line"]]
        if proposal.value and proposal.value not in shown:
            allowed = f"0, or a line of {Path(path).name} that is shown"
            allowed += f", from {shown[0]} to {shown[-1]}" if shown else ": there is none"
            raise ArgumentError("selected_line", proposal.value, allowed, "Lines near that one have no instruction.")
        return proposal.value

    def _on_selection(self, change: traitlets.Bunch) -> None:
        self.detail = self._detail()

    def _on_stage(self, change: traitlets.Bunch) -> None:
        found = [stage for stage in self.trace.stages if stage.name == self.stage]
        rows = [[one.text, *one.place, one.executions] for one in found[0].lines] if found else []
        self.code = rows if found or not self.stage else [["(no disassembler on this machine)", "", 0, None]]

    def _detail(self) -> dict[str, Any]:
        return self._lines.detail(self.selected_line, self.selected_file) if self.selected_line else {}

    def _detail_lines(self) -> list[str]:
        detail = self.detail
        if not detail:
            return []
        out = ["", f"{detail['file']}:{detail['line']}  {detail['text'].strip()}"]
        out += [f"  {label}: {text}" for label, text in detail["facts"]]
        out += [f"  ✗ {text}" for text in detail["findings"]]
        out += [f"  machine code: {detail['sass']}", f"  PTX, {len(detail['ptx'])} instructions:"]
        for at in folded(len(detail["ptx"]), _MOST_PTX):
            if at is None:
                out.append(f"  {'⋮':>6} {len(detail['ptx']) - _MOST_PTX + 1} more")
                continue
            row = detail["ptx"][at]
            cost = f"  // {row['cost']}" if row["cost"] else ""
            out.append(f"  {row['line']:>6} {row['executions']:>9,} x  {row['text']};{cost}")
        return [cut(line.rstrip(), WIDTH) for line in out]

    @property
    def _value_width(self) -> int:
        return max((len(text) for text, _ in self._lines.values[self.fact].values()), default=0)

    @property
    def _heading(self) -> tuple[str, str]:
        """Label and meaning of the chosen fact."""
        return self._lines.label(self.fact)

    def _strip(self) -> Iterable[tuple[str, str, str, str]]:
        """Yield (number, value, bar, text) of the lines to which the fact applies, by file."""
        values = self._lines.values[self.fact]
        before: dict | None = None
        for row in self.state["rows"]:
            if "path" not in row or (row["path"], row["line"]) not in values:
                continue
            text, heat = values[row["path"], row["line"]]
            if self.fact in ("instructions", "lanes") and heat < 0.02:
                continue
            if len(self.files) > 1 and (before is None or before["path"] != row["path"]):
                yield "", "", "", f"— {Path(row['path']).name}"
            before = row
            full = round(_BAR * heat)
            yield str(row["line"] or "–"), text, "█" * full or ("▏" if heat else ""), row["text"]


def source_view(trace: Trace, *, fact: str = "instructions", checks: Any = None, line: int = 0) -> SourceView:
    """Show the source of a traced kernel, CUDA C++ or Triton, with the counts of each line.

    Args:
        trace: result of `workbench.trace`, `workbench.trace_kernel` or ``%%cuda --trace``. ``trace.unfolded()`` also
            shows the lines of headers and called functions.
        fact: fact in the gutter: instructions, lanes, sectors, bytes, wavefronts, copies, waits or findings.
        checks: a CheckReport of the same kernel, or findings; default those of the traced launch.
        line: a line of the kernel's own file whose details are shown; 0 for none.

    Raises:
        UnknownNameError: if there is no such fact.
        ArgumentError: if the line is not shown.
    """
    return SourceView(trace, fact, checks, line)
