"""A pytest plugin: pictures in outputs of notebooks are not compared, as nbval does not compare PNGs.

The outputs of a notebook's cell with the tag ``nbval-ignore-output`` are compared after all, with
what differs from run to run masked: numbers, paths, hashes, and the room that they take.

A cell whose words differ too (a model's text, a search that is still running) has the tag ``text-varies`` beside it:
of that only the kinds of outputs are compared.
"""

from __future__ import annotations

import re
from typing import Any

IGNORED, VARIES = "nbval-ignore-output", "text-varies"
_PICTURE = re.compile(r"""<img class="workbench"[^>]*>""")
_MASKS = (
    (re.compile(r"(?<![\w<])(?:/[\w.+-]+){2,}"), "PATH"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"[-+]?(?:\d[\d,_]*\.?\d*(?:e[-+]?\d+)?|\binf\b|\bnan\b)"), "N"),
    (re.compile(r"[─━═-]{3,}"), "---"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" *\n *"), "\n"),
)


def masked(text: Any) -> Any:
    """Return a text without what differs from run to run."""
    if not isinstance(text, str):
        return text
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text.strip()


def pytest_itemcollected(item: Any) -> None:
    """Have nbval compare what it would ignore."""
    tags = item.cell.metadata.get("tags", ()) if hasattr(item, "cell") else ()
    if not hasattr(item, "cell"):
        return
    own = item.sanitize

    def usual(text: Any) -> Any:
        return _PICTURE.sub("PICTURE", own(text)) if isinstance(text, str) else own(text)

    item.sanitize = usual
    if IGNORED not in tags:
        return
    item.options["check"] = True
    if VARIES in tags:
        item.sanitize = lambda text: "" if isinstance(text, str) else text
    else:
        item.sanitize = lambda text: masked(usual(text))
