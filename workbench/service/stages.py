"""Stages of a verdict: how far a candidate came, with a score, seconds and a message for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from workbench.judge.outcomes import OUTCOMES
from workbench.judge.verdict import Judgement, Verdict

STATIC = ("parses", "imports")
JUDGED = ("compiles", "launches", "clean", "right")
STAGES = (*STATIC, *JUDGED, "elsewhere", "fast")
"""Names of the stages, in their order: each needs the ones before it."""

PASSED, FAILED, SKIPPED, NOT_REACHED = "passed", "failed", "skipped", "not_reached"

NOT_THE_CANDIDATE = ("not_judged", "op_changed")
"""Outcomes that report about the problem: they are not kept, and the candidate is judged again."""

FAILS: Mapping[str, str] = MappingProxyType(
    {
        "not_loaded": "compiles",
        "not_compiled": "compiles",
        "invalid": "compiles",
        "unsupported": "launches",
        "no_kernel": "launches",
        "unstable": "launches",
        "tampered": "launches",
        "crashed": "launches",
        "timeout": "launches",
        "memory": "launches",
        "out_of_bounds": "clean",
        "guard_written": "clean",
        "race": "clean",
        "uninitialised": "clean",
        "barrier": "clean",
        "fault": "clean",
        "wrong_result": "right",
        "unwritten": "right",
        "changed_input": "right",
        "aliased": "right",
        "cached": "right",
        "unfinished": "right",
        "host_computed": "right",
        "wrong_elsewhere": "elsewhere",
    }
)
"""Outcome -> the stage that it fails. What ended while the candidate was loaded fails ``compiles`` instead."""

_WHILE_LOADED = "while it was loaded"


@dataclass(frozen=True)
class VerdictStage:
    """One stage of a verdict.

    Attributes:
        name: one of `STAGES`.
        status: "passed", "failed", "skipped" (the problem or the options have no such stage) or "not_reached".
        score: 0 to 1, the part that passed: of the verdicts on the problem's cases, of the changed inputs, or the
            reference's predicted time divided by the candidate's, at most 1. None if it was skipped.
        seconds: time of this stage by the clock. The judge measures its stages together: their sum stands at the last
            one that was reached, and the others have None.
        message: what failed, or what was compared.
    """

    name: str
    status: str
    score: float | None = None
    seconds: float | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the stage as plain values."""
        return vars(self).copy()


def stages_of(static: Sequence[VerdictStage], judgement: Judgement | None) -> tuple[VerdictStage, ...]:
    """Return all stages, in the order of `STAGES`, from the static ones and from the judge's verdicts, if any."""
    if judgement is None or judgement.outcome in NOT_THE_CANDIDATE:
        unreached = (VerdictStage(name, NOT_REACHED, 0.0) for name in STAGES[len(static) :])
        return (*static, *unreached)
    own = [one for one in judgement if one.outcome != "wrong_elsewhere"]
    judged = [_judged(name, own) for name in JUDGED]
    reached = max((at for at, one in enumerate(judged) if one.status != NOT_REACHED), default=0)
    judged[reached] = replace(judged[reached], seconds=sum(one.seconds for one in judgement))
    elsewhere = _elsewhere(judgement, own)
    return (*static, *judged, elsewhere, _fast(own, elsewhere.status != FAILED))


def failed_stage(verdict: Verdict) -> str | None:
    """Return the name of the stage that a verdict fails; None for one that passed."""
    if verdict.ok:
        return None
    assert verdict.outcome in OUTCOMES
    if verdict.message.startswith(_WHILE_LOADED):
        return "compiles"
    return FAILS[verdict.outcome]


def _judged(name: str, own: Sequence[Verdict]) -> VerdictStage:
    """Return a stage of the judge; its score is the part of the problem's own verdicts that passed it."""
    at = JUDGED.index(name)
    failures = [failed_stage(one) for one in own]
    places = [len(JUDGED) if stage is None else JUDGED.index(stage) for stage in failures]
    if all(place < at for place in places):
        return VerdictStage(name, NOT_REACHED, 0.0)
    passed = sum(place > at for place in places)
    first = next((one for one, place in zip(own, places, strict=True) if place == at), None)
    status = PASSED if passed == len(own) else FAILED
    message = "" if first is None else f"{first.outcome}: {first.message}"
    return VerdictStage(name, status, passed / len(own), None, message)


def _elsewhere(judgement: Judgement, own: Sequence[Verdict]) -> VerdictStage:
    wrong = [one for one in judgement if one.outcome == "wrong_elsewhere"]
    right = sum(len(one.elsewhere) for one in own)
    if not all(one.ok for one in own):
        return VerdictStage("elsewhere", NOT_REACHED, 0.0)
    if not wrong and not right:
        return VerdictStage("elsewhere", SKIPPED, message="no changed inputs were tried")
    message = wrong[0].message if wrong else f"right for {right} changed inputs"
    return VerdictStage("elsewhere", FAILED if wrong else PASSED, right / (right + len(wrong)), None, message)


def _fast(own: Sequence[Verdict], right: bool) -> VerdictStage:
    """Return the stage that compares predicted times; only solutions in KernelBench's format have both."""
    if not right or not all(one.ok for one in own):
        return VerdictStage("fast", NOT_REACHED, 0.0)
    pairs = [
        (one.predicted_seconds, one.torch_compile_seconds)
        for one in own
        if one.predicted_seconds and one.torch_compile_seconds
    ]
    if not pairs:
        return VerdictStage("fast", SKIPPED, message="no predicted times to compare")
    candidate, reference = (sum(times) for times in zip(*pairs, strict=True))
    speedup = reference / candidate
    message = (
        f"predicted {candidate * 1e6:.2f} µs, the reference by torch.compile {reference * 1e6:.2f} µs: "
        f"{speedup:.2f} times as fast"
    )
    return VerdictStage("fast", PASSED if speedup >= 1 else FAILED, min(1.0, speedup), None, message)
