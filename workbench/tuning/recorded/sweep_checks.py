"""Checks of files of recorded times. They come from others, so content that could mislead or break a replay is refused.

Each refusal names the place in the file.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.tuning.recorded.sweep_record import Sweep

LONGEST = 300
"""Largest number of characters of a name or of a text value."""

DEEPEST = 16
"""Largest number of nested levels in the description of a case."""

MOST_POINTS = 1 << 40
"""Largest number of points of all parameters together, legal or not."""

_NAMES = ("op", "variant", "language", "case_name", "device", "machine", "arch", "recorded")
_MARKUP = re.compile(r"\[[a-z#/@][^\[\]]*\]", re.IGNORECASE)
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{\]}]')
_TOO_DEEP = 100


class RefusedSweep(ValueError):
    """Error for content that a file of recorded times may not hold, with its place in the file."""


@contextlib.contextmanager
def within(place: str) -> Iterator[None]:
    """Turn errors inside the block into `RefusedSweep` with the place in the file."""
    try:
        yield
    except RefusedSweep as error:
        raise RefusedSweep(f"{place}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise RefusedSweep(f"{place}: {type(error).__name__}: {error!s:.200}") from error


def check_sweep(sweep: Sweep, parameters: str) -> None:
    """Raise Refused for content that no sweep holds; ``parameters`` is the file's name for them."""
    if sweep.basis not in ("measured", "predicted"):
        raise RefusedSweep(f"basis is {_shown(sweep.basis)}, not measured or predicted")
    for name in _NAMES:
        check_text(name, getattr(sweep, name), least=1 if name in ("op", "variant") else 0)
    check_text("case_label", sweep.case_label, least=0, markup=True)
    if sweep.predicted_for is not None:
        check_text("predicted_for", sweep.predicted_for)
    for name in ("case", "versions", "default_config"):
        content = getattr(sweep, name)
        if not isinstance(content, Mapping) and (content is not None or name != "default_config"):
            raise RefusedSweep(f"{name} is {_shown(content)}, not an object")
        _check_depth(name, content)
    for name, version in sweep.versions.items():
        check_text(f"versions[{name!r}]", version, least=0)
    for name, values in sweep.parameters.items():
        check_text(f"{parameters}: a name", name)
        for value in values:
            check_value(f"{parameters}[{name!r}]", value)
        if not values or len(set(values)) != len(values):
            raise RefusedSweep(f"{parameters}[{name!r}] has no values, or a value twice")
    points = math.prod(len(values) for values in sweep.parameters.values())
    if points > MOST_POINTS:
        raise RefusedSweep(f"{parameters} have 2^{points.bit_length() - 1} points and more, of at most 2^40")


def check_config(config: Mapping[str, Any], parameters: Mapping[str, tuple]) -> None:
    """Raise Refused for a configuration with a value that its parameter does not have."""
    for name, value in config.items():
        check_value(name, value)
        if value not in parameters[name]:
            raise RefusedSweep(f"{name} is {_shown(value)}, which is not one of its values")


def check_text(what: str, text: Any, *, least: int = 1, markup: bool = False) -> None:
    """Raise Refused for a value that is not a name: no text, too long, or one that would act on a terminal."""
    if not isinstance(text, str):
        raise RefusedSweep(f"{what} is {_shown(text)}, not a text")
    if not least <= len(text) <= LONGEST:
        raise RefusedSweep(f"{what} has {len(text)} characters, of {least} to {LONGEST}")
    if not text.isprintable():
        raise RefusedSweep(f"{what} holds control characters: {text!r:.60}")
    if not markup and (found := _MARKUP.search(text)):
        raise RefusedSweep(f"{what} holds markup: {found[0]!r:.60}")


def check_value(what: str, value: Any) -> None:
    """Raise Refused for a value that no tunable has: anything but an integer, finite number, truth value or text."""
    if isinstance(value, str):
        check_text(what, value, least=0)
    elif not ((isinstance(value, int) and abs(value) < 1 << 63) or (isinstance(value, float) and math.isfinite(value))):
        raise RefusedSweep(f"{what} is {_shown(value)}, not a number, truth value or text")


def check_time(what: str, value: Any) -> None:
    """Raise Refused for a value that is not a time; a time is a positive number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise RefusedSweep(f"{what} is {_shown(value)}, not a positive number")


def _check_depth(what: str, value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        inside = [one for one in level if isinstance(one, Mapping | list | tuple)]
        level = [each for one in inside for each in (one.values() if isinstance(one, Mapping) else one)]
    if level:
        raise RefusedSweep(f"{what} is nested deeper than {DEEPEST} levels")


def too_deep(text: str) -> RefusedSweep:
    """Return the error for a JSON text nested too deeply for Python's parser; it names the line and column."""
    depth, place = 0, "somewhere"
    for token in _TOKENS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > _TOO_DEEP:
            start = token.start()
            place = f"line {text.count(chr(10), 0, start) + 1}, column {start - text.rfind(chr(10), 0, start)}"
            break
    return RefusedSweep(f"{place}: nested deeper than {_TOO_DEEP} levels")


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, float) else f"{value!r:.60} ({type(value).__name__})"
