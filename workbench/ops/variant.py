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

from workbench.base.architectures import MACHINE_ARCHS, arch_number
from workbench.base.home import cuda_sources
from workbench.errors import ConfigurationError
from workbench.ops.compiled_code import CompiledCode, Plan
from workbench.ops.source_files import called_files, digest, read, stamp, with_headers, written_in
from workbench.ops.steps import TRITON_OPTIONS, Arguments, CudaStep, Size, TritonStep, passed
from workbench.ops.values import Case, Check, Config, Footprint, Launch, Restriction
from workbench.toolchain.source import KernelDeclaration, Source, declared_kernels, read_source

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


RECORDED_PARTS = 4
"""Number of blocks of a launch that are recorded, if any must be."""


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
        needs: features without which it cannot run, such as a cache's only dtype.
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
    needs: tuple[str, ...] = ()
    source: Path = None  # type: ignore[assignment]  # `__post_init__` finds it
    defaults: Callable[[Any], dict] = lambda problem: {}
    workspace: Callable[[Config, Any, Any], Any] | None = None
    footprint: Callable[[Config, Any], Footprint] | None = None
    _code: CompiledCode = field(default_factory=CompiledCode, init=False, repr=False)

    language = ""
    compiles = True
    """True if the variant has kernels of its own, to be compiled."""
    is_reference = False
    """True if the case's known answer is that of this variant's function, which is then not judged by it."""

    def torch_call(self, case: Case, device: str = "cpu") -> tuple[Callable, Mapping[str, Any]] | None:
        """Return the function in plain torch that is all of this variant, with its arguments of a case, or None."""
        return None

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", MappingProxyType(dict(self.space)))
        if self.source is None:
            object.__setattr__(self, "source", _file_of(self._function))

    def __str__(self) -> str:
        return f"{self.op}/{self.name}"

    @property
    def _function(self) -> Any:
        """Function in whose file the kernel is written, unless a source is given."""
        raise NotImplementedError

    # -- legality -----------------------------------------------------------------------------------------------

    def unsupported(self, problem: Any) -> tuple[Restriction, ...]:
        """Return what this variant lacks for the problem, whatever the configuration: layout, dtype or features."""
        lacking = []
        if problem.layout not in self.layouts:
            lacking.append(("layout", f"layout {problem.layout!r} is one of {', '.join(self.layouts)}"))
        if problem.dtype not in self.dtypes:
            lacking.append(("dtype", f"dtype {problem.dtype} is one of {', '.join(self.dtypes)}"))
        for feature in self.needs:
            if feature not in problem.features:
                lacking.append(("features", f"it needs {feature}"))
        for feature in problem.features:
            if feature not in (*self.features, *self.needs):
                known = ", ".join((*self.needs, *self.features)) or "(none)"
                lacking.append(("features", f"{feature} is one of {known}"))
        return tuple(Restriction(name, rule, lambda config, problem: False) for name, rule in lacking)

    def check_tensors(self, problem: Any) -> None:
        """Raise ArgumentError for a tensor that does not lie in memory as the kernels assume.

        Built-in ops check their tensors in the function that users call.
        """

    def broken(self, config: Config, problem: Any) -> tuple[Restriction, ...]:
        """Return the rules that a configuration breaks for a problem; empty if it is legal.

        Raises:
            ConfigurationError: a tunable is missing or unknown, so that no rule can be evaluated.
        """
        self._check_names(config)
        return self.unsupported(problem) + tuple(rule for rule in self.restrictions if not rule.holds(config, problem))

    def machine_arch(self, problem: Any) -> str:
        """Return the first of `MACHINE_ARCHS` that has what this variant needs for the problem, or else the default."""
        if any(rule.of_arch for rule in self.restrictions):
            for arch in MACHINE_ARCHS:
                if self.runs_on(replace(problem, arch=arch)):
                    return arch
        return MACHINE_ARCHS[0]

    def machine_problem(self, case: Case, config: Config | None = None) -> Any:
        """Return a case's problem for a run of this variant in the PTX machine."""
        return case.problem(config, arch=self.machine_arch(case.problem()))

    def able(self, problem: Any) -> bool:
        """Return True if the configuration that an untuned user gets is legal for the problem."""
        return not self.unsupported(problem) and not self.broken(self.default_config(problem), problem)

    def runs_on(self, problem: Any) -> bool:
        """Return True if the problem's architecture has what this variant needs for it."""
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
        """Raise ConfigurationError for a value of another type than the space has.

        A value must also be positive where all values of the space are, because rules divide by such values.
        """
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
        """Return the configuration that an untuned user gets for this problem."""
        return dict(self.defaults(problem))

    def configurations(self, problem: Any) -> list[dict]:
        """Return every legal configuration of the space, the first tunable varying slowest."""
        return [config for config in self.all_configurations() if not self.broken(config, problem)]

    def all_configurations(self) -> Iterator[dict]:
        """Yield every point of the space, legal or not, the first tunable varying slowest."""
        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))

    # -- compile and run: each language's own -------------------------------------------------------------------

    def compile(self, config: Config, problem: Any, arch: str = "sm_80") -> CompiledKernel:
        """Compile a legal configuration; return the kernel that does the main work, the first if there are several."""
        return self.kernels(config, problem, arch)[0]

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Return every `CompiledKernel` of a legal configuration, in the order in which they run.

        ``machine_code=False`` puts the machine code off until somebody asks a kernel for it; the simulator does not
        need it.
        """
        raise NotImplementedError

    def remember(self, config: Config, problem: Any, arch: str, kernels: tuple) -> None:
        """Keep what `kernels` returned for the next `run` with these arguments, which then compiles nothing."""
        self._code.keep(config, problem, arch, kernels)

    def launches(self, config: Config, problem: Any, tensors: Any, kernels: tuple | None = None) -> tuple[Launch, ...]:
        """Return grid, block, arguments and shared memory of each kernel of one run, in the order of `kernels`.

        With ``kernels``, if they are compiled already, their parameters need not be looked up in the source.
        """
        return self._launches(self.plan(config, problem, kernels), config, problem, tensors)

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """Return the launch of the first kernel."""
        return self.launches(config, problem, tensors)[0]

    def plan(self, config: Config, problem: Any, kernels: tuple | None = None) -> Plan:
        """Return everything that all runs share; without ``kernels`` the parameters are those in the source."""
        shapes = tuple(step.shape(config, problem) for step in self.steps)
        return Plan(kernels or (), self._parameters(config, problem, kernels), shapes)

    def _parameters(self, config: Config, problem: Any, kernels: tuple | None) -> tuple[tuple[str, ...], ...]:
        """Return the names of the parameters of each step's kernel."""
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
        """Compile, launch on a device and fill ``tensors.out``; return the `LaunchReport` on the simulator, else None.

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
        from workbench.ptx.joined import join_reports

        return join_reports(reports)

    def with_parts(
        self,
        report: LaunchReport,
        config: Config,
        problem: Any,
        tensors: Any,
        device: Any,
        *,
        parts: int = RECORDED_PARTS,
        **launch_options: Any,
    ) -> LaunchReport:
        """Return a run's report with recordings of some blocks, if its warps wait for products that run beside them.

        The prediction of such a launch needs them. The blocks run once more on the simulator, one by one, unless blocks
        wait for each other.
        """
        ran = " ".join(line.text for line in report.lines)
        beside = "wgmma.mma_async" in ran or "tcgen05.mma" in ran
        if not beside or "barrier.cluster" in ran or len(report.parts) > 1:
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
        """Set the device variables of the module before a launch. Most modules have none."""

    @property
    def copied(self) -> tuple[str, ...]:
        """Names of the arguments that a run copies where they are not contiguous, and copies back."""
        return ()

    def filled(self, part: str, tensor: Any) -> float | None:
        """Return the number that fills a part of the workspace before a run; None for a part without content."""
        return None if tensor.is_floating_point() else 0

    def constant_values(self, config: Config, problem: Any, tensors: Any) -> dict[str, Any]:
        """Return the number or tensor that is written to each variable of the module before a launch."""
        return {}

    def code_key(self, config: Config, problem: Any) -> tuple:
        """Return a key of all that the machine code depends on beside its source: equal keys, equal code."""
        raise NotImplementedError

    # -- identity -----------------------------------------------------------------------------------------------

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant: the one in which its first grid is written."""
        return _file_of(self.steps[0].grid)

    @property
    def declared_launch(self) -> Mapping[str, Any]:
        """Arguments of the declaration of an own variant of one kernel, without its source; empty for others."""
        return {}

    @property
    def texts(self) -> Mapping[str, str]:
        """Texts of sources that need be no files, by the names that findings give them."""
        return {}

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the variant is made of.

        Those are the declaration, the kernel source, headers, what these share, and the files and cells of a user's own
        functions that the variant holds.
        """
        parts = (self, *self.restrictions, *self.steps)
        functions = [value for part in parts for value in vars(part).values()]
        functions += [value for step in self.steps for value in step.arguments.values()]
        return tuple(sorted(with_headers(self.declaration) | with_headers(self.source) | written_in(functions)))

    @property
    def source_hash(self) -> str:
        """Hex digest of everything that affects the variant's results or code: kernel, headers, declaration."""
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
        """Raise ConfigurationError: torch variants have no kernel of ours."""
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
    """The source, where ``source`` is not a file of its own: a string, or a cell of a notebook."""
    options: Sequence[str] = ()
    """Options for the compiler."""
    include_dirs: Sequence[Path] = ()
    """Folders of headers beside the source's own and those of the workbench."""
    own_instructions_from: int = 0
    """First architecture whose own instructions the source has another way for, such as 100; 0 if there is none.

    From there on it is compiled for the architecture alone, such as "sm_100a"."""

    language = "cuda"

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Compile with NVRTC; occupancy is that of the block size and shared memory of this problem."""
        from workbench.toolchain import compile_cuda_module

        self.check(config, problem)
        arch = next((f"{rule.only}a" for rule in self.restrictions if rule.only), arch)
        if self.own_instructions_from and arch_number(arch) >= self.own_instructions_from and arch[-1].isdigit():
            arch = f"{arch}a"
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
        """Return this declaration for another source, text or a .cu file, that has kernels of the same names."""
        unit = read_source(source)
        return replace(self, source=Path(unit.name), text=unit)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """Return the macros, the names of templates and the block sizes."""
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
def _declared(source: Path | Source, stamp: int, macros: tuple[str, ...]) -> Mapping[str, KernelDeclaration]:
    """Return the kernels of a source as it was at ``stamp``, with their parameters."""
    return declared_kernels(source.text if isinstance(source, Source) else read(source), macros)


def _file_of(function: Any) -> Path:
    """Return the file, or the cell of a notebook, in which a function of Python or Triton is written."""
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
        """Every file that the variant is made of, with those of the functions that its functions call."""
        called = {path for step in self.steps for path in called_files(step.function)}
        return tuple(sorted({*super().files, *called}))

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Compile ahead of time, without a GPU."""
        self.check(config, problem)
        return tuple(step.compile(config, problem, arch, machine_code=machine_code) for step in self.steps)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """Return each function's argument types, constexprs, and numbers of warps and stages."""
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
        """Launch the compiled kernel on the simulator; on a GPU go through Triton's JIT."""
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
    """Allocate memory for the tensor descriptors that a kernel builds; torch aligns it to more than Triton asks."""
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cuda")
