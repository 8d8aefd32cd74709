"""The features of a client's program: its functions, in order, each with what a reader sees of it as its docstring."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def of(names: dict[str, Any]) -> list[FunctionType]:
    """Its public functions with a docstring."""
    own = [one for one in names.values() if isinstance(one, FunctionType) and one.__module__ == names["__name__"]]
    return [one for one in own if not one.__name__.startswith("_") and one.__doc__]


def run(names: dict[str, Any]) -> None:
    for feature in of(names):
        print(feature.__name__, flush=True)
        feature()


def refused(call: Callable[[], object], *words: str) -> None:
    """``call`` fails, and the driver says why in ``words``, where the client's own error does not."""
    import workbench as wb

    try:
        call()
    except Exception as error:
        said = f"{error} {wb.simulated_driver().last_error}"
        assert all(word in said for word in words), said
    else:
        raise AssertionError("it ran")
