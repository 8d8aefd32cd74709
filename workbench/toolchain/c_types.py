"""C++ types as written in a source, and the dtypes of NumPy and torch for them.

They decide which arrays a launch accepts, how it passes a number for a ``__half``, and what the bytes of a variable
mean. Names are followed through ``typedef``, ``using``, macros and aliases (`workbench.toolchain.type_names`). A type
that the text does not determine is None: the launch does not check that argument, and warns about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.base.element_types import ELEMENT_TYPES
from workbench.toolchain.type_names import RECORD, UNKNOWN, expanded, living, names_of_types, tokens_of

_SCALARS = {"float": "float32", "double": "float64", "__half": "float16", "half": "float16"}
_SCALARS |= {"__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "bool": "bool"}
_SCALARS |= {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SCALARS |= {"size_t": "uint64", "ptrdiff_t": "int64", "uint": "uint32", "uchar": "uint8", "ushort": "uint16"}
_SCALARS |= {"intptr_t": "int64", "uintptr_t": "uint64", "intmax_t": "int64", "uintmax_t": "uint64", "ulong": "uint64"}
_SCALARS |= {"ssize_t": "int64", "nv_half": "float16", "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2"}
_VECTORS = {"char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32"}
_VECTORS |= {"long": "int64", "ulong": "uint64", "longlong": "int64", "ulonglong": "uint64"}
_VECTORS |= {"float": "float32", "double": "float64"}
_PAIRS = {"half2": "float16", "__half2": "float16", "__nv_bfloat162": "bfloat16", "nv_bfloat162": "bfloat16"}
_PAIRS |= {"cuComplex": "float32", "cuFloatComplex": "float32", "cuDoubleComplex": "float64"}
ANYTHING = "void"
"""Dtype of the target of a ``void *`` or of a pointer to a struct: every array fits."""

_IGNORED = {"const", "volatile", "static", "extern", "inline", "__restrict__", "__restrict", "__grid_constant__"}
_IGNORED |= {"std", "cuda", "::", "restrict", "typename", "class", "enum"}


@dataclass(frozen=True)
class CType:
    """A C++ type of a parameter or variable.

    ``dtype`` is torch's or NumPy's name of one element, or `ANYTHING`; for a pointer to pointers it is uint64.
    ``lanes`` is the number of elements of a vector type (``float4``: 4).
    """

    dtype: str
    lanes: int = 1
    pointer: bool = False
    constant: bool = False
    """True for a pointer whose target is const."""

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return 1 if self.dtype == ANYTHING else ELEMENT_TYPES[self.dtype].bytes


def c_type(text: str, known: Mapping[str, object] | None = None) -> CType | None:
    """Parse a type such as ``const float4 * __restrict__``.

    Returns None if the text does not determine it, and for a struct by value or a reference. ``known`` maps names to
    types: ``{"T": "float"}``, and the result of `names_of_types`.
    """
    tokens = expanded(tokens_of(text), known or {})
    stars = tokens.count("*")
    base = tokens[: tokens.index("*")] if stars else tokens
    words = [token for token in base if token not in _IGNORED]
    if not {UNKNOWN, "&", "<", "(", "["}.isdisjoint(tokens):
        return None
    constant = bool(stars) and "const" in base
    if stars > 1:
        return CType("uint64", pointer=True)
    if stars and (words == ["void"] or RECORD in words or "struct" in words):
        return CType(ANYTHING, pointer=True, constant=constant)
    found = _element(words)
    return found and CType(*found, pointer=bool(stars), constant=constant)


def _element(words: list[str]) -> tuple[str, int] | None:
    """Return (dtype, lanes) for the words of a type, such as ``["unsigned", "int"]``, or None."""
    name = " ".join(words)
    if name in _SCALARS:
        return _SCALARS[name], 1
    if name in _PAIRS:
        return _PAIRS[name], 2
    vector = re.fullmatch(r"(u?(?:char|short|int|long|longlong)|float|double)([1-4])", name)
    if vector:
        return _VECTORS[vector[1]], int(vector[2])
    if not words or not set(words) <= {"unsigned", "signed", "char", "short", "int", "long"}:
        return None
    bits = 8 if "char" in words else 16 if "short" in words else 64 if "long" in words else 32
    return ("uint" if "unsigned" in words else "int") + str(bits), 1


@dataclass(frozen=True)
class DeclaredVariable:
    """A ``__device__``, ``__constant__`` or ``__managed__`` variable of a source text.

    ``type`` is None unless it is a plain one (for a struct, for example), ``shape`` if a size is not a number.
    """

    type: CType | None
    shape: tuple[int, ...] | None


def declared_variables(text: str, macros: Mapping[str, object] | None = None) -> dict[str, DeclaredVariable]:
    """Find a source's variables in device, constant and managed memory that are not pointers, by name."""
    known: dict[str, object] = dict(names_of_types([text], macros or {}))
    text = living(text, macros or {})
    known |= dict(re.findall(r"\bconstexpr\s+[\w\s]*?(\w+)\s*=\s*(\w+)\s*;", text)) | dict(macros or {})
    found = {}
    for match in re.finditer(r"\b__(?:constant|device|managed)__\b([^;={(]*)([;={(])", text):
        declared = re.fullmatch(r"\s*(.*?)(\w+)\s*((?:\[[^\]]*\]\s*)*)", match[1], re.DOTALL)
        if match[2] == "(" or declared is None or "*" in declared[1]:
            continue
        type_ = c_type(declared[1], known)
        if type_ is not None and type_.pointer:
            continue
        sizes = [_number(size, known) for size in re.findall(r"\[([^\]]*)\]", declared[3])]
        if type_ is not None and type_.lanes > 1:
            sizes.append(type_.lanes)
        known_sizes = tuple(size for size in sizes if size is not None)
        found[declared[2]] = DeclaredVariable(type_, known_sizes if len(known_sizes) == len(sizes) else None)
    return found


def _number(text: str, known: Mapping[str, object]) -> int | None:
    """Return the value of an array size, which is a number or the name of one, or None."""
    for _ in range(4):
        text = str(known.get(text.strip(), text)).strip()
    return int(text, 0) if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", text) else None
