"""Rewards: one number for a result, by a function that the user can replace."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workbench.errors import ArgumentError
from workbench.judge.verdict import Judgement
from workbench.service.stages import SKIPPED, VerdictStage

WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "parses": 0.02, "imports": 0.03, "compiles": 0.10, "launches": 0.10, "clean": 0.15, "right": 0.30,
        "elsewhere": 0.20, "proved": 0.10, "fast": 0.10,
    }
)  # fmt: skip
"""Stage -> its weight in `staged`. Steps up to ``launches`` are worth a quarter, being right half.

Without ``proved``, which servers leave out unless they have ``--prove``, the weights sum to 1.
"""

CHEATS = ("no_kernel", "cached", "tampered", "host_computed", "aliased")
"""Outcomes that pretend to be right; `staged` gives nothing for them."""


@dataclass(frozen=True)
class ServiceResult:
    """The result for one candidate: its outcome, its stages and the judge's verdicts.

    Attributes:
        problem: id of the problem.
        outcome: that of the judgement, or ``"not_parsed"`` or ``"forbidden_import"`` of the static stages.
        message: that of the first failure; empty if all is right.
        stages: all of `workbench.service.STAGES`.
        judgement: the judge's verdicts; None if a static stage failed.
    """

    problem: str
    outcome: str
    message: str
    stages: tuple[VerdictStage, ...]
    judgement: Judgement | None

    @property
    def ok(self) -> bool:
        """True if the candidate passed."""
        return self.outcome == "ok"


Reward = Callable[[ServiceResult], float]


def staged(result: ServiceResult) -> float:
    """Return the weighted mean of the scores of all stages that were not skipped, 0 to 1; 0 for a cheat.

    A candidate that is right everywhere, predicted as fast as the reference, and proved where that is asked for, has 1.
    """
    if result.outcome in CHEATS:
        return 0.0
    counted = [one for one in result.stages if one.status != SKIPPED]
    total = sum(WEIGHTS[one.name] for one in counted)
    return round(sum(WEIGHTS[one.name] * (one.score or 0.0) for one in counted) / total, 6) if total else 0.0


def reward_of(name: str) -> Reward:
    """Return the function that ``module:function`` names. Raises ArgumentError."""
    module, colon, function = name.partition(":")
    allowed, remedy = "module:function that takes a ServiceResult", "The module has to be on the import path."
    if not colon:
        raise ArgumentError("reward", repr(name), allowed, remedy)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ArgumentError("reward", f"{name!r}: {error}", allowed, remedy) from error
    if not callable(found):
        raise ArgumentError("reward", f"{name!r}, a {type(found).__name__}", allowed, remedy)
    return found
