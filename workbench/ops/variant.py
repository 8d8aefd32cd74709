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

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench.errors import ConfigurationError
from workbench.home import cuda_sources
from workbench.ops.compiled_code import CompiledCode
from workbench.ops.source_files import called_files, digest, with_headers, written_in
from workbench.ops.steps import CudaStep, TritonStep
from workbench.ops.values import Case, Check, Config, Footprint, Launch, Restriction
from workbench.toolchain.source import Source

__all__ = [
    "Case",
    "Check",
    "Config",
    "CudaStep",
    "CudaVariant",
    "Footprint",
    "Launch",
    "Restriction",
    "TorchVariant",
    "TritonStep",
    "TritonVariant",
    "Variant",
]


def values_of(tensors: Any) -> Iterable[object]:
    """Every tensor and number of a run."""
    return tensors.members() if hasattr(tensors, "members") else vars(tensors).values()


@dataclass(frozen=True, eq=False, kw_only=True)
class Variant:
    """One way of computing an op. Frozen, compared by identity; see the subclass of its language.

    Attributes:
        op, name: the op's name and the variant's (its file's) name.
        idea: one line on what distinguishes it.
        space: the tunables with their candidate values, in teaching order.
        restrictions: what a configuration must keep; `broken` adds the support for layout, dtype and features.
        layouts, dtypes, features: what it reads, in order of preference; features are names such as ``"alibi"``.
        source: the file that holds the kernel.
        defaults: the untuned rule, problem -> configuration.
        workspace: (config, problem, tensors) -> what its blocks, or its kernels, leave for each other; the launchers
            find it in ``tensors.workspace``.
        footprint: (config, problem) -> what a block takes and waits for, of a variant that mostly reads memory.
    """

    op: str
    name: str
    idea: str
    space: Mapping[str, tuple]
    restrictions: tuple[Restriction, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]
    features: tuple[str, ...] = ()
    source: Path
    defaults: Callable[[Any], dict]
    workspace: Callable[[Config, Any, Any], Any] | None = None
    footprint: Callable[[Config, Any], Footprint] | None = None
    _code: CompiledCode = field(default_factory=CompiledCode, init=False, repr=False)

    language = ""

    def __post_init__(self):
        object.__setattr__(self, "space", MappingProxyType(dict(self.space)))

    def __str__(self) -> str:
        return f"{self.op}/{self.name}"

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

    def broken(self, config: Config, problem: Any) -> tuple[Restriction, ...]:
        """The rules that a configuration breaks for a problem; empty if it is legal.

        Raises:
            ConfigurationError: a tunable is missing or unknown, so that no rule can be evaluated.
        """
        self._check_names(config)
        return self.unsupported(problem) + tuple(rule for rule in self.restrictions if not rule.holds(config, problem))

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

    def compile(self, config: Config, problem: Any, arch: str = "sm_80"):
        """The `CompiledKernel` of a legal configuration; of several kernels the first, which does the main work."""
        return self.kernels(config, problem, arch)[0]

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Every `CompiledKernel` of a legal configuration, in the order in which they run.

        Without ``machine_code``, which the simulator does not need, it is made when somebody asks a kernel for it.
        """
        raise NotImplementedError

    def launches(self, config: Config, problem: Any, tensors: Any) -> tuple[Launch, ...]:
        """Grid, block, arguments and shared memory of each kernel of one run, in the order of `kernels`."""
        if self.workspace is not None:
            tensors = replace(tensors, workspace=self.workspace(config, problem, tensors))
        return tuple(launcher(config, problem, tensors) for launcher in self._launchers)

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """The launch of the first kernel."""
        return self.launches(config, problem, tensors)[0]

    @property
    def _launchers(self) -> tuple[Callable[[Config, Any, Any], Launch], ...]:
        raise NotImplementedError

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options):
        """Compile, launch on a device and fill ``tensors.out``; the `LaunchReport` on the simulator, else None.

        The report of a variant of several kernels is their sum, with the report of each in its ``parts``.
        """
        with device.current(values_of(tensors)):
            kernels = self._code.of(self, config, problem, device.arch, device.runs_machine_code)
            self.prepare(kernels, config, problem, tensors, device)
            reports = [
                device.launch(
                    kernel,
                    launch.grid,
                    launch.block,
                    launch.arguments,
                    shared_bytes=launch.shared_bytes,
                    **launch_options,
                )
                for kernel, launch in zip(kernels, self.launches(config, problem, tensors), strict=True)
            ]
        if len(reports) == 1 or reports[0] is None:
            return reports[0]
        from workbench.ptx.joined import joined

        return joined(reports)

    def prepare(self, kernels: tuple, config: Config, problem: Any, tensors: Any, device: Any) -> None:
        """What a launch finds on the device beside its arguments: variables of the module. Most have none."""

    def code_key(self, config: Config, problem: Any) -> tuple:
        """What the machine code depends on beside its source: equal keys, equal code."""
        raise NotImplementedError

    # -- identity -----------------------------------------------------------------------------------------------

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant: the one in which its first launch is written."""
        return Path(inspect.getsourcefile(self._launchers[0]))

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the variant is made of: declaration, kernel source, headers, what they share, and the files
        and cells of somebody's own functions that it holds."""
        parts = (self, *self.restrictions, *getattr(self, "then", ()))
        functions = (value for part in parts for value in vars(part).values())
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

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant: the one in which ``compute`` is written."""
        return Path(inspect.getsourcefile(self.compute))

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Refused: torch variants have no kernel of ours."""
        raise ConfigurationError(
            "variant", str(self), "a variant in CUDA C++ or Triton", "A torch variant has no kernel to compile."
        )

    def run(self, config: Config, problem: Any, tensors: Any, device: Any = None, **launch_options) -> None:
        """Compute directly, on whatever device the tensors live."""
        self.check(config, problem)
        self.compute(problem, tensors)


@dataclass(frozen=True, eq=False, kw_only=True)
class CudaVariant(Variant):
    """A kernel in a .cu file; a configuration reaches it as macros named as in the search space."""

    kernel: str | Callable[[Config, Any], str]
    """The name of the ``extern "C"`` kernel, or a C++ name expression, which may depend on (config, problem)."""
    macros: Callable[[Config, Any], Mapping[str, str | int | float]]
    """(config, problem) -> preprocessor macros."""
    resources: Callable[[Config, Any], tuple[int, int]]
    """(config, problem) -> (threads per block, dynamic shared memory in bytes)."""
    launcher: Callable[[Config, Any, Any], Launch]
    """(config, problem, tensors) -> Launch."""
    then: tuple[CudaStep, ...] = ()
    """Kernels of the same file that run after it."""
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
        steps = (self, *self.then)
        names = [step.kernel(config, problem) if callable(step.kernel) else step.kernel for step in steps]
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
        for step, name in zip(steps, names, strict=True):
            block, shared_bytes = step.resources(config, problem)
            launch = module.for_launch(threads_per_block=block, dynamic_shared_bytes=shared_bytes)
            compiled.append(launch[name])
        return tuple(compiled)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """The macros, the names of templates and the block sizes."""
        steps = (self, *self.then)
        names = (step.kernel(config, problem) for step in steps if callable(step.kernel))
        blocks = (step.resources(config, problem)[0] for step in steps)
        return (*sorted(self.macros(config, problem).items()), *names, *blocks)

    @property
    def _launchers(self) -> tuple[Callable[[Config, Any, Any], Launch], ...]:
        return (self.launcher, *(step.launcher for step in self.then))


TRITON_OPTIONS = {"num_warps": 4, "num_stages": 3}
"""What Triton compiles with where a configuration does not say."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TritonVariant(Variant):
    """A ``@triton.jit`` function; a configuration reaches it as constexprs, num_warps and num_stages.

    Compiled ahead of time for the simulator, by Triton's own JIT on a GPU and under ``TRITON_INTERPRET=1``.
    """

    function: Any
    """The ``@triton.jit`` function; its parameters are first those of ``signature``, then the constexprs."""
    signature: Callable[[Any], Mapping[str, str]]
    """problem -> Triton types of the arguments of a launch in order, e.g. ``{"out": "*fp16", "scale": "fp32"}``.
    ``"i64:16"`` promises that the value is a multiple of 16; a pointer is one of 16 bytes unless ``"*i32:1"``."""
    constexprs: Callable[[Config, Any], Mapping[str, Any]]
    """(config, problem) -> the constexpr parameters."""
    launcher: Callable[[Config, Any, Any], Launch]
    then: tuple[TritonStep, ...] = ()
    """Functions that run after it."""
    source: Path | None = None
    """Unless given, where ``function`` is written: a file, or a cell of a notebook."""

    language = "triton"

    def __post_init__(self):
        super().__post_init__()
        if self.source is None:
            function = self.function
            while not inspect.isfunction(function):
                function = function.fn
            object.__setattr__(self, "source", Path(inspect.getsourcefile(function)))

    @property
    def files(self) -> tuple[Path, ...]:
        """Also those of the functions that its functions call."""
        called = {path for step in self._steps for path in called_files(step.function)}
        return tuple(sorted({*super().files, *called}))

    @property
    def _steps(self) -> tuple[TritonStep, ...]:
        first = TritonStep(
            function=self.function,
            signature=self.signature,
            constexprs=self.constexprs,
            launcher=self.launcher,
            options=lambda config, problem: {name: config.get(name, usual) for name, usual in TRITON_OPTIONS.items()},
        )
        return (first, *self.then)

    def kernels(self, config: Config, problem: Any, arch: str = "sm_80", *, machine_code: bool = True) -> tuple:
        """Compile ahead of time, without a GPU."""
        self.check(config, problem)
        return tuple(step.compile(config, problem, arch, machine_code=machine_code) for step in self._steps)

    def code_key(self, config: Config, problem: Any) -> tuple:
        """Of each function the argument types, the constexprs, and how many warps and stages."""
        return tuple(
            tuple(part.items())
            for step in self._steps
            for part in (step.signature(problem), step.constexprs(config, problem), step.options(config, problem))
        )

    @property
    def _launchers(self) -> tuple[Callable[[Config, Any, Any], Launch], ...]:
        return tuple(step.launcher for step in self._steps)

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options):
        """On the simulator launch the compiled kernel, on a GPU go through Triton's JIT."""
        if device.name == "cuda":
            with device.current(values_of(tensors)):
                return self.jit(config, problem, tensors)
        return super().run(config, problem, tensors, device, **launch_options)

    def jit(self, config: Config, problem: Any, tensors: Any) -> None:
        """Run through Triton's own launcher: the JIT on a GPU, or the interpreter under ``TRITON_INTERPRET=1``."""
        self.check(config, problem)
        for step, launch in zip(self._steps, self.launches(config, problem, tensors), strict=True):
            constexprs = dict(step.constexprs(config, problem))
            names = (name for name in step.function.arg_names if name not in constexprs)
            arguments = dict(zip(names, launch.arguments, strict=True)) | constexprs
            step.function[launch.grid](**arguments, **step.options(config, problem))
