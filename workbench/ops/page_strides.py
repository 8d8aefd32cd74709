"""Where a token's elements lie in a page of each layout (`workbench.cache_formats.layouts`), as kernels need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.ops.expressions import next_power_of_2


def head_and_token_stride(problem: Any, page: int) -> tuple[int, int]:
    """From one KV head to the next and from one token to the next, in elements, where a token's lie side by side.

    In layout "x", where they do not, the first is right too. ``page`` is in tokens.
    """
    if problem.layout == "nhd":
        return problem.head_size, problem.num_kv_heads * problem.head_size
    return page * problem.head_size, problem.head_size


def head_and_strides(problem: Any, page: int) -> Mapping[str, int]:
    """The constexprs that describe a head, and where its elements lie in a page of ``page`` tokens of any layout."""
    size, (head, token) = problem.head_size, head_and_token_stride(problem, page)
    if problem.layout == "x":
        x = problem.x
        strides = {"X": x, "KEY_TOKEN": x, "KEY_X": page * x, "VALUE_TOKEN": 1, "VALUE_ELEMENT": page}
    else:
        strides = {"X": next_power_of_2(size), "KEY_TOKEN": token, "KEY_X": 0, "VALUE_TOKEN": token, "VALUE_ELEMENT": 1}
    return {"HEAD_SIZE": size, "HEAD_PADDED": next_power_of_2(size), "KEY_HEAD": head, "VALUE_HEAD": head, **strides}
