"""Names of ops as given in a terminal, examined without importing the ops."""

from __future__ import annotations

from pathlib import Path

from workbench.base.lazy import offered
from workbench.errors import ArgumentError, UnknownNameError


def op_file(text: str) -> tuple[Path, str] | None:
    """Return the file and the name of an op given as ``FILE.py:NAME``; None for the name of an installed op.

    Raises ArgumentError for a file without a name behind it, and for one that does not exist.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        if text.endswith(".py"):
            raise ArgumentError("op", repr(text), "FILE.py:NAME", f"Name the op behind it: {text}:my_op")
        return None
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ArgumentError("op", f"{text!r}: no file {file}", "FILE.py:NAME of a file that exists", "Check the path.")
    return file, name


def check_op(text: str) -> None:
    """Raise UnknownNameError for a name that no installed op has, ArgumentError for a file that does not exist."""
    if op_file(text) is None and text not in offered("workbench.ops"):
        remedy = "Declare your own op with @workbench.op; from a terminal it is FILE.py:NAME."
        raise UnknownNameError("op", repr(text), ", ".join(offered("workbench.ops")), remedy)
