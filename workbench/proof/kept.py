"""Verdicts that are kept between runs, by PTX, launches and facts as terms, and the code that proves.

A verdict with a counterexample is not kept: it holds the report of a run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.base.versions import __version__
from workbench.proof.conditions import Predicate
from workbench.proof.specification import Specification
from workbench.proof.terms import Atom, Term
from workbench.proof.verdict import Proof
from workbench.ptx import proved
from workbench.ptx.proved import ProvedAccesses, ProvedElements, ProvedTensor
from workbench.toolchain.disk_cache import content_key, load, store


def key_of(ptx: str, name: str, made: Specification, effort: int) -> str:
    """Return the key of a verdict: a hash of all that it depends on."""
    return content_key(["proof", _prover(), ptx, name, effort, _described(made)])


def kept_proof(key: str) -> Proof | None:
    """Return the verdict that was kept, or None."""
    found = load(key)
    if found is None:
        return None
    fields = json.loads(found["proof"])
    for field in ("preconditions", "reasons"):
        fields[field] = tuple(fields[field])
    if fields["accesses"] is not None:
        fields["accesses"] = _accesses(ast.literal_eval(fields["accesses"]))
    return Proof(**fields)


def _accesses(fields: dict[str, Any]) -> ProvedAccesses:
    parts = {"tensors": ProvedTensor, "elements": ProvedElements}
    return ProvedAccesses(**fields | {name: tuple(made(**one) for one in fields[name]) for name, made in parts.items()})


def keep(key: str, proof: Proof) -> None:
    """Keep a verdict without counterexamples."""
    if not proof.counterexamples:
        fields = {name: value for name, value in vars(proof).items() if name != "counterexamples"}
        if proof.accesses is not None:
            fields["accesses"] = repr(asdict(proof.accesses))  # JSON would make lists of the tuples of formulas
        store(key, {"proof": json.dumps(fields, default=dict).encode()})


@functools.cache
def _prover() -> list[str]:
    """Return the versions of what proves: Z3, the package, and the code of this part of it."""
    import z3

    code = hashlib.sha256()
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(proved.__file__)]:
        code.update(path.read_bytes())
    return [z3.get_version_string(), __version__, code.hexdigest()]


def _described(made: Specification) -> list[Any]:
    """Return a specification as plain values."""
    atoms = _Atoms()
    index, value = (made.arena.atom("fact", name) for name in ("i", "v"))
    data = [
        [name, one.text, one.size, one.distinct, one.free, one.signed, one.apart, atoms.plain(one.count),
         atoms.plain(one.condition(index, value)), atoms.plain(one.value(index)), atoms.plain(one.length(index))]
        for name, one in made.data.items()
    ]  # fmt: skip
    maps = [[name, one.box, sorted(one.options.items())] for name, one in made.maps.items()]
    tensors = [[name, one.dtype, one.element, one.align, atoms.plain(one.shape)] for name, one in made.tensors.items()]
    launch = [made.block, made.launches, made.repeats, made.stated, list(map(repr, made.stand_ins))]
    terms = [made.grid, made.arguments, made.shared_bytes, tuple(made.sizes.values()), tuple(made.facts)]
    return [launch, atoms.plain(tuple(terms)), list(made.sizes), tensors, maps, data, atoms.found]


class _Atoms:
    """Atoms as plain values by their numbers, which follow the order in which a specification makes them."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def plain(self, value: Any) -> Any:
        """Return a term, a condition, or a tuple of them as plain values."""
        if isinstance(value, Term):
            return [[factor, *map(self._number, key)] for key, factor in value.parts.items()]
        if isinstance(value, Predicate):
            return [value.kind, *map(self.plain, value.parts)]
        return [*map(self.plain, value)] if isinstance(value, tuple) else value

    def _number(self, atom: Atom) -> str:
        if atom.number not in self.found:
            self.found[atom.number] = []
            self.found[atom.number] = [
                atom.kind,
                atom.name,
                atom.scope,
                atom.low,
                self.plain(atom.high),
                self.plain(atom.args),
            ]
        return f"atom {atom.number}"
