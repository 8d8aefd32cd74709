"""The files and notebook cells that a kernel is made of, and a digest of their contents."""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.base.home import PACKAGE, cuda_sources


def read(path: Path) -> str:
    """Return the text of a file, or of a notebook cell, whose name only looks like a file's.

    Raises FileNotFoundError for any other path.
    """
    if not path.is_file() and (lines := linecache.getlines(str(path))):
        return "".join(lines)
    return path.read_text()


def stamp(path: Path) -> int:
    """Return a number that changes when the file does; a cell that is changed has another name."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return hash(read(path))


def digest(files: Iterable[Path], stated: str = "") -> str:
    """Return a hex digest of the names and contents of files, and of the declarations in ``stated``."""
    total = hashlib.sha256(stated.encode())
    for name, content in sorted((path.name.encode(), read(path).encode()) for path in files):
        total.update(b"%d %s %d\n%s" % (len(name), name, len(content), content))
    return total.hexdigest()[:32]


def with_headers(source: Path) -> set[Path]:
    """Return a source file and every file of ours that it includes, directly or not.

    For a Python file these are the modules that it imports from a package's ops (``workbench.attention.ops.rules``).
    `workbench.ops` itself affects neither how a kernel is compiled nor its arguments.
    """
    found, waiting = set(), [Path(source)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix in (".cu", ".cuh", ".h"):
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', read(path), re.MULTILINE):
                here = [folder / name for folder in (path.parent, cuda_sources()) if (folder / name).is_file()]
                waiting += here[:1]
        elif path.suffix == ".py":
            names = re.findall(r"^from workbench\.((?:\w+\.)+ops\.[\w.]+) import", read(path), re.MULTILINE)
            files = (PACKAGE / f"{name.replace('.', '/')}.py" for name in names)
            waiting += [file for file in files if file.is_file()]
    return found


def called_files(function: Any) -> set[Path]:
    """Return the files and cells of a ``@triton.jit`` function and of all that it calls, except Triton's own.

    Between cells, and between a user's modules, there is no import that :func:`with_headers` follows.
    """
    from workbench.toolchain.triton_aot import reachable

    while not inspect.isfunction(function.fn):  # under an autotuner
        function = function.fn
    plain = (each.fn for each in reachable(function))
    return {Path(inspect.getfile(each)) for each in plain if not each.__module__.startswith("triton.")}


def written_in(functions: Iterable[object]) -> set[Path]:
    """Return the files and cells with the source of a user's own functions; imports find those of the workbench.

    Values that are not functions, or have no source, are skipped.
    """
    plain = (function.func if isinstance(function, functools.partial) else function for function in functions)
    own = (f for f in plain if inspect.isfunction(f) and not f.__module__.startswith("workbench."))
    found = {inspect.getsourcefile(function) for function in own}
    return {Path(name) for name in found if name and linecache.getlines(name)}
