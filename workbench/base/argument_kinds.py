"""Decorators that raise ArgumentError, naming the public function's parameter, for an argument of a wrong kind.

The kinds are those of the annotations. `checked_kinds` checks them before the call. `names_wrong_kinds`, for functions
called in inner loops, costs nothing until a call fails: an error that a wrong argument caused deep inside (an
AttributeError of None, a torch operator's refusal of a schema) then becomes an ArgumentError.
"""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from workbench.errors import ArgumentError, WorkbenchError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LONGEST = 80


@typing.overload
def checked_kinds(function: _Function, *, but: Collection[str] = ()) -> _Function: ...
@typing.overload
def checked_kinds(*, but: Collection[str]) -> Callable[[_Function], _Function]: ...
def checked_kinds(function: Callable[..., Any] | None = None, *, but: Collection[str] = ()) -> Callable[..., Any]:
    """Decorate a function to raise ArgumentError for the first argument that is not of its annotated kind.

    ``but`` names parameters that are not checked, as the function itself says more about them.
    """
    if function is None:
        return functools.partial(checked_kinds, but=but)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        wrong = _wrong_kind(function, args, kwargs, but)
        if wrong is not None:
            raise wrong
        return function(*args, **kwargs)

    return call


def names_wrong_kinds(function: _Function) -> _Function:
    """Decorate a function to raise ArgumentError if a call fails and an argument is of a wrong kind.

    Errors that the workbench raises on purpose, and failures with arguments of the right kinds, pass unchanged.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except WorkbenchError:
            raise
        except Exception as error:
            wrong = _wrong_kind(function, args, kwargs)
            if wrong is None:
                raise
            raise wrong from error

    return typing.cast(_Function, call)


def _wrong_kind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], but: Collection[str] = ()
) -> ArgumentError | None:
    """Return the error for the first argument of a wrong kind.

    None if all kinds are right, or if the arguments do not fit the signature at all.
    """
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        return None  # Python's own error names the missing or unknown argument
    kinds = _annotations(function)
    for name, value in given.items():
        kind = Any if name in but else kinds.get(name, Any)
        if not _is(value, kind):
            got = repr(value)
            got = f"{got[:_LONGEST]}…" if len(got) > _LONGEST else got
            return ArgumentError(name, f"{got} ({type(value).__name__})", _words(kind), "Pass one of these kinds.")
    return None


@functools.cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the kind of each parameter."""
    names = _Names(vars(builtins) | function.__globals__)
    given = function.__annotations__.items()
    return {name: eval(kind, {}, names) if isinstance(kind, str) else kind for name, kind in given}


class _Named(type):
    """Metaclass of stand-ins for classes that only a type checker imports.

    An object is an instance of a stand-in if a class of that name is among its bases.
    """

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


class _Names(dict[str, Any]):
    """Names that annotations may use; an unknown one becomes a stand-in."""

    def __missing__(self, name: str) -> _Named:
        return _Named(name, (), {})


def _is(value: Any, kind: Any) -> bool:
    """Return True if ``value`` is of a kind; kinds that cannot be checked accept everything."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(_is(value, one) for one in typing.get_args(kind))
    if origin is typing.Literal:
        return any(value is one or (type(value) is type(one) and value == one) for one in typing.get_args(kind))
    if kind is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
    taken = _taken(kind) if origin is collections.abc.Callable else None
    kind = origin or kind
    if not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        members = {*vars(kind), *getattr(kind, "__annotations__", ())}
        return all(hasattr(value, name) for name in members if not name.startswith("_"))
    if kind in (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection) and isinstance(
        value, str | bytes
    ):
        return False  # a name where a list of names is meant
    if not isinstance(value, kind):
        return False
    if kind is collections.abc.Iterable:
        return _works(iter, value)
    if taken is not None:
        return _works(lambda function: inspect.signature(function).bind(*taken), value)
    return True


def _taken(kind: Any) -> Sequence[Any] | None:
    """Return one entry per argument of a function of this kind, or None if the annotation leaves the arguments open."""
    arguments = typing.get_args(kind)[0]
    return arguments if isinstance(arguments, list) else None


def _works(function: Callable[..., Any], *args: Any) -> bool:
    try:
        function(*args)
    except TypeError:
        return False
    except ValueError:
        pass  # a signature that is not known
    return True


_WORDS = {
    None: "None", types.NoneType: "None", str: "a string", bytes: "bytes", bool: "True or False",
    int: "a whole number (64 bits)", float: "a number", tuple: "a tuple", list: "a list", dict: "a mapping",
    collections.abc.Mapping: "a mapping", collections.abc.Sequence: "a sequence",
    collections.abc.Callable: "a function",
}  # fmt: skip


def _words(kind: Any) -> str:
    """Describe in words the values that a kind allows, for a message."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in typing.get_args(kind)))
    if origin is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    kind = origin or kind
    name = getattr(kind, "__name__", str(kind))
    article = "an" if name[0] in "AEIOU" else "a"
    return _WORDS.get(kind, f"a torch.{name}" if getattr(kind, "__module__", "") == "torch" else f"{article} {name}")
