"""Fenced blocks of a page in Markdown, which tests run as they stand there."""

from __future__ import annotations

import re


def fenced(page: str, *languages: str) -> list[tuple[str, str]]:
    """Return (language, text) of the page's blocks in these languages, in their order."""
    kinds = "|".join(map(re.escape, languages))
    return re.findall(rf"^```({kinds})\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def block(page: str, language: str, containing: str = "") -> str:
    """Return the first block of a language that contains a text."""
    return next(text for _, text in fenced(page, language) if containing in text)
