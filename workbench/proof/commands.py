"""The part of ``workbench prove`` that is about an op; `workbench.programs.commands` has the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.proof.verdict import Proof, Proofs


def prove_op(
    op: str, *, facts: Sequence[str], effort: int | None, arch: str, variants: list[str] | None, case: str | None
) -> Proof | Proofs:  # fmt: skip
    """Prove the kernels of an op, a name or ``FILE.py:NAME``; facts are text as in a terminal."""
    from workbench.ops.files import load_op
    from workbench.proof.proving import EFFORT, prove

    stated: list[Any] = []
    for one in facts:
        tensor, colon, text = one.partition(":")
        stated.append({tensor.strip(): text.strip()} if colon else one)
    effort = EFFORT if effort is None else effort
    return prove(load_op(op), variants=variants, case=case, facts=stated, arch=arch, effort=effort)
