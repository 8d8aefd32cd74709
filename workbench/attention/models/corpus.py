"""English text shipped with every Python: the topics of ``help()`` and the docstrings of the standard library.

Copyright (c) Python Software Foundation, licensed under the PSF License Version 2 (https://docs.python.org/license.html).

A paragraph that occurs in several documents is kept in the first one only, so that no paragraph of the held-out
documents is in the training text. Wrapped lines of prose are joined, because line ends are no property of English.
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
"""One in this many documents is held out, chosen by the hash of its name."""

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "ensurepip", "lib2to3", "encodings"}
_PROSE = re.compile(r"\s*[\w(\"'`*](?!.*(?:\S  |#|>>>|\s=\s))")
_WRAPPED_AT = 52
"""Least length in characters of a line that counts as wrapped if the next line continues with prose."""
_LEAST_CHARACTERS = 40


@dataclass(frozen=True)
class Corpus:
    """Training and held-out documents by name: ``topic:<name>`` or ``module:<path>``."""

    training: dict[str, str]
    held_out: dict[str, str]

    @property
    def sha256(self) -> str:
        """SHA-256 of all names and texts; a training record has it, because each Python version ships other text."""
        digest = hashlib.sha256()
        for name, text in sorted((self.training | self.held_out).items()):
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()


def standard_library_text() -> Corpus:
    """Read the corpus of the running Python, in a few seconds, without importing the modules that it reads."""
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
    """Join the wrapped lines of prose; short lines and code keep their line ends."""
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
    except (SyntaxError, ValueError):  # a template, or a file whose declared encoding is wrong
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node, clean=False)
            if found:
                yield inspect.cleandoc(found)
