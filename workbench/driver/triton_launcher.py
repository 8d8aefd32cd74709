"""What Triton asks of a driver, answered by the PTX machine: devices, loading a kernel, launching it, timing it."""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import compiler as triton_compiler
from triton.runtime import _allocation, driver

from workbench.driver.attributes import device_facts
from workbench.errors import ArgumentError, DeviceUnavailableError
from workbench.toolchain import disk_cache
from workbench.toolchain.occupancy import limits_of
from workbench.toolchain.triton_aot import assembly_of, kernel_of

if TYPE_CHECKING:
    from workbench.device_models import DeviceModel
    from workbench.driver.triton_driver import SimulatedTriton
    from workbench.toolchain import CompiledKernel

_ELF = b"\x7fELF"
_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ptx_options", "enable_fp_fusion")
_FIRST_DEVICE = 1000  # no real GPU of the same process has such a number: Triton keeps kernels by it
_models: list[DeviceModel] = []


class Driver(DriverBase):
    """Triton's driver interface over one session; a number of a device stands for one device model."""

    def __init__(self, session: SimulatedTriton):
        super().__init__()
        self.session = session
        if session.model not in _models:
            _models.append(session.model)
        self._device = _FIRST_DEVICE + _models.index(session.model)
        self._target = GPUTarget("cuda", int(session.arch.removeprefix("sm_")), 32)
        self.utils = SimpleNamespace(load_binary=self._load, get_device_properties=self._properties)
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        """Never found by Triton's own search: `simulated_triton` sets it."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        return self._device

    def set_current_device(self, device: int) -> None:
        if device not in (0, self._device):
            raise ArgumentError("device", device, f"0 or {self._device}", "There is one simulated device at a time.")

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(self._target.arch, 10)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Predicted times. An autotuner keeps what this returns, so it looks who is active when it is called."""
        return benchmark

    def get_device_interface(self) -> Any:
        event = functools.partial(Event, self.session)
        return SimpleNamespace(Event=event, synchronize=lambda device=None: None, current_device=lambda: self._device)

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(0)

    def clear_cache(self, cache: Any) -> None:
        self.session.cleared += 1

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    def _load(self, name: str, blob: bytes, shared: int, device: int) -> tuple[Any, ...]:
        """The kernel ready to run. Raises UnsupportedInstructionError for PTX beyond the machine."""
        if blob.startswith(_ELF):
            raise ArgumentError(
                "kernel", f"{name}, compiled to machine code", "PTX", "Compile it again under simulated_triton()."
            )
        from workbench.ptx import Program

        program = Program.from_text(blob.decode())
        return program, program.kernels[name], 0, 0, limits_of(self.session.arch).threads_per_block

    def _properties(self, device: int | None = None) -> dict[str, int]:
        """As Triton's own driver has them; clocks in kHz, the bus in bits."""
        model = self.session.model
        known = device_facts(self.session.shipped_model).attributes
        return {
            "max_shared_mem": known[97],
            "max_num_regs": known[12],
            "multiprocessor_count": int(model.multiprocessors),
            "warpSize": known[10],
            "sm_clock_rate": int(model.clock_hz / 1e3),
            "mem_clock_rate": known[36],
            "mem_bus_width": known[37],
        }


class Kernel(triton_compiler.CompiledKernel):
    """Triton's compiled kernel with its last stage put off: the assembler runs when machine code or registers are read.

    ``compiled`` is the same kernel as the workbench's own value.
    """

    def __init__(self, src: Any, metadata_group: Mapping[str, str], hash: str):
        super().__init__(src, metadata_group, hash)
        if self.metadata.target.backend != "cuda":
            return
        machine_code = self.kernel.startswith(_ELF)
        if machine_code and "ptx" not in self.asm:
            return
        self.kernel = _at_home(self.asm["ptx"] if machine_code else self.kernel.decode(), src).encode()
        if not machine_code:
            rest = {name: text for name, text in self.asm.items() if name not in ("cubin", "ptx")}
            self.asm = _Stages(rest | {"ptx": self.kernel.decode()})
            self.asm.owner = self

    @functools.cached_property
    def compiled(self) -> CompiledKernel:
        return _compiled(self.src, self.metadata, self.kernel.decode())

    @property
    def n_regs(self) -> int:
        """Registers per thread."""
        return self.compiled.registers

    @n_regs.setter
    def n_regs(self, value: int) -> None:
        """Triton writes what loading returned, where nobody knows them yet."""

    @property
    def n_spills(self) -> int:
        """Spilled registers per thread, as the driver counts: of 4 bytes."""
        return self.compiled.spill_bytes // 4

    @n_spills.setter
    def n_spills(self, value: int) -> None:
        """As that of ``n_regs``."""

    def _init_handles(self) -> None:
        current = driver.active.get_current_target()
        target = self.metadata.target
        if (target.backend, target.arch) != (current.backend, current.arch):
            raise ArgumentError(
                f"kernel {self.name}",
                f"one compiled for {target.backend} {target.arch}",
                f"{current.backend} {current.arch}",
                "Compile it for the active target, or make the other one active: wb.simulated_triton(arch).",
            )
        super()._init_handles()


def _at_home(ptx: str, src: Any) -> str:
    """PTX whose lines are those of the function's own file: Triton's cache knows a function by its text alone, and may
    answer with what was compiled from a copy of the file."""
    if not hasattr(src, "fn"):
        return ptx
    own = src.fn.fn.__code__.co_filename
    files = _FILE.findall(ptx)
    if own in files or not files:
        return ptx
    copies = [file for file in files if Path(file).name == Path(own).name]
    main = (copies or files)[0]
    return ptx.replace(f'"{main}"', f'"{own}"')


class _Stages(triton_compiler.AsmDict):
    """The text of every stage; the machine code comes when it is asked for."""

    owner: Kernel

    def __missing__(self, key: str) -> Any:
        if key != "cubin":
            return super().__missing__(key)
        self[key] = self.owner.compiled.cubin
        return self[key]


class Deferred:
    """The stage in the assembler's place: PTX as it is, which is what the machine runs."""

    def __init__(self, assemble: Callable[[str, Any], bytes]):
        self.assemble = assemble

    def __call__(self, ptx: str, metadata: Any) -> bytes:
        return ptx.encode()


def _compiled(src: Any, metadata: Any, ptx: str) -> CompiledKernel:
    from dataclasses import replace

    names, promises = [], {}
    for path, kind in _leaves(src.signature.values()):
        name = _name_of(src, path)
        names += [name] if not _is_descriptor(kind) else _descriptor_names(name, kind)
        for what, value in getattr(src, "attrs", {}).get(path, ()):
            if what == "tt.divisibility":
                promises[name] = value
    label = src.fn.__name__ if hasattr(src, "fn") else metadata.name
    arch = f"sm_{metadata.target.arch}"
    fields = metadata._asdict()
    key = disk_cache.content_key(["triton jit", metadata.hash])
    kernel = kernel_of(ptx, fields, label, names, promises, arch, key, None)
    options = {name: fields[name] for name in _OPTIONS if fields.get(name) is not None}
    return replace(kernel, assembly=assembly_of(kernel, options))


def _leaves(kinds: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    """(path, type) of the arguments that a launch passes, those in tuples one by one; constants are compiled in."""
    for index, kind in enumerate(kinds):
        if isinstance(kind, tuple):
            yield from _leaves(kind, (*path, index))
        elif kind != "constexpr":
            yield (*path, index), kind


def _name_of(src: Any, path: tuple[int, ...]) -> str:
    head = src.fn.arg_names[path[0]] if hasattr(src, "fn") else f"argument_{path[0]}"
    return head + "".join(f"[{index}]" for index in path[1:])


def _is_descriptor(kind: str) -> bool:
    return kind.startswith("tensordesc")


def _descriptor_names(name: str, kind: str) -> list[str]:
    axes = range(kind[kind.index("[") :].split("]")[0].count(",") + 1)
    sizes = [f"{name}.{what}[{axis}]" for what in ("shape", "strides") for axis in axes]
    return [name, *sizes, f"{name}.padding", f"{name}.round_f32_to_tf32", *sizes]


def _descriptor_fields(descriptor: Any) -> list[Any]:
    """A tensor descriptor as the kernel takes it where there is no TMA; shape and strides come twice."""
    sizes = [*map(int, descriptor.shape), *map(int, descriptor.strides)]
    return [descriptor.base, *sizes, descriptor.padding == "nan", bool(descriptor.round_f32_to_tf32), *sizes]


class Launcher:
    """Triton calls it with the grid, the loaded kernel and all arguments of the JIT function."""

    def __init__(self, src: Any, metadata: Any):
        self._src, self._metadata = src, metadata
        if metadata.num_ctas > 1:
            raise ArgumentError("num_ctas", metadata.num_ctas, "1", "The PTX machine has no clusters of blocks.")
        if getattr(metadata, "tensordesc_meta", None):
            raise DeviceUnavailableError(
                f"{metadata.name} takes tensor descriptors through TMA on sm_{metadata.target.arch}, which the PTX "
                'machine does not have. Run it for sm_80, where Triton does without: wb.simulated_triton("sm_80").'
            )
        self._kinds = tuple(src.signature.values())
        self._kernels: dict[str, CompiledKernel] = {}

    def __call__(
        self, grid_x, grid_y, grid_z, stream, function, packed, launch_metadata, enter_hook, exit_hook, *args
    ) -> None:
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if grid_x * grid_y * grid_z > 0:
            values: list[Any] = []
            self._collect(self._kinds, args, values)
            programs = grid_x * grid_y * grid_z
            metadata = self._metadata
            values.append(
                _scratch(programs, metadata.global_scratch_size, metadata.global_scratch_align, _allocation._allocator)
            )
            values.append(
                _scratch(
                    programs, metadata.profile_scratch_size, metadata.profile_scratch_align,
                    _allocation._profile_allocator,
                )
            )  # fmt: skip
            threads = 32 * metadata.num_warps
            _session().launch(function, self, (grid_x, grid_y, grid_z), threads, values, metadata.shared)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def compiled(self, function: Any) -> CompiledKernel:
        """The workbench's own value of the kernel that ``function`` runs."""
        ptx = function.program.module.text
        found = self._kernels.get(ptx)
        if found is None:
            found = self._kernels[ptx] = _compiled(self._src, self._metadata, ptx)
        return found

    def _collect(
        self, kinds: Sequence[Any], args: Sequence[Any], values: list[Any], path: tuple[int, ...] = ()
    ) -> None:
        for index, (kind, value) in enumerate(zip(kinds, args, strict=False)):
            if kind == "constexpr":
                continue
            if isinstance(kind, tuple):
                self._collect(kind, value, values, (*path, index))
            elif kind[0] == "*":
                values.append(self._array(value, (*path, index)))
            elif _is_descriptor(kind):
                base, *fields = _descriptor_fields(value)
                values += [self._array(base, (*path, index)), *fields]
            else:
                values.append(_number(kind, value))

    def _array(self, value: Any, path: tuple[int, ...]) -> Any:
        """The torch tensor behind an argument: itself, or what ``triton.reinterpret`` wrapped."""
        where = value
        while not hasattr(where, "untyped_storage") and hasattr(where, "base"):
            where = where.base
        device = getattr(getattr(where, "device", None), "type", "cpu")
        if not hasattr(where, "untyped_storage") or device != "cpu":
            got = f"a tensor on {where.device}" if device != "cpu" else type(value).__name__
            raise ArgumentError(
                f"{self._metadata.name}(): {_name_of(self._src, path)!r}",
                got,
                "tensors on the cpu",
                "Triton runs on the PTX machine here (wb.simulated_triton): pass .cpu().",
            )
        return where


def _session() -> SimulatedTriton:
    """That of the driver which is active now: Triton keeps what it loaded for the sessions that follow."""
    session = getattr(driver._active, "session", None)  # ``driver.active`` would look for a GPU
    if session is None:
        raise DeviceUnavailableError(
            "This kernel was loaded for the PTX machine, and simulated_triton() has ended. Launch it while it lasts."
        )
    return session


def _number(kind: str, value: Any) -> Any:
    if kind == "bf16":
        import torch

        return torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
    if kind == "fp16":  # two bytes by value too
        return struct.pack("<e", float(value))
    return float(value) if kind[:2] in ("fp", "f3", "f6") else int(value)


def _scratch(programs: int, size: int, alignment: int, allocator: Any) -> Any:
    """Memory for all programs from the allocator that ``triton.set_allocator`` set; it refuses where none is set."""
    return allocator.get()(programs * size, alignment, 0) if size else None


class Event:
    """A point of the predicted time: how long what was launched up to it would take."""

    def __init__(self, session: SimulatedTriton, enable_timing: bool = False, **options: Any):
        self._session, self._at, self._cleared = session, 0.0, 0

    def record(self, stream: Any = None) -> None:
        self._at, self._cleared = self._session.now(), self._session.cleared

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for: work is done when it is launched."""

    def query(self) -> bool:
        return True

    synchronize = wait

    def elapsed_time(self, end: Event) -> float:
        """Predicted milliseconds up to ``end``.

        Triton's ``do_bench`` repeats for 100 ms by an estimate, the only interval in which it clears caches: thousands
        of simulated launches that all have the same predicted time. An infinite estimate makes it one.
        """
        if end._cleared > self._cleared:
            return math.inf
        return 1e3 * (end._at - self._at) or math.nan


def benchmark(
    fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Any = None, quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:  # fmt: skip
    """In the place of ``triton.testing.do_bench``: ``fn`` runs once, and its predicted milliseconds are the answer.

    nan where it launches nothing on the simulated device: torch's work on the CPU says nothing about a GPU.
    """
    active = driver.active
    if not isinstance(active, Driver):
        return active.get_benchmarker()(fn, quantiles=quantiles)
    for tensor in grad_to_none or ():
        tensor.grad = None
    milliseconds = 1e3 * active.session.predicted(fn)
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds


def benchmark_graph(
    fn: Callable[[], Any], rep: int = 20, grad_to_none: Any = None, quantiles: Any = None, return_mode: str = "mean"
) -> Any:
    """In the place of ``triton.testing.do_bench_cudagraph``."""
    return benchmark(fn, 0, rep, grad_to_none, quantiles, return_mode)
