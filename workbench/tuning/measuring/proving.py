"""Proofs of configurations before they are tried: one that is refuted is neither run nor timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from workbench.analysis.watching import unwatched
from workbench.base.trials.trial import canonical
from workbench.errors import ArgumentError, MissingToolError

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.ops.variant import Variant

EFFORT = 12_000_000
"""Resources of one proof, in Z3's own count: about six seconds."""


class ConfigurationProofs:
    """Proofs of configurations on the cases of a run, each made once, in the calling thread."""

    def __init__(self, op: Op, cases: Iterable[Any], arch: str):
        self._op, self._cases, self._arch = op, tuple(cases), arch
        self._known: dict[tuple[str, str], tuple[str, str]] = {}  # by variant and configuration: status and reason

    def refutation(self, variant: Variant, config: Mapping[str, Any]) -> str:
        """Return the counterexample to a configuration, with sizes and lines, or ""."""
        key = variant.name, canonical(dict(config))
        if key not in self._known:
            with unwatched():
                self._known[key] = self._proved(variant, config)
        status, text = self._known[key]
        return text if status == "refuted" else ""

    @property
    def notes(self) -> list[str]:
        """Number of configurations by verdict, and the first refuted and the first unknown one with their reasons."""
        counts = Counter(status for status, _ in self._known.values())
        if not counts:
            return []
        told = ", ".join(f"{counts[name]} {name}" for name in ("proved", "refuted", "unknown"))
        notes = [f"configurations by proof, for all sizes of the op: {told}"]
        for name in ("refuted", "unknown"):
            found = ((key, text) for key, (status, text) in self._known.items() if status == name)
            notes += [f"{name}: {variant} {config}: {text}" for (variant, config), text in islice(found, 1)]
        return notes

    def _proved(self, variant: Variant, config: Mapping[str, Any]) -> tuple[str, str]:
        from workbench.proof.of_ops import OpFamilies
        from workbench.proof.proving import prove_family

        open_one = ""
        declared: tuple[Any, Any] = self._op, variant  # as `check_provable` has found
        for case in self._cases:
            try:
                for family in OpFamilies(*declared, case, config, ()).families(self._arch):
                    proof = prove_family(family, family.kernel, effort=EFFORT, any_data=False)
                    if proof.status == "refuted":
                        shown = next(one for one in proof.counterexamples if one.holds)
                        return proof.status, f"{proof.kernel}: {shown}"
                    if proof.status == "unknown":
                        open_one = open_one or f"{proof.kernel}: {next(iter((*proof.reasons, *proof.counterexamples)))}"
            except MissingToolError:
                raise
            except Exception as error:  # the attempt itself reports what does not compile
                open_one = open_one or f"{type(error).__name__}: {error}"
        return ("unknown", open_one) if open_one else ("proved", "")


def check_provable(op: Op, variants: Iterable[Variant]) -> None:
    """Raise ArgumentError unless proofs take the variants, and MissingToolError without Z3."""
    from workbench.ops.declared.variant import DeclaredVariant
    from workbench.proof.solver import require_solver

    require_solver()
    other = [one.name for one in variants if not isinstance(one, DeclaredVariant)]
    if other:
        got = f"True, for {', '.join(other)} of {op.name}"
        remedy = "Name variants of an op that wb.op makes of a reference."
        raise ArgumentError("prove", got, "variants in CUDA C++ or Triton, declared by expressions", remedy)
