"""The prompt for a problem, and the candidate in a model's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BLOCK = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_CUDA = {"cuda", "cu", "cpp", "c++", "c"}
_NAMES = {"python": "Python (Triton)", "cuda": "CUDA C++"}


def prompt_of(problem: Mapping[str, Any]) -> str:
    """Return the prompt for a problem as the server lists it: its statement, and how to answer."""
    statement = problem["statement"] or f"Write a GPU kernel for the problem {problem['id']}."
    languages = " or ".join(_NAMES[one] for one in problem["languages"])
    return f"{statement.strip()}\n\nAnswer with one fenced code block in {languages}. The last block counts."


def candidate_of(answer: str) -> tuple[str, str]:
    """Return the text and language of the candidate in an answer: the last fenced block, or all of it."""
    blocks = _BLOCK.findall(answer)
    if not blocks:
        return answer, "python"
    label, text = blocks[-1]
    is_cuda = label.lower() in _CUDA or (not label and "__global__" in text and "import " not in text)
    return text, "cuda" if is_cuda else "python"
