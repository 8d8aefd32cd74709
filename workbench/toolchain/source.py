"""CUDA sources: their origin, the headers they include, and the kernels they declare."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.home import home, home_part
from workbench.errors import ArgumentError
from workbench.toolchain.type_names import UNKNOWN, Definition, defined_in, living, names_of_types

# The name in messages of a source that came as text.
MEMORY_LABEL = "source.cu"

_GAP = r"(?:[ \t]|/\*.*?\*/)*"  # what may stand between the words of a directive
_INCLUDE = re.compile(
    rf'(?:^|\*/){_GAP}(?:#|%:){_GAP}include(?:_next)?{_GAP}(?:"([^"\n]+)"|<([^>\n]+)>|(\w+))', re.MULTILINE | re.DOTALL
)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_HAS_INCLUDE = re.compile(r'__has_include\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Words with brackets of their own that may stand between __global__ and a kernel's name.
_DECORATIONS = ("__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__", "__align__")


@dataclass(frozen=True)
class Source:
    """One translation unit.

    ``name`` is the absolute path under which PTX lists it, ``label`` its name in messages, ``folder`` the folder of its
    own headers (None for a source that came as text).
    """

    text: str
    name: str
    label: str
    folder: Path | None

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Restore a source in another process; if its file is not there, register its lines with `linecache`.

        That is so for a notebook cell, and for text kept in a home that this process does not see.
        """
        vars(self).update(state)
        if not Path(self.name).is_file():
            _remember(self.name, self.text)


def read_source(source: str | Path | Source, folder: Path | None = None) -> Source:
    """Read a translation unit from a path or from the text itself; return a ``Source`` unchanged.

    A ``Path``, or a string of one line without a brace or semicolon, names a file; any other string is CUDA C++. Text
    is also written to a file under ``home()``, so that line numbers in PTX and SASS point to a file. A relative path is
    looked up in ``folder``, if there is one, and then in the working directory. Raises ArgumentError for a file that
    does not exist or is not text.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str) and re.search(r"[\n{};]", source):
        return Source(source, str(kept(source)), MEMORY_LABEL, None)
    path = located(source, folder)
    try:
        return Source(path.read_text(encoding="utf-8"), str(path), str(path), path.parent)
    except (OSError, UnicodeDecodeError) as error:
        where = (
            "" if folder is None or Path(source).is_absolute() else f" It is neither in {folder} nor in {Path.cwd()}."
        )
        remedy = f"Check the path.{where if isinstance(error, FileNotFoundError) else ''}"
        got = f"{str(source)!r} ({error.__class__.__name__})"
        raise ArgumentError("source", got, "CUDA C++ text or a readable .cu file", remedy) from error


def located(path: str | Path, folder: Path | None) -> Path:
    """Return a path as an absolute one: that of a file or folder below ``folder``, else below the working directory."""
    below = None if folder is None else folder / Path(path).expanduser()
    return below if below is not None and below.exists() else Path(path).expanduser().absolute()


def kept(text: str, name: str = MEMORY_LABEL) -> Path:
    """Return the path of a kept copy of a source that came as text or in a temporary file.

    The copy is written once. If it cannot be written, `linecache` has its lines under this path in this process.
    """
    path = home() / "sources" / hashlib.sha256(text.encode()).hexdigest()[:16] / name
    if not path.is_file():
        with contextlib.suppress(OSError):
            home_part("sources", path.parent.name)
            replace_file(path, text)  # another process may be reading it
        if not path.is_file():
            _remember(str(path), text)
    return path


def _remember(name: str, text: str) -> None:
    """Register the lines of a file that does not exist with `linecache`."""
    linecache.cache.setdefault(name, (len(text), None, text.splitlines(keepends=True), name))


def included_files(source: Source, include_dirs: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the headers that a source reaches through ``#include``, in its own folder and in ``include_dirs``."""
    closure = include_closure(source, [Path(folder) for folder in include_dirs], (), {})
    return tuple(Path(name) for name in closure.digests if not name.startswith("absent: "))


@dataclass(frozen=True)
class IncludeClosure:
    """Files that a source may include, with the hash of their content.

    ``complete`` is False if the text does not determine them all. A file that was not found is listed as ``absent:``.
    """

    digests: dict[str, str]
    complete: bool


def include_closure(
    source: Source, include_dirs: Iterable[Path], toolkit_dirs: Iterable[Path], macros: Mapping[str, object]
) -> IncludeClosure:
    """Hash the headers that ``source`` reaches through ``#include``, except the toolkit's own.

    Every ``#include`` is followed, even one that the preprocessor would skip: at worst a source is recompiled too
    often, never too seldom. A header that is found nowhere is listed too, because creating it may change the result. An
    ``#include NAME`` whose NAME is not a known macro makes the closure incomplete. The toolkit's headers are left out
    because their version is part of the cache key.
    """
    include_dirs, toolkit_dirs = list(include_dirs), list(toolkit_dirs)
    digests: dict[str, str] = {}
    complete = True
    pending = [(source.text, source.folder)]
    while pending:
        text, folder = pending.pop()
        text = _SPLICE.sub("", text)
        for quoted, angled, macro in _INCLUDE.findall(text) + [(*pair, "") for pair in _HAS_INCLUDE.findall(text)]:
            if macro:
                named = re.fullmatch(r'(?:"([^"]+)"|<([^>]+)>)', str(macros.get(macro, "")))
                if named is None:
                    complete = False
                    continue
                quoted, angled = named[1] or "", named[2] or ""
            own = [folder] if quoted and folder is not None else []
            path = _find(quoted or angled, [*own, *include_dirs])
            if path is None:
                if _find(quoted or angled, toolkit_dirs) is None:
                    digests[f"absent: {quoted or angled}"] = ""
            elif str(path) not in digests:
                content = path.read_bytes()
                digests[str(path)] = hashlib.sha256(content).hexdigest()
                pending.append((content.decode("utf-8", "replace"), path.parent))
    return IncludeClosure(digests, complete)


def _find(name: str, folders: Iterable[Path]) -> Path | None:
    return next((path for path in (folder / name for folder in folders) if path.is_file()), None)


@dataclass(frozen=True)
class KernelDeclaration:
    """A kernel's declaration in the source text: names of its parameters, and of its template's parameters if any."""

    parameters: tuple[str, ...]
    template: tuple[str, ...]
    types: tuple[str, ...] = ()
    """Types of the parameters as written, ``"const float * __restrict__"``; an array's brackets become a star."""

    def instance(self, expression: str) -> dict[str, str]:
        """Return the arguments of the template in a name expression, ``"softmax<float, 4>"``, by parameter name."""
        if "<" not in expression:
            return {}
        given = split_at_commas(expression.partition("<")[2].rpartition(">")[0])
        return dict(zip(self.template, map(str.strip, given), strict=False))  # some may have defaults


def declared_kernels(
    text: str, macros: Iterable[str] = (), elsewhere: Iterable[str] = ()
) -> dict[str, KernelDeclaration]:
    """Find the ``__global__`` functions that a source text declares; launches are checked against them.

    This reads the text and does not parse C++: names of types stay as written (`type_names` resolves them). Text under
    ``#if`` counts if its condition holds with ``macros``, a mapping, or names alone. If the text does not determine the
    condition, for example because other texts define its names (``elsewhere``), the parameter list is unknown.
    """
    values = macros if isinstance(macros, Mapping) else dict.fromkeys(macros, "")
    text = living(text, values, elsewhere)
    defined = {*values, *re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)}
    kernels: dict[str, KernelDeclaration] = {}
    for start in re.finditer(r"\b__global__\b", text):
        position = start.end()
        while match := re.compile(r"[^;{}(]*?(\w+)\s*\(").match(text, position):
            inside = _balanced(text, match.end())
            position = match.end() + len(inside) + 1
            if match[1] not in _DECORATIONS:
                # The text since the end of the previous declaration, where "template <...>" would stand.
                before = re.split(r"[;}]", text[: start.start()])[-1]
                names, types = _parameters(_taken(inside, defined))
                *_, template = [(), *_templates(before)]
                kernels[match[1]] = _together(kernels.get(match[1]), KernelDeclaration(names, template, types))
                break
    return kernels


def _together(one: KernelDeclaration | None, other: KernelDeclaration) -> KernelDeclaration:
    """Merge two declarations of one name, which may be repeated, overloaded or in different branches.

    Types that differ become unknown; with different numbers of parameters all of them do.
    """
    if one is None or one == other:
        return other
    if len(one.types) != len(other.types):
        return replace(one, parameters=(), types=())
    types = (a if a == b else UNKNOWN for a, b in zip(one.types, other.types, strict=True))
    return replace(one, types=tuple(types))


def type_names(
    source: Source, include_dirs: Iterable[str | Path], macros: Mapping[str, object]
) -> Mapping[str, Definition]:
    """Resolve the names of types in a source and its headers, except the toolkit's; see `names_of_types`."""
    headers = [path.read_text(errors="replace") for path in included_files(source, include_dirs)]
    return names_of_types([*reversed(headers), source.text], macros)


def kernels_within(
    source: Source, include_dirs: Iterable[str | Path], macros: Mapping[str, object]
) -> dict[str, KernelDeclaration]:
    """Find the ``__global__`` functions that a source and its headers declare; see `declared_kernels`.

    The headers are those in its own folder and in ``include_dirs``; the source's own declarations win.
    """
    own = [source.folder] if source.folder is not None else []
    closure = include_closure(source, [*own, *map(Path, include_dirs)], (), macros)
    texts = [Path(name).read_text(errors="replace") for name in closure.digests if not name.startswith("absent: ")]
    defined = [defined_in([text]) for text in (source.text, *texts)]
    found = declared_kernels(source.text, macros, frozenset().union(*defined[1:]))
    for index, text in enumerate(texts, 1):
        others = frozenset().union(*defined[:index], *defined[index + 1 :])
        found = declared_kernels(text, macros, others) | found
    return found


def _taken(text: str, defined: Container[str]) -> str:
    """Apply ``#ifdef`` and ``#ifndef`` inside a parameter list; return "" if it has other directives."""
    kept, branches = [], [True]
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            kept += [line] if all(branches) else []
            continue
        word, _, name = line.replace("#", "", 1).strip().partition(" ")
        if word in ("ifdef", "ifndef"):
            branches.append((name.strip() in defined) == (word == "ifdef"))
        elif word not in ("else", "endif") or len(branches) == 1:
            return ""
        else:
            taken = branches.pop()
            branches += [not taken] if word == "else" else []
    return "\n".join(kept)


def _parameters(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names and the types in a parameter list; two empty tuples if a parameter has no name."""
    pieces = [piece.strip() for piece in split_at_commas(text)]
    pieces = [re.sub(r"=.*", "", piece, flags=re.DOTALL) for piece in pieces if piece not in ("", "void")]
    found = [
        match
        for piece in pieces
        if (match := re.search(r"^(.*\w\W+?|.*\W)(\w+)\s*((?:\[[^\]]*\]\s*)?)$", piece.strip(), re.DOTALL))
    ]
    if len(found) != len(pieces):
        return (), ()
    return tuple(one[2] for one in found), tuple(one[1].strip() + (" *" if one[3] else "") for one in found)


def _balanced(text: str, position: int, brackets: str = "()") -> str:
    """Return the text from ``position`` to the bracket that closes the one just before ``position``."""
    depth = 1
    for end in range(position, len(text)):
        depth += (text[end] == brackets[0]) - (text[end] == brackets[1])
        if depth == 0:
            return text[position:end]
    return text[position:]


def template_parameters(text: str) -> set[str]:
    """Return the parameter names of all templates in a source; a macro of such a name would break it."""
    return {name for names in _templates(_COMMENT.sub(" ", text)) for name in names}


def _templates(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the parameter names of each ``template <...>``, "" for one without a name."""
    for start in re.finditer(r"\btemplate\s*<", text):
        pieces = split_at_commas(_balanced(text, start.end(), "<>"))
        found = (re.search(r"\W(\w+)$", one.partition("=")[0].strip()) for one in pieces)
        yield tuple(one[1] if one else "" for one in found)


def split_at_commas(text: str) -> list[str]:
    """Split a list of parameters, or of a template's arguments, at the commas outside all brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces
