"""Names that a CUDA source gives to types: ``typedef``, ``using``, macros, enumerations, and their templates.

NVRTC knows every type, but its output has none for an ``extern "C"`` kernel: the name in the PTX has no types, and a
PTX parameter only a size. So this module follows the directives of the text as a preprocessor does, with the macros of
the compilation. Under a condition that the text does not determine, such as ``__CUDA_ARCH__``, a name counts if all
branches agree on it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r"\w+|::|\S")
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(.*)")
_DEFINED_NAME = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_DEFINE = re.compile(r"(\w+)(?:\(([\w\s,]*)\))?[ \t]*(.*)")
_UNKNOWN_VALUES = {"__CUDA_ARCH__", "__cplusplus", "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "CUDART_VERSION"}
_DEFINED = {"__CUDACC__", "__CUDACC_RTC__", *_UNKNOWN_VALUES}
_MOST_STEPS = 64
"""Limit of the names followed for one type, which ends a circular definition."""

UNKNOWN = "?"
"""Token for a type that the text does not determine."""

RECORD = "__record__"
"""Token for a struct, class or union, which a launch treats as bytes."""


class Alias(NamedTuple):
    """A template or macro with parameters: ``template <typename T> using P = T *``, ``#define P(T) T *``."""

    parameters: tuple[str, ...]
    text: str


class Type(str):
    """Text of a type named by ``typedef`` or ``using``; unlike a macro's text it stays one type beside other tokens."""

    __slots__ = ()


Definition = str | Alias | None
"""Type that a name stands for; None if branches disagree that may both be taken."""


def names_of_types(texts: Iterable[str], macros: Mapping[str, object]) -> Mapping[str, Definition]:
    """Resolve the names in ``texts``, a source preceded by its headers, to the types that they stand for.

    ``macros`` are those of the command line; they win over definitions in the texts.
    """
    return _names_of_types(tuple(texts), tuple((name, str(value)) for name, value in macros.items()))


@functools.lru_cache(maxsize=256)
def _names_of_types(texts: tuple[str, ...], macros: tuple[tuple[str, str], ...]) -> Mapping[str, Definition]:
    reader = _Reader(dict(macros), defined_in(texts))
    for text in texts:
        reader.read(without_comments(text))
    return reader.known


def living(text: str, macros: Mapping[str, object], elsewhere: Iterable[str] = ()) -> str:
    """Return a text without comments, directives, and lines that the preprocessor is certain to skip.

    A directive whose condition the text does not determine stays. ``elsewhere`` are macros that other texts define.
    """
    reader = _Reader({name: str(value) for name, value in macros.items()}, frozenset(elsewhere))
    return reader.read(without_comments(text))


def defined_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the names of all macros that the texts define."""
    return frozenset(name for text in texts for name in _DEFINED_NAME.findall(text))


def _blank(match: re.Match) -> str:
    return " " + "\n" * match[0].count("\n")


def expanded(tokens: list[str], known: Mapping[str, object]) -> list[str]:
    """Replace the names among the tokens of a type by their definitions; return ["?"] if one cannot be resolved."""
    tokens, place, steps = list(tokens), 0, 0
    while place < len(tokens):
        name = tokens[place]
        if name not in known:
            place += 1
            continue
        steps += 1
        found = known[name]
        if steps > _MOST_STEPS or found is None:
            return [UNKNOWN]
        end = place + 1
        if isinstance(found, Alias):
            given, end = _arguments(tokens, end)
            if len(given) != len(found.parameters):
                return [UNKNOWN]
            inside = dict(zip(found.parameters, given, strict=True))
            new = [part for token in _TOKEN.findall(found.text) for part in inside.get(token, [token])]
        else:
            new = _TOKEN.findall(str(found))
        start = place
        while start >= 2 and tokens[start - 1] == "::":  # ns::name
            start -= 2
        if new == [name]:
            place = end
            continue
        if "*" in new and isinstance(found, Type):  # "const pointer" is a pointer that is const
            before, after = ([one for one in part if one != "const"] for part in (tokens[:start], tokens[end:]))
        else:
            before, after = tokens[:start], tokens[end:]
        tokens, place = [*before, *new, *after], 0
    return tokens


def _arguments(tokens: list[str], place: int) -> tuple[list[list[str]], int]:
    """Return the arguments in the brackets that begin at a place, and the place behind them."""
    if place >= len(tokens) or tokens[place] not in "<(":
        return [], place
    given: list[list[str]] = [[]]
    depth = 1
    for end in range(place + 1, len(tokens)):
        token = tokens[end]
        depth += (token in "<(") - (token in ">)")
        if depth == 0:
            return given, end + 1
        if token == "," and depth == 1:
            given.append([])
        else:
            given[-1].append(token)
    return [], place


def tokens_of(text: str) -> list[str]:
    """Split a type into words and signs."""
    return _TOKEN.findall(text)


def without_comments(text: str) -> str:
    """Remove the comments of a text; its lines stay."""
    return _COMMENT.sub(_blank, text)


class _Branch:
    """Branches between one ``#if`` and its ``#endif``.

    ``taken`` is True if the current branch is taken, ``seen`` if it or an earlier one was; None if unknown. ``kept`` is
    True once a condition was unknown: then the directives stay in the text.
    """

    def __init__(self, holds: bool | None):
        self.taken, self.seen = holds, holds
        self.kept = holds is None

    def next(self, holds: bool | None) -> None:
        """Begin the branch of an ``#elif`` or ``#else``."""
        self.taken = False if self.seen else holds if self.seen is False or holds is False else None
        self.seen = True if self.seen or self.taken else None if None in (self.seen, self.taken) else False
        self.kept = self.kept or self.taken is None


class _Reader:
    """A reader of texts one after the other, in the order in which ``#include`` puts them."""

    def __init__(self, macros: Mapping[str, str], elsewhere: frozenset[str]):
        self._given, self._elsewhere = frozenset(macros), elsewhere
        self._macros: dict[str, Definition] = dict(macros)
        self.known: dict[str, Definition] = dict(macros)

    def read(self, text: str) -> str:
        """Record the definitions of a text, and return it with all lines empty that are not compiled.

        Directives become empty lines too, except those whose condition the text does not determine.
        """
        branches: list[_Branch] = []
        lines: list[str] = []
        for line in re.sub(r"\\[ \t]*\n", " ", text).split("\n"):
            match = _DIRECTIVE.match(line)
            taken = _all(one.taken for one in branches)
            if match is None:
                lines.append("" if taken is False else line)
                continue
            word, rest = match[1], match[2].strip()
            kept = False
            if word in ("if", "ifdef", "ifndef"):
                branches.append(_Branch(self._holds(word, rest)))
                kept = branches[-1].kept
            elif word in ("else", "elif") and branches:
                branches[-1].next(True if word == "else" else self._holds("if", rest))
                kept = branches[-1].kept
            elif word == "endif" and branches:
                kept = branches.pop().kept
            elif word == "define" and taken is not False:
                self._define(rest, certain=taken is True)
            elif word == "undef" and taken is True and rest not in self._given:
                self._macros.pop(rest, None)
            lines.append(line if kept else "")
        self._declared("\n".join(lines))
        return "\n".join(lines)

    def _define(self, text: str, *, certain: bool) -> None:
        match = _DEFINE.match(text)
        if match is None or match[1] in self._given:
            return
        name, parameters, value = match[1], match[2], match[3].strip()
        found: Definition = value
        if parameters is not None:
            found = Alias(tuple(part.strip() for part in parameters.split(",") if part.strip()), value)
        self._macros[name] = found if certain or self._macros.get(name, found) == found else None
        self._name(name, found, certain=certain)

    def _name(self, name: str, found: Definition, *, certain: bool = False) -> None:
        if name not in self._given:
            self.known[name] = found if certain or self.known.get(name, found) == found else None

    def _holds(self, word: str, text: str) -> bool | None:
        """Return the value of a condition, or None if the text does not determine it."""
        if word in ("ifdef", "ifndef"):
            there = self._is_defined(text.split()[0] if text else "")
            return there if there is None else there == (word == "ifdef")
        text = re.sub(r"defined\s*(?:\(\s*(\w+)\s*\)|(\w+))", self._defined, text)
        for _ in range(8):
            text, count = re.subn(r"\b[A-Za-z_]\w*", self._value, text)
            if not count:
                break
        text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
        text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or ")).replace("/", "//")
        if not re.fullmatch(r"(?:\s|\d|0[xX][0-9a-fA-F]+|and|or|not|[-+*/%()<>=!&|^~])+", text):
            return None
        try:
            return bool(eval(text.strip(), {"__builtins__": {}}))
        except (SyntaxError, ArithmeticError, TypeError, ValueError, MemoryError):
            return None

    def _is_defined(self, name: str) -> bool | None:
        """Return True if a macro is defined, None if another text or a compiler may define it."""
        if name in self._macros or name in _DEFINED:
            return True
        return None if name in self._elsewhere or name.startswith(("_", "CUDA")) else False

    def _defined(self, match: re.Match) -> str:
        there = self._is_defined(match[1] or match[2])
        return UNKNOWN if there is None else str(int(there))

    def _value(self, match: re.Match) -> str:
        """Return the value of a name in a condition: its text, or 0 for an undefined macro.

        For a macro of unknown value it is "?", which no expression contains.
        """
        name = match[0]
        if name in ("and", "or", "not"):
            return name
        found = self._macros.get(name, "0" if self._is_defined(name) is False else UNKNOWN)
        return f"({found})" if isinstance(found, str) and found else UNKNOWN

    def _declared(self, text: str) -> None:
        """Record the types that a text declares: records, enumerations, aliases and typedefs."""
        records = r"(?<!\benum )\b(?:struct|class|union)\s+(?:\w+\s*\([^)]*\)+\s*)?(\w+)\s*(?:final\s*)?[:{;]"
        for name in re.findall(records, text):
            self._name(name, RECORD)
        for name, kind in re.findall(r"\benum\s+(?:class\s+|struct\s+)?(\w+)\s*(?::\s*([\w\s:]+?))?\s*\{", text):
            self._name(name, kind.strip() or "int")
        aliases = r"\btemplate\s*<([^<>{}();]*)>\s*using\s+(\w+)\s*=\s*([^;{}]+);"
        for parameters, name, value in re.findall(aliases, text):
            names = tuple(re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", parameters.strip()))
            self._name(name, Alias(names, value.strip()))
        for name, value in re.findall(r"\busing\s+(\w+)\s*=\s*([^;{}]+);", re.sub(aliases, " ", text)):
            self._name(name, Type(value.strip()))
        for start in re.finditer(r"\btypedef\b", text):
            self._typedef(_statement(text, start.end()))

    def _typedef(self, text: str) -> None:
        """Record a typedef, such as ``float *pointer, value``; names of arrays and functions become unknown."""
        match = re.match(r"\s*(struct|union|class|enum)\b[^{]*?(\{.*\})?\s*([^{}]*)$", text, re.DOTALL)
        if match:
            base = ["int" if match[1] == "enum" else RECORD]
            rest = tokens_of(match[3])
            rest = rest if match[2] else rest[1:]  # behind the tag
        else:
            tokens = tokens_of(text)
            first = tokens.index(",") if "," in tokens and "<" not in tokens else len(tokens)
            start = max(first - 1, 0)
            while start and tokens[start - 1] == "*":
                start -= 1
            base, rest = tokens[:start], tokens[start:]
        if not {"(", "["}.isdisjoint(rest) or not {"(", "["}.isdisjoint(base):
            for name in re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$|\(\s*\*\s*(\w+)\s*\)", text):
                self._name(name[0] or name[1], None)
            return
        for one in " ".join(rest).split(","):
            *stars, name = one.split() or [""]
            if name.isidentifier():
                self._name(name, Type(" ".join([*base, *stars])))


def _statement(text: str, start: int) -> str:
    """Return the text from ``start`` to the next semicolon outside braces."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if text[end] == ";" and depth == 0:
            return text[start:end]
    return text[start:]


def _all(branches: Iterable[bool | None]) -> bool | None:
    """Return True if all branches are taken, False if one is not, else None."""
    found: bool | None = True
    for one in branches:
        if one is False:
            return False
        found = None if one is None else found
    return found
