"""The caller's line, at which warnings of the workbench point."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


def caller_level() -> int:
    """Return the ``stacklevel`` at which `warnings.warn`, in the function that asks, points at the caller's code.

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
