"""A progress bar of a tuning run in a terminal."""

from __future__ import annotations

from typing import TextIO

from workbench.base.progress import bar
from workbench.base.terminal import visible
from workbench.tuning.measuring.attempt import Progress


class ProgressBar:
    """Bar to call with each `Progress`: attempts, time left, the best so far. `close` it at the end.

    It stays silent if ``stderr`` is not a terminal.
    """

    def __init__(self, file: TextIO | None = None):
        self._scouting = ""
        self._bar = bar(" attempts", file=file)

    def __call__(self, progress: Progress) -> None:
        """Show this progress."""
        if self._bar.disable:
            return
        if progress.scouting != self._scouting:
            self._scouting = progress.scouting
            scouting = visible(f"scouting {self._scouting}") if self._scouting else ""
            self._bar.set_description_str(scouting, refresh=False)
            self._bar.reset()
        self._bar.total = progress.total
        best = progress.best
        said = [f"{progress.reused} from the store"] if progress.reused else []
        if best is not None and best.seconds is not None:
            said.append(f"best {best.seconds * 1e6:.2f} µs {best.basis}: {best.variant} {best.config_text}")
        self._bar.set_postfix_str(visible(", ".join(said)), refresh=False)
        self._bar.update(progress.done - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()
