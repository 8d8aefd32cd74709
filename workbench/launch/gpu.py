"""The device ``"cuda"``: PyCUDA loads and launches kernels in torch's own context, in the order of torch's stream.

Context. PyCUDA's ``autoinit`` would make a context of its own, in which torch's memory is invalid. Instead the primary
context, which torch uses, is retained once per thread (PyCUDA ties a context object to its thread). It is pushed before
each launch and popped after it, so that torch finds the thread as it left it.

Streams. PyCUDA can launch on streams that it created and on the default stream, not on a stream that torch owns. If
torch's current stream is the default stream, the launch goes there directly (``stream=None``). Otherwise it goes to a
PyCUDA stream of this thread: that stream waits for an event of torch's stream before the launch, and torch's stream
waits for it afterwards. So the order is that of torch's stream, and no memory is reused too early. Under CUDA graph
capture the two waits pull the PyCUDA stream into the capture and hand it back, so the graph holds the kernel with its
right dependencies. Outside of graphs this costs two event pairs per launch, some microseconds, so timings belong on the
default stream or in a graph.

Several devices. A launch runs on the device of its tensors, whichever is torch's current one.

Modules are never unloaded: a captured graph may refer to them for as long as the process lives.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.driver.passed_tensors import passing
from workbench.errors import ArgumentError, DeviceUnavailableError, KernelFault
from workbench.launch.gpu_code import digest, image_of, is_simulated
from workbench.launch.gpu_tensor_map import encoded
from workbench.ptx.bound import BoundLaunch
from workbench.ptx.options import LaunchOptions, options_of
from workbench.ptx.signature import ArrayArgument, KernelSignature, Rule
from workbench.ptx.tensor_map import TensorMap
from workbench.ptx.tensors import address_of
from workbench.toolchain import launch_buffer
from workbench.toolchain.occupancy import ArchitectureLimits, limits_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

# Shared memory of a block, static and dynamic, of a kernel without cudaFuncAttributeMaxDynamicSharedMemorySize.
_DEFAULT_SHARED_LIMIT = 48 * 1024
# A stream that waits for the default stream could not take part in a capture; torch's own streams do not wait either.
_NON_BLOCKING = 1

_TORCH_REMEDY = "On a machine with an NVIDIA GPU install a CUDA build of torch (https://pytorch.org)."
_DRIVER_REMEDY = "Check nvidia-smi and CUDA_VISIBLE_DEVICES; install NVIDIA's driver."
_PYCUDA_REMEDY = (
    "Install it with: workbench setup pycuda (or pip install pycuda, which needs the CUDA toolkit to build)."
)
_SIM_REMEDY = 'device="sim" runs kernels without a GPU.'
_NOTHING: AbstractContextManager[object] = nullcontext()
_NO_OPTIONS = LaunchOptions()


def problem() -> str | None:
    """Return the reason why kernels cannot be launched on a GPU here, with the remedy; None if they can."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed. {_TORCH_REMEDY} {_SIM_REMEDY}"
    import torch

    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA. {_TORCH_REMEDY} {_SIM_REMEDY}"
    if not torch.cuda.is_available():
        return f"torch finds no GPU or no driver. {_DRIVER_REMEDY} {_SIM_REMEDY}"
    try:
        import pycuda.driver  # noqa: F401
    except ImportError as error:
        return f"PyCUDA cannot be imported ({error}). {_PYCUDA_REMEDY} {_SIM_REMEDY}"
    return None


@dataclass
class _Loaded:
    """A function loaded on one device; ``shared_limit`` is the dynamic shared memory that it may use, in bytes."""

    module: Any
    function: Any
    shared_limit: int


@dataclass(slots=True)
class GpuMemory:
    """Memory of a launch on the device ``index``: pairs of a NumPy array and its copy, and scratch memory."""

    kernel: CompiledKernel
    index: int
    copies: Sequence[tuple[np.ndarray, Any]] = ()
    scratch: Any = None


class Gpu:
    """Device that launches kernels on the GPU of their tensors. Several threads may use it."""

    name = "cuda"
    counts = False

    def __init__(self) -> None:
        reason = problem()
        if reason is not None:
            raise DeviceUnavailableError(f'device "cuda" cannot run here: {reason}')
        import pycuda.driver
        import torch

        torch.cuda.init()
        pycuda.driver.init()
        self._attach(pycuda.driver, torch)

    def _attach(self, driver: Any, torch: Any) -> None:
        self._driver, self._torch = driver, torch
        self._functions: dict[tuple[int, str], _Loaded] = {}
        self._modules: dict[tuple[int, str], Any] = {}
        self._capabilities: dict[int, tuple[int, int]] = {}
        self._archs: dict[int, str] = {}
        self._launch_limits: dict[int, tuple[ArchitectureLimits, int]] = {}
        self._local = threading.local()
        # PyCUDA keeps a launch's block shape in the function object, so two launches must not interleave.
        self._lock = threading.RLock()

    @property
    def arch(self) -> str:
        """Architecture of torch's current device, such as ``"sm_90"``."""
        return self._arch(self._torch.cuda.current_device())

    @property
    def runs_machine_code(self) -> bool:
        """True if kernels are best compiled to machine code at once; False under a simulated driver, which runs PTX."""
        return not is_simulated()

    @property
    def description(self) -> str:
        """Name and architecture of torch's current device."""
        return f"{self._torch.cuda.get_device_name()} ({self.arch}) through PyCUDA"

    def __repr__(self) -> str:
        return f"<device cuda: {self.description}>"

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """Return a context manager that makes the device of the first tensor among ``values`` torch's current one."""
        index = next((self._index_of(value) for value in values if hasattr(value, "data_ptr")), None)
        if index is None or index == self._torch.cuda.current_device():
            return _NOTHING
        return self._torch.cuda.device(index)

    def launch(self, kernel: CompiledKernel, *launch: Any, **named: Any) -> None:
        """Launch ``kernel`` in the order of torch's current stream; it may still be running on return.

        Takes the arguments of `bind`. The kernel runs on the device of its tensors, which must all be on one device;
        without tensors, on torch's current device. NumPy arrays are copied to the device and, after the kernel, back.
        This waits for the kernel and cannot be captured in a graph. Raises ArgumentError for a launch that the kernel
        cannot take and for every option (``statistics``, ``checks``, limits, recordings ...), which only ``"sim"`` has;
        KernelFault if the driver refuses the launch. A fault inside the kernel shows, as always with CUDA, at a later
        synchronisation.
        """
        self.run(self.bind(kernel, *launch, **named))

    def bind(
        self,
        kernel: CompiledKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        options: LaunchOptions | None = None,
        *,
        shared_bytes: int = 0,
        signature: KernelSignature | None = None,
        **named: Any,
    ) -> BoundLaunch[Gpu, GpuMemory]:
        """Check and pack a launch of ``kernel``, and copy its NumPy arrays to the device. Raises as `launch` does."""
        if named or options is not None:
            _refuse(options_of(options, named))
        signature = signature or kernel.signature
        fields, arrays = signature.take(args)
        found, hosts = self._place(fields, arrays)
        index = self._torch.cuda.current_device() if found is None else found
        limits, base = self._limits(index)
        grid, block, shared_bytes = signature.blocks.check(grid, block, shared_bytes, limits)
        memory = GpuMemory(kernel, index)
        if signature.scratch_bytes:
            bytes_ = signature.scratch_bytes * math.prod(grid)
            memory.scratch = self._torch.empty(bytes_, dtype=self._torch.uint8, device=f"cuda:{index}")
            fields[len(args)] = memory.scratch.data_ptr()
        if hosts:
            memory.copies = [(value, self._copied(rule, value, index)) for rule, value in hosts]
            for (rule, _), (_, copy) in zip(hosts, memory.copies, strict=True):
                fields[rule.position] = copy.data_ptr()
        for position in signature.maps:
            if isinstance(fields[position], TensorMap):
                fields[position] = encoded(fields[position])
        parameters = signature.pack(fields, base)
        return BoundLaunch(self, signature, grid, block, shared_bytes, parameters, memory, _NO_OPTIONS, args)

    def run(self, launch: BoundLaunch[Gpu, GpuMemory]) -> None:
        """Pass a bound launch to the driver and copy NumPy arrays back. Raises KernelFault if the driver refuses it."""
        kernel, index = launch.memory.kernel, launch.memory.index
        grid, block, buffer, shared = launch.grid, launch.block, launch.parameters, launch.shared_bytes
        with self._lock, self._context(index), passing(zip(launch.names, launch.values, strict=False)):
            function = self._function(kernel, index, shared, len(buffer))
            with self._stream(index) as stream:
                try:
                    if stream is None:
                        function.prepared_call(grid, block, buffer, shared_size=shared)
                    else:
                        function.prepared_async_call(grid, block, stream, buffer, shared_size=shared)
                except self._driver.Error as error:
                    raise self._fault(kernel, error) from error
        for host, copy in launch.memory.copies:
            if host.flags.writeable:
                host[...] = copy.cpu().numpy().view(host.dtype).reshape(host.shape)

    def _arch(self, index: int) -> str:
        found = self._archs.get(index)
        if found is None:
            found = self._archs[index] = "sm_{}{}".format(*self._capability(index))
        return found

    def _capability(self, index: int) -> tuple[int, int]:
        if index not in self._capabilities:
            self._capabilities[index] = self._torch.cuda.get_device_capability(index)
        return self._capabilities[index]

    def _index_of(self, value: Any) -> int | None:
        """Return the number of a tensor's CUDA device; None for a tensor on no CUDA device."""
        return value.get_device() if value.is_cuda else None

    def _place(
        self, fields: list[Any], arrays: Sequence[ArrayArgument]
    ) -> tuple[int | None, Sequence[ArrayArgument]]:  # fmt: skip
        """Write the addresses of tensors into the ``fields``.

        Returns the number of the tensors' device, None without tensors, and the NumPy arrays. Raises ArgumentError for
        tensors on no CUDA device or on several.
        """
        found, hosts = None, []
        for array in arrays:
            rule, value = array
            if isinstance(value, np.ndarray):
                hosts.append(array)
                continue
            index = self._index_of(value)
            if index != found or index is None:
                if index is None or found is not None:
                    allowed = f"tensors on cuda:{self._torch.cuda.current_device() if found is None else found}"
                    remedy = 'Use .cuda(), or device="sim".' if index is None else "All must be on one device."
                    raise ArgumentError(rule.where, f"a tensor on {value.device}", allowed, remedy)
                found = index
            fields[rule.position] = address_of(rule.where, value)
        return found, hosts

    def _limits(self, index: int) -> tuple[ArchitectureLimits, int]:
        """Return the limits of a block on a device, and the address of a launch's parameters there."""
        found = self._launch_limits.get(index)
        if found is None:
            arch = self._arch(index)
            found = self._launch_limits[index] = limits_of(arch), launch_buffer.base_of(arch)
        return found

    def _copied(self, rule: Rule, value: np.ndarray, index: int) -> Any:
        """Return the copy of a NumPy array on the device."""
        if rule.declared is not None and rule.declared.written and not value.flags.writeable:
            remedy = "Pass a copy, or declare the parameter const in the kernel."
            raise ArgumentError(rule.where, "a read-only array", "a writable one", remedy)
        if self._torch.cuda.is_current_stream_capturing():
            raise ArgumentError(
                rule.where, "a NumPy array", "CUDA tensors under graph capture", "Copy it before the capture."
            )
        # As bytes, because torch does not know every dtype of NumPy.
        content = np.frombuffer(value.tobytes(), dtype=np.uint8).copy()
        return self._torch.from_numpy(content).to(f"cuda:{index}")

    def _context(self, index: int) -> AbstractContextManager[None]:
        """Return a context manager that makes torch's primary context of a device current in this thread."""
        contexts = self._local.__dict__.setdefault("contexts", {})
        if index not in contexts:
            context = _for_ever(self._driver.Device(index).retain_primary_context())
            contexts[index] = _Pushed(context, self._driver.Context.pop)
        return contexts[index]

    def _stream(self, index: int) -> AbstractContextManager[Any]:
        """Return a context manager of the PyCUDA stream for one launch, ordered with torch's current stream.

        None stands for the default stream.
        """
        current = self._torch.cuda.current_stream(index)
        return _NOTHING if current.cuda_stream == 0 else self._joined_stream(index, current)

    @contextmanager
    def _joined_stream(self, index: int, current: Any) -> Iterator[Any]:
        streams = self._local.__dict__.setdefault("streams", {})
        if index not in streams:
            stream = _for_ever(self._driver.Stream(_NON_BLOCKING))
            streams[index] = stream, self._torch.cuda.ExternalStream(stream.handle, device=index)
        stream, same_for_torch = streams[index]
        same_for_torch.wait_stream(current)
        try:
            yield stream
        finally:
            # Also after a failed launch: a capture must not be left with a stream that never comes back.
            current.wait_stream(same_for_torch)

    def _function(self, kernel: CompiledKernel, index: int, shared_bytes: int, buffer_bytes: int) -> Any:
        """Return the loaded function, allowed to use ``shared_bytes`` of dynamic shared memory."""
        key = (index, kernel.key)
        loaded = self._functions.get(key)
        if loaded is None:
            if self._torch.cuda.is_current_stream_capturing():
                raise ArgumentError(
                    "kernel",
                    f"{kernel.label}, which is not loaded yet",
                    "loaded kernels under graph capture",
                    "Launch it once before the capture.",
                )
            with self._driver_errors(kernel):
                module = self._module(kernel, index)
                function = _for_ever(module.get_function(kernel.name))
                # A type string is taken as it is, so the whole buffer goes through as one value.
                function.prepare([f"{buffer_bytes}s"])
            loaded = _Loaded(module, function, _DEFAULT_SHARED_LIMIT - kernel.static_shared_bytes)
            self._functions[key] = loaded
        if shared_bytes > loaded.shared_limit:
            attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            with self._driver_errors(kernel):
                loaded.function.set_attribute(attribute, shared_bytes)
            loaded.shared_limit = shared_bytes
        return loaded.function

    def _module(self, kernel: CompiledKernel, index: int) -> Any:
        """Return the loaded module, one for all kernels of a program because they share its variables."""
        key = (index, digest(kernel))
        if key not in self._modules:
            code = image_of(kernel, self._capability(index), self._arch(index))
            self._modules[key] = _for_ever(self._driver.module_from_buffer(code))
        return self._modules[key]

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """Return the content of a device variable of the kernel's program, by its name in the PTX.

        Waits for torch's current stream.
        """
        with self._variable(kernel, symbol) as (place, size):
            content = bytearray(size)
            self._driver.memcpy_dtoh(content, place)
        return bytes(content)

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Wait for torch's current stream, then write all bytes of a device variable."""
        with self._variable(kernel, symbol) as (place, _):
            self._driver.memcpy_htod(place, content)

    def copy_variable(self, kernel: CompiledKernel, symbol: str, tensor: Any) -> None:
        """Copy a contiguous CUDA tensor into a device variable of its size, in the order of torch's current stream."""
        index = tensor.get_device()
        with self._lock, self._context(index), self._driver_errors(kernel), self._stream(index) as stream:
            place, size = self._module(kernel, index).get_global(symbol)
            self._driver.memcpy_dtod_async(place, tensor.data_ptr(), size, stream)

    def reset_variables(self, kernel: CompiledKernel) -> None:
        """Give every variable of the kernel's program its initial value: the next launch loads the program again."""
        with self._lock:
            content = digest(kernel)
            for key in [key for key in self._modules if key[1] == content]:
                old = self._modules.pop(key)
                self._functions = {known: one for known, one in self._functions.items() if one.module is not old}

    @contextmanager
    def _variable(self, kernel: CompiledKernel, symbol: str) -> Iterator[tuple[Any, int]]:
        index = self._torch.cuda.current_device()
        self._torch.cuda.current_stream(index).synchronize()
        with self._lock, self._context(index), self._driver_errors(kernel):
            yield self._module(kernel, index).get_global(symbol)

    @contextmanager
    def _driver_errors(self, kernel: CompiledKernel) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise self._fault(kernel, error) from error

    def _fault(self, kernel: CompiledKernel, error: Exception) -> KernelFault:
        return KernelFault(f"{kernel.label} ({kernel.arch}) on {self.description}: {error}")


class _Pushed(AbstractContextManager[None]):
    """A CUDA context that is current within a block, in its own thread; cheap, because every launch enters it."""

    def __init__(self, context: Any, pop: Callable[[], None]):
        self._push, self._pop = context.push, pop

    def __enter__(self) -> None:
        self._push()

    def __exit__(self, *_: object) -> None:
        self._pop()


def _refuse(options: LaunchOptions) -> None:
    """Raise ArgumentError for the first option that differs from its default."""
    for one in fields(options):
        value = getattr(options, one.name)
        if value != one.default:
            remedy = 'Only device="sim" can; use that.'
            if one.name == "cluster":
                remedy = "Declare it in the kernel, __cluster_dims__(x, y, z): PyCUDA launches no others."
            raise ArgumentError(one.name, value, 'no value on device "cuda"', remedy)


def _for_ever(value: Any) -> Any:
    """Keep ``value`` alive to the end of the process.

    PyCUDA's objects clean up in the thread that made them; when the interpreter ends, that thread or the driver may be
    gone, and a module may still be part of a captured graph.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value
