"""Readable names of C++ kernels, through the C++ runtime library, which compilers and torch need anyway."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable


@functools.cache
def _library() -> tuple[Callable[..., int | None], Callable[[int], object]] | None:
    """Return the function that demangles a name, and the one that frees its result; None without the library."""
    try:
        read = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
        read.restype = ctypes.c_void_p
        free = ctypes.CDLL(None)["free"]
        free.argtypes = [ctypes.c_void_p]
        return read, free
    except OSError:
        return None


_NUMBA_TAGS = re.compile(r"\[abi:v\d+\]\[abi:\w+\]")
"""Numba's mark of a specialisation: its number and the compiler's options, of 90 characters."""


@functools.lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """Return ``"scale<float, 4>"`` for ``"_Z5scaleIfLi4EEvPT_"``, without parameter and return types.

    A function in a function keeps Python's name in Numba's: ``"main::<locals>::add"``. Names that are not mangled C++
    names are returned unchanged.
    """
    text = _read(name)
    if text is None:
        return name
    plain = _NUMBA_TAGS.sub("", text)
    return _without_types(plain if plain == text else plain.replace("_3clocals_3e", "<locals>"))


def _read(name: str) -> str | None:
    """Return a name with all of its types, or None for a name that is not a mangled C++ name."""
    library = _library()
    if library is None or not name.startswith("_Z"):
        return None
    read, free = library
    status = ctypes.c_int()
    address = read(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not address:
        return None
    text = ctypes.string_at(address).decode()
    free(address)
    return text


def _without_types(text: str) -> str:
    """Drop the parameters after the name and the return type before it, minding brackets: ``void f<int>(char*)``.

    A variable of a function keeps its own name: ``void f<int>(char*)::tile``.
    """
    text = text.replace("(anonymous namespace)", "{anonymous}")
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character == "(" and depth == 0:
            _, inner, name = text.rpartition(")::")
            return text[start:position] + (f"::{name}" if inner else "")
        if character == " " and depth == 0:
            start = position + 1
        depth += (character in "<([") - (character in ">)]")
    return text[start:]


def parameter_types(name: str) -> tuple[str, ...] | None:
    """Return ``("float*", "int")`` for ``"_Z3addPfi"``: a mangled C++ name has every parameter's type, fully resolved.

    None for other names, and for types with brackets of their own.
    """
    text = _read(name)
    if text is None or not text.endswith(")"):
        return None
    inside = text[:-1].rpartition("(")[2]
    if ")" in inside:
        return None
    pieces, depth = [""], 0
    for character in inside:
        depth += (character in "<[") - (character in ">]")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return tuple(piece.strip() for piece in pieces if piece.strip())


def normalised(expression: str) -> str:
    """Return a C++ name expression without the spaces and casts that do not matter, to compare two spellings."""
    text = re.sub(r"\((?:unsigned |signed )?(?:int|long|short|char|bool)(?: int)?\)", "", expression)
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
    return re.sub(r"\s+", "", text).lstrip("&:")
