"""The cases of an op as plain torch code with seeds."""

from __future__ import annotations

import inspect
import re

from workbench.errors import ArgumentError
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.export.code import Collected, is_lambda
from workbench.ops.export.layout import INDENT, fitted, in_tuple, literal, quoted
from workbench.ops.tensors.inputs import Input, generators_of, seed_of


def cases_text(cases: dict[str, DeclaredCase], collected: Collected) -> list[str]:
    """Return the functions that make inputs, and the function ``cases``."""
    functions: list[str] = []
    lines = ["def cases():", f'{INDENT}"""Yield the name of each case with its inputs, the same numbers every time."""']
    for case in cases.values():
        names = case.contract.parameters
        for name in names:
            made = f"{INDENT}{name} = {_made(case, name, collected, functions)}"
            lines += [*_seeds(case, name, collected), made]
        lines.append(f"{INDENT}yield {quoted(case.name)}, ({in_tuple(names)})")
    return [*functions, fitted("\n".join(lines))]


def _made(case: DeclaredCase, name: str, collected: Collected, functions: list[str]) -> str:
    given = case.given[name]
    seed = seed_of(name, case.seed)
    if isinstance(given, Input):
        return _tensor(given, given.type(case.sizes).shape, seed)
    if not callable(given):
        return literal(given)
    if not inspect.isfunction(given):
        raise ArgumentError(f"export: input {name!r}", type(given).__name__, "a Python function", "Write one with def.")
    known = {
        **{key: repr(value) for key, value in case.sizes.items()},
        "generator": f"torch.Generator().manual_seed({seed})",
    }
    if not is_lambda(given):
        label = collected.helper(given)
    else:
        label = f"make_{name}_of_{re.sub(r'[^a-z0-9]+', '_', case.name.lower()).strip('_')}"
        functions.append(collected.written_out(given, f"input {name!r}", label))
    return f"{label}({', '.join(f'{one}={known[one]}' for one in inspect.signature(given).parameters)})"


def _seeds(case: DeclaredCase, name: str, collected: Collected) -> list[str]:
    """Return lines that seed the global generators from which a function draws."""
    given = case.given[name]
    if isinstance(given, Input) or not callable(given):
        return []
    seed = seed_of(name, case.seed)
    drawn = generators_of(given, name, case.sizes, case.seed)
    lines = {"torch": "torch.manual_seed", "numpy": "{}.random.seed", "random": "{}.seed"}
    return [f"{INDENT}{lines[one].format(collected.module(one))}({seed})" for one in drawn]


def _tensor(given: Input, shape: tuple[int, ...], seed: int) -> str:
    """Return the code that makes the same tensor as `Input.make`."""
    sizes = literal(shape)
    convert = f".to(torch.{given.dtype})"
    if given.kind == "full":
        return f"torch.full({sizes}, {literal(given.bounds[0])}, dtype=torch.float64){convert}"
    if given.kind == "randint":
        low, high = map(int, given.bounds)
        made = f"torch.randint({low}, {high}, {sizes}, generator=torch.Generator().manual_seed({seed}))"
        return made + (convert if given.dtype != "int64" else "")
    drawn = literal((*shape, *given.parts))
    made = f"torch.{given.kind}({drawn}, generator=torch.Generator().manual_seed({seed}))"
    factor, offset = given.scaling
    scaled = made + (f" * {literal(factor)}" if factor != 1 else "") + (f" + {literal(offset)}" if offset != 0 else "")
    if given.parts:
        return f"torch.view_as_complex({scaled}){convert if given.dtype != 'complex64' else ''}"
    if scaled != made:
        made = f"({scaled})" if given.dtype != "float32" else scaled
    return made + (convert if given.dtype != "float32" else "")
