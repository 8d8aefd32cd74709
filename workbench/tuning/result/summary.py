"""Renderings of a tuning run: text, terminal table, HTML, DataFrame and figure.

Each time is labelled measured or predicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from workbench.analysis.prediction.confidence import TIE, in_order, spread_of, trust
from workbench.base.frames import data_frame
from workbench.base.tables import Table, alike, cut
from workbench.base.terminal import plain
from workbench.base.trials.trial import OUTCOME_MEANING, Trial
from workbench.errors import MissingToolError
from workbench.ui.plots import logarithmic, new_axes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from rich.console import Console, ConsoleOptions, Group, RenderResult

    from workbench.tuning.recorded.replayed import AnyVariant
    from workbench.tuning.result.tuning_result import TuningResult

# Okabe and Ito's palette, which colour-blind readers can tell apart, with a marker for each colour.
_STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
)
_HTML_ROWS, _HTML_LEAST = 30, 8
"""Largest number of rows of all tables of a page together, and the rows that each table may have at least."""


def row_of(trial: Trial) -> dict:
    """Return a trial as one flat row: times in microseconds, sizes in bytes, None for what is unknown.

    ``expected_low_us`` and ``expected_high_us`` are the ends of the range in which most measured times lie, for
    predictions with the same ``bound_by`` (:mod:`workbench.analysis.prediction.confidence`).
    """
    predicted, bound_by = trial.predicted_seconds, trial.prediction.get("bound_by")
    low = high = None
    if predicted is not None and bound_by is not None and (spread := spread_of(bound_by)):
        low, high = predicted * spread.low, predicted * spread.high
    return {
        **{name: getattr(trial, name) for name in ("op", "variant", "language", "case")},
        "config": dict(trial.config),
        "outcome": trial.outcome,
        "predicted_us": _micro(predicted),
        "expected_low_us": _micro(low),
        "expected_high_us": _micro(high),
        "measured_us": _micro(trial.measured_seconds),
        "spread_us": _micro(trial.spread_seconds),
        "predicted_for": trial.predicted_for,
        "bound_by": bound_by,
        **{name: trial.resources.get(name) for name in ("registers", "spill_bytes", "shared_bytes", "occupancy")},
        "instructions": trial.counts.get("warp_instructions"),
        "sectors_per_request": trial.memory.sectors_per_request,
        "shared_conflicts": trial.counts.get("shared_conflicts"),
        **{name: getattr(trial, name) for name in ("max_error", "error_bound", "compile_seconds", "reused", "message")},
    }


def sorted_trials(run: TuningResult) -> list[Trial]:
    """Return the trials by case and variant, the fastest first and the failed ones last."""
    cases = [case.name for case in run.cases]
    variants = [variant.name for variant in run.variants]

    def place(trial: Trial) -> tuple:
        slow = trial.seconds is None
        order = () if slow else run.place(trial)
        return cases.index(trial.case), variants.index(trial.variant), slow, *order

    return sorted(run.trials, key=place)


_PLAIN = {"outcome": "ok", "conflicts": "0", "spill": "0"}
"""Values that are left out of a table if all of its trials have them."""
_OUTCOME_WIDTH, _MESSAGE_WIDTH = 32, 200
_LEFT = ("case", "outcome", "bound by", "exact")


def _facts(trial: Trial, time: str) -> dict[str, str]:
    """Return the cells of a trial by column, the most important columns first."""
    row = row_of(trial)
    why = cut(next(iter(trial.message.splitlines()), ""), _OUTCOME_WIDTH)
    return {
        f"{time} µs": _format(_micro(trial.seconds), ".2f"),
        "outcome": trial.outcome if trial.ok or not why else f"{trial.outcome}: {why}",
        "bound by": row["bound_by"] or "",
        "error/bound": _error(trial),
        "regs": _format(row["registers"], "d"),
        "occ.": _format(row["occupancy"], ".0%"),
        "sectors/request": _format(row["sectors_per_request"], ".1f"),
        "conflicts": _format(row["shared_conflicts"], ",d"),
        "spill": _format(row["spill_bytes"], "d"),
    }


def _error(trial: Trial) -> str:
    """Return the error of a trial as a share of its bound."""
    if trial.max_error is None:
        return ""
    if not trial.error_bound:
        return "exact" if trial.max_error == 0 else f"{trial.max_error:.1e}"
    return f"{trial.max_error / trial.error_bound:.0%}"


@dataclass(frozen=True)
class _Grid:
    """The trials of one variant as a table: a row for each trial, its settings first and then its facts."""

    trials: list[Trial]
    settings: list[str]
    facts: list[str]
    rows: list[list[str]]
    said: str
    """The columns that are left out because all trials have the same plain value, in words."""

    @property
    def heads(self) -> list[str]:
        return [*self.settings, *self.facts]

    @property
    def align(self) -> str:
        return "".join("l" if name in _LEFT else "r" for name in self.heads)


def _grid(run: TuningResult, variant: AnyVariant, most: int | None = None) -> _Grid:
    trials = [trial for trial in sorted_trials(run) if trial.variant == variant.name][:most]
    facts = [_facts(trial, "measured" if run.model is None else "predicted") for trial in trials]
    for trial, cells in zip(trials, facts, strict=True):
        cells["exact"] = answer.brief if (answer := run.exact_of(trial)) else ""
    names = list(facts[0]) if facts else []
    plain = alike(names, [list(one.values()) for one in facts], _PLAIN)
    kept = [name for name in names if name not in plain and any(one[name] for one in facts)]
    said = ", ".join(f"{name} {_PLAIN[name]}" for name in plain)
    case = ["case"] if len(run.cases) > 1 else []
    rows = [
        [*(trial.case for _ in case), *(str(trial.config.get(name, "")) for name in variant.space)]
        + [one[name] for name in kept]
        for trial, one in zip(trials, facts, strict=True)
    ]
    return _Grid(trials, [*case, *variant.space], kept, rows, f"all have {said}" if said else "")


class _TerminalTable:
    """Terminal table of one variant's trials: all tunables, and as many facts as fit without cutting numbers."""

    def __init__(self, run: TuningResult, variant: AnyVariant):
        self._run, self._variant = run, variant

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run, grid = self._run, _grid(self._run, self._variant)
        yield plain(_title(run, self._variant))
        # Heads with long names are broken into lines, so that each row fits on one.
        broken = [head.replace("_", "_\n").replace("/", "/\n").replace(" µs", "\nµs") for head in grid.heads]
        widths = [max(map(len, [*head.split("\n"), *(row[at] for row in grid.rows)])) for at, head in enumerate(broken)]
        fit = len(widths)
        while fit > len(grid.settings) + 1 and sum(widths[:fit]) + 2 * fit > options.max_width:
            fit -= 1
        rows = [row[:fit] for row in grid.rows]
        yield Table(broken[:fit], rows, grid.align[:fit], marks=_marks(run, grid.trials)).rich()
        left_out = f"no room for {', '.join(grid.heads[fit:])}" if fit < len(widths) else ""
        if notes := "; ".join(filter(None, (grid.said, left_out))):
            yield plain(f"({notes})")


def summary_table(run: TuningResult) -> Group:
    """Return every trial as tables for a terminal, one per variant, with the winner in bold.

    Columns are the tunables, the labelled time, the outcome if it is not "ok", what bounds the time, the error as a
    share of its bound, and facts on resources and memory. Facts that do not fit the terminal are named below the table.
    """
    from rich.console import Group

    return Group(*(_TerminalTable(run, variant) for variant in run.variants))


def _title(run: TuningResult, variant: AnyVariant) -> str:
    return f"{run.op.name} / {variant.name}: times {run.time_label}"


def text_of(run: TuningResult) -> str:
    """Return the run in a few lines: the trials, the winner and its lead, and the configurations left out."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in run.outcomes.items())
    lines = [
        f"{run.op.name} on {', '.join(case.name for case in run.cases)}: {len(run.trials)} trials ({outcomes}); "
        f"{run.new} new, {run.reused} from {run.store_path}",
        f"times are {run.time_label}",
    ]
    for outcome in run.outcomes:
        if outcome not in ("ok", "restricted"):
            lines += [f"  {outcome}: {OUTCOME_MEANING[outcome]}", *_first(run, outcome)]
    for variant in run.variants:
        space = run.spaces[variant]
        tried = len({str(trial.config) for trial in run.trials if trial.variant == variant.name})
        lines.append(f"{variant.name}: {tried} of {len(space)} legal configurations ({space.raw_size} points)")
        choice = run.best_by_variant.get(variant.name)
        if choice is None:
            lines += [f"  {_why_none(run, variant.name)}"] * (tried > 0)
            continue
        default = run.default_of(variant)
        gain = f", {default.seconds / choice.seconds:.2f} times the speed of its default" if default else ""
        lines.append(f"  {choice}{gain}")
    if run.best is None:
        lines.append(f"no winner: {_nothing(run)}")
    else:
        lines.append(f"winner: {run.best}")
        if run.best.basis == "predicted":
            bounds = dict.fromkeys(trial.prediction["bound_by"] for trial in run.best.trials)
            lines += [f"  {trust(bound)}" for bound in bounds]
        if run.ties:
            near = f": of two that are predicted so near, the first was the faster in {in_order()[TIE]:.0%} of cases"
            near = near if run.best.basis == "predicted" else ""
            lines.append(f"  {len(run.ties)} more may be as fast{near}:")
            lines += [f"    {choice}" for choice in run.ties[:5]]
    lines += [line for table in _by_case(run) for line in str(table).splitlines()]
    if run.table_path:
        changed = f"{run.recorded} changed" if run.recorded else "nothing to change"
        lines.append(f"tuned table {run.table_path}: {changed}")
    lines += _exact_lines(run)
    lines += run.notes
    if run.interrupted:
        lines.append(run.how_to_go_on)
    return "\n".join(lines)


def tables_of(run: TuningResult, rows: int = _HTML_ROWS) -> list[Table]:
    """Return a table of each variant's leaders and failures, the winner first; ``rows`` is their number in all.

    Equal runs give equal tables.
    """
    out = [Table((), (), "", title=_nothing(run) if run.best is None else f"winner: {run.best}")]
    out += _by_case(run)
    for variant in run.variants:
        grid = _grid(run, variant, max(rows // len(run.variants), _HTML_LEAST))
        more = sum(trial.variant == variant.name for trial in run.trials) - len(grid.trials)
        notes = [grid.said, f"{more} more: .to_frame()" if more else ""]
        note = "; ".join(filter(None, notes))
        marks = _marks(run, grid.trials)
        out.append(Table(grid.heads, grid.rows, grid.align, title=_title(run, variant), note=note, marks=marks))
    return out


def frame_of(rows: Iterable[dict]) -> pandas.DataFrame:
    """Return the rows as a DataFrame; each tunable has a column of its own beside ``config``."""
    return data_frame({**row, **row["config"]} for row in rows)


def plot(run: TuningResult, ax: Axes | None = None) -> Axes:
    """Plot the time of every correct configuration by its rank, one colour and marker per variant; return the axes."""
    try:
        ax = new_axes(7, 4, layout="constrained") if ax is None else ax
    except ImportError as error:
        raise MissingToolError('plot() needs matplotlib: python -m pip install -e ".[lab]"') from error
    for at, variant in enumerate(run.variants):
        colour, marker = _STYLES[at % len(_STYLES)]
        choices = [choice for choice in run.ranking if choice.variant == variant.name]
        if not choices:
            continue
        times = [choice.seconds * 1e6 for choice in choices]
        ax.plot(range(1, len(times) + 1), times, marker, color=colour, label=variant.name, markersize=5)
        default = run.default_of(variant)
        if default is not None:
            ax.axhline(default.seconds * 1e6, color=colour, linestyle=":", label=f"{variant.name}: default")
    basis = "measured" if run.model is None else f"predicted for {run.model.name}"
    ax.set(xlabel="rank", ylabel=f"{basis} [µs]", title=run.op.name)
    logarithmic(ax, [choice.seconds * 1e6 for choice in run.ranking])
    if run.ranking:
        ax.legend()
    return ax


def _by_case(run: TuningResult) -> list[Table]:
    """Return a table of each case's fastest configuration beside the best single one; nothing for one case."""
    if len(run.cases) < 2 or not run.by_case:
        return []
    rows = []
    for one in run.by_case:
        fastest, overall = one.fastest, one.overall
        there = (
            ("–", "–")
            if overall is None
            else (_format(_micro(overall.seconds), ",.2f"), _format(one.cost, ".2f") + "x")
        )
        configuration = f"{fastest.variant} {fastest.config_text}"
        rows.append((fastest.case, configuration, _format(_micro(fastest.seconds), ",.2f"), *there))
    title = "the fastest configuration of each case, and what the best single one costs there:"
    return [Table(("case", "fastest", "µs", "single best µs", "cost"), rows, "llrrr", title=title)]


def _exact_lines(run: TuningResult) -> list[str]:
    """Return how many configurations are the same computation, and the first of those that differ or have no answer."""
    if not run.exact:
        return []
    from workbench.analysis.exact import DIFFERS_NOTE

    found = [(trial, one) for trial, one in zip(run.trials, run.exact, strict=True) if one is not None and one.answer]
    lines = []
    for same, words in ((True, "the same computation"), (False, "differ"), (None, "have no answer")):
        told = [(trial, one) for trial, one in found if one.same is same]
        for trial, one in told[:1]:
            lines.append(
                f"exact: {len(told)} of {len(found)} {words}; first {trial.variant} {trial.config_text}, {one}"
            )
            lines += [f"    {line}" for line in one.difference]
        lines += [DIFFERS_NOTE] * bool(told and same is False)
    return lines


def _nothing(run: TuningResult) -> str:
    if not run.trials:
        return "nothing was tried"
    if any(trial.ok and trial.seconds is None for trial in run.trials):
        return "no configuration has a time on every case"
    return "no configuration is correct on every case"


def _first(run: TuningResult, outcome: str) -> list[str]:
    """Return the first trial with this outcome and the first line of its message, as text."""
    told = (trial for trial in run.trials if trial.outcome == outcome and trial.message)
    return [
        f"    {trial.variant} {' '.join(f'{name}={value}' for name, value in trial.config.items())}: "
        + cut(trial.message.splitlines()[0], _MESSAGE_WIDTH)
        for trial in islice(told, 1)
    ]


def _why_none(run: TuningResult, variant: str) -> str:
    untimed = (trial.message for trial in run.trials if trial.variant == variant and trial.ok and trial.seconds is None)
    return next(untimed, "none is correct")


def _marks(run: TuningResult, trials: Iterable[Trial]) -> list[str]:
    best = {id(trial) for trial in run.best.trials} if run.best else set()
    return ["best" if id(trial) in best else "" if trial.ok else "failed" for trial in trials]


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _format(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)
