"""Filter of compilers' messages, which quote the lines they refuse: verdicts show no lines of foreign files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.base.home import cuda_sources, home
from workbench.errors import CompileError
from workbench.toolchain.nvrtc import toolkit_dirs
from workbench.toolchain.source import Source, include_closure

_PLACE = re.compile(r"^(?:In file included from )?([^\s(:][^\n(]*)\((\d+)\): *(\w+)?", re.MULTILINE)


def shown(error: CompileError, unit: Source, include_dirs: Iterable[Path], macros: Mapping[str, Any]) -> str:
    """Return the message of a compile error, without the compiler's text if the source reaches a foreign file.

    A file is foreign if it lies neither in the source's folder, nor in one of ``include_dirs``, nor in the CUDA
    toolkit. If an ``#include`` names a macro whose value is unknown, the text stays out too.
    """
    own = [*([unit.folder] if unit.folder is not None else []), *map(Path, include_dirs), cuda_sources()]
    roots = [one.resolve() for one in (*own, *toolkit_dirs(), home())]
    closure = include_closure(unit, own, toolkit_dirs(), macros)
    reached = [name for name in closure.digests if not name.startswith("absent: ")]
    named = [match[1] for match in _PLACE.finditer(error.log) if match[1] not in (unit.label, unit.name)]
    foreign = list(dict.fromkeys(_outside([*reached, *named], roots)))
    if not foreign and closure.complete:
        return str(error)
    what = f"{', '.join(foreign[:3])} is" if foreign else "what an #include names by a macro may be"
    places = dict.fromkeys(f"{path}({line}): {kind or 'error'}" for path, line, kind in _PLACE.findall(error.log))
    reason = f"The compiler's text is not shown: {what} outside the candidate's folder and the CUDA toolkit."
    return "\n".join([f"The compiler refused {unit.label}:", *[f"  {one}" for one in places][:8], reason])


def _outside(names: Iterable[str], roots: list[Path]) -> Iterator[str]:
    for name in names:
        path = Path(name).resolve()
        if path.is_file() and not any(root in path.parents for root in roots):
            yield name
