"""Parameters of functions: a function that only the package calls takes few, so that they are values with a meaning."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

from syntax import parsed, within

PACKAGE = Path(__file__).parents[1] / "workbench"
PAGES = PACKAGE.parent / "docs" / "api"

MOST = 7
"""Parameters of a function that is not public; ``self`` and ``cls`` do not count, ``*args`` and ``**named`` do."""

_OPERATORS = PACKAGE / "driver" / "torch_device" / "compositions.py"

PRESCRIBED = {
    "workbench.driver.triton.launcher.Launcher.__call__": "Triton calls it",
    "workbench.attention.ops.causal_attention.api._gradients": "torch's op calls it with all of its own arguments",
    "workbench.attention.ops.paged_attention.reference.reference": "it takes the arguments of the public op",
    "workbench.attention.ops.paged_attention.reference.attend": "it takes the features of the public op",
    "workbench.attention.ops.paged_prefill.reference.reference": "it takes the arguments of the public op",
    "workbench.attention.ops.paged_prefill.reference.attend": "it takes the features of the public op",
}
"""Functions whose parameters somebody else prescribes, or users pass, where no rule shows it; with the reason."""


class Taking(NamedTuple):
    """A function of the package, by its full name, with its parameters and decorators."""

    name: str
    parameters: tuple[str, ...]
    decorators: tuple[str, ...] = ()

    @property
    def is_kernel(self) -> bool:
        """True for a kernel of Triton, whose parameters are tensors, sizes and tunables."""
        return any(one.startswith("triton.jit") for one in self.decorators)

    @property
    def is_command(self) -> bool:
        """True for a command, whose parameters are its options."""
        return any(re.match(r"\w+\.(command|group)\b", one) for one in self.decorators)


def modules() -> dict[str, str]:
    files = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files]
    return dict(zip((name.removesuffix(".__init__") for name in names), (p.read_text() for p in files), strict=True))


def functions(texts: Mapping[str, str]) -> Iterator[Taking]:
    """Yield every function of the modules, also those within classes and functions."""

    def below(node: ast.AST, name: str) -> Iterator[Taking]:
        for child in within(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                full, given = f"{name}.{child.name}", child.args
                taken = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
                names = [one.arg for one in taken if one is not None]
                if isinstance(node, ast.ClassDef) and names[:1] in (["self"], ["cls"]):
                    del names[0]
                yield Taking(full, tuple(names), tuple(map(ast.unparse, child.decorator_list)))
                yield from below(child, full)
            elif isinstance(child, ast.ClassDef):
                yield from below(child, f"{name}.{child.name}")
            else:
                yield from below(child, name)

    for module, text in texts.items():
        yield from below(parsed(text), module)


def offered() -> set[str]:
    """The full names of the functions that the package and its rooms offer, and of the methods of classes.

    A room offers what its ``__all__`` names, or its page of the documentation. Methods include those of base classes,
    and functions that a class takes from elsewhere.
    """
    rooms = {".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in PACKAGE.rglob("__init__.py")}
    found: set[str] = set()
    for room in sorted(rooms | {path.stem for path in PAGES.glob("*.rst")}):
        module = importlib.import_module(room)
        names = getattr(module, "__all__", [])
        if not names and (PAGES / f"{room}.rst").exists():
            names = [
                name
                for name, one in vars(module).items()
                if not name.startswith("_") and getattr(one, "__module__", "") == room
            ]
        for name in names:
            value = getattr(module, name)
            for one in value.__mro__ if inspect.isclass(value) else (value,):
                found |= {full_name(one), *methods_of(one)}
    return found


def methods_of(value: object) -> Iterator[str]:
    """Yield the full names of the functions of a class."""
    for one in vars(value).values() if inspect.isclass(value) else ():
        inner = inspect.unwrap(getattr(one, "__func__", one)) if callable(getattr(one, "__func__", one)) else None
        if isinstance(inner, FunctionType):
            yield full_name(inner)


def full_name(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def operators() -> set[str]:
    """The full names of the functions that are handed to torch as the operators of its device."""
    tree = ast.parse(_OPERATORS.read_text())
    room = ".".join(_OPERATORS.parent.relative_to(PACKAGE.parent).parts)
    return {f"{room}.{ast.unparse(node)}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def is_like(one: Taking, public: Mapping[str, tuple[str, ...]]) -> bool:
    """Return True for a method with the name and the parameters of one that a public protocol declares."""
    *_, holder, name = one.name.split(".")
    return holder[0].isupper() and any(
        other.endswith(f".{name}") and taken == one.parameters for other, taken in public.items()
    )


def test_only_public_functions_take_many_parameters():
    many = [one for one in functions(modules()) if len(one.parameters) > MOST]
    public = offered() | operators()
    taken = {one.name: one.parameters for one in many if one.name in public}
    others = [one for one in many if not (one.is_kernel or one.is_command or one.name in public or is_like(one, taken))]
    wrong = [f"{one.name}: {len(one.parameters)} parameters" for one in others if one.name not in PRESCRIBED]
    assert not wrong, "\n".join([f"more than {MOST} parameters: make values of what travels together", *wrong])
    assert PRESCRIBED.keys() == {one.name for one in others}, "an exception that is not needed"


def test_planted_functions_are_counted():
    many = ", ".join(f"a{at}" for at in range(MOST))
    text = f"""
def few({many}): ...
def many({many}, *rest): ...
class Room:
    def few(self, {many}): ...
    @staticmethod
    def many(b, {many}): ...
    def outer(self):
        def inner({many}, *, named): ...
@triton.jit(do_not_specialize=["n"])
def kernel({many}, n): ...
@click.command("run")
def command({many}, **options): ...
"""
    found = [one for one in functions({"room": text}) if len(one.parameters) > MOST]
    names = ["room.many", "room.Room.many", "room.Room.outer.inner", "room.kernel", "room.command"]
    assert [one.name for one in found] == names
    assert [one.is_kernel for one in found] == [False, False, False, True, False]
    assert [one.is_command for one in found] == [False, False, False, False, True]
    assert is_like(found[1], {"other.Device.many": found[1].parameters})
    assert not is_like(found[0], {"other.Device.many": found[0].parameters})
