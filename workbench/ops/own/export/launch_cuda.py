"""The part of an exported file that is CUDA's: source, parameters, launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ArgumentError
from workbench.home import cuda_sources
from workbench.kernels.variables import variables_of
from workbench.ops.expressions import Expression
from workbench.ops.own.cuda import CppText, OwnCuda, Part
from workbench.ops.own.export.expressions import Code
from workbench.ops.own.export.layout import INDENT, Bracketed, call, in_tuple, laid_out, literal, quoted, raw_block
from workbench.ops.own.problem import Problem
from workbench.ops.own.tensor_type import TensorType
from workbench.toolchain import tools
from workbench.toolchain.c_types import CType, c_type, declared_variables
from workbench.toolchain.kernel import CompiledKernel
from workbench.toolchain.source import split_at_commas

_FORMATS = {"float32": "f", "float64": "d", "float16": "e", "bool": "?", "bfloat16": "H"}
_FORMATS |= {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"}
_FORMATS |= {"int64": "q", "uint64": "Q"}
_OF_PTX = {"u8": "B", "s8": "b", "u16": "H", "s16": "h", "b16": "H", "u32": "i", "s32": "i", "b32": "i", "f32": "f"}
_OF_PTX |= {"u64": "q", "s64": "q", "b64": "q", "f64": "d"}
_REALS = ("float16", "bfloat16", "float32", "float64")


def constants_of(variant: OwnCuda, config: Mapping[str, Any], problem: Problem) -> list[str]:
    """SOURCE, HEADERS, OPTIONS and PARAMETERS."""
    text = variant.unit.text
    own = headers(variant)
    options = list(variant.options)
    if not any(re.match(r"--?std\b", one) for one in options):
        options.insert(0, "--std=c++17")
    kernels = variant.kernels(config, problem, problem.arch, machine_code=False)
    formats = tuple(
        "".join(_format(variant, part, compiled, index, config, problem) for index in range(len(part.arguments)))
        for part, compiled in zip(variant.parts, kernels, strict=True)
    )
    blocks = [raw_block("SOURCE = ", text)]
    if own:
        names = [f"_HEADER_{index}" for index in range(len(own))] if len(own) > 1 else ["_HEADER"]
        blocks += [raw_block(f"{name} = ", content) for name, content in zip(names, own.values(), strict=True)]
        pairs = tuple(f"{quoted(name)}: {one}" for name, one in zip(own, names, strict=True))
        blocks.append(laid_out(Bracketed("{", pairs, "}"), "", "HEADERS = "))
    note = "# The types of each kernel's parameters, as the module struct writes them."
    plain = [laid_out(literal(tuple(options)), "", "OPTIONS = "), note, laid_out(literal(formats), "", "PARAMETERS = ")]
    return [*blocks, "\n".join(plain)]


def launch_of(
    variant: OwnCuda, code: Code, config: Mapping[str, Any], problem: Problem, values: Mapping
) -> tuple[str, list[str]]:
    """The function ``launch`` and what it takes; ``values`` has a value for every name."""
    names = {name for part in variant.parts for name in part.names}
    names |= {name for one in variant.macro_texts.values() for name in one.names}
    names |= {name for one in variant.constants.values() for name in one.names}
    for part in variant.parts:
        names |= {
            name
            for one in _template_arguments(part.kernel, values)
            if isinstance(one, Expression)
            for name in one.names
        }
    lines, taken, first = head_of(variant, code, problem, names)
    lines += checks(variant, code, config, problem)
    lines += code.locals(names)
    lines += workspace_lines(code, first)
    lines += _launches(variant, code, config, problem, values, first)
    return "\n".join(lines), taken


def head_of(variant: Any, code: Code, problem: Problem, names: set[str]) -> tuple[list[str], list[str], str]:
    """The first lines of ``launch``, what it takes, and the tensor that tells the device.

    ``names`` is what the launch reads; those of the workspace's sizes are added.
    """
    for one in code.declared.workspace.values():
        names |= {name for size in one.shape for name in Expression.of("workspace", size).names}
    first = first_tensor(problem)
    taken = [name for name in (*code.parameters, *code.outputs) if name in code.needs(names) | {first}]
    plural = "s" * (len(variant.parts) > 1)
    doc = f'{INDENT}"""Run the kernel{plural} in the order of torch\'s current stream."""'
    return [f"def launch({', '.join(['config', *taken])}):", doc], taken, first


def workspace_lines(code: Code, first: str) -> list[str]:
    """The tensors that the kernels leave something for each other in."""
    lines = []
    for name, one in code.declared.workspace.items():
        sizes = [code.of(Expression.of("workspace", size)) for size in one.shape]
        value = one.bounds[0] if one.kind == "full" else 0
        options = [f"dtype=torch.{one.dtype}", f"device={first}.device"]
        shape = Bracketed("(", tuple(sizes), ")", is_tuple=True)
        made = call("torch.full", [shape, repr(value), *options]) if value else call("torch.zeros", [shape, *options])
        lines.append(laid_out(made, INDENT, f"{name} = "))
    return lines


def _launches(
    variant: OwnCuda, code: Code, config: Mapping[str, Any], problem: Problem, values: Mapping[str, Any], first: str
) -> list[str]:
    kernel_names = in_tuple(_kernel_name(part.kernel, code, values) for part in variant.parts)
    extra = []
    for name, one in variant.macro_texts.items():
        text = quoted(str(one(values))) if one.expression is None or one.is_text(values) else code.of(one.expression)
        extra.append(f"{quoted(name)}: {text}")
    macros = "tuple(config.items())"
    lines = []
    if extra and code.declared.space:
        lines.append(laid_out(Bracketed("{", ("**config", *extra), "}"), INDENT, "macros = "))
        macros = "tuple(macros.items())"
    elif extra:
        lines.append(laid_out(Bracketed("{", tuple(extra), "}"), INDENT, "macros = "))
        macros = "tuple(macros.items())"
    elif not code.declared.space:
        macros = "()"
    single = len(variant.parts) == 1
    module = "module" if variant.constants else "_"
    found = f"{module}, (kernel,)" if single else f"{module}, kernels"
    lines.append(f"{INDENT}with torch_stream({first}.device.index) as stream:")
    inner = INDENT * 2
    lines.append(laid_out(call("load", [f"{first}.device.index", f"({kernel_names})", macros]), inner, f"{found} = "))
    lines += _constant_lines(variant, code, config, problem, inner, first)
    for index, part in enumerate(variant.parts):
        kernel = "kernel" if single else f"kernels[{index}]"
        numbers = [_argument(part, position, code, config, problem, variant) for position in range(len(part.arguments))]
        arguments = [
            code.shape(part.grid, part.grid(values)),
            code.shape(part.block, part.block(values)),
            "stream",
            *numbers,
        ]
        shared = code.of(part.shared_bytes)
        if shared != "0":
            attribute = "cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES"
            lines.append(laid_out(call(f"{kernel}.set_attribute", [attribute, shared]), inner))
            arguments.append(f"shared_size={shared}")
        lines.append(laid_out(call(f"{kernel}.prepared_async_call", arguments), inner))
    return lines


def _constant_lines(
    variant: OwnCuda, code: Code, config: Mapping[str, Any], problem: Problem, inner: str, first: str
) -> list[str]:
    """Copies into the variables of the module, in the stream's order."""
    from workbench.demangle import demangle

    if not variant.constants:
        return []
    symbols = {
        demangle(symbol): symbol
        for kernel in variant.kernels(config, problem, problem.arch, machine_code=False)
        for symbol, _, _ in variables_of(kernel)
    }
    declared = declared_variables(variant.unit.text, variant.macros(config, problem))
    lines = []
    for name, expression in variant.constants.items():
        known = declared.get(name.split("::")[-1])
        if name not in symbols or known is None or known.type is None or known.shape is None:
            what = (
                "a variable whose type or size is no plain one" if name in symbols else "a variable that no kernel uses"
            )
            raise ArgumentError(
                f"export: constants[{name!r}]", what, "arrays and numbers of C's types", "Pass it as an argument."
            )
        shape = (*known.shape,)
        text = code.of(expression)
        wanted = [f"dtype=torch.{known.type.dtype}", f"device={first}.device"]
        value = f"torch.as_tensor({text}, {', '.join(wanted)})" + (
            f".expand({literal(shape)}).contiguous()" if shape else ""
        )
        lines.append(f"{inner}value = {value}")
        lines.append(f"{inner}place, _ = module.get_global({quoted(symbols[name])})")
        lines.append(f"{inner}cuda.memcpy_dtod_async(place, value.data_ptr(), value.nbytes, stream)")
    return lines


def _kernel_name(kernel: str, code: Code, values: Mapping) -> str:
    if "<" not in kernel:
        return quoted(kernel)
    base = kernel.partition("<")[0]
    pieces = []
    for one in _template_arguments(kernel, values):
        if isinstance(one, str) or not one.names:
            pieces.append(one if isinstance(one, str) else str(int(one(values))))
        else:
            text = code.of(one).replace('"', "'")
            pieces.append(f"{{int({text})}}" if isinstance(one(values), bool) else f"{{{text}}}")
    prefix = "f" if any("{" in piece for piece in pieces) else ""
    return f'{prefix}"{base}<{", ".join(pieces)}>"'


def _template_arguments(kernel: str, values: Mapping) -> list[Expression | str]:
    """Of ``softmax<VEC, float>`` the expressions, and C++ as text."""
    if "<" not in kernel:
        return []
    found: list[Expression | str] = []
    for text in split_at_commas(kernel.partition("<")[2].rpartition(">")[0]):
        one = CppText.of("kernel", text)
        found.append(text.strip() if one.expression is None or one.is_text(values) else one.expression)
    return found


def _declared_type(variant: OwnCuda, part: Part, index: int, config: Mapping, problem: Problem) -> CType | None:
    types = part.declaration.types
    return c_type(types[index], variant.macros(config, problem)) if types else None


def _format(
    variant: OwnCuda, part: Part, compiled: CompiledKernel, index: int, config: Mapping, problem: Problem
) -> str:
    """How struct packs a parameter."""
    kind = _declared_type(variant, part, index, config, problem)
    if _is_tensor(part.arguments[index][1], variant, problem) or (kind and kind.pointer):
        return "P"
    if kind is not None and kind.lanes == 1:
        return _FORMATS[kind.dtype]
    parameter = compiled.parameters[index]
    if parameter.type not in _OF_PTX:
        what = f"a parameter {parameter.name!r} of {parameter.size} bytes"
        raise ArgumentError(f"export: {part.kernel}()", what, "pointers and numbers", "Pass its parts one by one.")
    return _OF_PTX[parameter.type]


def _is_tensor(expression: Expression, variant: OwnCuda, problem: Problem) -> bool:
    name = expression.names[0] if expression.is_name else ""
    return name in variant.declared.workspace or isinstance(problem.known.get(name), TensorType)


def _argument(part: Part, index: int, code: Code, config: Mapping, problem: Problem, variant: OwnCuda) -> str:
    """What the launch passes for a parameter."""
    _, expression = part.arguments[index]
    text = code.of(expression)
    kind = _declared_type(variant, part, index, config, problem)
    if _is_tensor(expression, variant, problem):
        optional = text in code.optional
        return f"0 if {text} is None else {text}.data_ptr()" if optional else f"{text}.data_ptr()"
    if expression.is_name and expression.names[0] in code.optional:
        return f"0 if {text} is None else {text}.data_ptr()"
    if kind is not None and kind.dtype == "bfloat16" and not kind.pointer:
        return f"torch.tensor({text}, dtype=torch.bfloat16).view(torch.uint16).item()"
    return text


def checks(variant: OwnCuda, code: Code, config: Mapping, problem: Problem) -> list[str]:
    """Lines that refuse tensors whose elements the kernels would misread."""
    wanted: dict[str, str] = {}
    for part in variant.parts:
        for index, (_, expression) in enumerate(part.arguments):
            types = part.declaration.types
            kind = c_type(types[index]) if types else None
            name = expression.names[0] if expression.is_name else ""
            if kind is None or kind.dtype not in _REALS or not isinstance(problem.known.get(name), TensorType):
                continue
            if any(word in variant.macros(config, problem) for word in re.findall(r"\w+", types[index])):
                continue
            wanted.setdefault(name, kind.dtype)
    lines = []
    for name, dtype in wanted.items():
        there = f"{name} is not None and " if name in code.optional else ""
        lines.append(f"{INDENT}if {there}{name}.dtype != torch.{dtype}:")
        message = f'f"{name} is {{{name}.dtype}}; the kernel reads torch.{dtype}"'
        lines.append(f"{INDENT * 2}raise TypeError({message})")
    return lines


def first_tensor(problem: Problem) -> str:
    """The name of the argument that tells the device."""
    return next(name for name, value in problem.arguments if isinstance(value, TensorType))


def headers(variant: OwnCuda) -> dict[str, str]:
    """Every header that is not the toolkit's, by the name under which it is included."""
    folders = [*variant.include_dirs, cuda_sources(), tools.stub_headers()]
    if variant.unit.folder is not None:
        folders.insert(0, variant.unit.folder)
    found: dict[str, str] = {}
    waiting: list[tuple[str, Iterable[Path]]] = [(variant.unit.text, folders)]
    while waiting:
        text, places = waiting.pop()
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', text, re.MULTILINE):
            path = next((folder / name for folder in places if (folder / name).is_file()), None)
            if path is None:
                continue
            content = path.read_text()
            if found.get(name, content) != content:
                raise ArgumentError("export: #include", f"two files called {name}", "names of their own", "Rename one.")
            if name not in found:
                found[name] = content
                waiting.append((content, [path.parent, *folders]))
    return found
