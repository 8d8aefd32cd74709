"""``load_cuda``: compile any CUDA C++ source of the user and call its kernels from Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.check_report import CheckReport, notes_on, show_report
from workbench.analysis.trace import Trace, trace_of
from workbench.analysis.watching import watched
from workbench.base.argument_kinds import checked_kinds
from workbench.base.demangle import normalised, parameter_types
from workbench.base.home import cuda_sources
from workbench.base.terminal import say
from workbench.base.time_limit import Limit, seconds_of
from workbench.errors import ArgumentError, HostCodeError, MissingToolError, UnknownNameError
from workbench.launch import devices
from workbench.launch.declared_types import rules_of
from workbench.launch.variables import Variable, Variables
from workbench.ptx.options import LaunchOptions, options_of
from workbench.ptx.signature import Views
from workbench.toolchain import CompiledKernel, CompiledModule, compile_cuda, compile_cuda_module
from workbench.toolchain.c_types import CType, c_type
from workbench.toolchain.source import Source, kernels_within, read_source, type_names
from workbench.toolchain.type_names import RECORD

if TYPE_CHECKING:
    from workbench.analysis.watching import Watch
    from workbench.ptx import LaunchReport
    from workbench.ptx.signature import KernelSignature


_AUTO = re.compile(r"template\s*<[^;{(]*\bauto\b")
"""A template with an ``auto`` parameter, whose instances for 1 and for 1u differ."""


class Kernel:
    """One kernel of a loaded source: ``kernel(grid, block, *args, shared_bytes=0)`` launches it.

    ``compiled`` is the CompiledKernel with its PTX, SASS and resources.
    """

    def __init__(self, compiled: CompiledKernel, module: Module):
        self.compiled = compiled
        self.module = module
        self.device = module._device
        self.__name__ = compiled.label
        views: Views = "resolved" if module._strided else "contiguous"
        self.signature = compiled.signature.declaring(rules_of(module._types_of(compiled)), views)
        self._forced = {name: True for name, on in (("statistics", module._trace), ("checks", module._checks)) if on}
        usual = {**module._limits, **self._forced}
        self._usual = LaunchOptions(**usual) if usual else None  # type: ignore[arg-type]
        self._noted: set[str] = set()

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: object,
        shared_bytes: int = 0,
        **options: Any,
    ) -> LaunchReport | Trace | None:
        """Launch with ``args``: torch tensors or NumPy arrays for pointers, numbers, None, bytes for structs by value.

        ``shared_bytes`` is dynamic shared memory per block; ``options`` are those of the device's ``launch``
        (``checks``, ``statistics``, ``record_block``, ``cooperative``, ``seconds_limit`` on ``"sim"``). Returns the
        LaunchReport on ``"sim"``, None on ``"cuda"``, a Trace if the module was loaded with ``trace=True``. If it was
        loaded with ``checks=True``, findings are shown at once. Raises ArgumentError naming the parameter, and
        KernelFault for an illegal access of the kernel.
        """
        asked = options_of(self._usual, {**options, **self._forced}) if options else self._usual
        report = self.device.launch(
            self.compiled, grid, block, args, asked, shared_bytes=shared_bytes, signature=self.signature
        )
        if report is None:
            return None
        watch, module = watched(), self.module
        if watch is not None or module._checks:
            self._note(args, report, watch)
        return trace_of(self.compiled, report, shared_bytes) if module._trace else report

    def _note(self, args: Sequence[object], report: LaunchReport, watch: Watch | None) -> None:
        """Note suspicious arguments in the watch; if the module was loaded with ``checks``, show findings and notes."""
        found = notes_on(self.compiled.parameter_names, args, self.macros.values())
        if watch is not None and found:
            watch.note(self.compiled.label, found)
        if self.module._checks:
            notes = tuple(note for note in found if note not in self._noted)
            self._noted.update(notes)
            if report.findings or notes:
                show_report(CheckReport(self.compiled.label, tuple(report.findings), report, notes))

    @property
    def macros(self) -> Mapping[str, object]:
        """Macros with which the source was compiled."""
        return self.module._macros

    def __repr__(self) -> str:
        parameters = ", ".join(f"{parameter.name}: {parameter.kind}" for parameter in self.compiled.parameters)
        return f"<kernel {self.compiled.label}({parameters}) for {self.compiled.arch} on {self.device.name}>"


class Module:
    """The kernels of one source: ``module.name``, and ``module["scale<float, 4>"]`` for an instance of a template.

    ``globals`` holds its ``__device__`` and ``__constant__`` variables.
    """

    def __init__(
        self,
        source: Source,
        device: devices.Device,
        settings: dict[str, Any],
        checks: bool,
        trace: bool,
        limits: Mapping[str, float],
        strided: bool,
    ):
        self._strided = strided
        self._device = device
        self._checks = checks
        self._trace = trace
        self._limits = limits
        self._macros = settings["macros"]
        self._declared = kernels_within(source, settings["include_dirs"], self._macros)
        folders = ([source.folder] if source.folder is not None else []) + [*settings["include_dirs"], cuda_sources()]
        self._type_names = type_names(source, folders, self._macros)
        self._source = source
        self._settings = settings
        self.globals = Variables(device, source.text, self._macros)
        self._kernels: dict[str, Kernel] = {}
        for name, compiled in _compiled(source, settings).items():
            self._add(name, compiled)

    def _add(self, name: str, compiled: CompiledKernel) -> None:
        self._kernels[name] = Kernel(compiled, self)
        self.globals.add(compiled)

    def _types_of(self, compiled: CompiledKernel) -> tuple[CType | None, ...]:
        """Return the types of a kernel's parameters: from its C++ name, which has them all, else from the source."""
        count = len(compiled.parameters)
        exact = parameter_types(compiled.name)
        if exact is not None and len(exact) == count:
            return tuple(c_type(one, self._records) for one in exact)
        declared = self._declared.get(compiled.label.split("<")[0].split("::")[-1])
        if declared is None or len(declared.types) != count:
            return (None,) * count
        known = {**self._type_names, **declared.instance(compiled.label)}
        return tuple(c_type(one, known) for one in declared.types)

    @property
    def compiler(self) -> str:
        """Compiler that compiled the source, ``"nvrtc"`` or ``"nvcc"``."""
        return self._settings["compiler"]

    @property
    def _records(self) -> dict[str, str]:
        return {name: RECORD for name, one in self._type_names.items() if one == RECORD}

    def constant(self, name: str) -> Variable:
        """Return the ``__constant__`` variable ``name``. Raises UnknownNameError for one not in constant memory."""
        found = self.globals[name]
        if found.space != "constant":
            known = ", ".join(one.name for one in self.globals.values() if one.space == "constant") or "none"
            raise UnknownNameError("constant", repr(name), known, "It is a __device__ variable: use globals.")
        return found

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._kernels:
            return self._kernels[name]
        known = ", ".join([*self._kernels, *(f'["{one}<...>"]' for one in self._templates())]) or "none"
        raise _UnknownKernelError("kernel", repr(name), known, "The source defines these.")

    def __getitem__(self, expression: str) -> Kernel:
        """Return the kernel of a name or of a C++ name expression; ``tk<128>`` is also ``tk<128u>``.

        A template's instance is compiled on first use. Raises UnknownNameError for a kernel that the source does not
        define, CompileError for template arguments that do not fit.
        """
        if expression not in self._kernels:
            for name, kernel in self._kernels.items():
                if normalised(name) == normalised(expression) and not _AUTO.search(self._source.text):
                    return kernel
            self._add(expression, compile_cuda(self._source, expression, **self._settings))
        return self._kernels[expression]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the compiled kernels."""
        return iter(self._kernels)

    def _templates(self) -> list[str]:
        return [name for name, declaration in self._declared.items() if declaration.template]

    def __dir__(self) -> list[str]:
        own = ("constant", "globals") if self.globals else ()
        return sorted([*own, *(name for name in self._kernels if name.isidentifier())])

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._kernels, *(f"{name}<" for name in self._templates())]

    def __repr__(self) -> str:
        names = ", ".join([*self._kernels, *(f"{name}<...>" for name in self._templates())]) or "no kernel"
        modes = "".join(f", {mode}" for mode, on in (("checked", self._checks), ("traced", self._trace)) if on)
        return f"<CUDA module of {names} for {self._settings['arch']} on {self._device.name}{modes}>"


class _UnknownKernelError(UnknownNameError, AttributeError):
    """A kernel that a module does not have; an AttributeError too, so that ``hasattr`` returns False."""


@checked_kinds
def load_cuda(
    source_or_path: str | Path | Source,
    *,
    arch: str | None = None,
    macros: Mapping[str, str | int | float] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "auto",
    device: str = "auto",
    checks: bool = False,
    trace: bool = False,
    machine_code: bool | None = None,
    seconds_limit: Limit = "auto",
    strided: bool = False,
) -> Module:
    """Compile a CUDA C++ source, text or a .cu file, and return its kernels as functions.

    ``arch`` defaults to the device's own; ``macros`` become ``-D``; ``device`` is ``"auto"``, ``"sim"`` or ``"cuda"``.
    With ``checks`` every launch runs with all checks and shows its findings at once (in a notebook as a table, else on
    stderr), and goes on: results are written, the report is returned. With ``trace`` every launch returns a Trace. Both
    run in the PTX machine, also on a machine with a GPU. With ``machine_code``, the default on a GPU only, the cubin is
    made at once, and code that only the assembler refuses raises CompileError here; else it is made on first use.

    ``compiler`` is ``"nvrtc"``, ``"nvcc"``, or ``"auto"``: NVRTC, or nvcc, if installed, for a source with host code
    (``<iostream>``, ``<<<>>>``, ``main``); ``module.compiler`` tells which one compiled it.

    In the PTX machine a launch raises KernelTimeout after ``seconds_limit``. The default is 60 s in a notebook and no
    limit elsewhere; None is no limit. A launch may have its own limit, ``module.twice(1, 32, x, seconds_limit=5)``::

        module = load_cuda('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }')
        module.twice(1, 32, tensor)

    Arrays must have the dtype of the declared pointer (uint8 passes as raw bytes), also behind ``typedef``, ``using``
    and macros; for a type that the text does not give, a launch warns. Arrays must be contiguous, because a kernel gets
    an address and no strides. With ``strided`` torch tensors may be views, for kernels that get or know their strides.

    Raises CompileError with the compiler's lines, ArgumentError, MissingToolError, DeviceUnavailableError.
    """
    target = device_for(device, checks, trace)
    settings = {
        "arch": arch or target.arch,
        "macros": dict(macros or {}),
        "options": tuple(options),
        "include_dirs": tuple(include_dirs),
        "compiler": compiler,
        "machine_code": target.runs_machine_code if machine_code is None else machine_code,
    }
    limits = limits_on(target, seconds_limit)
    return Module(read_source(source_or_path), target, settings, checks, trace, limits, strided)


_told: set[str] = set()


def _compiled(source: Source, settings: dict[str, Any]) -> CompiledModule:
    """Compile with the compiler of the settings; ``"auto"`` becomes the one that compiled the source."""
    if settings["compiler"] != "auto":
        return compile_cuda_module(source, **settings)
    try:
        settings["compiler"] = "nvrtc"
        return compile_cuda_module(source, **settings)
    except HostCodeError as error:
        try:
            settings["compiler"] = "nvcc"
            module = compile_cuda_module(source, **settings)
        except MissingToolError as missing:
            raise HostCodeError(f"{source.label} has host code. {missing}", error.log, error.advice) from None
    if source.name not in _told:
        _told.add(source.name)
        say(f"workbench: {source.label} has host code: its kernels are compiled by nvcc", err=True)
    return module


def device_for(device: str, checks: bool, trace: bool) -> devices.Device:
    """Return the device of that name; with checks or traces the PTX machine, the only one that has them."""
    if checks or trace:
        if device == "cuda":
            wanted = " and ".join(name for name, on in (("checks", checks), ("trace", trace)) if on)
            raise ArgumentError("device", "'cuda'", f"'auto' or 'sim' with {wanted}", "Only the PTX machine can.")
        device = "sim"
    return devices.get(device)


def limits_on(device: devices.Device, seconds_limit: Limit) -> dict[str, float]:
    """Return the launch option of a time limit, if there is one. Raises ArgumentError for a limit on a GPU."""
    seconds = seconds_of(seconds_limit)
    if seconds is None or (not device.counts and seconds_limit == "auto"):
        return {}
    if not device.counts:
        raise ArgumentError("seconds_limit", seconds, "None on a GPU", "A kernel on a GPU cannot be stopped.")
    return {"seconds_limit": seconds}


def loaded_from(module: Module) -> tuple[Source, dict[str, Any]]:
    """Return the source of a module and its settings: arch, macros, options, include_dirs, compiler, machine_code."""
    return module._source, dict(module._settings)


def kernel_to_launch(
    kernel: Any, kwargs: Mapping[str, object] | None = None, arch: str | None = None
) -> tuple[CompiledKernel, KernelSignature]:
    """Return the CompiledKernel and the signature of a kernel of ``load_cuda``, or of a CompiledKernel itself.

    Raises ArgumentError for other objects, and for arguments that only a ``@triton.jit`` function takes.
    """
    for name, value in (("kwargs", kwargs), ("arch", arch)):
        if value:
            raise ArgumentError(
                name, value, "no value", "Only @triton.jit functions take it: this is compiled already."
            )
    if isinstance(kernel, Kernel):
        return kernel.compiled, kernel.signature
    if isinstance(kernel, CompiledKernel):
        return kernel, kernel.signature
    remedy = "Pass module.name, or what compile_cuda or compile_triton returned."
    if "KernelInterface" in getattr(kernel, "__qualname__", ""):  # the class of Triton's kernel[grid]
        remedy = "Pass the kernel without [grid], and grid=."
    raise ArgumentError(
        "kernel",
        type(kernel).__name__,
        "a kernel of load_cuda or load_ptx, a @triton.jit function or a CompiledKernel",
        remedy,
    )
