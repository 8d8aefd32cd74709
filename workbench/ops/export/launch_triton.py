"""Launch of Triton's functions in an exported file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.ops.declared.triton import DeclaredTriton, TritonPart
from workbench.ops.export.expressions import Code
from workbench.ops.export.launch_cuda import head_of, workspace_lines
from workbench.ops.export.layout import INDENT, fitted
from workbench.ops.export.tensors import GRID, launched
from workbench.ops.steps import TRITON_OPTIONS
from workbench.toolchain.triton_aot import reachable

if TYPE_CHECKING:
    from workbench.ops.export.exported import Exported


def launch_of(file: Exported) -> tuple[str, list[str]]:
    """Return the function ``launch``, and the arguments and outputs of the op that it takes."""
    variant, code = file.variant, file.code
    names = {name for part in variant.parts for name in part.names}
    names |= {name for name in TRITON_OPTIONS if name in variant.space}
    head, taken = head_of(file, names)
    lines = [
        *head,
        *code.locals(names),
        *workspace_lines(file),
        f"{INDENT}with torch.cuda.device({file.signature.first}.device):",
    ]
    if builds_descriptors(variant):
        lines.append(f"{INDENT * 2}triton.set_allocator(allocate)")
    for index, part in enumerate(variant.parts):
        grid = code.shape(part.grid, part.grid(file.values))
        arguments = ", ".join(_arguments(part, code, main=index == 0))
        launch = f"{INDENT * 2}{part.function.fn.__name__}[{GRID}]({arguments})"
        lines += launched(file, index, grid, [launch])
    return fitted("\n".join(lines)), taken


def builds_descriptors(variant: DeclaredTriton) -> bool:
    """Return True if a kernel, or a function that it calls, builds tensor descriptors; Triton needs memory for them."""
    functions = (one for part in variant.parts for one in reachable(part.function))
    return any("make_tensor_descriptor(" in one.src for one in functions)


def _arguments(part: TritonPart, code: Code, *, main: bool) -> list[str]:
    """Return the arguments of a call: by position as far as run-time arguments come first, then by name."""
    runtime = dict(part.arguments)
    found, by_name = [], False
    for name in part.function.arg_names:
        by_name = by_name or name not in runtime
        if name in part.defaults:
            continue
        text = code.of(runtime[name] if name in runtime else part.constexprs[name])
        found.append(f"{name}={text}" if by_name else text)
    for name, usual in TRITON_OPTIONS.items():
        if name in part.options:
            text = code.of(part.options[name])
        else:
            text = name if main and name in code.declared.space else str(usual)
        found.append(f"{name}={text}")
    return found
