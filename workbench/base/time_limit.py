"""Default time limit of a launch on the PTX machine.

In a notebook an endless loop would take the kernel's process with it; elsewhere there is no limit by default.
"""

from __future__ import annotations

import sys
from typing import Literal

from workbench.errors import ArgumentError

NOTEBOOK_SECONDS = 60.0
IDLE_SECONDS = 240.0
"""Processor time in which no thread of a program's launch ends and no barrier completes, before it is ended."""

Limit = float | Literal["auto"] | None
"""Seconds; None for no limit; "auto" for `NOTEBOOK_SECONDS` in a notebook, none elsewhere."""


def seconds_of(limit: Limit) -> float | None:
    """Return the limit in seconds, or None for no limit. Raises ArgumentError for one that leaves no time."""
    if limit == "auto":
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        return None if shell is None else NOTEBOOK_SECONDS
    if limit is not None and not (isinstance(limit, int | float) and limit > 0):
        raise ArgumentError(
            "seconds_limit", repr(limit), 'more than 0 seconds, None for no limit, or "auto"',
            f'"auto" is {NOTEBOOK_SECONDS:g} s in a notebook, else none.',
        )  # fmt: skip
    return limit
