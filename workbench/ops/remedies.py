"""Commands that an error or a warning names as the remedy, with an op as a terminal takes it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from workbench.ops.installed import offered
from workbench.ops.op import Op
from workbench.ops.values import Case


def tune_remedy(op: Op, variant: str | None = None, model: str | None = None) -> str:
    """Return the command that tunes an op, or the call of `tune` for an op that no terminal can name."""
    return _remedy("tune", op, {"variant": variant, "model": model})


def check_remedy(op: Op, variant: str, case: Case) -> str:
    """Return the command that checks a variant on a case, or the call of `check` for what no terminal can name."""
    declared = op.cases.get(case.name)
    if declared is None or declared.to_dict() != case.to_dict():  # a case with changes
        return f"wb.check({op.name!r}, variants={variant!r}, cases=case)"
    return _remedy("check", op, {"variant": variant, "case": case.name})


_PLURALS = {"variant": "variants", "case": "cases"}


def _remedy(verb: str, op: Op, given: Mapping[str, str | None]) -> str:
    """Return a command on an op with the options that are ``given``, or the call with the same arguments."""
    where = terminal_name(op)
    named = {name: value for name, value in given.items() if value is not None}
    if where is not None:
        options = [f"--{name} {shlex.quote(value)}" for name, value in named.items()]
        return " ".join([f"workbench {verb}", shlex.quote(where), *options])
    arguments = [f"{_PLURALS.get(name, name)}={value!r}" for name, value in named.items()]
    return f"wb.{verb}({', '.join([op.name, *arguments])})"


def terminal_name(op: Op) -> str | None:
    """Return an op as a terminal names it: the name of an installed package's op, ``FILE.py:NAME`` of one in a file.

    The file is relative if it is below the working directory. None for an op of a notebook's cell, of a module inside a
    package, and one that its module has under no name.
    """
    if op.name in offered():
        return op.name
    module = op.module
    file = getattr(module, "__file__", None) or ""
    if module is None or not file.endswith(".py") or module.__package__:
        return None
    name = _name_in(module, op)
    return None if name is None else f"{_shown(Path(file).resolve())}:{name}"


def _name_in(module: ModuleType, op: Op) -> str | None:
    if vars(module).get(op.name) is op:
        return op.name
    return next((name for name, value in vars(module).items() if value is op), None)


def _shown(file: Path) -> str:
    here = Path(os.getcwd()).resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
