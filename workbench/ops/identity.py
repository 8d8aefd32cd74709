"""Text that identifies a user's function or value: part of the key that decides if an old result still holds."""

from __future__ import annotations

import inspect
import textwrap
import tokenize
from collections.abc import Mapping
from types import CodeType
from typing import Any


def stated(value: Any) -> str:
    """Return a value as text that is equal in every process; for a function its source and its captured values."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {stated(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(stated, value)) + ")"
    if not callable(value) or isinstance(value, type):
        return repr(value)
    function = value
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    if not inspect.isfunction(function):
        return getattr(value, "__qualname__", type(value).__qualname__)
    captured = [
        repr(cell.cell_contents)
        for cell in function.__closure__ or ()
        if isinstance(cell.cell_contents, bool | int | float | str | tuple)
    ]
    try:
        text = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # no file, or only a part of the statement
        text = _code(function.__code__)
    return " ".join([text, *captured])


def _code(code: CodeType) -> str:
    """Return instructions, names and constants of code whose source text is gone."""
    constants = (_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts)
    return " ".join([code.co_code.hex(), *code.co_names, *code.co_varnames, *constants])
