"""Stages of judgements under way: workers write those that have ended to files, and the service reads them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workbench.base.files import replace_file
from workbench.service.stages import VerdictStage

_Written = tuple[int, int]
"""Number of a file, and the time of its content, whose clock is too coarse alone."""


def write_stages(file: Path, stages: Sequence[VerdictStage]) -> None:
    """Write stages to a file; do nothing where its folder is missing, as on another machine."""
    with contextlib.suppress(OSError):
        replace_file(file, json.dumps([one.to_dict() for one in stages]).encode())


class StageFiles:
    """The files of the judgements that one service has under way, in a folder that it makes anew."""

    def __init__(self, folder: Path):
        shutil.rmtree(folder, ignore_errors=True)  # an earlier service was killed
        folder.mkdir(parents=True, mode=0o700)
        self._folder = folder
        self._read: dict[str, tuple[_Written, tuple[VerdictStage, ...]]] = {}

    def file(self, key: str) -> Path:
        """Return the file of a judgement."""
        return self._folder / f"{key}.json"

    def changed(self, keys: Iterable[str]) -> Iterator[str]:
        """Read the files of judgements; yield the keys of those that have changed."""
        for key in keys:
            with contextlib.suppress(OSError):
                file = self.file(key)
                found = file.stat()
                written = found.st_ino, found.st_mtime_ns
                if key not in self._read or self._read[key][0] != written:
                    self._read[key] = written, tuple(VerdictStage(**one) for one in json.loads(file.read_bytes()))
                    yield key

    def of(self, key: str) -> tuple[VerdictStage, ...]:
        """Return the stages that were read last; none of a judgement that is not under way."""
        return self._read[key][1] if key in self._read else ()

    def forget(self, key: str) -> None:
        """Remove the file of a judgement."""
        self._read.pop(key, None)
        self.file(key).unlink(missing_ok=True)
