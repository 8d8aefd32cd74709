"""Values on their way to another process, with the functions and classes that only this one has.

What a module defines that can be imported goes by name; what a notebook's cell or a script defines goes by value, with
`cloudpickle`. Triton's functions are no plain Python, and Triton wants their source text: they go as the function that
they decorate, with the text of its cell.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import pickle
import sys
from collections.abc import Iterable, Iterator, Set
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from workbench.errors import WorkbenchError


def dumps(value: object, modules: Iterable[ModuleType] = ()) -> bytes:
    """``value`` as bytes for :func:`loads`. Raises WorkbenchError, naming the reason, for what cannot be sent.

    What these ``modules`` define goes by value too, with their text as it is now: their files are not read again.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, modules)
    try:
        with _by_value(modules):
            pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise WorkbenchError(
            f"{value} cannot be sent to another process: {type(error).__name__}: {error}. Define what it holds at the "
            "top of a module."
        ) from error
    return pickle.dumps((pickler.cells, buffer.getvalue()))


def loads(content: bytes) -> Any:
    """What :func:`dumps` was given."""
    cells, value = pickle.loads(content)
    for name, lines in cells.items():
        # Without a time: then linecache never looks for such a file.
        linecache.cache.setdefault(name, (sum(map(len, lines)), None, lines, name))
    return pickle.loads(value)


@contextlib.contextmanager
def _by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Within the block cloudpickle sends what these modules define by value."""
    added = [one for one in modules if one.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for one in added:
        cloudpickle.register_pickle_by_value(one)
    try:
        yield
    finally:
        for one in added:
            cloudpickle.unregister_pickle_by_value(one)


class _Pickler(cloudpickle.Pickler):
    """Notes the text of the cells that the functions come from, and takes Triton's functions apart."""

    def __init__(self, file: io.BytesIO, modules: Iterable[ModuleType]):
        super().__init__(file)
        self._names = {one.__name__ for one in modules}
        self._files = {one.__file__ for one in modules}
        self.cells: dict[str, list[str]] = {}

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, CodeType):
            entry = linecache.cache.get(value.co_filename)
            if entry is not None and len(entry) == 4 and entry[1] is None:  # a cell; files have a time
                self.cells[value.co_filename] = entry[2]
            elif value.co_filename in self._files:
                self.cells[value.co_filename] = linecache.getlines(value.co_filename)
        elif isinstance(getattr(value, "fn", None), FunctionType) and type(value).__module__.startswith("triton."):
            return _reduced_triton(value, self._names)
        return super().reducer_override(value)


def _reduced_triton(jit: Any, by_value: Set[str]) -> str | tuple:
    """By name where an import finds it; else the function that it was made of."""
    function = jit.fn
    module = sys.modules.get(function.__module__)
    if function.__module__ not in {"__main__", *by_value} and getattr(module, function.__qualname__, None) is jit:
        return _named, (function.__module__, function.__qualname__)
    return _triton_function, (type(jit), function)


def _named(module: str, name: str) -> object:
    import importlib

    return getattr(importlib.import_module(module), name)


def _triton_function(kind: type, function: FunctionType) -> object:
    return kind(function)
