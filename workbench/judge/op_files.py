"""The files of an op, as they were when it was read; a verdict refers to them."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from workbench.ops.files import read_digest
from workbench.ops.op import Op
from workbench.ptx.decode import is_installed


@dataclass(frozen=True)
class OpFiles:
    """The file that declares an op with the SHA-256 of its content as it was read, and the modules beside it.

    An op of a notebook's cell, or of an installed package, has no ``file``; then ``sha256`` is that of its
    `Op.stated`. ``digests`` are those of all its files as they are now.
    """

    file: Path | None
    sha256: str
    modules: Sequence[ModuleType] = ()
    digests: Mapping[Path, str] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Op) -> OpFiles:
        """Find and hash the files of an op."""
        module = op.module
        file = _file_of(module)
        if module is None or file is None or module.__name__ == "__main__":
            return cls(None, hashlib.sha256(op.stated.encode()).hexdigest())
        modules = tuple(_beside(file))
        sources = {path for one in op.variants for path in one.files if path.is_file()}
        read = {file, *sources, *filter(None, map(_file_of, modules))}
        return cls(file, read_digest(file), modules, {path: _now(path) for path in read})

    def changed(self) -> list[Path]:
        """Return the files that are not as they were, or gone."""
        return sorted(path for path, before in self.digests.items() if _now(path) != before)


def _now(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _file_of(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if name and name.endswith(".py") and Path(name).is_file() else None


def _beside(file: Path) -> Iterator[ModuleType]:
    """Yield the modules that were imported from a file's folder, except installed packages and the workbench."""
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")]
    if any(folder in file.parents for folder in installed):
        return
    beside = f"{file.parent}{os.sep}"
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if type(path) is not str or not path.startswith(beside) or not path.endswith(".py"):
            continue  # nearly all of thousands
        if name.partition(".")[0] in ("__main__", "workbench") or not isinstance(module, ModuleType):
            continue
        if not is_installed(path) and not any(folder in Path(path).parents for folder in installed):
            yield module
