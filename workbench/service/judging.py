"""The work of a worker: the static stages of one candidate, then the judge."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.base.home import cache_part
from workbench.base.processes.executor import OwnProcesses
from workbench.judge.many import JudgingTask, judged, servers_of
from workbench.judge.on_the_way import listening
from workbench.judge.verdict import Judgement, Verdict
from workbench.service.progress import write_stages
from workbench.service.rewards import ServiceResult
from workbench.service.stages import FAILED, NOT_THE_CANDIDATE, VerdictStage, stages_of, stages_so_far
from workbench.service.static_stages import static_stages

SUFFIXES: Mapping[str, str] = {"python": ".py", "cuda": ".cu"}
"""Language of a candidate -> the suffix of its file."""

_ADDRESS = re.compile(r"\b0x[0-9a-f]{8,}\b")
_SEED = re.compile(r"\bseed \d+\b")
_OUTCOMES = {"parses": "not_parsed", "imports": "forbidden_import"}


@dataclass(frozen=True)
class Work:
    """One candidate on its way to a worker: the judge's task, the text, its language, and the forbidden imports.

    ``key`` identifies the judgement in the store: it is the digest of all the rest but ``told``, the file to which the
    worker writes the stages that have ended, if it can.
    """

    key: str
    task: JudgingTask
    text: str
    language: str
    forbidden: tuple[str, ...]
    told: Path


def own_processes(judge: Callable[[Work], dict[str, Any]], count: int | None) -> OwnProcesses:
    """Return an executor for a judging function; for `judge_work` its processes share what they have imported."""
    if judge is not judge_work:
        return OwnProcesses((judge.__module__,), count)
    server = servers_of((__name__,))
    return OwnProcesses(count=count, server=lambda work: server(work.task))


class _Heard:
    """A listener of the judge, which writes the stages that have ended to a file."""

    def __init__(self, work: Work, static: tuple[VerdictStage, ...], file: Path):
        self._told, self._static, self._file = work.told, static, file
        self._heard: dict[tuple[object, ...], tuple[str, Verdict]] = {}
        write_stages(work.told, static)

    def __call__(self, stage: str, verdict: Verdict) -> None:
        shown = _shown_verdict(verdict, self._file)
        self._heard[verdict.variant, verdict.case, repr(verdict.config)] = stage, shown
        write_stages(self._told, stages_so_far(self._static, [*self._heard.values()]))


def judge_work(work: Work) -> dict[str, Any]:
    """Judge one candidate in this process; return a record as `result_of` takes it."""
    stages = static_stages(work.text, work.language, work.forbidden)
    failed = next((one for one in stages if one.status == FAILED), None)
    if failed is not None:
        return record(_OUTCOMES[failed.name], failed.message, stages)
    # Always at the same path: it may appear in messages, and the same candidate gets the same verdict.
    folder = cache_part("served", work.key)
    try:
        file = folder / f"candidate{SUFFIXES[work.language]}"
        file.write_text(work.text)
        with listening(_Heard(work, stages, file)):
            found = judged(replace(work.task, candidate=file))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if isinstance(found, str):
        return record("not_judged", found, stages)
    shown = _shown(found, file)
    first = shown.first_failure
    return record(shown.outcome, "" if first is None else first.message, stages, shown)


def _shown(found: Judgement, file: Path) -> Judgement:
    """Return a judgement without the server's paths, without seeds, which foretell inputs, and without addresses.

    Addresses depend on what the worker did before; the same candidate gets the same verdict.
    """
    verdicts = tuple(_shown_verdict(one, file) for one in found)
    return replace(found, candidate=file.name, op_file="", verdicts=verdicts)


def _shown_verdict(one: Verdict, file: Path) -> Verdict:
    return replace(
        one,
        seeds=(),
        message=_plain(one.message.replace(f"{file.parent}/", "")),
        findings=tuple(replace(finding, message=_plain(finding.message)) for finding in one.findings),
        proofs=tuple(replace(proof, text=_plain(proof.text), line=_plain(proof.line)) for proof in one.proofs),
    )


def _plain(message: str) -> str:
    return _ADDRESS.sub("an address", _SEED.sub("a seed", message))


def record(
    outcome: str, message: str, static: tuple[VerdictStage, ...] = (), judgement: Judgement | None = None
) -> dict[str, Any]:
    """Return the plain values of a result, in the form that the store of judgements keeps."""
    return {
        "op": "" if judgement is None else judgement.op,
        "candidate": "" if judgement is None else judgement.candidate,
        "outcome": outcome,
        "message": message,
        "static": [one.to_dict() for one in static],
        "judgement": None if judgement is None else judgement.to_dict(),
    }


def is_kept(found: Mapping[str, Any]) -> bool:
    """Return True for a record that holds for good; others report about the problem or the server."""
    return found["outcome"] not in NOT_THE_CANDIDATE


def result_of(problem: str, found: Mapping[str, Any]) -> ServiceResult:
    """Return the result that a record holds."""
    given = found["judgement"]
    judgement = None if given is None else Judgement.from_dict(given)
    stages = stages_of([VerdictStage(**one) for one in found["static"]], judgement)
    return ServiceResult(problem, found["outcome"], found["message"], stages, judgement)
