"""Lines of the user's code: the caller's, at which warnings point, and the one that raised an error."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from workbench.base.home import PACKAGE
from workbench.errors import WorkbenchError

_PACKAGE = f"{PACKAGE}{os.sep}"


def caller_level() -> int:
    """Return the ``stacklevel`` at which a `warnings.warn` in the calling function points at user code.

    That is the innermost frame outside the workbench and the packages through which it is called: torch's dispatcher
    calls ops, and click calls commands.
    """
    skipped = (_PACKAGE, *_folder_of("torch"), *_folder_of("click"))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame, level = frame.f_back, level + 1
    return level


def _folder_of(package: str) -> list[str]:
    file = getattr(sys.modules.get(package), "__file__", None)
    return [f"{os.path.dirname(file)}{os.sep}"] if file else []


class UserLine(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """File, without its folder, and line: ``my_ops.py:12``."""
        return f"{Path(self.file).name}:{self.line}"


def line_of(error: BaseException) -> UserLine | None:
    """Return the innermost line of the user's code that an error went through, or None.

    The user's code is in files outside the workbench, installed packages and Python itself. A SyntaxError has the line
    that cannot be parsed.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno and error.text is not None:
        return UserLine(error.filename, error.lineno, error.text.strip())
    others = (
        _PACKAGE,
        *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib", "stdlib")),
        "<frozen",
    )
    frames = [*traceback.walk_tb(error.__traceback__)]
    for frame, line in reversed(frames):
        file = frame.f_code.co_filename
        if not file.startswith(others) and linecache.getline(file, line):
            return UserLine(file, line, linecache.getline(file, line).strip())
    return None


def at_user_line(error: BaseException, name: str = "") -> str:
    """Return the message of an error with the user's line that raised it: ``my_ops.py:12: MESSAGE``, then the line.

    The message begins with the error's class, unless the error is the workbench's own. ``name`` stands for a line that
    is not known.
    """
    found, text = line_of(error), str(error)
    if isinstance(error, SyntaxError):
        text = error.msg
    if not isinstance(error, WorkbenchError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = found.place if found is not None else name
    head = f"{place}: {text}" if place else text
    return f"{head}\n    {found.text}" if found is not None and found.text else head
