"""Pictures of a space: the best time for every two parameters' values, and the course of the search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.base.trials.trial import OUTCOMES, Trial
from workbench.errors import ArgumentError, MissingToolError
from workbench.tuning.search.space import Space
from workbench.ui.plots import figure, logarithmic, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.tuning.result.tuning_result import TuningResult

# Okabe and Ito's palette; markers tell the outcomes apart without colour, too.
OUTCOME_STYLES = {
    "ok": ("#0072B2", "o"),
    "restricted": ("#999999", "_"),
    "compile_error": ("#E69F00", "^"),
    "launch_error": ("#D55E00", "s"),
    "wrong_result": ("#CC79A7", "D"),
    "timeout": ("#56B4E9", "v"),
    "crash": ("#000000", "X"),
    "refuted": ("#F0E442", "P"),
}
UNTRIED, RESTRICTED = "untried", "restricted"
_MANY = 300
"""Number of points above which they are drawn smaller."""


@dataclass(frozen=True)
class LandscapeCell:
    """All configurations that share two values. ``seconds`` is the best of their times, None if none has one.

    ``outcome`` is "ok" for a cell with a time. Otherwise it is the commonest outcome of its trials, "restricted" if no
    configuration is legal, or "untried".
    """

    seconds: float | None
    outcome: str
    tried: int
    legal: int


def cells(trials: Iterable[Trial], space: Space, x: str, y: str) -> list[list[LandscapeCell]]:
    """Return the cells of one variant's trials on one case, as ``[values of y][values of x]``.

    Raises ArgumentError unless ``x`` and ``y`` are two different parameters of the space.
    """
    for name, value in (("x", x), ("y", y)):
        if value not in space.parameters or x == y:
            raise ArgumentError(
                name, repr(value), f"two different ones of {', '.join(space.parameters)}", "Name two parameters."
            )
    found: dict[tuple, list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.config.get(x), trial.config.get(y)), []).append(trial)
    legal = space.legal_counts(y, x)
    return [
        [
            _cell(found.get((x_value, y_value), []), int(legal[row, column]))
            for column, x_value in enumerate(space.parameters[x])
        ]
        for row, y_value in enumerate(space.parameters[y])
    ]


def _cell(trials: Sequence[Trial], legal: int) -> LandscapeCell:
    times = [trial.seconds for trial in trials if trial.seconds is not None]
    if times:
        return LandscapeCell(min(times), "ok", len(trials), legal)
    outcomes = [trial.outcome for trial in trials]
    none = UNTRIED if legal else RESTRICTED
    return LandscapeCell(None, max(OUTCOMES, key=outcomes.count) if outcomes else none, len(trials), legal)


def chosen_trials(run: TuningResult, variant: str | None = None, case: str | None = None) -> tuple[list[Trial], Space]:
    """Return the trials and the space of one variant (default the best one's) on one case (default the first).

    Raises ArgumentError for a name that the run does not have.
    """
    names = [each.name for each in run.variants]
    variant = variant or (run.best.variant if run.best else names[0])
    cases = [each.name for each in run.cases]
    case = case or cases[0]
    for what, name, known in (("variant", variant, names), ("case", case, cases)):
        if name not in known:
            raise ArgumentError(what, repr(name), ", ".join(known), "Name a variant or parameter that was tuned.")
    space = next(space for each, space in run.spaces.items() if each.name == variant)
    return [trial for trial in run.trials if (trial.variant, trial.case) == (variant, case)], space


def heat_map(
    run: TuningResult, x: str, y: str, variant: str | None = None, case: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the best time for every two values of ``x`` and ``y``, over all values of the others; return the axes."""
    trials, space = chosen_trials(run, variant, case)
    basis = "measured" if run.model is None else "predicted"
    return draw_cells(cells(trials, space, x, y), space, x, y, f"{basis} [µs]", ax)


def draw_cells(
    grid: Sequence[Sequence[LandscapeCell]], space: Space, x: str, y: str, label: str, ax: Axes | None = None
) -> Axes:
    """Draw `cells`, darker for faster, with a frame around the best; return the axes.

    A cell without a time shows its outcome.
    """
    pyplot = _pyplot()
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    xs, ys = space.parameters[x], space.parameters[y]
    ax = new_axes(1.6 + 0.75 * len(xs), 1.2 + 0.5 * len(ys), layout="constrained") if ax is None else ax
    times = [cell.seconds for row in grid for cell in row if cell.seconds is not None]
    best, worst = (min(times), max(times)) if times else (1.0, 1.0)
    norm = LogNorm(best, max(worst, 1.001 * best))
    palette = pyplot.get_cmap("cividis")
    for row, of_row in enumerate(grid):
        for column, cell in enumerate(of_row):
            place = {"xy": (column - 0.5, row - 0.5), "width": 1, "height": 1}
            text = {"x": column, "y": row, "ha": "center", "va": "center", "fontsize": 8}
            if cell.seconds is not None:
                shade = norm(cell.seconds)
                ax.add_patch(Rectangle(**place, facecolor=palette(shade), edgecolor="white"))
                ax.text(**text, s=figure(cell.seconds * 1e6), color="white" if shade < 0.5 else "black")
            elif cell.outcome == RESTRICTED:
                ax.add_patch(Rectangle(**place, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="///", linewidth=0))
            else:
                colour = OUTCOME_STYLES.get(cell.outcome, ("#666666", ""))[0]
                ax.text(**text, s="·" if cell.outcome == UNTRIED else cell.outcome.replace("_", "\n"), color=colour)
            if cell.seconds is not None and cell.seconds == best:
                ax.add_patch(Rectangle(**place, fill=False, edgecolor="#D55E00", linewidth=3, zorder=3))
    ax.set_xticks(range(len(xs)), [str(value) for value in xs])
    ax.set_yticks(range(len(ys)), [str(value) for value in ys])
    ax.set(xlim=(-0.5, len(xs) - 0.5), ylim=(len(ys) - 0.5, -0.5), xlabel=x, ylabel=y, title=f"best {label}")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def draw_history(trials: Sequence[Trial], label: str, ax: Axes | None = None) -> Axes:
    """Draw each trial's time in the given order, the failed ones above them, and the best so far; return the axes."""
    _pyplot()
    ax = new_axes(6, 3.6, layout="constrained") if ax is None else ax
    times = [trial.seconds * 1e6 for trial in trials if trial.seconds is not None]
    lowest, highest = (min(times), max(times)) if times else (1.0, 1.0)
    above = highest * max(1.15, (highest / lowest) ** 0.15)
    for outcome, (colour, marker) in OUTCOME_STYLES.items():
        here = [(at, t.seconds) for at, t in enumerate(trials, 1) if t.outcome == outcome]
        if here:
            heights = [above if seconds is None else seconds * 1e6 for _, seconds in here]
            style = {"color": colour, "markersize": 5 if len(trials) <= _MANY else 2.5}
            ax.plot([at for at, _ in here], heights, marker, **style, label=f"{len(here)} {outcome}")
    best, steps = float("inf"), []
    for at, trial in enumerate(trials, 1):
        if trial.seconds is not None:
            best = min(best, trial.seconds * 1e6)
            steps.append((at, best))
    if steps:
        ax.step(*zip(*steps, (len(trials), best), strict=True), where="post", color="#009E73", label="best so far")
    ax.set(xlabel="attempt", ylabel=label)
    logarithmic(ax, times)
    ax.spines[["top", "right"]].set_visible(False)
    if trials:  # above the points, since matplotlib's search for a free place among many takes seconds
        ax.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, borderaxespad=0)
    return ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingToolError('a picture needs matplotlib: python -m pip install -e ".[lab]"') from error
    return pyplot
