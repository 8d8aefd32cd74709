"""English text that every Python ships: the documentation topics of ``help()`` and the docstrings of its own modules.

Copyright (c) Python Software Foundation, licensed under the PSF License Version 2 (https://docs.python.org/license.html).

A paragraph that stands in several places counts once, at the first of them, so that no paragraph of the held-out
documents is among those trained on. Wrapped lines of prose are joined: where a line ends says nothing about English.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = "pydoc_data/topics.py and the docstrings of the standard library"
LICENCE = "PSF-2.0, (c) Python Software Foundation"
HELD_OUT_SHARE = 16
"""One document in so many is held out, chosen by the hash of its name."""

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "ensurepip", "lib2to3", "encodings"}
_PROSE = re.compile(r"\s*[\w(\"'`*](?!.*(?:\S  |#|>>>|\s=\s))")
_WRAPPED_AT = 52
"""A line at least this long that goes on with prose in the next line was wrapped."""
_LEAST_CHARACTERS = 40


@dataclass(frozen=True)
class Corpus:
    """Documents by name: ``topic:<name>`` or ``module:<path>``, split into those to train on and those held out."""

    training: dict[str, str]
    held_out: dict[str, str]

    @property
    def sha256(self) -> str:
        """Of all names and texts: what a training record names, because every Python ships another text."""
        digest = hashlib.sha256()
        for name, text in sorted((self.training | self.held_out).items()):
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()


def standard_library_text() -> Corpus:
    """The corpus of the Python that runs; reading it takes a few seconds and imports nothing of what it reads."""
    seen: set[str] = set()
    training: dict[str, str] = {}
    held_out: dict[str, str] = {}
    for name, text in _documents():
        fresh = []
        for part in re.split(r"\n\s*\n", text):
            if part.strip() not in seen:
                seen.add(part.strip())
                fresh.append(part)
        text = unwrap("\n\n".join(fresh)).strip()
        if len(text) >= _LEAST_CHARACTERS:
            number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
            (held_out if number % HELD_OUT_SHARE == 0 else training)[name] = text
    return Corpus(training, held_out)


def unwrap(text: str) -> str:
    """Join the lines of a paragraph of prose; short lines and code keep their line ends."""
    lines: list[str] = []
    wrapped = False
    for line in text.replace("’", "'").splitlines():
        prose = _PROSE.match(line) is not None
        if wrapped and prose:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.rstrip())
        wrapped = prose and len(line) >= _WRAPPED_AT
    return "\n".join(lines)


def _documents() -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics

    for name, text in sorted(topics.items()):
        yield f"topic:{name}", text
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _NOT_LIBRARY.isdisjoint(relative.parts) and relative.parts[0] != "pydoc_data":
            yield f"module:{relative}", "\n\n".join(_docstrings(path))


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or a file in another encoding than it says
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node, clean=False)
            if found:
                yield inspect.cleandoc(found)
