"""Variants of declared ops in CUDA C++, from text, a file, or a cell."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from workbench.base.home import cuda_sources
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch.declared_types import declared_value
from workbench.launch.loading import Kernel, Module, loaded_from
from workbench.launch.variables import Variables
from workbench.ops.declared.contract import Contract
from workbench.ops.declared.cpp_text import CppText, instance_of, macro_value, template_arguments
from workbench.ops.declared.launching import (
    NOTHING,
    REMEMBERED,
    Declaration,
    LaunchSize,
    Tunables,
    argument_value,
    arguments_for,
    check_used,
)
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.declared.variant import DeclaredVariant
from workbench.ops.expressions import Expression
from workbench.ops.identity import stated
from workbench.ops.variant import Config, CudaStep, CudaVariant
from workbench.toolchain.c_types import CType, c_type
from workbench.toolchain.source import (
    KernelDeclaration,
    Source,
    declared_kernels,
    included_files,
    located,
    read_source,
    template_parameters,
)
from workbench.toolchain.type_names import names_of_types, tokens_of


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredCuda(DeclaredVariant, CudaVariant):
    """A `CudaVariant` that is declared by expressions."""

    macro_texts: Mapping[str, CppText]
    constants: Mapping[str, Expression]
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of its declaration, without the source."""
    _held: dict[tuple, Variables] = field(default_factory=dict, init=False, repr=False)
    _written: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def unit(self) -> Source:
        """Translation unit of the kernels; a source file is read as it is now."""
        return self.text or read_source(self.source)

    @property
    def expressions(self) -> Iterable[Expression]:
        """Expressions of its launches, macros and constants."""
        macros = (one.expression for one in self.macro_texts.values() if one.expression is not None)
        return (*super().expressions, *macros, *self.constants.values())

    @property
    def declared_launch(self) -> Mapping[str, Any]:
        """Arguments of the declaration, without its source; empty if there is a step after the first."""
        return {} if self.given["then"] else self.given

    @property
    def texts(self) -> Mapping[str, str]:
        """Text of the source, by the name that findings give it."""
        return {Path(self.unit.name).name: self.unit.text}

    @property
    def files(self) -> tuple[Path, ...]:
        """Source and every header that it includes, except those of the CUDA toolkit."""
        return (self.source, *included_files(self.unit, (*self.include_dirs, cuda_sources())))

    def prepare(
        self, kernels: tuple, config: Config, problem: DeclaredProblem, tensors: DeclaredTensors, device: Any
    ) -> None:
        """Write the declared constants. Raises UnknownNameError for one that the kernels do not use."""
        if self.constants:
            variables = self._variables(kernels, config, problem, device)
            for name, value in self.constant_values(config, problem, tensors).items():
                if name not in variables:
                    known = ", ".join(variables) or "none"
                    remedy = "The kernel has these in constant or device memory, and uses them."
                    raise UnknownNameError("constants", repr(name), known, remedy)
                if value is not self._written.get(name):  # a tensor of this run, or other numbers than last time
                    variables[name].set(value)
                self._written[name] = None if hasattr(value, "data_ptr") else value

    def constant_values(self, config: Config, problem: DeclaredProblem, tensors: DeclaredTensors) -> dict[str, Any]:
        """Return the value that is written to each constant: a number or a tensor of the run."""
        names = self.declared.names(config, problem)
        return {name: argument_value(one, names, tensors, ()) for name, one in self.constants.items()}

    def with_source(self, source: Any) -> DeclaredCuda:
        """Return the variant that the same declaration makes of another source, text or a .cu file.

        A kernel of the op's name may stand in for the one of a variant with one kernel. Raises ArgumentError or
        UnknownNameError unless the source has kernels of the same names and parameters.
        """
        source = read_source(source) if isinstance(source, str | Path) else source  # below the working directory
        return cuda(self.declared.contract, source, **self.given_for(source.text))

    def given_for(self, text: str) -> dict[str, Any]:
        """Return the arguments of the declaration for another source, whose kernel may have the op's name."""
        given, op = dict(self.given), self.declared.contract.name
        names = {_base(name) for name in declared_kernels(text, dict.fromkeys([*given["macros"], *given["tune"]], ""))}
        if not given["then"] and _base(given["kernel"]) not in names and op in names:
            given["kernel"] = op
        return given

    def _variables(self, kernels: tuple, config: Config, problem: DeclaredProblem, device: Any) -> Variables:
        """Return the variables of the kernels' modules, held because on the simulator they live only that long."""
        key = (device.name, *(kernel.key for kernel in kernels))
        if key not in self._held:
            self._held.clear()
            self._written.clear()
            self._held[key] = Variables(device, self.unit.text, self.macros(config, problem))
            for kernel in kernels:
                self._held[key].add(kernel)
        return self._held[key]


@dataclass(frozen=True, eq=False)
class Step:
    """Declaration of one of the kernels of a variant, which run one after the other; see `cuda` and `triton`."""

    kernel: Any
    grid: Any
    block: Any = None
    args: Any = None
    shared_bytes: Any = 0
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def step(
    kernel: Any,
    *,
    grid: Any,
    block: Any = None,
    args: Any = None,
    shared_bytes: Any = 0,
    constexprs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Step:
    """Declare a further kernel of a variant: a name in the same CUDA source, or a ``@triton.jit`` function.

    ``options`` are Triton's ``num_warps`` and ``num_stages``; the other arguments are those of the variant's own
    declaration.
    """
    return Step(kernel, grid, block, args, shared_bytes, constexprs or {}, options)


def cuda(
    contract: Contract,
    source: Any,
    *,
    grid: Any,
    block: Any,
    kernel: str | None = None,
    args: Any = None,
    tune: Mapping[str, Sequence] = NOTHING,
    where: Sequence = (),
    sizes: Callable | None = None,
    shared_bytes: Any = 0,
    macros: Mapping[str, Any] = NOTHING,
    constants: Mapping[str, Any] = NOTHING,
    workspace: Mapping[str, Any] = NOTHING,
    contiguous: bool | str | Sequence[str] = (),
    then: Sequence[Step] = (),
    default: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    name: str | None = None,
    idea: str = "",
) -> DeclaredCuda:
    """Declare a variant in CUDA C++.

    Numbers may be expressions, such as ``"cdiv(rows, 4)"``, or functions of names. Names are the tunables, the
    ``sizes``, the op's arguments (``x.shape[0]``, ``x.stride(0)``) and its outputs.

    Args:
        contract: contract of the op; ``op.cuda(...)`` passes its own.
        source: text, the path of a .cu file, or the module or kernel of `load_cuda` or of a ``%%cuda`` cell. A relative
            path starts at the folder of the file that declares the variant; what is not there is looked up in the
            working directory, as in a notebook.
        grid: blocks of a launch, one to three numbers.
        block: threads of a block, one to three numbers.
        kernel: the kernel's name, or a C++ name expression with expressions in it, ``"softmax<ctype(x), VEC>"``; may be
            left out if the source has one kernel.
        args: for each parameter of the kernel, in its order or by its name, an argument of the op, an output
            (``"out"``), a part of the workspace, or a number; a parameter without one gets the value of its own name.
        tune: tunables with their values. Each is a macro of the source, unless a template of the source has a parameter
            of that name.
        where: rules that a configuration must keep.
        sizes: function of arguments of the op that returns a mapping of named numbers.
        shared_bytes: dynamic shared memory per block, in bytes.
        macros: further macros.
        constants: values of ``__constant__`` and ``__device__`` variables: numbers, or arguments of the op.
        workspace: tensors through which the kernels pass values to each other, such as ``wb.full(0, "blocks")``.
        contiguous: arguments of the op, True for all, that are copied unless they are contiguous; those in place are
            copied back. A view as any other argument is refused, unless the declaration names the strides by which it
            differs from rows without gaps (``"x.stride(0)"``, in ``args``, ``sizes``, ``where``, ...).
        then: further kernels of the source, see `wb.step`.
        default: the untuned configuration; default the first legal one.
        options: options of the compiler.
        include_dirs: folders of headers; relative ones are looked up like a relative ``source``.
        name: name of the variant; default that of the kernel.
        idea: one line on what distinguishes the variant.

    Returns:
        The variant; it replaces one of the same name.

    Raises:
        ArgumentError, UnknownNameError: the error names the argument at fault; nothing is declared then.
    """
    given = {key: value for key, value in locals().items() if key not in ("contract", "source")}
    folder = _declaring_folder()
    unit, kernel, given_macros, options, folders = _source_of(source, kernel, options, include_dirs, folder)
    macros = {name: value for name, value in given_macros.items() if name not in tune} | dict(macros)
    known = declared_kernels(unit.text, dict.fromkeys([*macros, *tune], ""))
    if kernel is None:
        kernel = _only_kernel(unit, known)
    steps = (Step(kernel, grid, block, args, shared_bytes), *then)
    name = name or _base(kernel)
    tunables = Tunables.of(contract, tune, where, default)
    declared = Declaration.of(contract, name, tunables, sizes, workspace, contiguous)
    parts = [
        CudaPart.of(unit, known, one, "" if index == 0 else f"then[{index - 1}].") for index, one in enumerate(steps)
    ]
    macro_texts = {key: CppText.of(f"macros[{key!r}]", value) for key, value in macros.items()}
    constant_expressions = {key: Expression.of(f"constants[{key!r}]", value) for key, value in constants.items()}
    _check_constants(unit, constants)
    reading: tuple[Any, ...] = (*parts, *macro_texts.values(), *constant_expressions.values())
    read = {name for one in reading for name in one.names}
    headers = [path.read_text(errors="replace") for path in included_files(unit, (*folders, cuda_sources()))]
    check_used(f"{contract.name}/{name}", declared.space, "\n".join([unit.text, *headers]), read, ())
    texts = (*reversed(headers), unit.text)

    templated = declared.space.keys() & template_parameters(unit.text)

    def macros_of(config: Config, problem: DeclaredProblem) -> dict[str, Any]:
        names = declared.names(config, problem)
        found = {key: macro_value(config[key]) for key in declared.space if key not in templated}
        return found | {key: one(names) for key, one in macro_texts.items()}

    launches = [(one.kernel, one.grid, one.block, one.args, one.shared_bytes) for one in steps]
    statement = stated((launches, dict(macros), dict(constants), tuple(options), *sorted(templated)))
    return DeclaredCuda(
        **declared.fields(idea or f"{contract.name} in CUDA C++", statement, parts),
        source=Path(unit.name),
        text=None if unit.folder is not None and Path(unit.name).is_file() else unit,  # a file is read when it is used
        steps=tuple(part.cuda_step(declared, macros_of, {*declared.space, *macro_texts}, texts) for part in parts),
        macros=macros_of,
        options=tuple(options),
        include_dirs=folders,
        macro_texts=macro_texts,
        constants=constant_expressions,
        given=given | {"kernel": kernel, "name": name, "macros": macros, "options": options, "include_dirs": folders},
    )


@dataclass(frozen=True, eq=False)
class CudaPart:
    """One kernel of a variant, with its launch as expressions."""

    kernel: str
    declaration: KernelDeclaration
    grid: LaunchSize
    block: LaunchSize
    arguments: tuple[tuple[str, Expression], ...]
    shared_bytes: Expression

    @classmethod
    def of(cls, unit: Source, known: Mapping[str, KernelDeclaration], one: Step, prefix: str) -> CudaPart:
        """Parse a step; messages put ``prefix`` before the names of its arguments."""
        if one.block is None:
            raise ArgumentError(f"{prefix}block", None, "threads per block", 'For example block="NUM_THREADS".')
        declaration = known.get(_base(one.kernel))
        if declaration is None:
            listed = ", ".join(known) or "none"
            raise UnknownNameError(f"{prefix}kernel", repr(one.kernel), listed, f"{unit.label} defines these.")
        return cls(
            one.kernel,
            declaration,
            LaunchSize.of(f"{prefix}grid", one.grid),
            LaunchSize.of(f"{prefix}block", one.block),
            arguments_for(one.kernel, declaration.parameters, one.args, f"{prefix}args"),
            Expression.of(f"{prefix}shared_bytes", one.shared_bytes),
        )

    @property
    def expressions(self) -> list[Expression]:
        """Expressions that the launch evaluates."""
        found = [one for _, one in self.arguments] + [*self.grid.parts, *self.block.parts, self.shared_bytes]
        in_template = (CppText.of("kernel", one).expression for one in template_arguments(self.kernel))
        return found + [one for one in in_template if one is not None]

    @property
    def names(self) -> set[str]:
        """Names that the launch reads."""
        in_template = set(re.findall(r"\w+", self.kernel.partition("<")[2]))
        return in_template | {name for one in self.expressions for name in one.names}

    def cuda_step(
        self,
        declared: Declaration,
        macros: Callable[[Config, DeclaredProblem], Mapping[str, Any]],
        macro_names: Collection[str],
        texts: Sequence[str],
    ) -> CudaStep:
        """Return the variant's step, which evaluates the expressions for each launch.

        The parameters' types are looked up in ``texts``, headers first. ``macros`` are evaluated for a type that may
        depend on one of ``macro_names``.
        """

        def instance(config: Config, problem: DeclaredProblem) -> str:
            return instance_of(self.kernel, declared.names(config, problem))

        types = self.declaration.types
        changing = {*macro_names, *self.declaration.template, *names_of_types(texts, {})}
        found_kinds: dict[tuple, tuple[CType | None, ...]] = {}

        def kinds(config: Config, problem: DeclaredProblem) -> tuple[CType | None, ...]:
            """Return the types of all parameters, cached because every launch needs them."""
            key = (problem, *config.items())
            if key not in found_kinds:
                if len(found_kinds) >= REMEMBERED:
                    found_kinds.clear()
                names = names_of_types(texts, macros(config, problem))
                known = {**names, **self.declaration.instance(instance(config, problem))}
                found_kinds[key] = tuple(c_type(one, known) for one in types)
            return found_kinds[key]

        def value_of(index: int) -> Callable[[Config, DeclaredProblem, DeclaredTensors], Any]:
            parameter, expression = self.arguments[index]
            varies = bool(types) and not changing.isdisjoint(tokens_of(types[index]))
            fixed = c_type(types[index]) if types and not varies else None

            def value(config: Config, problem: DeclaredProblem, tensors: DeclaredTensors) -> Any:
                found = argument_value(expression, declared.names(config, problem), tensors, declared.workspace)
                kind = kinds(config, problem)[index] if varies else fixed
                return declared_value(f"{self.kernel}(): argument {index} {parameter!r}", kind, found)

            return value

        return CudaStep(
            kernel=instance if "<" in self.kernel else self.kernel,
            grid=lambda config, problem: self.grid(declared.names(config, problem)),
            block=lambda config, problem: self.block(declared.names(config, problem)),
            shared_bytes=lambda config, problem: self.shared_bytes.whole(declared.names(config, problem)),
            arguments={parameter: value_of(index) for index, (parameter, _) in enumerate(self.arguments)},
        )


def _base(kernel: str) -> str:
    return kernel.split("<")[0].split("::")[-1].strip()


def _check_constants(unit: Source, constants: Mapping[str, Any]) -> None:
    """Raise UnknownNameError for a constant that the source does not declare in constant or device memory."""
    declared = re.findall(r"\b__(?:constant|device|managed)__\b[^;{(=]*?(\w+)\s*(?:\[[^;{(=]*)?[;={]", unit.text)
    for name in constants:
        if name not in declared:
            known = ", ".join(dict.fromkeys(declared)) or "none"
            remedy = f"{unit.label} has these in constant or device memory."
            raise UnknownNameError("constants", repr(name), known, remedy)


def _only_kernel(unit: Source, known: Mapping[str, KernelDeclaration]) -> str:
    if len(known) != 1:
        what = f"{len(known)} kernels in {unit.label}" + (f": {', '.join(known)}" if known else "")
        raise ArgumentError("kernel", what, "one kernel", "Name it: kernel=..." if known else "Declare it __global__.")
    return next(iter(known))


def _declaring_folder() -> Path | None:
    """Return the folder of the file whose code is declaring a variant; None for a notebook cell or a prompt."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("workbench."):
        frame = frame.f_back
    file = None if frame is None else Path(frame.f_code.co_filename)
    return file.resolve().parent if file is not None and file.is_file() else None


def _source_of(
    source: Any, kernel: str | None, options: Sequence[str], include_dirs: Sequence, folder: Path | None
) -> tuple:
    """Return (translation unit, kernel, macros, options, include folders) of text, a path, or a module or kernel.

    A module or kernel of ``load_cuda`` brings the settings that it was loaded with.
    """
    include_dirs = tuple(located(one, folder) for one in include_dirs)
    if isinstance(source, Kernel):
        kernel, source = kernel or source.__name__, source.module
    if isinstance(source, Module):
        unit, settings = loaded_from(source)
        folders = (*(located(one, None) for one in settings["include_dirs"]), *include_dirs)
        return unit, kernel, settings["macros"], (*settings["options"], *options), folders
    if not isinstance(source, str | Path | Source):
        allowed = "CUDA C++ text, the path of a .cu file, or a %%cuda cell's module"
        raise ArgumentError("source", type(source).__name__, allowed, "Pass one of these.")
    return read_source(source, folder), kernel, {}, tuple(options), include_dirs
