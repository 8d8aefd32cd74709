"""A tuning run for people: text, terminal table, HTML, DataFrame, figure. Every time says whether it is predicted."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from workbench.errors import MissingToolError
from workbench.frames import data_frame
from workbench.terminal import plain
from workbench.tuning.trial import OUTCOME_MEANING, Trial

if TYPE_CHECKING:
    from workbench.tuning.run import TuningRun

# Okabe and Ito's palette, which colour-blind readers can tell apart, with a marker each.
_STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
)
_HTML_ROWS = 30


def row_of(trial: Trial) -> dict:
    """A trial as one flat row. Times are in microseconds, sizes in bytes; what is unknown is None."""
    counts, resources = trial.counts, trial.resources
    requests = counts.get("global_load_requests", 0) + counts.get("global_store_requests", 0)
    sectors = counts.get("global_load_sectors", 0) + counts.get("global_store_sectors", 0)
    return {
        "op": trial.op,
        "variant": trial.variant,
        "language": trial.language,
        "case": trial.case,
        "config": dict(trial.config),
        "outcome": trial.outcome,
        "predicted_us": _micro(trial.predicted_seconds),
        "measured_us": _micro(trial.measured_seconds),
        "spread_us": _micro(trial.spread_seconds),
        "predicted_for": trial.predicted_for,
        "bound_by": trial.prediction.get("bound_by"),
        "registers": resources.get("registers"),
        "spill_bytes": resources.get("spill_bytes"),
        "shared_bytes": resources.get("shared_bytes"),
        "occupancy": resources.get("occupancy"),
        "instructions": counts.get("warp_instructions"),
        "sectors_per_request": sectors / requests if requests else None,
        "shared_conflicts": counts.get("shared_conflicts"),
        "max_error": trial.max_error,
        "error_bound": trial.error_bound,
        "compile_seconds": trial.compile_seconds,
        "reused": trial.reused,
        "message": trial.message,
    }


def sorted_trials(run: TuningRun) -> list[Trial]:
    """By case and variant, the fastest first, then what failed."""
    cases = [case.name for case in run.cases]
    variants = [variant.name for variant in run.variants]

    def place(trial: Trial) -> tuple:
        slow = trial.seconds is None
        return cases.index(trial.case), variants.index(trial.variant), slow, 0.0 if slow else trial.seconds

    return sorted(run.trials, key=place)


_COLUMNS = (
    ("configuration", "left"),
    ("outcome", "left"),
    ("{time} µs", "right"),
    ("bound by", "left"),
    ("regs", "right"),
    ("spill", "right"),
    ("occ.", "right"),
    ("sectors\n/request", "right"),
    ("conflicts", "right"),
    ("error / bound", "right"),
)


def _cells(trial: Trial) -> list[str]:
    row = row_of(trial)
    error = ""
    if row["max_error"] is not None:
        error = f"{row['max_error']:.1e} / {row['error_bound']:.1e}"
    return [
        trial.config_text,
        trial.outcome,
        _format(_micro(trial.seconds), ".2f"),
        row["bound_by"] or _first_line(trial.message),
        _format(row["registers"], "d"),
        _format(row["spill_bytes"], "d"),
        _format(row["occupancy"], ".0%"),
        _format(row["sectors_per_request"], ".1f"),
        _format(row["shared_conflicts"], "d"),
        error,
    ]


def summary_table(run: TuningRun):
    """Every trial for a terminal, one rich table per variant: each tunable, outcome, labelled time, resources, memory
    facts and error against its bound. The winner is bold."""
    from rich.console import Group
    from rich.table import Table

    time = "measured" if run.model is None else "predicted"
    several = len(run.cases) > 1
    best = _winning(run)
    tables = []
    for variant in run.variants:
        table = Table(title=plain(f"{run.op.name} / {variant.name}: times {run.time_label}"), title_justify="left")
        if several:
            table.add_column("case")
        for name in variant.space:
            # Long names are broken at their underscores, so that a row stays on one line.
            table.add_column(plain(name.replace("_", "_\n")), justify="right")
        for name, justify in _COLUMNS[1:]:
            table.add_column(name.format(time=f"{time}\n"), justify=justify, no_wrap=True)
        for trial in sorted_trials(run):
            if trial.variant != variant.name:
                continue
            tunables = [str(trial.config.get(name, "")) for name in variant.space]
            cells = [*((trial.case,) if several else ()), *tunables, *_cells(trial)[1:]]
            table.add_row(*map(plain, cells), style="bold green" if id(trial) in best else None if trial.ok else "dim")
        tables.append(table)
    return Group(*tables)


def text_of(run: TuningRun) -> str:
    """The run in a few lines: what was tried, what won and by how much, what was left out."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in run.outcomes.items())
    lines = [
        f"{run.op.name} on {', '.join(case.name for case in run.cases)}: {len(run.trials)} trials ({outcomes}); "
        f"{run.new} new, {run.reused} from {run.store_path}",
        f"times are {run.time_label}",
    ]
    lines += [f"  {outcome}: {OUTCOME_MEANING[outcome]}" for outcome in run.outcomes if outcome != "ok"]
    for variant in run.variants:
        space = run.spaces[variant]
        tried = len({str(trial.config) for trial in run.trials if trial.variant == variant.name})
        lines.append(f"{variant.name}: {tried} of {len(space)} legal configurations ({space.raw_size} points)")
        choice = run.best_by_variant.get(variant.name)
        if choice is None:
            lines += [f"  {_why_none(run, variant.name)}"] * (tried > 0)
            continue
        default = run.default_of(variant)
        gain = f", {default.seconds / choice.seconds:.2f}x as fast as its default" if default else ""
        lines.append(f"  {choice}{gain}")
    if run.best is None:
        lines.append(f"no winner: {_nothing(run)}")
    else:
        lines.append(f"winner: {run.best}")
        if run.ties:
            lines.append(f"  tied with {len(run.ties)} more, which these times do not tell apart from it:")
            lines += [f"    {choice}" for choice in run.ties[:5]]
    if run.table_path:
        changed = f"{run.recorded} changed" if run.recorded else "nothing to change"
        lines.append(f"tuned table {run.table_path}: {changed}")
    lines += run.notes
    if run.interrupted:
        lines.append(run.how_to_go_on)
    return "\n".join(lines)


def html_of(run: TuningRun) -> str:
    """The leaders of each variant and what failed. Holds nothing that differs between two equal runs."""
    time = "measured" if run.model is None else "predicted"
    heads = ["variant", "case", *(name.format(time=time).replace("\n", "") for name, _ in _COLUMNS)]
    best = _winning(run)
    body = []
    trials = sorted_trials(run)
    for trial in trials[:_HTML_ROWS]:
        style = ' style="font-weight:bold"' if id(trial) in best else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (trial.variant, trial.case, *_cells(trial)))
        body.append(f"<tr{style}>{cells}</tr>")
    more = f"<p>and {len(trials) - _HTML_ROWS} more: .to_frame()</p>" if len(trials) > _HTML_ROWS else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    winner = _nothing(run) if run.best is None else f"winner: {run.best}"
    return (
        f"<p><b>{html.escape(run.op.name)}</b>: {html.escape(winner)}; times are {html.escape(run.time_label)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"
    )


def frame_of(run: TuningRun):
    """The rows as a DataFrame; each tunable has a column of its own beside ``config``."""
    return data_frame({**row, **row["config"]} for row in run.rows)


def plot(run: TuningRun, ax=None):
    """Time of every correct configuration of each variant by its rank; returns the axes."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingToolError('plot() needs matplotlib: python -m pip install -e ".[lab]"') from error
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7, 4), layout="constrained")
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
    ax.set(xlabel="rank", ylabel=f"{basis} [µs]", yscale="log", title=run.op.name)
    if run.ranking:
        ax.legend()
    return ax


def _nothing(run: TuningRun) -> str:
    if not run.trials:
        return "nothing was tried"
    if any(trial.ok and trial.seconds is None for trial in run.trials):
        return "no configuration has a time on every case"
    return "no configuration is correct on every case"


def _why_none(run: TuningRun, variant: str) -> str:
    untimed = (trial.message for trial in run.trials if trial.variant == variant and trial.ok and trial.seconds is None)
    return next(untimed, "none is correct")


def _winning(run: TuningRun) -> set[int]:
    return {id(trial) for trial in run.best.trials} if run.best else set()


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _format(value, spec: str) -> str:
    return "" if value is None else format(value, spec)


def _first_line(text: str, width: int = 32) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= width else line[: width - 1] + "…"
