"""Progress bars on stderr: the work that is done and left, and the time that the rest will take.

They appear only in a terminal, and not in processes that another one has work for it. A line that explains a long wait
(`announce`) appears on pipes too. `be_quiet` and the option ``-q`` of every command turn them off.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from workbench.base.terminal import visible

if TYPE_CHECKING:
    from tqdm import tqdm

_Item = TypeVar("_Item")

_PATIENCE = 2.0
"""Seconds before `waiting` shows anything."""

_quiet = False


def _write_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_announced_by: Callable[[str], None] = _write_line


def be_quiet(quiet: bool = True) -> None:
    """Show no progress in this process from now on, or show it again."""
    global _quiet
    _quiet = quiet


def announce(text: str) -> None:
    """Print one line on stderr, terminal or not, about work that takes so long that a user may wonder."""
    if not _quiet:
        _announced_by(f"workbench: {text}")


def announce_by(write: Callable[[str], None]) -> None:
    """Let ``write`` print the lines of `announce` from now on, where stderr is not what the user sees."""
    global _announced_by
    _announced_by = write


def bar(unit: str, total: int | None = None, file: TextIO | None = None, **options: object) -> tqdm:
    """Return a bar of ``total`` units, such as " attempts". It is silent unless ``file``, or stderr, is a terminal."""
    from tqdm import tqdm  # 20 ms, which help and completion can do without

    file = file or sys.stderr
    return tqdm(total=total, unit=unit, file=file, disable=_silent(file), dynamic_ncols=True, **options)


def tracked(
    items: Iterable[_Item], unit: str, total: int | None = None, name: Callable[[_Item], str] | None = None
) -> Iterator[_Item]:
    """Yield the items while a bar counts those that are done; the bar leaves nothing behind.

    Args:
        items: what is worked on.
        unit: the noun behind their number, such as " variants".
        total: their number, where ``items`` has no length.
        name: returns the text that the bar shows while an item is worked on.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(unit, total, leave=False) as shown:
        for item in items:
            if name is not None and not shown.disable:
                shown.set_postfix_str(visible(name(item)), refresh=True)
            yield item
            shown.update()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show ``what`` and the seconds so far, for work without parts to count, such as one compilation.

    It appears after two seconds, and leaves nothing behind. Work of other threads than the main one is not shown: there
    may be any number of it.
    """
    if threading.current_thread() is not threading.main_thread() or _silent(sys.stderr):
        yield
        return
    done = threading.Event()
    clock = threading.Thread(target=_count_seconds, args=(what, done), daemon=True)
    clock.start()
    try:
        yield
    finally:
        done.set()
        clock.join()


def _count_seconds(what: str, done: threading.Event) -> None:
    if done.wait(_PATIENCE):
        return
    seconds = int(_PATIENCE)
    with bar("", leave=False, bar_format="{desc}") as shown:
        while True:
            shown.set_description_str(f"{visible(what)}: {seconds} s")
            if done.wait(1):
                return
            seconds += 1


def _silent(file: TextIO) -> bool:
    """Return True if nothing is to be shown on a stream."""
    if _quiet or not file.isatty():
        return True
    import multiprocessing

    return multiprocessing.parent_process() is not None
