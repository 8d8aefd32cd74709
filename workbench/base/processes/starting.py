"""First steps of a process that `workbench.base.processes.process.Process` starts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import socket
from collections.abc import Callable, Sequence
from typing import Any

from workbench.base.processes.channel import Channel
from workbench.base.progress import be_quiet


def run(fd: int, function: str, arguments: Sequence[Any]) -> None:
    """Call the function with the channel over an inherited socket; return silently if the caller is gone."""
    be_quiet()  # the caller shows the progress
    with contextlib.suppress(ConnectionError):
        named(function)(Channel(socket.socket(fileno=fd)), *arguments)


def named(function: str) -> Callable[..., Any]:
    """Return the function ``"module:name"``, or ``"file.py:name"``, for which no package is imported."""
    place, _, name = function.rpartition(":")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)
