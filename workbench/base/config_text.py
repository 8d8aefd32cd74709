"""Configurations as a terminal writes them: ``NUM_THREADS=128 VEC=4``, of one variant ``cuda_rows:NUM_THREADS=128``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from workbench.errors import ArgumentError

_SEPARATOR = re.compile(r"[\s,]+(?=[^\s,=]+=)")
"""Stands before the next NAME=; a value may have commas and spaces of its own, such as ``(16, 16)``."""


@dataclass(frozen=True)
class ConfigText:
    """A parsed text ``[VARIANT:]NAME=VALUE ...``; a reader decides which names and values are legal."""

    text: str
    variant: str | None
    """The name before the colon; None without one."""
    settings: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the parsed text.

        Pairs are separated by spaces or commas. The last of several values of one name counts, and no pair at all is a
        configuration that leaves out everything. Raises ArgumentError for a word that is not a pair.
        """
        head, equals, _ = text.partition("=")
        before, colon, _ = head.rpartition(":")
        pairs = text[len(before) + 1 :] if colon else text
        settings = {}
        for word in filter(None, _SEPARATOR.split(pairs.strip(" \t\r\n,"))):
            name, equals, value = word.partition("=")
            if not equals or not name or re.search(r"[\s:]", name):
                allowed = "[VARIANT:]NAME=VALUE NAME=VALUE ..."
                raise ArgumentError(
                    "config", repr(text), allowed, "Give each tunable a value: 'NUM_THREADS=128 VEC=4'."
                )
            settings[name] = value
        return cls(text, before.strip() if colon else None, settings)

    def macros(self) -> dict[str, Any]:
        """Return the settings as macros of a CUDA source.

        Raises ArgumentError for the name of a variant, which only ops have.
        """
        if self.variant is not None:
            remedy = f"Leave out {self.variant!r}: only the kernels of ops are variants."
            raise ArgumentError("config", repr(self.text), "NAME=VALUE ... with a kernel of a file", remedy)
        values = {name: literal(text) for name, text in self.settings.items()}
        return {
            name: value if isinstance(value, str | int | float) else self.settings[name]
            for name, value in values.items()
        }


def literal(text: str) -> Any:
    """Return the value of a Python literal; any other text is returned as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
