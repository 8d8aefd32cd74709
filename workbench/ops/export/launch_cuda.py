"""Parts of an exported file for a kernel in CUDA C++: source, parameters, launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.element_types import ELEMENT_TYPES
from workbench.base.home import cuda_sources
from workbench.errors import ArgumentError
from workbench.launch.variables import variables_of
from workbench.ops.declared.cpp_text import CppText, instance_of, template_arguments
from workbench.ops.declared.cuda import CudaPart
from workbench.ops.export.expressions import Code
from workbench.ops.export.layout import INDENT, fitted, in_tuple, literal, quoted, raw_block
from workbench.ops.export.tensors import GRID, launched
from workbench.ops.expressions import Expression
from workbench.ops.tensors.tensor_type import TensorType
from workbench.toolchain import tools
from workbench.toolchain.c_types import ANYTHING, CType, c_type, declared_variables
from workbench.toolchain.kernel import CompiledKernel
from workbench.toolchain.nvcc_names import prelude
from workbench.toolchain.type_names import UNKNOWN, names_of_types, tokens_of

if TYPE_CHECKING:
    from workbench.ops.export.exported import Exported

_OF_PTX = {"u8": "B", "s8": "b", "u16": "H", "s16": "h", "b16": "H", "u32": "i", "s32": "i", "b32": "i", "f32": "f"}
_OF_PTX |= {"u64": "q", "s64": "q", "b64": "q", "f64": "d"}


def constants_of(file: Exported) -> list[str]:
    """Return the blocks that define SOURCE, HEADERS, OPTIONS and PARAMETERS."""
    variant, own = file.variant, headers(file)
    options = list(variant.options)
    if not any(re.match(r"--?std\b", one) for one in options):
        options.insert(0, "--std=c++17")
    kernels = variant.kernels(file.config, file.problem, file.problem.arch, machine_code=False)
    formats = tuple(
        "".join(_format(file, part, compiled, index) for index in range(len(part.arguments)))
        for part, compiled in zip(variant.parts, kernels, strict=True)
    )
    blocks = [raw_block("SOURCE = ", _source_text(file))]
    if own:
        names = [f"_HEADER_{index}" for index in range(len(own))] if len(own) > 1 else ["_HEADER"]
        blocks += [raw_block(f"{name} = ", content) for name, content in zip(names, own.values(), strict=True)]
        pairs = ", ".join(f"{quoted(name)}: {one}" for name, one in zip(own, names, strict=True))
        blocks.append(fitted(f"HEADERS = {{{pairs}}}"))
    note = "# The types of each kernel's parameters, as the module struct writes them."
    return [*blocks, fitted(f"OPTIONS = {literal(tuple(options))}\n{note}\nPARAMETERS = {literal(formats)}")]


def launch_of(file: Exported) -> tuple[str, list[str]]:
    """Return the function ``launch``, and the arguments and outputs of the op that it takes."""
    variant = file.variant
    in_templates = [one for part in variant.parts for one in _template_arguments(part.kernel, file.values)]
    expressions = [*variant.macro_texts.values(), *variant.constants.values()]
    expressions += [one for one in in_templates if isinstance(one, Expression)]
    names = {name for one in (*variant.parts, *expressions) for name in one.names}
    lines, taken = head_of(file, names)
    lines += checks(file) + file.code.locals(names) + workspace_lines(file) + _launches(file)
    return fitted("\n".join(lines)), taken


def head_of(file: Exported, names: set[str]) -> tuple[list[str], list[str]]:
    """Return the first lines of ``launch``, and the arguments and outputs of the op that it takes.

    ``names`` are those that it reads; the names in the workspace's sizes are added to them.
    """
    code = file.code
    for one in file.declared.workspace.values():
        names |= {name for size in one.shape for name in Expression.of("workspace", size).names}
    taken = [name for name in (*code.parameters, *code.outputs) if name in code.needs(names) | {file.signature.first}]
    plural = "s" * (len(file.variant.parts) > 1)
    doc = f'{INDENT}"""Run the kernel{plural} in the order of torch\'s current stream."""'
    return [f"def launch({', '.join(['config', *taken])}):", doc], taken


def workspace_lines(file: Exported) -> list[str]:
    """Return lines that make the tensors through which the kernels pass values to each other."""
    lines = []
    for name, one in file.declared.workspace.items():
        shape = in_tuple(file.code.of(Expression.of("workspace", size)) for size in one.shape)
        value = one.bounds[0] if one.kind == "full" else 0
        made = f"torch.full(({shape}), {value!r}" if value else f"torch.zeros(({shape})"
        lines.append(f"{INDENT}{name} = {made}, dtype=torch.{one.dtype}, device={file.signature.first}.device)")
    return lines


def _launches(file: Exported) -> list[str]:
    variant, code, values = file.variant, file.code, file.values
    extra = []
    for name, one in variant.macro_texts.items():
        text = quoted(str(one(values))) if one.expression is None or one.is_text(values) else code.of(one.expression)
        extra.append(f"{quoted(name)}: {text}")
    defined = variant.macros(file.config, file.problem)
    plain = [name for name in variant.space if name in defined]
    tunables = ["**config"] if plain else []
    if len(plain) < len(variant.space):  # templates have parameters of the others' names
        extra, tunables = [f"{quoted(name)}: config[{quoted(name)}]" for name in plain] + extra, []
    lines = [f"{INDENT}macros = {{{', '.join([*tunables, *extra])}}}"] if extra else []
    macros = "tuple(macros.items())" if extra else "tuple(config.items())" if tunables else "()"
    gpu, inner, single = f"{file.signature.first}.device.index", INDENT * 2, len(variant.parts) == 1
    found = f"{'module' if variant.constants else '_'}, {'(kernel,)' if single else 'kernels'}"
    kernel_names = in_tuple(_kernel_name(part.kernel, code, values) for part in variant.parts)
    lines.append(f"{INDENT}with torch_stream({gpu}) as stream:")
    lines.append(f"{inner}{found} = load({gpu}, ({kernel_names}), {macros})")
    lines += [inner + line for line in _constant_lines(file)]
    for index, part in enumerate(variant.parts):
        kernel = "kernel" if single else f"kernels[{index}]"
        block, launch = code.shape(part.block, part.block(values)), []
        passed = (_argument(file, part, position) for position in range(len(part.arguments)))
        arguments = [GRID, block, "stream", *passed]
        shared = code.of(part.shared_bytes)
        if shared != "0":
            attribute = "cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES"
            launch.append(f"{inner}{kernel}.set_attribute({attribute}, {shared})")
            arguments.append(f"shared_size={shared}")
        launch.append(f"{inner}{kernel}.prepared_async_call({', '.join(arguments)})")
        lines += launched(file, index, code.shape(part.grid, part.grid(values)), launch)
    return lines


def _constant_lines(file: Exported) -> list[str]:
    """Return lines that copy the constants into the module's variables, in the stream's order."""
    from workbench.base.demangle import demangle

    variant, config, problem = file.variant, file.config, file.problem
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
            what = "without a plain type and size" if name in symbols else "that no kernel uses"
            allowed, remedy = "arrays and numbers of C's types", "Pass it as an argument."
            raise ArgumentError(f"export: constants[{name!r}]", f"a variable {what}", allowed, remedy)
        whole = f".expand({literal(tuple(known.shape))}).contiguous()" if known.shape else ""
        like = f"dtype=torch.{known.type.dtype}, device={file.signature.first}.device"
        lines += [
            f"value = torch.as_tensor({file.code.of(expression)}, {like}){whole}",
            f"place, _ = module.get_global({quoted(symbols[name])})",
            "cuda.memcpy_dtod_async(place, value.data_ptr(), value.nbytes, stream)",
        ]
    return lines


def _kernel_name(kernel: str, code: Code, values: Mapping) -> str:
    if "<" not in kernel:
        return quoted(kernel)
    pieces = []
    for one in _template_arguments(kernel, values):
        if isinstance(one, str) or not one.names:
            pieces.append(one if isinstance(one, str) else str(int(one(values))))
        else:
            text = code.of(one).replace('"', "'")
            pieces.append(f"{{int({text})}}" if isinstance(one(values), bool) else f"{{{text}}}")
    prefix = "f" if any("{" in piece for piece in pieces) else ""
    return f'{prefix}"{kernel.partition("<")[0]}<{", ".join(pieces)}>"'


def _template_arguments(kernel: str, values: Mapping) -> list[Expression | str]:
    """Return the template arguments of ``softmax<VEC, float>``: expressions, and verbatim C++ as text."""
    found: list[Expression | str] = []
    for text in template_arguments(kernel):
        one = CppText.of("kernel", text)
        found.append(text.strip() if one.expression is None or one.is_text(values) else one.expression)
    return found


def _declared_type(file: Exported, part: CudaPart, index: int) -> CType | None:
    types, macros = part.declaration.types, file.variant.macros(file.config, file.problem)
    instance = part.declaration.instance(instance_of(part.kernel, file.values))
    return c_type(types[index], {**_type_names(file, macros), **instance}) if types else None


def _type_names(file: Exported, macros: Mapping[str, Any]) -> Mapping[str, Any]:
    texts = [*reversed(headers(file).values()), _source_text(file)]
    return names_of_types(texts, macros)


def _format(file: Exported, part: CudaPart, compiled: CompiledKernel, index: int) -> str:
    """Return the format in which the module ``struct`` packs a parameter."""
    kind = _declared_type(file, part, index)
    if _is_tensor(file, part.arguments[index][1]) or (kind and kind.pointer):
        return "P"
    if kind is not None and kind.lanes == 1 and (letter := ELEMENT_TYPES[kind.dtype].letter):
        return letter
    parameter = compiled.parameters[index]
    if parameter.type not in _OF_PTX:
        what = f"a parameter {parameter.name!r} of {parameter.size} bytes"
        raise ArgumentError(f"export: {part.kernel}()", what, "pointers and numbers", "Pass its parts one by one.")
    return _OF_PTX[parameter.type]


def _is_tensor(file: Exported, expression: Expression) -> bool:
    name = expression.names[0] if expression.is_name else ""
    return name in file.declared.workspace or isinstance(file.problem.known.get(name), TensorType)


def _argument(file: Exported, part: CudaPart, index: int) -> str:
    """Return the code of the value that the launch passes for a parameter."""
    _, expression = part.arguments[index]
    text, kind = file.code.of(expression), _declared_type(file, part, index)
    if text in file.signature.optional:
        return f"0 if {text} is None else {text}.data_ptr()"
    if _is_tensor(file, expression):
        return f"{text}.data_ptr()"
    if kind is not None and kind.dtype == "bfloat16" and not kind.pointer:
        return f"torch.tensor({text}, dtype=torch.bfloat16).view(torch.uint16).item()"
    return text


def checks(file: Exported) -> list[str]:
    """Return lines that refuse tensors whose elements the kernels would misread."""
    wanted: dict[str, list[str]] = {}
    macros = dict(file.variant.macros(file.config, file.problem))
    texts = {name: one for name, one in file.variant.macro_texts.items() if not one.names or one.is_text(file.values)}
    fixed = {name: macros.pop(name) for name in texts}
    names = {name: one for name, one in _type_names(file, fixed).items() if name not in macros}  # these may change
    for part in file.variant.parts:
        instance = dict.fromkeys(part.declaration.template, UNKNOWN)
        for (_, expression), declared in zip(part.arguments, part.declaration.types, strict=False):
            kind = None if not macros.keys().isdisjoint(tokens_of(declared)) else c_type(declared, names | instance)
            name = expression.names[0] if expression.is_name else ""
            if kind and kind.dtype != ANYTHING and isinstance(file.problem.known.get(name), TensorType):
                wanted.setdefault(name, _taken_dtypes(kind))
    lines = []
    for name, dtypes in wanted.items():
        there = f"{name} is not None and " if name in file.signature.optional else ""
        several = [f"torch.{one}" for one in dtypes]
        test = f"!= {several[0]}" if len(several) == 1 else f"not in ({', '.join(several)})"
        lines.append(f"{INDENT}if {there}{name}.dtype {test}:")
        message = f'f"{name} is {{{name}.dtype}}; the kernel reads {" or ".join(several)}"'
        lines.append(f"{INDENT * 2}raise TypeError({message})")
    return lines


def _taken_dtypes(kind: CType) -> list[str]:
    """Return torch's dtypes that a kernel may read as a C type: integers of its size, complex numbers as pairs."""
    if kind.dtype.startswith(("int", "uint", "bool")):
        whole = [f"{sign}int{8 * kind.itemsize}" for sign in ("", "u")]
        return sorted({kind.dtype, *(whole if kind.dtype != "bool" else ["uint8"])}, key=lambda one: one != kind.dtype)
    pairs = {"float32": "complex64", "float64": "complex128"}
    return [kind.dtype, *([pairs[kind.dtype]] if kind.lanes == 2 and kind.dtype in pairs else [])]


def _source_text(file: Exported) -> str:
    """Return the source, after definitions of names that it uses and NVRTC does not have."""
    variant = file.variant
    given = [*variant.options, *(f"-D{name}" for name in variant.macros(file.config, file.problem))]
    folders = [*([variant.unit.folder] if variant.unit.folder else []), *variant.include_dirs, cuda_sources()]
    return prelude(variant.unit, folders, given) + variant.unit.text


def headers(file: Exported) -> dict[str, str]:
    """Return the text of every included header that is not the toolkit's, by the name in its ``#include``."""
    variant = file.variant
    folders = [*variant.include_dirs, cuda_sources(), tools.stub_headers()]
    if variant.unit.folder is not None:
        folders.insert(0, variant.unit.folder)
    found: dict[str, str] = {}
    waiting: list[tuple[str, Iterable[Path]]] = [(_source_text(file), folders)]
    while waiting:
        text, places = waiting.pop()
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', text, re.MULTILINE):
            path = next((folder / name for folder in places if (folder / name).is_file()), None)
            if path is None:
                continue
            content = path.read_text()
            if found.get(name, content) != content:
                raise ArgumentError("export: #include", f"two files called {name}", "different names", "Rename one.")
            if name not in found:
                found[name] = content
                waiting.append((content, [path.parent, *folders]))
    return found
