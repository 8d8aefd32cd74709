"""A variant, declared once: the value types from which everything else works.

An op (`workbench.ops.op.Op`) is one operation with several implementations (`Variant`) and the inputs that they are
judged on (`Case`). A new variant is one file that ends in ``VARIANT = CudaVariant(...)`` (or `TritonVariant`,
`TorchVariant`) plus one line in the op's tuple; compiling, checking, tracing, tuning and importing need nothing but
that value.

Two plain things travel beside a variant:

* a *configuration*: a dict with one value per tunable, e.g. ``{"BLOCK_SIZE": 16, "NUM_THREADS": 128}``;
* a *problem*: the op's own frozen value of everything else that a kernel is compiled and launched for (shapes, dtype,
  layout, arch). Here only its fields ``dtype``, ``layout``, ``features`` and ``arch`` are looked at.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.base.home import cuda_sources
from workbench.errors import ConfigurationError
from workbench.ops.compiled_code import CompiledCode, Plan
from workbench.ops.source_files import called_files, digest, read, stamp, with_headers, written_in
from workbench.ops.steps import TRITON_OPTIONS, Arguments, CudaStep, Size, TritonStep, passed
from workbench.ops.values import Case, Check, Config, Footprint, Launch, Restriction
from workbench.toolchain.source import Declaration, Source, declared_kernels, read_source

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport
    from workbench.toolchain import CompiledKernel

__all__ = [
    "MACHINE_ARCHS",
    "TRITON_OPTIONS",
    "Arguments",
    "Case",
    "Check",
    "Config",
    "CudaStep",
    "CudaVariant",
    "Footprint",
    "Launch",
    "Restriction",
    "Size",
    "TorchVariant",
    "TritonStep",
    "TritonVariant",
    "Variant",
]


PARTS = 4
"""Blocks of a launch that are recorded, if it needs any."""

MACHINE_ARCHS = ("sm_80", "sm_89", "sm_90")
"""What variants are compiled for to run in the PTX machine, the default first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Variant:
    """One way of computing an op. Frozen, compared by identity; see the subclass of its language.

    Attributes:
        op, name: the op's name and the variant's (its file's) name.
        idea: one line on what distinguishes it.
        steps: its kernels in the order in which they run, the first with the main work; of plain torch none.
        space: the tunables with their candidate values, in teaching order.
        restrictions: what a configuration must keep; `broken` adds the support for layout, dtype and features.
        layouts, dtypes, features: what it reads, in order of preference; features are names such as ``"alibi"``.
        source: the file that holds the kernel; of Triton and torch where the function is written, unless given.
        defaults: the untuned rule, problem -> configuration.
        workspace: (config, problem, tensors) -> what its blocks, or its kernels, leave for each other; launches find it
            in ``tensors.workspace``.
        footprint: (config, problem) -> what a block takes and waits for, of a variant that mostly reads memory.
    """

    op: str
    name: str
    idea: str
    steps: tuple = ()
    space: Mapping[str, tuple] = field(default_factory=dict)
    restrictions: tuple[Restriction, ...] = ()
    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]
    features: tuple[str, ...] = ()
    source: Path = None  # type: ignore[assignment]  # `__post_init__` finds it
    defaults: Callable[[Any], dict] = lambda problem: {}
    workspace: Callable[[Config, Any, Any], Any] | None = None
    footprint: Callable[[Config, Any], Footprint] | None = None
    _code: CompiledCode = field(default_factory=CompiledCode, init=False, repr=False)

    language = ""
    compiles = True
    """Whether it has kernels of its own, to be compiled."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", MappingProxyType(dict(self.space)))
        if self.source is None:
            object.__setattr__(self, "source", _file_of(self._function))

    def __str__(self) -> str:
        return f"{self.op}/{self.name}"

    @property
    def _function(self) -> Any:
        """Where the kernel is written, unless a source is given."""
        raise NotImplementedError

    # -- legality -----------------------------------------------------------------------------------------------

    def unsupported(self, problem: Any) -> tuple[Restriction, ...]:
        """What this variant lacks for the problem whatever the configuration: layout, dtype or features."""
        lacking = []
        if problem.layout not in self.layouts:
            lacking.append(("layout", f"layout {problem.layout!r} is one of {', '.join(self.layouts)}"))
        if problem.dtype not in self.dtypes:
            lacking.append(("dtype", f"dtype {problem.dtype} is one of {', '.join(self.dtypes)}"))
        for feature in problem.features:
            if feature not in self.features:
                lacking.append(("features", f"{feature} is one of {', '.join(self.features) or '(none)'}"))
        return tuple(Restriction(name, rule, lambda config, problem: False) for name, rule in lacking)

    def check_tensors(self, problem: Any) -> None:
        """Raise ArgumentError for a tensor that does not lie in memory as the kernels assume; an op's own function
        looks at those of the built-in ones."""

    def broken(self, config: Config, problem: Any) -> tuple[Restriction, ...]:
        """The rules that a configuration breaks for a problem; empty if it is legal.

        Raises:
            ConfigurationError: a tunable is missing or unknown, so that no rule can be evaluated.
        """
        self._check_names(config)
        return self.unsupported(problem) + tuple(rule for rule in self.restrictions if not rule.holds(config, problem))

    def machine_arch(self, problem: Any) -> str:
        """The first of `MACHINE_ARCHS` that has what this variant needs for the problem; the default where none has."""
        if any(rule.of_arch for rule in self.restrictions):
            for arch in MACHINE_ARCHS:
                if self.runs_on(replace(problem, arch=arch)):
                    return arch
        return MACHINE_ARCHS[0]

    def machine_problem(self, case: Case, config: Config | None = None) -> Any:
        """A case's problem for a run of this variant in the PTX machine."""
        return case.problem(config, arch=self.machine_arch(case.problem()))

    def able(self, problem: Any) -> bool:
        """Whether the configuration that an untuned user gets is legal for the problem."""
        return not self.unsupported(problem) and not self.broken(self.default_config(problem), problem)

    def runs_on(self, problem: Any) -> bool:
        """Whether the problem's architecture has what this variant needs for it."""
        return all(rule.holds({}, problem) for rule in self.restrictions if rule.of_arch)

    def check(self, config: Config, problem: Any) -> None:
        """Raise `ConfigurationError` naming every broken rule, unless the configuration is legal."""
        broken = self.broken(config, problem)
        if broken:
            raise ConfigurationError(
                f"config of {self}",
                dict(config),
                "; ".join(str(rule) for rule in broken),
                f"Legal ones: variant({self.op!r}, {self.name!r}).configurations(problem).",
            )

    def _check_names(self, config: Config) -> None:
        if set(config) == set(self.space):
            self._check_values(config)
            return
        unknown, missing = sorted(set(config) - set(self.space)), sorted(set(self.space) - set(config))
        problem = "; ".join(f"{what} {names}" for what, names in (("unknown", unknown), ("missing", missing)) if names)
        raise ConfigurationError(
            f"config of {self}", problem, f"exactly the tunables {list(self.space)}", "Start from default_config()."
        )

    def _check_values(self, config: Config) -> None:
        """Of the kind that the space has, and positive where all of its values are: rules divide by them."""
        for name, candidates in self.space.items():
            kinds = {type(candidate) for candidate in candidates}
            positive = kinds == {int} and min(candidates) > 0
            if type(config[name]) not in kinds or (positive and config[name] < 1):
                allowed = "a whole number above 0" if positive else " or ".join(sorted(kind.__name__ for kind in kinds))
                raise ConfigurationError(
                    f"config of {self}", f"{name}={config[name]!r}", allowed, f"The space has {candidates}."
                )

    # -- configurations -----------------------------------------------------------------------------------------

    def default_config(self, problem: Any) -> dict:
        """The configuration that an untuned user gets for this problem."""
        return dict(self.defaults(problem))

    def configurations(self, problem: Any) -> list[dict]:
        """Every legal configuration of the space, the first tunable varying slowest."""
        return [config for config in self.all_configurations() if not self.broken(config, problem)]

    def all_configurations(self) -> Iterator[dict]:
        """Every point of the space, legal or not, in the same order."""
        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))

    # -- compile and run: each language's own -------------------------------------------------------------------

    def compile(self, config: Config, problem: Any, arch: str = "sm_80") -> CompiledKernel:
        """The `CompiledKernel` of a legal configuration; of several kernels the first, which does the main work."""
        return self.kernels(config, problem, arch)[0]

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Every `CompiledKernel` of a legal configuration, in the order in which they run.

        Without ``machine_code``, which the simulator does not need, it is made when somebody asks a kernel for it.
        """
        raise NotImplementedError

    def launches(self, config: Config, problem: Any, tensors: Any, kernels: tuple | None = None) -> tuple[Launch, ...]:
        """Grid, block, arguments and shared memory of each kernel of one run, in the order of `kernels`.

        Of ``kernels``, where they are compiled already, the parameters need not be looked up in the source.
        """
        return self._launches(self.plan(config, problem, kernels), config, problem, tensors)

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """The launch of the first kernel."""
        return self.launches(config, problem, tensors)[0]

    def plan(self, config: Config, problem: Any, kernels: tuple | None = None) -> Plan:
        """What all runs have alike; without ``kernels`` their parameters are those of the source."""
        shapes = tuple(step.shape(config, problem) for step in self.steps)
        return Plan(kernels or (), self._parameters(config, problem, kernels), shapes)

    def _parameters(self, config: Config, problem: Any, kernels: tuple | None) -> tuple[tuple[str, ...], ...]:
        """What the kernel of each step takes, by name."""
        raise NotImplementedError

    def _launches(self, plan: Plan, config: Config, problem: Any, tensors: Any) -> tuple[Launch, ...]:
        tensors = self._with_workspace(config, problem, tensors)
        return tuple(
            Launch(shape.grid, shape.block, passed(step, names, config, problem, tensors), shape.shared_bytes)
            for step, names, shape in zip(self.steps, plan.parameters, plan.shapes, strict=True)
        )

    def _with_workspace(self, config: Config, problem: Any, tensors: Any) -> Any:
        if self.workspace is None:
            return tensors
        held = object.__new__(type(tensors))  # a copy in a fifth of the time that dataclasses.replace takes
        vars(held).update(vars(tensors), workspace=self.workspace(config, problem, tensors))
        return held

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options: Any) -> Any:
        """Compile, launch on a device and fill ``tensors.out``; the `LaunchReport` on the simulator, else None.

        The report of a variant of several kernels is their sum, with the report of each in its ``parts``. A kernel
        whose grid has no blocks is left out; where all are, there is no report.
        """
        with device.current(tensors.members()):
            plan = self._code.of(self, config, problem, device.arch, device.runs_machine_code)
            self.prepare(plan.kernels, config, problem, tensors, device)
            reports = [
                device.launch(
                    kernel,
                    launch.grid,
                    launch.block,
                    launch.arguments,
                    shared_bytes=launch.shared_bytes,
                    **launch_options,
                )
                for kernel, launch in zip(plan.kernels, self._launches(plan, config, problem, tensors), strict=True)
                if 0 not in launch.grid
            ]
        if len(reports) < 2 or reports[0] is None:
            return reports[0] if reports else None
        from workbench.ptx.joined import joined

        return joined(reports)

    def with_parts(
        self,
        report: LaunchReport,
        config: Config,
        problem: Any,
        tensors: Any,
        device: Any,
        *,
        parts: int = PARTS,
        **launch_options: Any,
    ) -> LaunchReport:
        """A report of a run on the simulator, with recordings of some blocks if its warp groups wait for products: what
        the prediction of such a launch needs. They run once more, one by one; not where blocks wait for each other."""
        ran = " ".join(line.text for line in report.lines)
        if "wgmma.mma_async" not in ran or "barrier.cluster" in ran or len(report.parts) > 1:
            return report
        from workbench.ptx.recording import RecordedParts
        from workbench.ptx.sample import middles_of, parts_of

        cut = parts_of(report.grid, parts)
        found = [
            self.run(config, problem, tensors, device, sample=[block], record_block=block, **launch_options)
            for block in middles_of(report.grid, cut)
        ]
        recordings, instructions = tuple(one.recording for one in found), tuple(one.instructions for one in found)
        return replace(report, parts_recorded=RecordedParts(cut, recordings, instructions))

    def prepare(self, kernels: tuple, config: Config, problem: Any, tensors: Any, device: Any) -> None:
        """What a launch finds on the device beside its arguments: variables of the module. Most have none."""

    @property
    def copied(self) -> tuple[str, ...]:
        """The arguments that a run copies where they are not contiguous, and copies back."""
        return ()

    def filled(self, part: str, tensor: Any) -> float | None:
        """The number that a part of the workspace is full of before a run; None for a part that holds nothing."""
        return None if tensor.is_floating_point() else 0

    def constant_values(self, config: Config, problem: Any, tensors: Any) -> dict[str, Any]:
        """The number or tensor of the run that is written to each variable of the module before a launch."""
        return {}

    def code_key(self, config: Config, problem: Any) -> tuple:
        """What the machine code depends on beside its source: equal keys, equal code."""
        raise NotImplementedError

    # -- identity -----------------------------------------------------------------------------------------------

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant: the one in which its first grid is written."""
        return _file_of(self.steps[0].grid)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the variant is made of: declaration, kernel source, headers, what they share, and the files
        and cells of somebody's own functions that it holds."""
        parts = (self, *self.restrictions, *self.steps)
        functions = [value for part in parts for value in vars(part).values()]
        functions += [value for step in self.steps for value in step.arguments.values()]
        return tuple(sorted(with_headers(self.declaration) | with_headers(self.source) | written_in(functions)))

    @property
    def source_hash(self) -> str:
        """Hex digest of everything that changes what it computes or compiles to: kernel, headers, declaration."""
        return digest(self.files)


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchVariant(Variant):
    """Plain torch operations: no kernel of ours, nothing to compile."""

    compute: Callable[[Any, Any], None]
    """(problem, tensors) -> None: fills ``tensors.out``."""

    language = "torch"
    compiles = False

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant: the one in which ``compute`` is written."""
        return _file_of(self.compute)

    @property
    def _function(self) -> Callable:
        return self.compute

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Refused: torch variants have no kernel of ours."""
        raise ConfigurationError(
            "variant", str(self), "a variant in CUDA C++ or Triton", "A torch variant has no kernel to compile."
        )

    def run(self, config: Config, problem: Any, tensors: Any, device: Any = None, **launch_options: Any) -> None:
        """Compute directly, on whatever device the tensors live."""
        self.check(config, problem)
        self.compute(problem, tensors)


@dataclass(frozen=True, eq=False, kw_only=True)
class CudaVariant(Variant):
    """Kernels in a .cu file; a configuration reaches it as macros named as in the search space."""

    macros: Callable[[Config, Any], Mapping[str, str | int | float]] = lambda config, problem: dict(config)
    """(config, problem) -> preprocessor macros."""
    text: Source | None = None
    """The source, where ``source`` is no file of its own: a string, or a cell of a notebook."""
    options: Sequence[str] = ()
    """For the compiler."""
    include_dirs: Sequence[Path] = ()
    """Folders of headers beside the source's own and those of the workbench."""

    language = "cuda"

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Compile with NVRTC; occupancy is that of the block size and shared memory of this problem."""
        from workbench.toolchain import compile_cuda_module

        self.check(config, problem)
        arch = next((f"{rule.only}a" for rule in self.restrictions if rule.only), arch)
        names = [step.name(config, problem) for step in self.steps]
        module = compile_cuda_module(  # all at once: the compiler makes every kernel of a file whichever is asked for
            self.text or self.source,
            kernels=names,
            arch=arch,
            macros=self.macros(config, problem),
            options=self.options,
            include_dirs=(*self.include_dirs, cuda_sources()),
            machine_code=machine_code,
        )
        compiled = []
        for step, name in zip(self.steps, names, strict=True):
            block, shared_bytes = step.threads(config, problem), step.shared_bytes(config, problem)
            compiled.append(module.for_launch(threads_per_block=block, dynamic_shared_bytes=shared_bytes)[name])
        return tuple(compiled)

    def with_source(self, source: str | Path) -> CudaVariant:
        """The same declaration for another source, text or a .cu file, that has kernels of these names."""
        unit = read_source(source)
        return replace(self, source=Path(unit.name), text=unit)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """The macros, the names of templates and the block sizes."""
        names = (step.name(config, problem) for step in self.steps)
        blocks = (step.threads(config, problem) for step in self.steps)
        return (*sorted(self.macros(config, problem).items()), *names, *blocks)

    def _parameters(self, config: Config, problem: Any, kernels: tuple | None) -> tuple[tuple[str, ...], ...]:
        if kernels is not None:
            return tuple(kernel.parameter_names for kernel in kernels)
        declared = _declared(self.text or self.source, stamp(self.source), tuple(self.macros(config, problem)))
        bases = (step.name(config, problem).split("<")[0].split("::")[-1].strip() for step in self.steps)
        return tuple(declared[base].parameters for base in bases)


@functools.lru_cache(maxsize=256)
def _declared(source: Path | Source, stamp: int, macros: tuple[str, ...]) -> Mapping[str, Declaration]:
    """The kernels of a source as it was at ``stamp``, with their parameters."""
    return declared_kernels(source.text if isinstance(source, Source) else read(source), macros)


def _file_of(function: Any) -> Path:
    """Where a function, of Triton's too, is written: a file, or a cell of a notebook."""
    while not inspect.isfunction(function):
        function = function.fn
    return Path(inspect.getfile(function))


@dataclass(frozen=True, eq=False, kw_only=True)
class TritonVariant(Variant):
    """``@triton.jit`` functions; a configuration reaches it as constexprs, num_warps and num_stages.

    Compiled ahead of time for the simulator, by Triton's own JIT on a GPU and under ``TRITON_INTERPRET=1``.
    """

    language = "triton"

    @property
    def _function(self) -> Any:
        return self.steps[0].function

    @property
    def files(self) -> tuple[Path, ...]:
        """Also those of the functions that its functions call."""
        called = {path for step in self.steps for path in called_files(step.function)}
        return tuple(sorted({*super().files, *called}))

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Compile ahead of time, without a GPU."""
        self.check(config, problem)
        return tuple(step.compile(config, problem, arch, machine_code=machine_code) for step in self.steps)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """Of each function the argument types, the constexprs, and how many warps and stages."""
        return tuple(
            tuple(part.items())
            for step in self.steps
            for part in (
                step.signature(config, problem),
                step.constants(config, problem),
                step.options(config, problem),
            )
        )

    def _parameters(self, config: Config, problem: Any, kernels: tuple | None) -> tuple[tuple[str, ...], ...]:
        return tuple(step.parameters(step.constants(config, problem)) for step in self.steps)

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options: Any) -> Any:
        """On the simulator launch the compiled kernel, on a GPU go through Triton's JIT."""
        if not device.counts:
            with device.current(tensors.members()):
                return self.jit(config, problem, tensors)
        return super().run(config, problem, tensors, device, **launch_options)

    def jit(self, config: Config, problem: Any, tensors: Any) -> None:
        """Run through Triton's own launcher: the JIT on a GPU, or the interpreter under ``TRITON_INTERPRET=1``."""
        contextvars.copy_context().run(self._jit, config, problem, tensors)  # which keeps a user's own allocator

    def _jit(self, config: Config, problem: Any, tensors: Any) -> None:
        import triton

        triton.set_allocator(_scratch)
        self.check(config, problem)
        tensors = self._with_workspace(config, problem, tensors)
        for step in self.steps:
            constexprs = step.constants(config, problem)
            names = step.parameters(constexprs)
            arguments = dict(zip(names, passed(step, names, config, problem, tensors), strict=True)) | constexprs
            grid = step.grid(config, problem)
            if 0 not in grid:
                step.function[grid](**arguments, **step.options(config, problem))


def _scratch(size: int, alignment: int, stream: int | None) -> Any:
    """Memory for the tensor descriptors that a kernel builds, as Triton asks for it: torch's is aligned to more."""
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cuda")
