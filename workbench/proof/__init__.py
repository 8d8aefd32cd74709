"""Proofs on PTX, for all sizes and orders: bounds, races, and barriers that all threads reach.

`prove` gives a `Proof` of a kernel, and `Proofs` of an op; a `Counterexample` is a launch for which a property fails.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "Counterexample": "workbench.proof.verdict",
    "Proof": "workbench.proof.verdict",
    "Proofs": "workbench.proof.verdict",
    "prove": "workbench.proof.proving",
}
"""The command's module is in this package, and its help imports nothing heavy."""

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.proof.proving import prove as prove
    from workbench.proof.verdict import Counterexample as Counterexample
    from workbench.proof.verdict import Proof as Proof
    from workbench.proof.verdict import Proofs as Proofs


__getattr__, __dir__ = lazily(__name__, _LAZY)
