"""Exact comparison: whether two programs are the same computation, by running them on elements of a finite ring.

Begin with ``agreement.py``; ``elements.py`` has the ring, ``ring.py`` the tensors that programs in torch compute with,
``explanation.py`` the words for a difference, ``sides.py`` the comparison of any two programs.
docs/EXACT.md has the algebra.
"""

from workbench.analysis.exact.agreement import (
    DIFFERS_NOTE,
    ExactAnswer,
    Part,
    agreement,
    opcodes_of,
    part_of,
    roundings_of,
    unseen_by,
)
from workbench.analysis.exact.beside import Beside, beside_the_first, exact_notes
from workbench.analysis.exact.elements import elements
from workbench.analysis.exact.explanation import Explanation, explained
from workbench.analysis.exact.naming import ExactNames, constants_of
from workbench.analysis.exact.operators import OnElements, apply
from workbench.analysis.exact.probing import Programs
from workbench.analysis.exact.ring import NoExactRule, RingTensor, as_floats, is_float, raw, result_of, ringed
from workbench.analysis.exact.sides import APART, SECONDS, Side, cause_in, cause_of, compared

__all__ = [
    "APART",
    "DIFFERS_NOTE",
    "SECONDS",
    "Beside",
    "ExactAnswer",
    "ExactNames",
    "Explanation",
    "NoExactRule",
    "OnElements",
    "Part",
    "Programs",
    "RingTensor",
    "Side",
    "agreement",
    "as_floats",
    "beside_the_first",
    "cause_in",
    "cause_of",
    "compared",
    "constants_of",
    "elements",
    "exact_notes",
    "explained",
    "is_float",
    "opcodes_of",
    "part_of",
    "raw",
    "result_of",
    "ringed",
    "roundings_of",
    "unseen_by",
]

RingTensor.compute = staticmethod(apply)
