"""Texts of conditions in the solver's language, and the loads of which they are."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof.terms import Atom, Term


def loads_in(value: Term) -> set[Atom]:
    """Return the loads from which a term is computed, without those that only decide between others."""
    found: set[Atom] = set()
    waiting = [value]
    while waiting:
        for atom in {one for key in waiting.pop().parts for one in key}:
            found |= {atom} if atom.kind == "load" else set()
            parts = atom.args[1:] if atom.kind == "choice" else atom.args
            waiting += [part for part in parts if isinstance(part, Term)]
    return found


def same_array(one: Atom, other: Atom) -> bool:
    """Return True for loads of elements of the same size from one array."""
    return (one.name, *one.args[1:]) == (other.name, *other.args[1:])


def all_of(several: Sequence[str]) -> str:
    """Return that all of several of the solver's conditions hold."""
    return several[0] if len(several) == 1 else f"(and {' '.join(several)})" if several else "true"


def any_of(several: Sequence[str]) -> str:
    """Return that one of several of the solver's conditions holds."""
    return several[0] if len(several) == 1 else f"(or {' '.join(several)})" if several else "false"


def number_text(value: int) -> str:
    """Return the solver's text of a number."""
    return str(value) if value >= 0 else f"(- {-value})"
