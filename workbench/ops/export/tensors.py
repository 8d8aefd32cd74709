"""Lines of an exported op that check how its tensors lie in memory, and that skip launches of no blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.ops.export.layout import INDENT, in_tuple, quoted

if TYPE_CHECKING:
    from workbench.ops.export.exported import Exported


def before_launch(file: Exported) -> list[str]:
    """Return lines that return early if there is nothing to compute, refuse tensors with wrong strides, and copy."""
    written, passed = [*file.code.outputs, *file.contract.in_place], _passed(file)
    empty = f"{written[0]}.numel() == 0"
    if len(written) > 1:
        empty = f"not any(one.numel() for one in ({in_tuple(written)}))"
    returned = f" {', '.join(file.code.outputs)}" if file.code.outputs else ""
    lines = [f"{INDENT}if {empty}:", f"{INDENT * 2}return{returned}"]
    for name in file.contract.in_place:
        others = [f"{one}={one}" for one in passed if one != name]
        if name in passed:
            lines.append(f"{INDENT}check_written({', '.join([quoted(name), name, *others])})")
    known = _strides_known(file)
    for name in passed:
        if name not in file.declared.contiguous:
            dims = known.get(name, set())
            given = [quoted(name), name, *([f"({in_tuple(map(str, sorted(dims)))})"] if dims else [])]
            lines.append(f"{INDENT}check_strides({', '.join(given)})")
    for name in file.declared.contiguous:
        if name in file.signature.tensors:
            value = f"{file.signature.unless_none(name)}{name}.contiguous()"
            in_place = name in file.contract.in_place
            lines.append(f"{INDENT}{f'given_{name}, {name} = {name}, {value}' if in_place else f'{name} = {value}'}")
    return lines


def after_launch(file: Exported) -> list[str]:
    """Return lines that copy results back to arguments in whose place the kernels got copies."""
    lines = []
    for name in file.contract.in_place:
        if name in file.declared.contiguous:
            lines += [f"{INDENT}if {name} is not given_{name}:", f"{INDENT * 2}given_{name}.copy_({name})"]
    return lines


def launched(file: Exported, index: int, grid: str, lines: list[str]) -> list[str]:
    """Return the lines of one kernel's launch with ``grid`` put in; at run time they skip a grid of no blocks."""
    parts = file.variant.parts
    outputs = [name for name in file.code.outputs if name in _names(parts[index])]
    met = {name for part in parts[:index] for name in _names(part)}
    if not parts[index].grid.names:
        return [line.replace(GRID, grid) for line in lines]
    given = ", ".join(["grid", *(f"{name}={name}" for name in outputs if name not in met)])
    deeper = [INDENT + line.replace(GRID, "grid") for line in lines]
    return [f"{INDENT * 2}grid = {grid}", f"{INDENT * 2}if has_blocks({given}):", *deeper]


GRID = "<grid>"
"""Placeholder of the grid in the lines of a launch."""


def _names(part: Any) -> set[str]:
    return {one.names[0] for _, one in part.arguments if one.is_name}


def _passed(file: Exported) -> list[str]:
    """Return the tensor arguments of the op that kernels get by address."""
    return [name for name in file.signature.tensors if name in file.variant.passed]


def _strides_known(file: Exported) -> dict[str, set[int]]:
    """Return for each tensor the dimensions whose strides the launch is given in every case."""
    found: dict[str, set[int]] = {}
    for case in file.op.cases.values():
        problem = case.problem()
        config = file.variant.default_config(problem)
        for name, dims in file.declared.strides_read(config, problem, file.variant.expressions).items():
            found[name] = found.get(name, set(dims)) & set(dims)
    return found
