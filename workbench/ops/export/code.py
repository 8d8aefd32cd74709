"""Text of a user's own functions for another file, with everything that they name outside of themselves."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import linecache
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.export.layout import fitted, literal, unparsed


class Collected:
    """Imports, constants and helper functions that the written functions name, each under the name that it had."""

    def __init__(self, op: Any, taken: Iterable[str], libraries: Iterable[str]):
        self._op, self._taken, self._libraries = op, set(taken), set(libraries)
        self._values: dict[str, Any] = {}
        self.modules: dict[str, str] = {}
        """Imported modules by the names that they have in the file, ``{"tl": "triton.language"}``."""
        self.members: dict[str, str] = {}
        """Modules of ``from module import name``, by name."""
        self.constants: list[str] = []
        self.functions: list[str] = []

    def function(self, function: Any, name: str | None = None) -> str:
        """Return the text of a function, under ``name`` if given, without decorators other than ``triton.jit``."""
        plain, node, lines = definition(function)
        own = node.name
        jit = [one for one in node.decorator_list if _last_name(one) == "jit"]
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        if name is not None and name != own:
            text = text.replace(f"def {own}(", f"def {name}(", 1)
        if jit:
            text = "\n".join([f"@{unparsed(one)}" for one in jit] + [text])
        node.decorator_list = jit
        self.names_of(node, plain, own if name is None or name == own else None)
        return text

    def helper(self, function: Any) -> str:
        """Write a function into the file, unless it is there, and return its name."""
        self._value(function.__name__, function)
        return function.__name__

    def expression(self, function: Callable, where: str) -> tuple[tuple[str, ...], ast.expr]:
        """Return the parameters and the body of a lambda."""
        node = _lambda(function, where)
        self.names_of(node, function, None)
        return tuple(inspect.signature(function).parameters), node.body

    def written_out(self, function: Callable, where: str, name: str = "") -> str:
        """Return the text of a lambda as a function called ``name``, by default ``where``."""
        parameters, body = self.expression(function, where)
        return fitted(f"def {name or where}({', '.join(parameters)}):\n    return {unparsed(body)}")

    def names_of(self, node: ast.AST, function: Callable, own: str | None) -> None:
        """Collect the values of all names that a function's code takes from outside of itself."""
        scope = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            scope[name] = cell.cell_contents
        for one in ast.walk(node):
            if isinstance(one, ast.Import | ast.ImportFrom):
                for module in [one.module] if isinstance(one, ast.ImportFrom) else [part.name for part in one.names]:
                    self._check_library(module or ".", f"import in {function.__name__}")
        for name in _free_names(node):
            if name == own or (name not in scope and hasattr(builtins, name)):
                continue
            if name not in scope:
                remedy = "Define it before the op is exported."
                raise _refused(f"{name!r} in {function.__name__}", "an undefined name", remedy)
            self._value(name, scope[name])

    def module(self, module: str) -> str:
        """Return the name that a module has in the file; import it there under its own name unless it is imported."""
        if module not in self.modules.values():
            self._value(module, importlib.import_module(module))
        return next(name for name, one in self.modules.items() if one == module)

    def _value(self, name: str, value: Any) -> None:
        if value is self._op and name == self._op.name:
            return  # the file's op has the same name
        if name in self._values:
            if self._values[name] is not value and self._values[name] != value:
                raise _refused(repr(name), "two different things of that name", "Give one of them another name.")
            return
        self._values[name] = value
        if isinstance(value, ModuleType):
            self._check_library(value.__name__, repr(name))
            self.modules[name] = value.__name__
        elif (module := self._importable(value, name)) is not None:
            self.members[name] = module
        elif inspect.isfunction(getattr(value, "fn", value)):
            self._helper(name, value)
        else:
            self._constant(name, value)
        if name in self._taken and self.modules.get(name) != name:
            raise _refused(repr(name), "a name that the exported file uses itself", "Give it another name.")

    def _importable(self, value: Any, name: str) -> str | None:
        """Return the public module from which a function or class can be imported; None if it is the user's own."""
        module = getattr(value, "__module__", None)
        if not callable(value) or not isinstance(module, str) or module.split(".")[0] not in self._known:
            return None
        for place in (module, module.split(".")[0]):
            if getattr(importlib.import_module(place), name, None) is value:
                return place
        return None

    @property
    def _known(self) -> set[str]:
        return set(sys.stdlib_module_names) - {"__main__"} | self._libraries

    def _check_library(self, module: str, where: str) -> None:
        if module.split(".")[0] not in self._known:
            remedy = "Import the function itself, which is then written into the file, or do without."
            raise _refused(where, f"the module {module}", remedy)

    def _helper(self, name: str, value: Any) -> None:
        plain = getattr(value, "fn", value)
        if plain.__module__.split(".")[0] == "workbench":
            raise _refused(repr(name), f"a function of {plain.__module__}", "Write it out beside the op.")
        if is_lambda(plain):
            self.functions.append(self.written_out(plain, name))
            return
        if plain.__name__ != name:
            raise _refused(repr(name), f"another name of {plain.__name__}", f"Call it {plain.__name__}.")
        self.functions.append(self.function(value))

    def _constant(self, name: str, value: Any) -> None:
        inner = value.value if type(value).__name__ == "constexpr" else value
        triton_type = _triton_type(inner)
        try:
            written = triton_type or literal(inner)
        except TypeError as error:
            what = f"a {type(value).__module__}.{type(value).__qualname__}"
            remedy = "A file can have numbers, text, tuples, lists, mappings, dtypes and functions."
            raise _refused(repr(name), what, remedy) from error
        if inner is not value:
            written = f"tl.constexpr({written})"
        if inner is not value or triton_type:
            self._value("tl", importlib.import_module("triton.language"))
        if isinstance(inner, torch.dtype):
            self.modules["torch"] = "torch"
        self.constants.append(fitted(f"{name} = {written}"))


def is_lambda(function: object) -> bool:
    """Return True if a function is a lambda."""
    return getattr(function, "__name__", "") == "<lambda>"


def definition(function: Any) -> tuple[Callable, ast.FunctionDef, list[str]]:
    """Return the plain function under decorators, its syntax tree, and the source lines that the tree refers to."""
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    try:
        text = textwrap.dedent(inspect.getsource(function))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError, tokenize.TokenError) as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise _refused(name, "a function without source", "Define it in a file or a cell.") from error
    if not isinstance(node, ast.FunctionDef):
        raise _refused(getattr(function, "__name__", "function"), "no def", "Define it with def.")
    return function, node, text.splitlines()


def _lambda(function: Callable, where: str) -> ast.Lambda:
    """Return a lambda's syntax tree, found by its position in its file: its lines alone may not be valid Python."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.Module([], [])
    # The first instruction of all, RESUME, has the place of the whole.
    starts = [(line, column) for line, end, column, last in code.co_positions() if column is not None and (end, last)]
    starts = [start for start in starts if start != (code.co_firstlineno, 0)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and [one.arg for one in node.args.args] == list(
            inspect.signature(function).parameters
        ):
            first, last = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
            if any(first <= start < last for start in starts):
                return node
    raise _refused(where, "a lambda without source", "Write it in a file or a cell, or as an expression in text.")


def _free_names(node: ast.AST) -> list[str]:
    """Return the names that code reads and does not bind, in order."""
    bound, read = set(), []
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            bound.add(one.arg)
        elif isinstance(one, ast.FunctionDef) and one is not node:
            bound.add(one.name)
        elif isinstance(one, ast.alias):
            bound.add((one.asname or one.name).split(".")[0])
        elif isinstance(one, ast.ExceptHandler) and one.name:
            bound.add(one.name)
        elif isinstance(one, ast.Name):
            bound.update([one.id] if not isinstance(one.ctx, ast.Load) else [])
            read.append((one.lineno, one.col_offset, one.id))
    return list(dict.fromkeys(name for _, _, name in sorted(read) if name not in bound))


def _last_name(decorator: ast.expr) -> str:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _triton_type(value: Any) -> str | None:
    """Return the text of a Triton type, ``tl.float32``, whose repr is not Python; None for any other value."""
    if not type(value).__module__.startswith("triton.language"):
        return None
    language = importlib.import_module("triton.language")
    return next((f"tl.{name}" for name, one in vars(language).items() if one is value), None)


def _refused(where: str, got: str, remedy: str) -> ArgumentError:
    return ArgumentError(f"export: {where}", got, "what can be written into a file of its own", remedy)


def imports(modules: Mapping[str, str], members: Mapping[str, str]) -> list[str]:
    """Return blocks of import statements as isort sorts them: the standard library, then the rest."""
    sections: dict[bool, list[str]] = {True: [], False: []}
    for name, module in sorted(modules.items(), key=lambda item: (item[1], item[0])):
        text = f"import {module}" if name == module else f"import {module} as {name}"
        sections[module.split(".")[0] in sys.stdlib_module_names].append(text)
    grouped: dict[str, list[str]] = {}
    for name, module in members.items():
        grouped.setdefault(module, []).append(name)
    for module, names in sorted(grouped.items()):
        several = sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
        text = f"from {module} import {', '.join(several)}"
        sections[module.split(".")[0] in sys.stdlib_module_names].append(text)
    return ["\n".join(lines) for lines in sections.values() if lines]
