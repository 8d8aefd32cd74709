"""A variant, declared once: the value types from which everything else works.

An op (`Op`) is one operation with several implementations (`Variant`) and the inputs that they are judged on
(`Case`). A new variant is one file that ends in ``VARIANT = CudaVariant(...)`` (or `TritonVariant`, `TorchVariant`)
plus one line in the op's tuple; compiling, checking, tracing, tuning and importing need nothing but that value.

Two plain things travel beside a variant:

* a *configuration*: a dict with one value per tunable, e.g. ``{"BLOCK_SIZE": 16, "NUM_THREADS": 128}``;
* a *problem*: the op's own frozen value of everything else that a kernel is compiled and launched for (shapes, dtype,
  layout, arch). Here only its fields ``dtype``, ``layout``, ``features`` and ``arch`` are looked at.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench.errors import ConfigurationError, UnknownNameError
from workbench.home import cuda_sources
from workbench.ops.values import Case, Check, Config, Launch, Restriction

__all__ = [
    "Case",
    "Check",
    "Config",
    "CudaVariant",
    "Launch",
    "Op",
    "Restriction",
    "TorchVariant",
    "TritonVariant",
    "Variant",
]

_MOST_REMEMBERED = 1024
"""Compiled kernels that a variant keeps in memory."""


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
    _remembered: dict = field(default_factory=dict, init=False, repr=False)

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
        """The `CompiledKernel` of a legal configuration."""
        raise NotImplementedError

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """Grid, block, arguments and shared memory of one run."""
        raise NotImplementedError

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options):
        """Compile, launch on a device and fill ``tensors.out``; the `LaunchReport` on the simulator, else None."""
        kernel = self._compiled(config, problem, device.arch)
        launch = self.launch(config, problem, tensors)
        return device.launch(
            kernel, launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, **launch_options
        )

    def _compiled(self, config: Config, problem: Any, arch: str):
        """`compile`, remembered in this process until a file of it changes: on a GPU even a disk-cache hit is long."""
        stamp = tuple(path.stat().st_mtime_ns for path in self._remembered.get("files", ()))
        if not stamp or stamp != self._remembered["stamp"] or len(self._remembered) > _MOST_REMEMBERED:
            files = self.files
            stamp = tuple(path.stat().st_mtime_ns for path in files)
            self._remembered.clear()
            self._remembered.update(files=files, stamp=stamp)
        key = (arch, problem, *sorted(config.items()))
        if key not in self._remembered:
            # Most problems differ in what a launch depends on only, such as the lengths of a decode step.
            self.check(config, problem)
            code = (arch, self.code_key(config, problem))
            if code not in self._remembered:
                self._remembered[code] = self.compile(config, problem, arch)
            self._remembered[key] = self._remembered[code]
        return self._remembered[key]

    def code_key(self, config: Config, problem: Any) -> tuple:
        """What the machine code depends on beside its source: equal keys, equal code."""
        raise NotImplementedError

    # -- identity -----------------------------------------------------------------------------------------------

    @property
    def declaration(self) -> Path:
        """The Python file that declares this variant."""
        return Path(inspect.getsourcefile(self.defaults))

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file of ours that the variant is made of: declaration, kernel source, headers."""
        return tuple(sorted({self.declaration, *_with_headers(self.source)}))

    @property
    def source_hash(self) -> str:
        """Hex digest of everything that changes what it computes or compiles to: kernel, headers, declaration."""
        digest = hashlib.sha256()
        files = ((path.name.encode(), path.read_bytes()) for path in self.files)
        for name, content in sorted(files):
            digest.update(b"%d %s %d\n%s" % (len(name), name, len(content), content))
        return digest.hexdigest()[:32]


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchVariant(Variant):
    """Plain torch operations: no kernel of ours, nothing to compile."""

    compute: Callable[[Any, Any], None]
    """(problem, tensors) -> None: fills ``tensors.out``."""

    language = "torch"

    def compile(self, config: Config, problem: Any, arch: str = "sm_80"):
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

    kernel: str
    """The name of the ``extern "C"`` kernel, or a C++ name expression."""
    macros: Callable[[Config, Any], Mapping[str, str | int | float]]
    """(config, problem) -> preprocessor macros."""
    resources: Callable[[Config, Any], tuple[int, int]]
    """(config, problem) -> (threads per block, dynamic shared memory in bytes)."""
    launcher: Callable[[Config, Any, Any], Launch]
    """(config, problem, tensors) -> Launch."""

    language = "cuda"

    def compile(self, config: Config, problem: Any, arch: str = "sm_80"):
        """Compile with NVRTC; occupancy is that of the block size and shared memory of this problem."""
        from workbench.toolchain import compile_cuda

        self.check(config, problem)
        block, shared_bytes = self.resources(config, problem)
        return compile_cuda(
            self.source,
            self.kernel,
            arch=arch,
            macros=self.macros(config, problem),
            include_dirs=(cuda_sources(),),
            threads_per_block=block,
            dynamic_shared_bytes=shared_bytes,
        )

    def code_key(self, config: Config, problem: Any) -> tuple:
        """The macros and the block size."""
        return (*sorted(self.macros(config, problem).items()), self.resources(config, problem)[0])

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """Grid, block, arguments and dynamic shared memory of one run."""
        return self.launcher(config, problem, tensors)


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

    language = "triton"

    def compile(self, config: Config, problem: Any, arch: str = "sm_80"):
        """Compile ahead of time, without a GPU."""
        from workbench.toolchain import compile_triton

        self.check(config, problem)
        types = {name: kind.partition(":") for name, kind in self.signature(problem).items()}
        return compile_triton(
            self.function,
            {name: kind for name, (kind, _, _) in types.items()},
            dict(self.constexprs(config, problem)),
            arch=arch,
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
            attributes={name: int(multiple) for name, (_, _, multiple) in types.items() if multiple},
        )

    def code_key(self, config: Config, problem: Any) -> tuple:
        """The argument types, the constexprs, and how many warps and stages."""
        parts = (self.signature(problem), self.constexprs(config, problem))
        return (*(tuple(part.items()) for part in parts), config["num_warps"], config["num_stages"])

    def launch(self, config: Config, problem: Any, tensors: Any) -> Launch:
        """Grid, block (32 * num_warps threads) and arguments of one run."""
        return self.launcher(config, problem, tensors)

    def run(self, config: Config, problem: Any, tensors: Any, device: Any, **launch_options):
        """On the simulator launch the compiled kernel, on a GPU go through Triton's JIT."""
        if device.name == "cuda":
            return self.jit(config, problem, tensors)
        return super().run(config, problem, tensors, device, **launch_options)

    def jit(self, config: Config, problem: Any, tensors: Any) -> None:
        """Run through Triton's own launcher: the JIT on a GPU, or the interpreter under ``TRITON_INTERPRET=1``."""
        self.check(config, problem)
        launch = self.launch(config, problem, tensors)
        self.function[launch.grid](
            *launch.arguments,
            **self.constexprs(config, problem),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )


@dataclass(frozen=True)
class Op:
    """One operation: its variants in teaching order, its cases (the first is the quick one), and what users call."""

    name: str
    variants: tuple[Variant, ...]
    cases: Mapping[str, Case] = field(hash=False)
    function: Callable

    def variant(self, name: str) -> Variant:
        """The variant of that name.

        Raises:
            UnknownNameError: there is none; lists the ones there are.
        """
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(variant.name for variant in self.variants)
        raise UnknownNameError("variant", repr(name), names, f"See workbench.variants({self.name!r}).")

    def case(self, name: str, **overrides) -> Case:
        """The case of that name, with fields overridden (e.g. ``context=8192, dtype="bfloat16"``).

        Raises:
            UnknownNameError: there is none; lists the ones there are.
        """
        if name not in self.cases:
            raise UnknownNameError(
                "case", repr(name), ", ".join(self.cases), f"Geometries of {self.name} are changed with overrides."
            )
        found = self.cases[name]
        return found.override(**overrides) if overrides else found

    def restore_case(self, record: Mapping) -> Case:
        """The case that `Case.to_dict` described, e.g. in another process."""
        return type(next(iter(self.cases.values()))).from_dict(record)


def _with_headers(source: Path) -> set[Path]:
    """A source file and every file of ours that it includes, directly or not."""
    found, waiting = set(), [Path(source)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix in (".cu", ".cuh", ".h"):
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
                here = [folder / name for folder in (path.parent, cuda_sources()) if (folder / name).is_file()]
                waiting += here[:1]
    return found
