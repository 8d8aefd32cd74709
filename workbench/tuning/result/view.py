"""A view of a tuning run, live or finished: its progress, every attempt, and the landscape of its parameters.

Everything shown is computed here and reaches the browser as traits; the browser fetches nothing. Where no JavaScript
runs, the pictures of `workbench.tuning.result.landscape` stand in.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anywidget
import traitlets

from workbench.errors import ArgumentError
from workbench.tuning.result.landscape import OUTCOME_STYLES, cells, draw_cells, draw_history
from workbench.tuning.result.tuning_result import TuningResult
from workbench.ui import figure_html

if TYPE_CHECKING:
    from workbench.base.trials.trial import Trial
    from workbench.tuning.measuring.attempt import Progress

_STATIC = Path(__file__).parent / "static"

LEAST_INTERVAL = 0.2
"""Least seconds between two updates of a live view.

Each update sends every point of the picture, so a view with many points is updated less often.
"""
_SECONDS_PER_POINT = 1e-4


class Watched(Protocol):
    """A run that goes on, as a view follows it; see `LiveTuning`, which is one."""

    progress: Progress | None

    @property
    def phase(self) -> str:
        """One of "running", "stopping", "stopped", "done" and "failed"."""

    @property
    def total(self) -> int | None:
        """Largest number of attempts that the run will make."""

    @property
    def error(self) -> BaseException | None:
        """Error that ended the run, if it failed."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The finished attempts."""

    @property
    def outline(self) -> TuningResult:
        """The run without its trials."""

    @property
    def scouting(self) -> str:
        """The case that is being scouted."""

    @property
    def seconds_left(self) -> float | None:
        """The estimate of the time that it still takes."""

    def stop(self) -> None:
        """End it after the present attempt."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each attempt."""


class TuningView(anywidget.AnyWidget):
    """Widget of a tuning run: progress, best time so far, the attempts, and the landscape of the parameters.

    It shows a scatter of the attempts and a heat map of two parameters, from three parameters on also parallel
    coordinates of all, and for a live run a Stop button.

    Put it last in a notebook cell: `LiveTuning.widget` and `TuningRun.widget` make it. ``variant``, ``case``, ``x``,
    ``y`` and ``selected`` may be set, by controls or by code. A live view follows the variant that is being tuned,
    until one is chosen.

    Raises:
        ArgumentError: when set, a variant, case or parameter that the run does not have.
    """

    _esm = (_STATIC / "view.js").read_text(encoding="utf-8")
    _css = (_STATIC / "view.css").read_text(encoding="utf-8")

    title = traitlets.Unicode(help="The op that is tuned, and the origin of its times.").tag(sync=True)
    phase = traitlets.Unicode(help="running, stopping, stopped, done or failed.").tag(sync=True)
    done = traitlets.Int(help="Attempts that have ended; during scouting, those of the scouting.").tag(sync=True)
    total = traitlets.Int(None, allow_none=True, help="Attempts at most; None if the budget is a time.").tag(sync=True)
    headline = traitlets.Unicode(help="The progress in words, with the time left.").tag(sync=True)
    best = traitlets.Unicode(help="The fastest configuration on the case so far.").tag(sync=True)
    variants = traitlets.Dict(help="Variant -> its parameters -> their values.").tag(sync=True)
    cases = traitlets.List(traitlets.Unicode(), help="The cases tuned for.").tag(sync=True)
    styles = traitlets.Dict(help="Outcome -> colour.").tag(sync=True)
    unit = traitlets.Unicode(help="measured µs, or predicted µs.").tag(sync=True)

    variant = traitlets.Unicode(help="The variant whose attempts are shown.").tag(sync=True)
    case = traitlets.Unicode(help="The case whose attempts are shown.").tag(sync=True)
    x = traitlets.Unicode(help="The parameter of the heat map's columns.").tag(sync=True)
    y = traitlets.Unicode(help="The parameter of the heat map's rows.").tag(sync=True)
    selected = traitlets.Int(0, help="The number of the selected point, from 1; 0 for none.").tag(sync=True)

    points: traitlets.List[Any] = traitlets.List(help="Per attempt: [number, µs or None, outcome, values].").tag(
        sync=True
    )
    heat: traitlets.List[Any] = traitlets.List(help="Rows of [µs or None, outcome, tried, legal].").tag(sync=True)
    detail = traitlets.Unicode(help="The selected attempt in words.").tag(sync=True)

    def __init__(
        self,
        source: Watched | TuningResult,
        *,
        interval: float = LEAST_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.source = source
        self._live = live = None if isinstance(source, TuningResult) else source
        self._run = source if isinstance(source, TuningResult) else source.outline
        self._spaces = {variant.name: space for variant, space in self._run.spaces.items()}
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._following = live is not None
        self._shown: list[Trial] = []
        super().__init__()
        self.title = f"{self._run.op.name}, times {self._run.time_label}"
        self.unit = f"{'measured' if self._run.model is None else 'predicted'} µs"
        self.styles = {outcome: colour for outcome, (colour, _) in OUTCOME_STYLES.items()}
        self.variants = {name: space.parameters for name, space in self._spaces.items()}
        self.cases = [case.name for case in self._run.cases]
        self.case = self.cases[0]
        best = self._run.best
        self._show(best.variant if best else next(iter(self._spaces)))
        self.observe(self._on_choice, ["variant", "case", "x", "y", "selected"])
        self.on_msg(self._on_message)
        self._throttle = _Throttle(self.refresh, lambda: max(interval, _SECONDS_PER_POINT * len(self.points)), clock)
        if live is not None:
            live.listen(functools.partial(self._on_news, live))
        self.refresh()

    def stop(self) -> None:
        """End a live run after the present attempt; finished attempts are kept."""
        if self._live is not None:
            self._live.stop()
            self.refresh()

    def refresh(self) -> None:
        """Show the present state of the run. A live view calls it by itself."""
        with self._changing(), self.hold_sync():
            trials = self._trials()
            if self._following and trials and trials[-1].variant != self.variant:
                self._show(trials[-1].variant)
            self.phase = _phase_of(self._run) if self._live is None else self._live.phase
            self.done, self.total = self._done_of(trials)
            self.headline = self._headline()
            self._shown = [t for t in trials if (t.variant, t.case) == (self.variant, self.case)]
            self.best = self._best([t for t in trials if t.case == self.case])
            self.points = [
                [at, _micro(trial), trial.outcome, list(trial.config.values())]
                for at, trial in enumerate(self._shown, 1)
            ]
            grid = cells(self._shown, self._spaces[self.variant], self.x, self.y) if self.y else []
            self.heat = [
                [[cell.seconds and round(cell.seconds * 1e6, 4), cell.outcome, cell.tried, cell.legal] for cell in row]
                for row in grid
            ]
            self.detail = self._detail()

    def set_state(self, sync_data: dict) -> None:
        """Apply the browser's choices, under the lock that the tuning thread takes too."""
        with self._lock:
            super().set_state(sync_data)

    @property
    def selected_trial(self) -> Trial | None:
        """The trial of the selected point; None if no point is selected."""
        return self._shown[self.selected - 1] if 1 <= self.selected <= len(self._shown) else None

    # -- how it looks without a browser -------------------------------------------------------------------------

    def __repr__(self) -> str:
        counts = Counter(trial.outcome for trial in self._trials())
        outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOME_STYLES if counts[outcome])
        return f"<tuning of {self._run.op.name}, {self.phase}: {outcomes or 'no attempt yet'}; {self.best}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        import matplotlib.pyplot as plt

        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        if not self._shown:
            return data | {"text/plain": repr(self)}, metadata
        with self._lock:
            figure, axes = plt.subplots(1, 2 if self.y else 1, figsize=(11, 3.8), layout="constrained", squeeze=False)
            draw_history(self._shown, self.unit.replace("µs", "[µs]"), axes[0, 0])
            if self.y:
                space = self._spaces[self.variant]
                grid = cells(self._shown, space, self.x, self.y)
                draw_cells(grid, space, self.x, self.y, self.unit.replace("µs", "[µs]"), axes[0, 1])
        return data | {"text/plain": repr(self), "text/html": figure_html(figure)}, metadata

    # -- choices ------------------------------------------------------------------------------------------------

    @traitlets.validate("variant", "case", "x", "y")
    def _check(self, proposal: traitlets.Bunch) -> str:
        name = proposal.trait.name
        known = {"variant": list(self._spaces), "case": [case.name for case in self._run.cases]}.get(name)
        if known is None:
            known = ["", *(name for space in self._spaces.values() for name in space.parameters)]
        if proposal.value not in known:
            raise ArgumentError(name, repr(proposal.value), ", ".join(filter(None, known)), "Name one of these.")
        return proposal.value

    def _show(self, variant: str) -> None:
        """Show another variant, with the parameters shown before if it has them, else with two of its own."""
        names = list(self._spaces[variant].parameters)
        several = sorted(names, key=lambda name: len(self._spaces[variant].parameters[name]) < 2)
        self.selected = 0
        self.variant = variant
        if self.x not in names or self.y not in names or self.x == self.y:
            self.x, self.y = (*several, "", "")[:2]

    def _on_choice(self, change: traitlets.Bunch) -> None:
        if self._thread == threading.get_ident():  # a consequence of a choice, not a choice
            return
        with self._changing():
            if change.name == "variant":
                self._following = False
                self._show(change.new)
            elif change.name == "case":
                self.selected = 0
            elif change.name in "xy" and self.x == self.y:
                # Swap the two parameters rather than show one against itself.
                setattr(self, "y" if change.name == "x" else "x", change.old)
            self.refresh()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            outer, self._thread = self._thread, threading.get_ident()
            try:
                yield
            finally:
                self._thread = outer

    def _on_message(self, _widget: object, content: dict, _buffers: object) -> None:
        if content.get("action") == "stop":
            self.stop()

    def _on_news(self, live: Watched) -> None:
        if live.phase in ("running", "stopping"):
            self._throttle()
        else:
            self._throttle.end()

    # -- words --------------------------------------------------------------------------------------------------

    def _trials(self) -> list[Trial]:
        if self._live is not None:
            return list(self._live.trials)
        return sorted(self._run.trials, key=lambda trial: trial.finished or 0.0)

    def _done_of(self, trials: list[Trial]) -> tuple[int, int | None]:
        """Return the number of ended attempts and their largest number; during scouting, those of the scouting."""
        if self._live is None:
            return len(trials), len(trials)
        progress = self._live.progress
        if progress and progress.scouting:
            return progress.done, progress.total
        return len(trials), self._live.total

    def _headline(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        live = self._live
        scouting = f"scouting {live.scouting}: " if live and live.scouting else ""
        words = [f"{scouting}{self.done}{of} attempts"]
        reused = live.progress.reused if live and live.progress else self._run.reused
        if reused:
            words.append(f"{reused} from the store")
        if live and (left := live.seconds_left) is not None:
            words.append(f"about {_duration(left)} left")
        said = {
            "stopping": "stopping after the present attempt",
            "stopped": "stopped; everything finished is kept, and the same call goes on from there",
            "failed": f"failed: {live.error}" if live else "",
        }
        return "; ".join([", ".join(words), *filter(None, [said.get(self.phase)])])

    def _best(self, trials: list[Trial]) -> str:
        times = [(trial.seconds, trial) for trial in trials if trial.seconds is not None]
        if not times:
            return "nothing correct yet" if self.phase in ("running", "stopping") else "nothing correct"
        seconds, best = min(times, key=lambda one: one[0])
        return f"best {seconds * 1e6:.2f} µs {best.basis}: {best.variant} {best.config_text}"

    def _detail(self) -> str:
        trial = self.selected_trial
        if trial is None:
            return ""
        time_ = "" if trial.seconds is None else f" {trial.seconds * 1e6:.2f} µs {trial.basis}"
        why = f": {trial.message}" if trial.message else ""
        return f"{self.selected}. {trial.variant} {trial.config_text}: {trial.outcome}{time_}{why}"


class _Throttle:
    """Limiter that calls ``action`` at once, then at most once in ``interval()`` seconds.

    The last call is never dropped.
    """

    def __init__(self, action: Callable[[], None], interval: Callable[[], float], clock: Callable[[], float]):
        self._action, self._interval, self._clock = action, interval, clock
        self._next = -float("inf")
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            left = self._next - self._clock()
            if self._timer is not None:
                return
            if left > 0:
                self._timer = threading.Timer(left, self._later)
                self._timer.daemon = True
                self._timer.start()
                return
            self._next = self._clock() + self._interval()
        self._action()

    def end(self) -> None:
        """Call the action now, for the last time."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._action()

    def _later(self) -> None:
        with self._lock:
            self._timer = None
            self._next = self._clock() + self._interval()
        self._action()


def _phase_of(run: TuningResult) -> str:
    return "stopped" if run.interrupted else "done"


def _micro(trial: Trial) -> float | None:
    return None if trial.seconds is None else round(trial.seconds * 1e6, 4)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
