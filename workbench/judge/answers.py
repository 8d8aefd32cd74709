"""Cleaning of a candidate's answers, which may contain anything, before they enter a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from workbench.base.processes.output import KEPT_BYTES
from workbench.base.processes.process import BadAnswer
from workbench.judge.outcomes import OK, OUTCOMES
from workbench.judge.verdict import Found, KernelProof, Verdict

_MAX_TEXT = 4_000
_MAX_NOTES = 16
_PLACE = re.compile(r"([\w.\-\[\]]+):(\d+)\b")


def variant_names(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, language) of each variant. Raises BadAnswer."""
    given = answer.get("variants")
    pairs: list = given if isinstance(given, list) else [None]
    good = all(isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one) for one in pairs)
    if not good or len({name for name, _ in pairs}) < len(pairs):
        raise BadAnswer(f"{str(given)[:60]} are not variants")
    return [(name, language) for name, language in pairs]


def failed(answer: Mapping[str, Any]) -> dict:
    """Return the fields of a verdict for a failure that the process reports about itself."""
    texts = {name: answer[name] for name in ("message", "line") if isinstance(answer.get(name), str)}
    given = str(answer["failed"])
    outcome = given if given in OUTCOMES and given != OK else "invalid"
    return {"outcome": outcome, **texts}


def no_kernel(what: str) -> dict:
    """Return the fields of a verdict if there is nothing to judge."""
    message = f"{what} has no kernel of its own: plain torch is not judged. Declare one with op.cuda() or op.triton()"
    return {"outcome": "no_kernel", "message": message}


def plain_config(config: Mapping[str, Any]) -> dict:
    """Return the tunables that JSON can hold; a candidate's process may answer anything."""
    kept = {name: value for name, value in config.items() if isinstance(value, bool | int | float | str)}
    return {
        plain(name): plain(value) if isinstance(value, str) else value
        for name, value in kept.items()
        if not isinstance(value, float) or math.isfinite(value)
    }


def plain(text: str) -> str:
    """Replace characters that could control a terminal, and limit the length."""
    kept = "".join(one if one.isprintable() or one == "\n" else "?" for one in text[:_MAX_TEXT])
    return kept + " ..." * (len(text) > _MAX_TEXT)


def _finding(one: Mapping[str, Any], sources: Mapping[str, str]) -> Found:
    places = dict.fromkeys(_PLACE.findall(f"{one['line']} {one['message']}"))
    lines = {f"{file}:{line}": _line_of(sources.get(file, ""), int(line)) for file, line in places}
    source = tuple(f"{place}  {plain(text)}" for place, text in lines.items() if text)
    texts = {name: plain(str(one[name])) for name in ("kind", "message", "line")}
    return Found(**{**one, **texts, "block": tuple(one["block"]), "thread": tuple(one["thread"]), "source": source})


def _proof(one: Mapping[str, str]) -> KernelProof:
    return KernelProof(*(plain(one[name]) for name in ("kernel", "status", "scope", "text", "line")))


def _line_of(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def verdict_of(
    op: str,
    about: Mapping[str, Any],
    found: Mapping[str, Any],
    seconds: float,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict of these fields; ``about`` has variant, case and config.

    ``sources`` are texts by the name of their file, whose lines findings show.
    """
    outcome = found["outcome"] if found.get("outcome") in OUTCOMES else "invalid"
    findings = tuple(_finding(one, sources) for one in found.get("findings", ()))
    reference = found.get("reference")
    return Verdict(
        op,
        plain(about["variant"]),
        about["case"],
        dict(about["config"]),
        outcome,
        plain(found.get("message", "")) if outcome != OK else "",
        plain(found.get("line", "")),
        plain(found.get("place", "")),
        found.get("max_error"),
        found.get("bound"),
        tuple(found.get("seeds", ())),
        tuple(found.get("elsewhere", ())),
        findings,
        seconds,
        found.get("launches", 0),
        {plain(name): count for name, count in found.get("operators", {}).items()},
        found.get("predicted_seconds"),
        None if reference is None else reference.seconds,
        () if reference is None else reference.operators,
        "" if reference is None else plain(reference.message),
        found["printed"] if found.get("printed", 0) > KEPT_BYTES else 0,
        tuple(plain(note) for note in list(found.get("notes", ()))[:_MAX_NOTES] if isinstance(note, str)),
        tuple(_proof(one) for one in found.get("proofs", ())),
        {name: round(seconds, 6) for name, seconds in found.get("stage_seconds", {}).items()},
        plain(found.get("exact", "")),
        tuple(plain(line) for line in found.get("exact_difference", ())),
    )
