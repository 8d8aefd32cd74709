"""Checks of a judge's arguments, its random seeds, and the texts of what it judges."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.op import Op
from workbench.ops.selection import fitted
from workbench.ops.variant import Case, Variant
from workbench.toolchain.source import MEMORY_LABEL

SECONDS, MEMORY_MIB, SEEDS = 60.0, 4096, 2
_LONGEST_SECONDS = 24 * 3600


def check_limits(seconds: float, memory_mib: int) -> None:
    """Raise ArgumentError for limits that cannot be kept."""
    if not 0 < seconds <= _LONGEST_SECONDS:
        allowed = f"more than 0, at most {_LONGEST_SECONDS:,}"
        raise ArgumentError("seconds", seconds, allowed, "It is the limit of one description or run.")
    if not isinstance(memory_mib, int) or memory_mib < 64:
        raise ArgumentError("memory_mib", memory_mib, "64 or more MiB", "It is the limit of one process.")


def checked_seeds(seeds: Any) -> int | list[int]:
    """Return how many seeds to draw, or the list of them. Raises ArgumentError."""
    remedy = "Pass a number of seeds to draw, or a list of seeds from a verdict."
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= 1000:
            raise ArgumentError("seeds", seeds, "1 to 1000", remedy)
        return seeds
    given = list(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else []
    if not given or not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in given):
        raise ArgumentError("seeds", repr(seeds), "whole numbers from 0 to 2147483647", remedy)
    return given


def drawn(count: int) -> list[int]:
    """Return random seeds that cannot be predicted."""
    return [int.from_bytes(os.urandom(4), "little") >> 1 for _ in range(count)]


def source_label(candidate: object) -> str | None:
    """Return the label of a candidate given as CUDA C++ text; None for a path."""
    return "CUDA C++ text" if isinstance(candidate, str) and "\n" in candidate else None


def portable(variant: Variant) -> Variant:
    """Return the variant without the kernels that it remembers."""
    return replace(variant)


def left_out(op: Op, variants: Sequence[Variant], cases: Sequence[Case]) -> dict[tuple[str, str], str]:
    """Return the variants and cases, by their names, that do not go together, each pair with a note.

    What a variant reads is its own declaration. Returns nothing if no pair were left to judge.
    """
    found = {(one.name, case.name): note for one in variants for case in cases if (note := _unfit(op, one, case))}
    return found if len(found) < len(variants) * len(cases) else {}


def _unfit(op: Op, variant: Variant, case: Case) -> str:
    lacking = variant.unsupported(fitted(variant, case).problem())
    if not lacking:
        return ""
    others = (op.case(name) for name in op.cases)
    able = ", ".join(one.name for one in others if not variant.unsupported(fitted(variant, one).problem()))
    rules = "; ".join(rule.rule for rule in lacking)
    reads = f"named cases that it reads: {able or 'none'}"
    return f"{variant.name} does not read {case.name} and was left out: {rules}; {reads}"


def sources_of(request: Mapping[str, Any], variants: Sequence[Variant]) -> dict[str, str]:
    """Return the texts that verdicts show lines of, by the names that findings give them.

    These are the candidate's own file or text and the sources of the op's variants. A path in a candidate's PTX opens
    no file.
    """
    given = request.get("candidate", request.get("source"))
    if given is not None:
        text = source_label(given) is not None
        return {MEMORY_LABEL if text else Path(given).name: given if text else Path(given).read_text(errors="replace")}
    files = {path for one in variants for path in one.files if path.is_file()}
    texts = {path.name: path.read_text(errors="replace") for path in files}
    return texts | {name: text for one in variants for name, text in one.texts.items()}
