"""Hints at TF32: float32 products that a kernel rounds to it explain results that are a little off."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PRODUCT = re.compile(r"\b(?:mma|wgmma)[\w.:]*\.tf32\b")
_LINE = re.compile(r"\.loc\s[^\n]*?// ([^\s:]+:\d+):\d+")
_MOST = 1 << 12  # a larger factor over the allowed error is not explained by TF32, which drops 13 bits of float32


def rounded_products(ptx: Iterable[str], error: float, bound: float) -> str:
    """Return a hint for a result's error if a kernel multiplies in TF32, with the source line if the PTX has it.

    The hint is "" if no kernel does, or if the error is within its bound or larger than TF32 explains.
    """
    if not bound < error <= _MOST * bound:
        return ""
    for text in ptx:
        product = _PRODUCT.search(text)
        if product is None:
            continue
        before = _LINE.findall(text, 0, product.start())
        where = f" at {before[-1]}" if before else ""
        remedy = 'input_precision="ieee" in tl.dot keeps all' if before else "do not round it, or allow a larger error"
        return f"float32 is multiplied in TF32{where}, which keeps 10 of its 23 bits: {remedy}"
    return ""
