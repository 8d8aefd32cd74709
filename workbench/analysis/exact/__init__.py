"""Exact comparison: whether two programs are the same computation, by running them on elements of a finite ring.

Begin with ``agreement.py``; ``elements.py`` has the ring, ``ring.py`` the tensors that programs in torch compute with.
docs/EXACT.md has the algebra.
"""

from workbench.analysis.exact.agreement import (
    ExactAnswer,
    Part,
    agreement,
    opcodes_of,
    part_of,
    roundings_of,
    unseen_by,
)
from workbench.analysis.exact.elements import elements
from workbench.analysis.exact.operators import OnElements, apply
from workbench.analysis.exact.ring import NoExactRule, RingTensor, raw

__all__ = [
    "ExactAnswer",
    "NoExactRule",
    "OnElements",
    "Part",
    "RingTensor",
    "agreement",
    "elements",
    "opcodes_of",
    "part_of",
    "raw",
    "roundings_of",
    "unseen_by",
]

RingTensor.compute = staticmethod(apply)
