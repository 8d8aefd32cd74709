"""The command that opens a debug session where a verdict failed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from workbench.base.lazy import offered

_INSIDE = ("wrong_result", "unwritten", "changed_input", "out_of_bounds", "race", "uninitialised", "barrier", "fault")
"""Outcomes of a kernel that ran: a session can stop in it."""


def debug_command(
    op: str, op_file: str, variant: str, case: str, config: Mapping[str, Any], outcome: str, found: bool
) -> str:  # fmt: skip
    """Return the command for one verdict on an op's own variant; "" where a session would not show its failure.

    ``found`` is True if checks found something: then the session stops there.
    """
    if outcome not in _INSIDE or not re.fullmatch(r"[\w.-]+", case):
        return ""
    if not op_file and op not in offered("workbench.ops"):  # a terminal has no name for an op of a notebook
        return ""
    words = ["workbench", "debug", f"{op_file}:{op}" if op_file else op, "--case", case, "--variant", variant]
    if config:
        words += ["--config", " ".join(f"{name}={value}" for name, value in config.items())]
    words += ["--checks", "--stop", "finding"] if found else []
    return shlex.join(words)
