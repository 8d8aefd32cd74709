"""Names that nvcc declares without an ``#include``, given to NVRTC too: ``INFINITY``, ``uint32_t``, ``std::sqrt``.

nvcc compiles for the host too, so its own headers include headers of the C library. Here a source gets only the names
that it uses and does not declare itself, in a header included before its first line. Most sources get nothing, line
numbers stay, and no name that a source uses for something of its own is taken.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.toolchain import tools
from workbench.toolchain.source import Source, included_files, kept
from workbench.toolchain.type_names import without_comments

_HEADERS = ("stddef.h", "stdint.h", "limits.h", "float.h", "math.h", "nvcc_names.h")
_DEFINITION = re.compile(r"^#define (\w+).*$|^typedef [^;\n]*?(\w+);$", re.MULTILINE)
_OF_COMPILER = re.compile(r"^(?:-D|--define-macro=)(\w+)")
_PRELUDE = "nvcc_names.h"

_NO_TYPES = (
    "return|case|else|goto|throw|sizeof|and|or|not|new|delete|if|elif|ifdef|ifndef|undef|defined|include|const|volatile|"
    "static|constexpr|inline|extern|register|mutable|typename|operator"
)
_TYPES = r"float|double|int|unsigned|long|short|char|bool|void|auto|half|__half|\w+_t"
_END = r"\s*(?:=(?!=)|[;,)\[{>:])"
_DECLARED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?!(?:{_NO_TYPES})\b)[A-Za-z_]\w*\s+(\w+){_END}",  # float M_PI = 3;
        rf"\b(?:{_TYPES})\s*[*&]+\s*(?:(?:const|__restrict__)\s+)*(\w+){_END}",  # but "x * M_PI;" is a product
        r"#\s*define\s+(\w+)\b",
        r"\btypedef\b[^;]*?\b(\w+)\s*(?:\[[^;]*)?;",
        r"\b(?:using|struct|class|union|enum|namespace|typename)\s+(\w+)\b",
        r"[{,]\s*(\w+)\s*=(?!=)",  # enum { EOF = -1 }
    )
)
"""Patterns of a source's own declaration of a name."""


@functools.cache
def known() -> Mapping[str, str]:
    """Return every name that can be added, with the line that defines it."""
    found: dict[str, str] = {}
    for header in _HEADERS:
        for match in _DEFINITION.finditer((tools.stub_headers() / header).read_text()):
            found.setdefault(match[1] or match[2], match[0])
    return found


def prelude(source: Source, include_dirs: Iterable[Path], options: Iterable[str]) -> str:
    """Return the lines to put before a source: definitions of all names that it and its headers use but do not have."""
    stubs = tools.stub_headers()
    headers = included_files(source, [*include_dirs, stubs])
    own = [path.read_text(errors="replace") for path in headers if path.parent != stubs]
    there = {name for path in headers if path.parent == stubs for name in _defined_by(path)}
    given = {match[1] for match in map(_OF_COMPILER.match, options) if match}
    return _prelude((source.text, *own), frozenset(there | given), frozenset(path.name for path in headers))


@functools.cache
def _defined_by(stub: Path) -> frozenset[str]:
    return frozenset(match[1] or match[2] for match in _DEFINITION.finditer(stub.read_text()))


@functools.lru_cache(maxsize=256)
def _prelude(texts: tuple[str, ...], there: frozenset[str], included: frozenset[str]) -> str:
    text = without_comments("\n".join(texts))
    words = set(re.findall(r"\b[A-Za-z_]\w*", text))
    wanted = [name for name in known() if name in words and name not in there]
    if wanted:
        declared = {name for one in _DECLARED for name in one.findall(text)}
        wanted = [name for name in wanted if name not in declared]
    lines = [known()[name] for name in wanted]
    lines += [f"#include <{one}>" for one, named in _in_headers().items() if one not in included and named.search(text)]
    return "".join(f"{line}\n" for line in lines)


@functools.cache
def _in_headers() -> Mapping[str, re.Pattern]:
    """Return the pattern of names for which a source needs a stub header, for each such header."""
    functions = "|".join(re.findall(r"::(\w+)", (tools.stub_headers() / "cmath").read_text()))
    in_std = r"(?<!cuda::)\bstd::(?:{})\b"
    return {
        "cmath": re.compile(in_std.format(functions) + r"|\busing\s+namespace\s+std\b"),
        "cstddef": re.compile(in_std.format("size_t|ptrdiff_t|nullptr_t")),
        "cstdint": re.compile(in_std.format(r"u?int\w*_t")),
        "mixed_pow.h": re.compile(r"\bpow\s*\("),
    }


def options_for(source: Source, include_dirs: Iterable[Path], options: Iterable[str]) -> list[str]:
    """Return the NVRTC options that give a source these names; an empty list if it needs none."""
    text = prelude(source, include_dirs, options)
    if not text:
        return []
    path = kept(f"#pragma once\n{text}", _PRELUDE)
    return [f"--pre-include={path}"] if path.is_file() else []
