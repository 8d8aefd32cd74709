"""Serialization for another process, including functions and classes that only this process has.

Definitions of an importable module go by name; those of a notebook's cell or a script go by value, with `cloudpickle`.
A Triton kernel is a decorated function whose source text Triton reads. It goes as the plain function, with the text of
its cell.
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
    """Serialize ``value`` as bytes for :func:`loads`.

    Definitions of these ``modules`` go by value too, with the current text of their files, which the receiver does not
    read. Raises WorkbenchError, naming the reason, for a value that cannot be sent.
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
    """Return the value that :func:`dumps` serialized."""
    cells, value = pickle.loads(content)
    for name, lines in cells.items():
        # An entry without a modification time: linecache never looks for its file.
        linecache.cache.setdefault(name, (sum(map(len, lines)), None, lines, name))
    return pickle.loads(value)


@contextlib.contextmanager
def _by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Make cloudpickle send the definitions of these modules by value within the block."""
    added = [one for one in modules if one.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for one in added:
        cloudpickle.register_pickle_by_value(one)
    try:
        yield
    finally:
        for one in added:
            cloudpickle.unregister_pickle_by_value(one)


class _Pickler(cloudpickle.Pickler):
    """A pickler that collects the text of the functions' cells and replaces Triton kernels by plain functions."""

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
    """Reduce a Triton kernel to its name if an import finds it, else to its plain function."""
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
