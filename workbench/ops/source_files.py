"""The files that a kernel is made of, and what they contain, as one digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from workbench.home import cuda_sources


def digest(files: Iterable[Path]) -> str:
    """Hex digest of the names and contents of some files."""
    total = hashlib.sha256()
    for name, content in sorted((path.name.encode(), path.read_bytes()) for path in files):
        total.update(b"%d %s %d\n%s" % (len(name), name, len(content), content))
    return total.hexdigest()[:32]


def with_headers(source: Path) -> set[Path]:
    """A source file and every file of ours that it includes, directly or not; of Python the modules of its op."""
    found, waiting = set(), [Path(source)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix in (".cu", ".cuh", ".h"):
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
                here = [folder / name for folder in (path.parent, cuda_sources()) if (folder / name).is_file()]
                waiting += here[:1]
        elif path.suffix == ".py":
            modules = re.findall(r"^from workbench\.ops\.(\w+)\.(\w+) import", path.read_text(), re.MULTILINE)
            waiting += [Path(__file__).parent / op / f"{module}.py" for op, module in modules]
    return found
