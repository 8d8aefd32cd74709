"""Products of float32 that a kernel rounds to TF32, as the cause of results that are a little off."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PRODUCT = re.compile(r"\b(?:mma|wgmma)[\w.:]*\.tf32\b")
_LINE = re.compile(r"\.loc\s[^\n]*?// ([^\s:]+:\d+):\d+")
_MOST = 1 << 12  # times what is allowed: float32 keeps 13 bits more


def rounded_products(ptx: Iterable[str], error: float, bound: float) -> str:
    """Return the words of a message for the error of a result: that its kernels multiply in TF32, and where.

    Nothing where they do not, or where the error is larger than that explains.
    """
    if not bound < error <= _MOST * bound:
        return ""
    for text in ptx:
        product = _PRODUCT.search(text)
        if product is None:
            continue
        before = _LINE.findall(text, 0, product.start())
        where = f" at {before[-1]}" if before else ""
        remedy = 'input_precision="ieee" in tl.dot keeps all' if before else "round nothing, or allow for it"
        return f"float32 is multiplied in TF32{where}, which keeps 10 of its 23 bits: {remedy}"
    return ""
