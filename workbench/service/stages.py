"""Stages of a verdict: how far a candidate came, with a score, seconds and a message for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from workbench.judge.outcomes import OUTCOMES
from workbench.judge.verdict import Judgement, Verdict

STATIC = ("parses", "imports")
JUDGED = ("compiles", "launches", "clean", "right")
STAGES = (*STATIC, *JUDGED, "elsewhere", "proved", "fast")
"""Names of the stages, in their order: each needs the ones before it, but for ``proved``, which needs ``compiles``."""

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
        "refuted": "proved",
    }
)
"""Outcome -> the stage that it fails. What ended while the candidate was loaded fails ``compiles`` instead."""

_WORTH = {"proved": 1.0, "unknown": 0.5, "refuted": 0.0}
_WHILE_LOADED = "while it was loaded"


@dataclass(frozen=True)
class VerdictStage:
    """One stage of a verdict.

    Attributes:
        name: one of `STAGES`.
        status: "passed", "failed", "skipped" (the problem or the options have no such stage) or "not_reached".
        score: 0 to 1, the part that passed: of the verdicts on the problem's cases, of the changed inputs, or the
            reference's predicted time divided by the candidate's, at most 1. None if it was skipped.
        seconds: time of this stage by the clock, of all cases together; None if it was not reached. ``launches`` is
            the time in which code is decoded and inputs are made; ``clean`` has that of the runs, with all checks.
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
    own = [one for one in judgement if one.outcome not in ("wrong_elsewhere", "refuted")]
    judged = [_judged(name, own) for name in JUDGED]
    elsewhere, proved = _elsewhere(judgement, own), _proved(own)
    found = (*judged, elsewhere, proved, _fast(own, FAILED not in (elsewhere.status, proved.status)))
    if not any(one.stage_seconds for one in own):  # a record of an older version
        reached = max((at for at, one in enumerate(judged) if one.status != NOT_REACHED), default=0)
        judged[reached] = replace(judged[reached], seconds=sum(one.seconds for one in judgement))
        return (*static, *judged, *found[len(judged) :])
    return (*static, *(replace(one, seconds=_seconds(one, own)) for one in found))


def stages_so_far(static: Sequence[VerdictStage], heard: Sequence[tuple[str, Verdict]]) -> tuple[VerdictStage, ...]:
    """Return the stages that have ended: of ``heard``, the latest stage and the verdict so far of each case."""
    found = [*static]
    for name in STAGES[len(STATIC) :]:
        ended = [one for stage, one in heard if STAGES.index(stage) >= STAGES.index(name)]
        if not ended:
            break
        found.append(stages_of(static, Judgement("", "", tuple(ended)))[STAGES.index(name)])
    return tuple(found)


def _seconds(stage: VerdictStage, own: Sequence[Verdict]) -> float | None:
    """Return the seconds of a stage, of all verdicts together; None if it was not reached, or was not measured."""
    times = [seconds for one in own for name, seconds in _times(one) if name == stage.name]
    return sum(times) if times and stage.status != NOT_REACHED else None


def _times(verdict: Verdict) -> Iterator[tuple[str, float]]:
    """Yield stages with their seconds; those of stages behind the one that failed belong to it."""
    failed = failed_stage(verdict)
    for name, seconds in verdict.stage_seconds.items():
        behind = failed in JUDGED and name in JUDGED and JUDGED.index(name) > JUDGED.index(failed)
        yield (failed if failed is not None and behind else name), seconds


def _proved(own: Sequence[Verdict]) -> VerdictStage:
    """Return the stage of the proofs: a kernel counts 1 if it is proved, half if nobody knows, 0 if it is refuted."""
    proofs = [proof for one in own for proof in one.proofs]
    if not proofs:
        return VerdictStage("proved", SKIPPED, message="no kernel was proved")
    score = sum(_WORTH[one.status] for one in proofs) / len(proofs)
    worst = min(proofs, key=lambda one: _WORTH[one.status])
    status = FAILED if worst.status == "refuted" else PASSED
    return VerdictStage("proved", status, score, None, f"{worst.kernel}: {worst.line}")


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
