"""The budget of a search, as a terminal and `tune` take it; imports nothing heavy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from workbench.errors import ArgumentError


@dataclass(frozen=True)
class Budget:
    """Limit of one variant's search: configurations tried (reused ones count) or seconds; infinity is not a limit."""

    configurations: float = math.inf
    seconds: float = math.inf

    def __str__(self) -> str:
        if math.isfinite(self.configurations):
            return f"{int(self.configurations)} configurations of each variant"
        return f"{self.seconds:g} s for each variant" if math.isfinite(self.seconds) else "no limit"


def budget_of(value: int | str | Budget | None) -> Budget:
    """Parse a budget: ``24`` or ``"24"`` configurations, ``"30s"``, ``"5m"`` or ``"1h"`` of time, None for no limit.

    Raises ArgumentError for anything else.
    """
    if value is None:
        return Budget()
    if isinstance(value, Budget):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(value))
    amount = float(match[1]) if match else 0.0
    if not match or amount <= 0 or (not match[2] and amount != int(amount)):
        raise ArgumentError(
            "budget", repr(value), 'configurations (24) or time ("30s", "5m", "1h")', "Pass one of these."
        )
    if match[2]:
        return Budget(seconds=amount * {"s": 1, "m": 60, "h": 3600}[match[2]])
    return Budget(configurations=amount)
