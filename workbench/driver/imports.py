"""Hooks on a program's imports, and shared libraries that the process has loaded already."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from typing import Any


def _nothing() -> None:
    pass


def when_imported(name: str, then: Callable[[], object] = _nothing, *, before: Callable[[], object] = _nothing) -> None:
    """Call ``before`` and ``then`` around the first import of ``name``, or at once if it is imported already."""
    if name in sys.modules:
        before()
        then()
    else:
        sys.meta_path.insert(0, _WhenImported(name, before, then))


def loaded_instead(library: Path) -> str | None:
    """Return the path of another library of this name, in any version, that this process has loaded, or None."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    stem = library.name.partition(".so")[0] + ".so"
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in maps if stem in line)
    return next((path for path in paths if path != str(library)), None)


def load_beside(runtime: Path) -> None:
    """Load our CUDA runtime and the libraries beside it, so that libraries loaded later bind to them, not NVIDIA's."""
    for library in (runtime, *sorted(runtime.parent.glob("lib*.so.*"))):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class _WhenImported(MetaPathFinder):
    def __init__(self, name: str, before: Callable[[], object], then: Callable[[], object]):
        self._name, self._before, self._then = name, before, then
        self._looking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Followed(spec.loader, self._before, self._imported)
        return spec

    def _imported(self) -> None:
        sys.meta_path.remove(self)  # not in find_spec: a caller may only ask whether the module exists
        self._then()


class _Followed(Loader):
    def __init__(self, loader: Any, before: Callable[[], object], then: Callable[[], object]):
        self._loader, self._before, self._then = loader, before, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._before()
        self._loader.exec_module(module)
        self._then()
