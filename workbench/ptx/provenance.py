"""Origins of addresses: the one variable or pointer argument from which the address of an access is computed.

Each variable is a symbol of its own in PTX, and each pointer argument a parameter. From where a register gets its
address, it is followed through moves, conversions of address spaces and sums with numbers to the accesses. An address
has an origin if all ways to it begin at the same one. What else may happen to it (products, masks, differences of
addresses, a choice between two arrays) leaves it without one, and it is not checked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Origin = str | int
"""Name of a variable, or position of a pointer parameter."""

_UNKNOWN = -1  # computed from several origins, or in a way that is not followed
_PASSED = frozenset(("mov", "cvta", "cvt", "mapa"))
_BRACKET = re.compile(r"\[\s*([%A-Za-z_$][\w$.]*#)?")
_MAP = re.compile(r"\s*,\s*\{")  # coordinates follow the address of a tensor map
_CONSTANT = re.compile(r",\s*(-?(?:0[xX][0-9a-fA-F]+|\d+))U?$")
_WITHOUT_RESULT = frozenset(
    re.findall(
        r"\w+",
        """
        st red bar barrier fence membar exit ret trap bra brx prefetch prefetchu discard applypriority cp wgmma tcgen05
        setmaxnreg griddepcontrol nanosleep stmatrix wmma tensormap call pmevent brkpt createpolicy multimem
        clusterlaunchcontrol""",
    )
)


class _Shape(NamedTuple):
    """Names of a statement by their positions: registers written, those read as values, and bases of accesses."""

    way: str  # "pass", "sum", "addend", "difference", "join", "load", "parameter" or "other"
    written: int  # the first so many names
    read: tuple[int, ...]
    bases: tuple[int, ...]


class Access(NamedTuple):
    """The origin of one of an access's addresses; ``start`` is the statement's offset in the PTX."""

    start: int
    origin: Origin


def origins(
    rows: Iterable[tuple[int, str | None, bool, str | None, Sequence[str] | str | None]],
    variables: Iterable[str],
    parameters: Mapping[str, int],
) -> list[Access]:
    """Return the accesses whose addresses have one origin, with it.

    ``rows`` are those of a body, ``variables`` the names of all variables, ``parameters`` the positions of pointers
    by the names of their parameters.
    """
    known: dict[str, Origin] = {name: name for name in variables}
    statements: list[tuple[int, _Shape, Sequence[str]]] = []
    readers: dict[str, list[int]] = {}
    writers: dict[str, list[int]] = {}
    work: list[str] = list(known)
    for start, _, _, shape, names in rows:
        if shape is None or type(names) is not tuple:
            continue
        form = _shape_of(shape)
        if form.way == "parameter":
            position = parameters.get(names[-1])
            if position is not None and form.written == 1:
                known[names[0]] = position if names[0] not in known else _UNKNOWN
                work.append(names[0])
                writers.setdefault(names[0], []).append(_SEED)
                continue
        number = len(statements)
        statements.append((start, form, names))
        for name in names[: form.written]:
            writers.setdefault(name, []).append(number)
        for at in form.read:
            readers.setdefault(names[at], []).append(number)
    made = _spread(statements, known, readers, writers, work)
    found = []
    for start, form, names in statements:
        for at in form.bases:
            origin = made.get(names[at], _UNKNOWN)
            if origin != _UNKNOWN:
                found.append(Access(start, origin))
    return found


_SEED = -1  # a writer that loads a parameter


def _spread(
    statements: Sequence[tuple[int, _Shape, Sequence[str]]],
    known: dict[str, Origin],
    readers: Mapping[str, Sequence[int]],
    writers: Mapping[str, Sequence[int]],
    work: list[str],
) -> dict[str, Origin]:
    """Follow origins forwards until nothing changes, then remove those that not all writers of a register share."""

    def follow() -> None:
        while work:
            for number in readers.get(work.pop(), ()):
                _, form, names = statements[number]
                origin = _result(form, names, known)
                if origin is not None:
                    for name in names[: form.written]:
                        set_origin(name, origin)

    def set_origin(name: str, origin: Origin) -> None:
        before = known.get(name)
        if before is None:
            known[name] = origin
        elif before != origin and before != _UNKNOWN:
            known[name] = _UNKNOWN
        else:
            return
        work.append(name)

    follow()
    mixed = True
    while mixed:  # a register that is also written without an origin may hold any address
        mixed = False
        for name, origin in list(known.items()):
            if origin == _UNKNOWN:
                continue
            for number in writers.get(name, ()):
                if number != _SEED and _result(statements[number][1], statements[number][2], known) != origin:
                    set_origin(name, _UNKNOWN)
                    mixed = True
                    break
        follow()
    return known


def _result(form: _Shape, names: Sequence[str], known: Mapping[str, Origin]) -> Origin | None:
    """Return the origin of a statement's result; None for a number."""
    found = [known.get(names[at]) for at in form.read]
    given = [origin for origin in found if origin is not None]
    if not given or form.way == "load":
        return None
    if form.way == "pass" or (form.way == "sum" and len(given) == 1):
        return given[0]
    if form.way == "difference":
        return given[0] if found[0] is not None and len(given) == 1 else _UNKNOWN
    if form.way == "addend":
        return given[0] if found[-1] is not None and len(given) == 1 else _UNKNOWN
    if form.way == "join":
        return given[0] if len(given) == len(found) and len(set(given)) == 1 else _UNKNOWN
    return _UNKNOWN


@functools.lru_cache(maxsize=8192)
def _shape_of(shape: str) -> _Shape:
    opcode, _, operands = shape.partition(" ")
    head = opcode.partition(".")[0]
    names = [match.start() for match in re.finditer("#", operands)]
    bases = [names.index(bracket.end() - 1) for bracket in _accessed(opcode, operands) if bracket[1] is not None]
    written = 0
    if head not in _WITHOUT_RESULT:
        first = operands.partition("}")[0] if operands.startswith("{") else re.split(r"[,\[]", operands, maxsplit=1)[0]
        written = first.count("#")
    if opcode.startswith("ld.param") and len(bases) == 1:
        simple = re.fullmatch(r"ld\.param\.[bsu]64 [^,\[]*#\s*,\s*\[\s*[^\]+]*#\s*(?:\+0)?\]", shape)
        return _Shape("parameter" if simple else "load", written, (), ())
    read = tuple(at for at in range(written, len(names)) if at not in bases)
    if head == "selp":
        read = read[:-1]  # without the predicate
    return _Shape(_way(head, opcode, operands, len(read)), written, read, tuple(bases))


def _accessed(opcode: str, operands: str) -> Sequence[re.Match[str]]:
    """Return the brackets around the addresses that an instruction accesses.

    The mbarrier of an asynchronous copy and the map of a tensor copy do not count. Of a copy within shared memory
    the two sides cannot be told apart later.
    """
    found = list(_BRACKET.finditer(operands))
    if ".mbarrier::complete_tx" in opcode:
        found = found[:-1]
    if ".shared::cluster.shared::cta" in opcode:
        return ()
    return [bracket for bracket in found if ".tensor" not in opcode or not _MAP.match(operands, bracket.end())]


def _way(head: str, opcode: str, operands: str, read: int) -> str:
    """Return how an instruction makes its result's origin from those of its operands."""
    kind = opcode.rsplit(".", 1)[-1]
    wide = kind in ("b32", "u32", "s32", "b64", "u64", "s64")
    if head in ("ld", "ldu", "atom", "setp", "ldmatrix", "isspacep", "mbarrier", "testp"):
        return "load"
    if not wide or ".cc" in opcode or "{" in operands:
        return "other"
    if head in _PASSED:
        return "pass" if head != "cvt" or opcode in _ADDRESS_CONVERSIONS else "other"
    constant = _CONSTANT.search(operands)
    if head == "add" or (head == "or" and constant):
        return "sum"
    if head == "sub":
        return "difference" if read == 2 or constant else "other"
    if head == "mad":
        return "addend" if operands.endswith("#") else "other"
    if head == "selp":
        return "join"
    if head == "and" and constant:
        value, bits = int(constant[1], 0), int(kind[1:])
        value &= (1 << bits) - 1
        return "pass" if value >> (bits - 1) else "other"
    return "other"


_ADDRESS_CONVERSIONS = frozenset(
    ("cvt.u32.u64", "cvt.u64.u32", "cvt.s64.s32", "cvt.s32.s64", "cvt.u64.u64", "cvt.u32.u32")
)
