"""Picture of a block as a pipeline over time: producers, consumers, tensor cores and stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from workbench.ptx.pipeline import COPY_CYCLES
from workbench.ui.kernel.warp_rows import RUN, TEXT_COLUMNS, WAIT, rows_over_time, span_of_time, warps_of
from workbench.ui.picture import SHARED_BY_LANES, USED, Picture, key, plural, sheet, title
from workbench.ui.request_stepper import recording_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.ptx.pipeline import Pipeline
    from workbench.ptx.pipeline_parts import PipelineSpan, StageState

_MOST_STAGES = 12
_MOST_WARPS = 8  # drawn one by one
_ROLES = ("producer", "consumer", "both", "")
_MULTIPLYING: dict[str, Any] = {"facecolor": "white", "edgecolor": USED, "hatch": "...."}  # a wait for wgmma products
_MULTIPLIES = {"facecolor": USED}
_HOLDS = {"facecolor": "#D9E8F2"}
_STATES: dict[str, dict[str, Any]] = {
    "empty": {"facecolor": "#EEEEEE"},
    "filling": {"facecolor": "#F7E7B4"},
    "full": {"facecolor": SHARED_BY_LANES},
    "read": {"facecolor": USED},
}
_MARKS = {"empty": " ", "filling": "~", "full": "F", "read": "R"}
_ON_DARK = ("full", "read")


class PipelinePicture(Picture):
    """Waits of warps at mbarriers, with the stages that they fill and read; drawn by `pipeline_view`.

    Attributes:
        pipeline: the `Pipeline`, with phases, copies, products, stages and spans in cycles of its model.
    """

    def __init__(self, pipeline: Pipeline, block: tuple[int, int, int]):
        self.pipeline, self.block = pipeline, block

    @property
    def headline(self) -> str:
        """Summary, such as ``8 fills of 2 stages in 3,210 cycles: producer waits 81 %, consumers wait 80 %``."""
        pipeline = self.pipeline
        fills = len({(copy.mbarrier, copy.phase) for copy in pipeline.copies})
        text = plural(pipeline.end, "cycle")
        if fills:
            text = f"{plural(fills, 'fill')} of {plural(len(pipeline.stages), 'stage')} in {text}"
        waits = [
            f"{name if count == 1 else name + 's'} wait{'s' * (count == 1)} {100 * pipeline.waited(role):.0f} %"
            for role, name in (("producer", "producer"), ("consumer", "consumer"), ("both", "warp"))
            if (count := len(pipeline.of_role(role)))
        ]
        if pipeline.products:
            waits.append(f"tensor cores work {100 * pipeline.tensor_share:.0f} %")
        return f"{text}: {', '.join(waits)}" if waits else text

    @property
    def caption(self) -> str:
        """Index of the block, and the model that counts the cycles."""
        model = f"an instruction 1 cycle, a copy {self.pipeline.copy_cycles:,}"
        if self.pipeline.products:
            model += ", a product of N columns N/2"
        cut = "; only the first events were kept" if self.pipeline.truncated else ""
        return f"block {self.block}; who waits for whom, by a model and not by measurement: {model}{cut}"

    def waits(self) -> dict[tuple[str, str], int]:
        """Return the cycles of waiting, summed over warps, by role and cause, the longest first."""
        found: Counter[tuple[str, str]] = Counter()
        for span in self.pipeline.spans:
            if span.kind == "wait":
                found[self.pipeline.roles[span.warp], _what(span)] += span.end - span.start
        return dict(found.most_common())

    # -- text ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<pipeline of block {self.block}: {self.headline}>"

    def __str__(self) -> str:
        """Return a strip of text for each warp, the tensor cores and each stage, and a line per role and cause."""
        pipeline = self.pipeline
        width = max(1, -(-pipeline.end // TEXT_COLUMNS))
        rows = [(self._name(warp), _strip(self._spans(warp), _run_or_wait, width)) for warp in self._warps()]
        if pipeline.products:
            rows.append(("tensor cores", _strip(pipeline.products, lambda one: "#", width)))
        if pipeline.held:
            rows.append((f"tensor memory, {self._most_columns()}", _strip(pipeline.held, lambda one: "T", width)))
        for stage in pipeline.stages[:_MOST_STAGES]:
            rows.append((f"stage of {stage.name}", _strip(stage.states, lambda one: _MARKS[one.state], width)))
        margin = max(len(name) for name, _ in rows)
        out = [self.headline, self.caption, *(f"{name:<{margin}} {strip}".rstrip() for name, strip in rows)]
        if len(pipeline.stages) > _MOST_STAGES:
            out.append(f"{'⋮':<{margin}} {plural(len(pipeline.stages) - _MOST_STAGES, 'more stage')}")
        marks = "= runs, . waits, : for its products; a stage is ~ filling, F full, R read, else empty"
        if pipeline.held:
            marks += "; T: allocated"
        out.append(f"{'':<{margin}} {marks}; a column is {plural(width, 'cycle')}")
        for (role, what), cycles in self.waits().items():
            warps = pipeline.of_role(role)
            who = f"{role or 'other'} {warps_of(warps)}"
            out.append(f"{who}: {plural(cycles // len(warps), 'cycle')} of waiting for {what}")
        return "\n".join(out)

    # -- picture ------------------------------------------------------------------------------------------------

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw a row per warp by role, hatched where it waits, then the tensor cores, then the stages with fills."""
        pipeline = self.pipeline
        warps, stages = self._warps(), pipeline.stages[:_MOST_STAGES]
        below = bool(pipeline.products) + bool(pipeline.held)
        rows = len(warps) + (0.3 + below if below else 0) + 0.3 + len(stages)
        if ax is None:
            ax = sheet((0.34 if rows <= 14 else 0.24) * rows)
        ax.set(xlim=(0, pipeline.end or 1), ylim=(rows, 0))
        labels, row = [], 0.0
        for warp in warps:
            for span in self._spans(warp):
                self._box(ax, row, span.start, span.end, _face(span), _what(span))
            for issued in sorted({copy.issued for copy in pipeline.copies if copy.warp == warp}):
                ax.plot([issued] * 2, [row + 0.1, row + 0.9], color="black", linewidth=1.2, solid_capstyle="butt")
            labels.append((row, self._name(warp)))
            row += 1
        if below:
            row += 0.3
        if pipeline.products:
            for one in _joined(pipeline.products):
                self._box(ax, row, *one, _MULTIPLIES, "")
            labels.append((row, "tensor cores"))
            row += 1
        if pipeline.held:
            for held in pipeline.held:
                self._box(ax, row, held.start, held.end, _HOLDS, plural(held.columns, "column"))
            labels.append((row, "tensor memory"))
            row += 1
        row += 0.3
        for stage in stages:
            for state in stage.states:
                text = "" if state.state == "empty" else str(state.fill)
                self._box(ax, row, state.start, state.end, _STATES[state.state], text, state.state in _ON_DARK)
            labels.append((row, f"stage of {stage.name}"))
            row += 1
        rows_over_time(ax, labels, "cycles")
        title(ax, self.headline, self.caption)
        marks = [({"facecolor": RUN["facecolor"]}, "runs"), (WAIT | {"linewidth": 0}, "waits")]
        if any(span.on == "products" for span in pipeline.spans):
            marks.append((_MULTIPLYING | {"linewidth": 0}, "for products"))
        if stages:
            marks.append(({"facecolor": "black"}, "issues a copy"))
            marks += [(face, state) for state, face in _STATES.items()]
        key(ax, marks)
        return ax

    def _box(self, ax: Axes, row: float, start: int, end: int, face: dict, text: str, on_dark: bool = False) -> None:
        room = end - start >= (0.0085 * len(text) + 0.004) * self.pipeline.end
        span_of_time(ax, row, start, end, face, text if room else "", "white" if on_dark else "black")

    # -- internal steps -----------------------------------------------------------------------------------------

    def _warps(self) -> list[int]:
        """Return the warps that have a row, by role; if there are many, the first of each warp group of one role."""
        found = [warp for role in _ROLES for warp in self.pipeline.of_role(role)]
        return [warp for warp in found if warp == self._like(warp)[0]]

    def _like(self, warp: int) -> list[int]:
        """Return the warps in the row of a warp: with many warps, its warp group, if all four have its role."""
        roles = self.pipeline.roles
        four = list(range(warp // 4 * 4, warp // 4 * 4 + 4))
        alike = len(roles) > max(_MOST_WARPS, four[-1]) and len({roles[one] for one in four}) == 1
        return four if alike else [warp]

    def _most_columns(self) -> str:
        return plural(max(one.columns for one in self.pipeline.held), "column")

    def _spans(self, warp: int) -> list[PipelineSpan]:
        return [span for span in self.pipeline.spans if span.warp == warp]

    def _name(self, warp: int) -> str:
        role, those = self.pipeline.roles[warp], self._like(warp)
        name = warps_of(those)
        if role == "both":
            return f"{name}, producer and consumer"
        return f"{name} {role}{'s' * (len(those) > 1)}" if role else name


def pipeline_view(recording: Any, *, copy_cycles: int = COPY_CYCLES) -> PipelinePicture:
    """Show which warps wait for which in a block that is a pipeline of copying producers and computing consumers.

    The order of events is the program's. The times come from a model, which the picture names: an instruction takes one
    cycle, a bulk copy ``copy_cycles``, a product of a warp group half a cycle per column.

    Args:
        recording: a `Recording`, or a trace or launch report that has one (``record_block=``).
        copy_cycles: cycles from the issue of a copy to its completion.

    Raises:
        ArgumentError: if nothing was recorded, the block uses neither mbarriers nor products that run beside their
            warp, or ``copy_cycles`` is negative.
    """
    found = recording_of(recording)
    return PipelinePicture(found.pipeline(copy_cycles), found.block)


def _what(span: PipelineSpan) -> str:
    """Return the name of the event that a span waits for; empty for a span that runs."""
    return "" if span.kind == "run" else span.name or "products"


def _face(span: PipelineSpan) -> dict[str, Any]:
    return RUN if span.kind == "run" else _MULTIPLYING if span.on == "products" else WAIT


def _run_or_wait(span: PipelineSpan) -> str:
    return "=" if span.kind == "run" else ":" if span.on == "products" else "."


def _joined(products: Iterable[Any]) -> list[tuple[int, int]]:
    """Return intervals (start, end) in which products follow each other without a gap."""
    out: list[tuple[int, int]] = []
    for one in products:
        if out and out[-1][1] == one.start:
            out[-1] = out[-1][0], one.end
        else:
            out.append((one.start, one.end))
    return out


def _strip(parts: Iterable[PipelineSpan | StageState | Any], mark: Any, width: int) -> str:
    """Return one character per ``width`` cycles: the mark of the part that fills most of them."""
    columns: dict[int, Counter[str]] = {}
    for part in parts:
        for column in range(part.start // width, -(-part.end // width)):
            inside = min(part.end, (column + 1) * width) - max(part.start, column * width)
            columns.setdefault(column, Counter())[mark(part)] += inside
    out = []
    for column in range(max(columns, default=-1) + 1):
        found = columns.get(column, Counter())
        found[" "] += width - found.total()
        out.append(found.most_common(1)[0][0])
    return "".join(out)
