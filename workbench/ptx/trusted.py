"""Instructions of a launch that checks need not see, because a proof covers their accesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.ptx.covering import OTHER, Covering
from workbench.ptx.machine import core
from workbench.ptx.proved import ProofUse, ProvedAccesses

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

_MATRICES = {
    "ldmatrix": core.Trusted.load_matrix, "ldmatrix.trans": core.Trusted.load_matrix,
    "stmatrix": core.Trusted.store_matrix, "stmatrix.trans": core.Trusted.store_matrix,
}  # fmt: skip
_LEFT = "Checked were uninitialised reads, masks of shuffles and votes, and indices that wrap."


class Trust(NamedTuple):
    """A core's kernel that does not look at proved accesses; ``whole`` if it needs no shadow state."""

    code: Any
    whole: bool
    use: ProofUse


def trusting(code: Any, coverings: Iterable[Covering]) -> Trust:
    """Return the kernel ``code`` with the proved accesses left out, by the first proof that covers a launch.

    If none does, the reason is that of a proof of this kernel, if there is one.
    """
    refused = ""
    for covering in coverings:
        if not covering.refused:
            return _with(code, covering)
        refused = covering.refused if refused in ("", OTHER) else refused
    return Trust(code, False, ProofUse("", refused))


def _with(code: Any, covering: Covering) -> Trust:
    proof, kernel = covering.proof, covering.kernel
    key = id(code), id(proof), covering.marked()
    if key not in kernel.trusted:
        kernel.trusted[key] = code, proof, _made(code, proof, kernel, key[2])
    made, whole, left = kernel.trusted[key][2]
    if made is None:
        return Trust(code, False, ProofUse("", "no access of it can be left out"))
    text = "proved are bounds, races" + (" and barriers" if whole else f" of {', '.join(proof.arrays)}")
    open_ones = f" Races and bounds of {', '.join(left)} were checked." if left else ""
    return Trust(made, whole, ProofUse(f"{text}.{open_ones} {_LEFT}", whole=whole, sizes=covering.sizes))


def _made(
    code: Any, proof: ProvedAccesses, kernel: DecodedKernel, marked: frozenset[str]
) -> tuple[Any, bool, tuple[str, ...]]:  # fmt: skip
    """Return the changed kernel, whether it is whole, and the arrays that stay checked.

    An array whose accesses include one that the core cannot leave out is checked for all of them.
    """
    steps: dict[int, list[tuple[int, str]]] = {}
    for pc, step in enumerate(kernel.decoded.code):
        if step.start is not None:
            steps.setdefault(step.start, []).append((pc, step.opcode.name))
    ways: dict[int, tuple[frozenset[str], list[tuple[int, Any]]]] = {}
    refused = set(proof.open_arrays)
    for start, bases in proof.accesses:
        found = [(pc, _way(name, bases, marked)) for pc, name in steps.get(start, ())]
        if not found or any(way is None for _, way in found):
            refused |= {*bases}
        ways[start] = frozenset(bases), found
    if refused:  # copies are left out with all other accesses, or not at all
        refused |= {
            base for bases, found in ways.values() for _, way in found if way == core.Trusted.copy for base in bases
        }
    rows = [one for bases, found in ways.values() if not bases & refused for one in found]
    return (code.trusting(rows) if rows else None), not refused, tuple(sorted(refused))


def _way(name: str, bases: Sequence[str], marked: frozenset[str]) -> Any:
    """Return the way in which the core leaves an instruction out; None if it cannot."""
    shared = any(base.startswith("%") for base in bases)
    if name in _MATRICES:
        return _MATRICES[name]
    if name == "cp.async":
        return None if marked.intersection(bases) else core.Trusted.copy
    if not name.startswith(
        ("ld.global.", "ld.shared.", "ld.generic.", "ld.constant.", "st.global.", "st.shared.", "st.generic.")
    ):
        return None
    if not shared and not marked.intersection(bases):
        return core.Trusted.unmarked
    return core.Trusted.store if name.startswith("st.") else core.Trusted.load
