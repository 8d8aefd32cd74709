"""Triton's driver interface, implemented by the PTX machine: devices, loading a kernel, launching it."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation, driver

from workbench.driver.attributes import device_facts
from workbench.driver.triton.kernel import ELF, compiled_of, name_of, parameter_names
from workbench.driver.triton.timing import Event, benchmark
from workbench.errors import ArgumentError, DeviceUnavailableError, UnsupportedInstructionError
from workbench.ptx.tensor_map import ELEMENTS, SWIZZLES, TensorMap
from workbench.ptx.tensors import address_of
from workbench.toolchain.occupancy import limits_of
from workbench.toolchain.triton_descriptors import is_descriptor

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel
    from workbench.driver.triton.session import TritonSession
    from workbench.toolchain import CompiledKernel

_FIRST_DEVICE = 1000  # Triton caches kernels by this number, so it must differ from those of real GPUs
_models: list[DeviceModel] = []


class TritonDriver(DriverBase):
    """Triton's driver interface over one session; each device number stands for one device model."""

    def __init__(self, session: TritonSession):
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
        """Return False, so that Triton's own search never finds it: `simulated_triton` sets it."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the C++ type of a type in Triton's signature, as Triton's own driver does."""
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self) -> GPUTarget:
        """Return the architecture of the session's device model."""
        return self._target

    def get_active_torch_device(self) -> Any:
        """Return the device of tensors: the CPU."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Return the number of the session's device model, which no real device has."""
        return self._device

    def set_current_device(self, device: int) -> None:
        """Do nothing for the session's device, also numbered 0; raise ArgumentError for any other."""
        if device not in (0, self._device):
            raise ArgumentError("device", device, f"0 or {self._device}", "There is one simulated device at a time.")

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the default stream; launches are complete when they return."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Return the compute capability, (8, 0) for sm_80."""
        return divmod(self._target.arch, 10)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return the function that predicts times.

        An autotuner keeps it, so it looks up the active session when it is called.
        """
        return benchmark

    def get_device_interface(self) -> Any:
        """Return a stand-in for ``torch.cuda`` in Triton's benchmarks, with events on the predicted time."""
        event = functools.partial(Event, self.session)
        return SimpleNamespace(Event=event, synchronize=lambda device=None: None, current_device=lambda: self._device)

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return an empty tensor: predicted launches have no caches to clear."""
        import torch

        return torch.empty(0)

    def clear_cache(self, cache: Any) -> None:
        """Count the call only; see `Event.elapsed_time`."""
        self.session.cleared += 1

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        """Return the arguments unchanged: tensor maps are made at the launch."""
        return args

    def _load(self, name: str, blob: bytes, shared: int, device: int) -> tuple[Any, ...]:
        """Return the kernel, ready to run. Raises UnsupportedInstructionError for unsupported PTX."""
        if blob.startswith(ELF):
            raise ArgumentError(
                "kernel", f"{name}, compiled to machine code", "PTX", "Compile it again under simulated_triton()."
            )
        from workbench.ptx import Program

        try:
            program = Program.from_text(blob.decode())
            kernel = program.kernels[name]
        except UnsupportedInstructionError as error:
            if self._target.arch < 90:
                raise
            raise UnsupportedInstructionError(
                f"{name} for sm_{self._target.arch}: the PTX machine does not support every instruction that Triton "
                f'generates for it. Compile for sm_80: simulated_triton("sm_80"), or --arch sm_80.\n{error}'
            ) from error
        return program, kernel, 0, 0, limits_of(self.session.arch).threads_per_block

    def _properties(self, device: int | None = None) -> dict[str, int]:
        """Return the properties that Triton's own driver reports; clocks in kHz, the width of the bus in bits."""
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


class Launcher:
    """Launcher that Triton calls with the grid, the loaded kernel and all arguments of the JIT function."""

    def __init__(self, src: Any, metadata: Any):
        self._src, self._metadata = src, metadata
        self._maps = getattr(metadata, "tensordesc_meta", None)
        self._kinds = tuple(src.signature.values())
        self._kernels: dict[str, CompiledKernel] = {}
        self.names = parameter_names(src, metadata)

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, packed: Any, launch_metadata: Any,
        enter_hook: Callable[[Any], object] | None, exit_hook: Callable[[Any], object] | None, *args: Any,
    ) -> None:  # fmt: skip
        """Launch the loaded kernel ``function`` on the active session's machine, between Triton's two hooks."""
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if grid_x * grid_y * grid_z > 0:
            values: list[Any] = []
            maps = iter(self._maps or ())
            self._collect(self._kinds, args, values, maps)
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
            blocks = getattr(metadata, "num_ctas", 1)  # the blocks of one program form a cluster
            grid, cluster = (grid_x * blocks, grid_y, grid_z), (blocks, 1, 1)
            _session().launch(function, self, grid, threads, values, metadata.shared, cluster)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    @property
    def programmatic(self) -> bool:
        """True if a launch of the kernel may begin before the launch before it has ended."""
        return bool(getattr(self._metadata, "launch_pdl", False))

    @property
    def source(self) -> str:
        """Source text of the function."""
        return self._src.fn.src if hasattr(self._src, "fn") else ""

    def configuration(self, options: Sequence[str]) -> dict[str, Any]:
        """Return the constants of the function by name, and the named ones of Triton's options."""
        named = {name_of(self._src, path): value for path, value in getattr(self._src, "constants", {}).items()}
        declared = {one.name for one in self._src.fn.params if one.is_constexpr} if hasattr(self._src, "fn") else named
        constants = {name: value for name, value in named.items() if name in declared}
        found = {name: getattr(self._metadata, name, None) for name in options}
        return constants | {name: value for name, value in found.items() if value is not None}

    def compiled(self, function: Any) -> CompiledKernel:
        """Return the kernel that ``function`` runs as a CompiledKernel of the workbench."""
        ptx = function.program.module.text
        found = self._kernels.get(ptx)
        if found is None:
            found = self._kernels[ptx] = compiled_of(self._src, self._metadata, ptx)
        return found

    def _collect(
        self,
        kinds: Sequence[Any],
        args: Sequence[Any],
        values: list[Any],
        maps: Iterator[Mapping[str, Any]],
        path: tuple[int, ...] = (),
    ) -> None:
        for index, (kind, value) in enumerate(zip(kinds, args, strict=False)):
            if kind == "constexpr":
                continue
            if isinstance(kind, tuple):
                self._collect(kind, value, values, maps, (*path, index))
            elif kind[0] == "*":
                values.append(self._array(value, (*path, index)))
            elif is_descriptor(kind):
                base = self._array(value.base, (*path, index))
                values += _mapped(value, base, next(maps)) if self._maps else [base, *_descriptor_fields(value)]
            else:
                values.append(_number(kind, value))

    def _array(self, value: Any, path: tuple[int, ...]) -> Any:
        """Return the torch tensor behind an argument: itself, or the one that ``triton.reinterpret`` wrapped."""
        where = value
        while not hasattr(where, "untyped_storage") and hasattr(where, "base"):
            where = where.base
        device = getattr(getattr(where, "device", None), "type", "cpu")
        if not hasattr(where, "untyped_storage") or device != "cpu":
            got = f"a tensor on {where.device}" if device != "cpu" else type(value).__name__
            raise ArgumentError(
                f"{self._metadata.name}(): {name_of(self._src, path)!r}",
                got,
                "tensors on the cpu",
                "Triton runs on the PTX machine here (wb.simulated_triton): pass .cpu().",
            )
        address_of(f"{self._metadata.name}(): {name_of(self._src, path)!r}", where)
        return where


def _session() -> TritonSession:
    """Return the session of the active driver: Triton keeps loaded kernels for later sessions."""
    session = getattr(driver._active, "session", None)  # ``driver.active`` would look for a GPU
    if session is None:
        raise DeviceUnavailableError(
            "This kernel was loaded for the PTX machine, and simulated_triton() has ended. Launch it before it ends."
        )
    return session


def _number(kind: str, value: Any) -> Any:
    if kind == "bf16":
        import torch

        return torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
    if kind == "fp16":  # two bytes by value too
        return struct.pack("<e", float(value))
    return float(value) if kind[:2] in ("fp", "f3", "f6") else int(value)


def _descriptor_fields(descriptor: Any) -> list[Any]:
    """Return a tensor descriptor's parameters for a kernel without TMA; shape and strides come twice."""
    sizes = [*map(int, descriptor.shape), *map(int, descriptor.strides)]
    return [*sizes, descriptor.padding == "nan", bool(descriptor.round_f32_to_tf32), *sizes]


def _mapped(descriptor: Any, base: Any, meta: Mapping[str, Any]) -> list[Any]:
    """Return a tensor descriptor's parameters for a kernel that copies by TMA: a tensor map, shape and strides."""
    shape, strides = [*map(int, descriptor.shape)], [*map(int, descriptor.strides)]
    size = meta["elem_size"]
    inner = [2 * shape[-1] if meta["fp4_padded"] else shape[-1], *shape[-2::-1]]
    element = "tf32" if descriptor.round_f32_to_tf32 else ELEMENTS[meta["elem_type"]]
    bytes_apart = [stride * size for stride in strides[-2::-1]]
    swizzle = SWIZZLES[meta["swizzle"]]
    box, fill = meta["block_size"][::-1], "nan" if descriptor.padding == "nan" else "zero"
    tensor_map = TensorMap(element, base.data_ptr(), inner, bytes_apart, box, (), swizzle, fill, base)
    return [tensor_map, *shape, *strides]


def _scratch(programs: int, size: int, alignment: int, allocator: Any) -> Any:
    """Allocate memory for all programs by ``triton.set_allocator``'s allocator, which raises an error if not set."""
    return allocator.get()(programs * size, alignment, 0) if size else None
