"""Reading of documents that `workbench.base.documents.Document.save` or ``--json`` wrote.

A file may come from anybody: each document is validated by the schema of its kind, and numbers are bounded.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.base.documents import KINDS, schema
from workbench.base.versions import __version__
from workbench.errors import DocumentError

_SCHEMA = re.compile(r"workbench-([\w-]+)/(\d+)")
_DIGITS = 18
"""Digits of the largest whole number; no count has more."""


def read_document(path: str | Path, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the document in a file, of one of the ``kinds``.

    Raises DocumentError, with the file and the remedy, for a file that cannot be read, is not a document of the
    workbench, is of another kind or version, or is incomplete.
    """
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror or error}. {_remedy(kinds)}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not a JSON document: {error}. {_remedy(kinds)}") from error
    return parse_document(text, path, kinds)


def parse_document(text: str, name: object, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the document in a text, of one of the ``kinds``; errors call it ``name``.

    Raises DocumentError as `read_document` does.
    """
    remedy = _remedy(kinds)
    try:
        found = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise DocumentError(f"{name} is not a JSON document: it is nested too deep. {remedy}") from None
    except ValueError as error:
        raise DocumentError(f"{name} is not a JSON document: {error}. {remedy}") from error
    schema_name = found.get("schema") if isinstance(found, dict) else None
    match = _SCHEMA.fullmatch(schema_name) if isinstance(schema_name, str) else None
    if match is None:
        raise DocumentError(f"{name} is not a document of the workbench: its schema is {schema_name!r:.60}. {remedy}")
    if match[1] not in kinds:
        raise DocumentError(f"{name} is a {match[1]!r:.60}, not a {' or '.join(kinds)}. {remedy}")
    by = f"workbench {found.get('workbench')!s:.40} wrote it, this is {__version__}"
    if match[2] != "1":
        raise DocumentError(f"{name} is {match[0]:.60}, and only version 1 is known: {by}. {remedy}")
    if fault := _fault(match[1], found):
        raise DocumentError(f"{name} is damaged or of another version: {fault:.200} ({by}). {remedy}")
    return found


def _remedy(kinds: Sequence[str]) -> str:
    return f"Save one with {' or '.join(KINDS[kind][0].replace('--json', '--save FILE') for kind in kinds)}."


def _fault(kind: str, found: dict[str, Any]) -> str:
    """Return the first place that breaks the schema, in words; empty for a valid document."""
    from fastjsonschema import JsonSchemaValueException

    try:
        _validator(kind)(found)
    except JsonSchemaValueException as error:
        return error.message
    except RecursionError:
        return "it is nested too deep"
    return ""


@functools.cache
def _validator(kind: str) -> Callable[[object], object]:
    import fastjsonschema

    return fastjsonschema.compile(schema(kind), use_default=False, detailed_exceptions=True)


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"the number {digits[:_DIGITS]}... has too many digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits:.40} is too large")
    return number


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
