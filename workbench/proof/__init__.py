"""Proofs on PTX, for all sizes and orders: bounds, races, and barriers that all threads reach."""

from workbench.proof.proving import prove
from workbench.proof.verdict import Counterexample, Proof, Proofs

__all__ = ["Counterexample", "Proof", "Proofs", "prove"]
