"""The device ``"cuda"``: PyCUDA loads and launches kernels in torch's own context, in the order of torch's stream.

Context. PyCUDA's ``autoinit`` would make a context of its own, in which torch's memory is invalid. Instead the primary
context, which torch uses, is retained once per thread (PyCUDA ties a context object to its thread) and pushed around
each launch and popped after it, so that torch finds the thread as it left it.

Streams. PyCUDA can launch on streams that it created and on the default stream, not on a stream that torch owns.
Where torch's current stream is the default stream, the launch goes there directly (``stream=None``). Elsewhere it
goes to a PyCUDA stream of this thread which waits for an event of torch's stream before, and for which torch's stream
waits after: the order is the same, no memory is reused too early, and under CUDA graph capture the two waits pull the
PyCUDA stream into the capture and hand it back, so the graph holds the kernel with its right dependencies. Outside of
graphs this costs two event pairs per launch, some microseconds, so timings belong on the default stream or in a graph.

Several devices. A launch runs on the device of its tensors, whichever is torch's current one.

Modules are never unloaded: a captured graph may refer to them for as long as the process lives.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.driver import images, simulated
from workbench.errors import ArgumentError, DeviceUnavailableError, KernelFault
from workbench.launch import parameters
from workbench.ptx.options import LaunchOptions, options_of
from workbench.ptx.tensor_map import DRIVER_ELEMENTS, SWIZZLES, TENSOR_MAP_BYTES, TensorMap
from workbench.toolchain.sass import resources_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

# What a block may take, static and dynamic together, of a kernel that was not told that it may take more.
_DEFAULT_SHARED_LIMIT = 48 * 1024
# Streams made like torch's own: one that waits for the default stream could not take part in a capture.
_NON_BLOCKING = 1

_TORCH_REMEDY = "On a machine with an NVIDIA GPU install a CUDA build of torch (https://pytorch.org)."
_DRIVER_REMEDY = "Check nvidia-smi and CUDA_VISIBLE_DEVICES; install NVIDIA's driver."
_PYCUDA_REMEDY = (
    "Install it with: workbench setup pycuda (or pip install pycuda, which needs the CUDA toolkit to build)."
)
_SIM_REMEDY = 'device="sim" runs kernels without a GPU.'
_NOTHING: AbstractContextManager[object] = nullcontext()


def problem() -> str | None:
    """Why kernels cannot be launched on a GPU here, with the remedy; None where they can."""
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
    """A function in one device's memory, with the dynamic shared memory that it may use, in bytes."""

    module: Any
    function: Any
    shared_limit: int


class _Ready(NamedTuple):
    """A launch whose shape the kernel and the device take; sizes as the driver wants them."""

    function: Any
    grid: parameters.Dimensions
    block: parameters.Dimensions
    shared_bytes: int


_MOST_CHECKED = 4096
"""Then all are checked again."""


class Gpu:
    """Launches kernels on the CUDA device of their tensors. Safe to use from several threads."""

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
        self._checked: dict[tuple[object, ...], _Ready] = {}
        self._local = threading.local()
        # PyCUDA keeps a launch's block shape in the function object, so two launches must not interleave.
        self._lock = threading.RLock()

    @property
    def arch(self) -> str:
        """The architecture of torch's current device, such as ``"sm_90"``."""
        return self._arch(self._torch.cuda.current_device())

    @property
    def runs_machine_code(self) -> bool:
        """Whether kernels are better compiled to machine code at once; a simulated driver runs PTX."""
        return not _simulated()

    @property
    def description(self) -> str:
        """The name of torch's current device and its architecture."""
        return f"{self._torch.cuda.get_device_name()} ({self.arch}) through PyCUDA"

    def __repr__(self) -> str:
        return f"<device cuda: {self.description}>"

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """A block in which the device of the first tensor among ``values`` is torch's current one."""
        index = next((self._index_of(value) for value in values if hasattr(value, "data_ptr")), None)
        if index is None or index == self._torch.cuda.current_device():
            return _NOTHING
        return self._torch.cuda.device(index)

    def launch(
        self,
        kernel: CompiledKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        options: LaunchOptions | None = None,
        *,
        shared_bytes: int = 0,
        **named: Any,
    ) -> None:
        """Launch ``kernel`` in the order of torch's current stream; it may still be running on return.

        It runs on the device of its tensors, which must all be on one; without tensors on torch's current device.
        NumPy arrays are copied there and, after the kernel, back, which waits for it and cannot be captured in a graph.
        Raises ArgumentError for a launch that the kernel cannot take and for every option (``statistics``, ``checks``,
        limits, recordings ...), which only ``"sim"`` has; KernelFault where the driver refuses the launch. A fault
        inside the kernel shows, as always with CUDA, at a later synchronisation.
        """
        if named or options is not None:
            _refuse(options_of(options, named))
        packed = None if kernel.scratch_bytes else parameters.packed_at_once(kernel, args, self._index_of)
        buffer, found, copies, _held = self._packed(kernel, grid, args) if packed is None else (*packed, (), None)
        index = self._torch.cuda.current_device() if found is None else found
        with self._lock, self._context(index):
            function, grid, block, shared_bytes = self._ready(kernel, index, grid, block, shared_bytes, len(buffer))
            with self._stream(index) as stream:
                try:
                    if stream is None:
                        function.prepared_call(grid, block, buffer, shared_size=shared_bytes)
                    else:
                        function.prepared_async_call(grid, block, stream, buffer, shared_size=shared_bytes)
                except self._driver.Error as error:
                    raise self._fault(kernel, error) from error
        for host, copy in copies:
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
        """The number of a tensor's CUDA device; None for what is elsewhere."""
        return value.get_device() if value.is_cuda else None

    def _packed(
        self, kernel: CompiledKernel, grid: Any, args: Sequence[Any]
    ) -> tuple[bytes, int, Sequence[tuple[np.ndarray, Any]], Any]:
        """The parameter buffer, the one device of all tensors, the NumPy arrays with their copies there, and the
        kernel's scratch memory, to be held until it is launched.

        Raises ArgumentError for what the kernel does not take, and for tensors elsewhere.
        """
        values: list[Any] = [
            _encoded(value) if isinstance(value, TensorMap) else value
            for value in parameters.check_arguments(kernel, args)
        ]
        found = None
        for position, value in enumerate(values):
            if not parameters.is_array(value) or isinstance(value, np.ndarray):
                continue
            index = self._index_of(value)
            if index is None or found not in (None, index):
                where = f"{kernel.label}(): argument {position} {kernel.parameters[position].name!r}"
                allowed = f"tensors on cuda:{self._torch.cuda.current_device() if found is None else found}"
                remedy = 'Use .cuda(), or device="sim".' if index is None else "All must be on one device."
                raise ArgumentError(where, f"a tensor on {value.device}", allowed, remedy)
            found = index
        found = self._torch.cuda.current_device() if found is None else found
        room = functools.partial(self._torch.empty, dtype=self._torch.uint8, device=f"cuda:{found}")
        scratch = parameters.give_scratch(kernel, values, parameters.dimensions("grid", grid), room)
        copies = {
            position: self._copy(kernel, position, value, found)
            for position, value in enumerate(values)
            if isinstance(value, np.ndarray)
        }
        addresses = [
            copies.get(position, value).data_ptr() if parameters.is_array(value) else None
            for position, value in enumerate(values)
        ]
        buffer = parameters.pack(kernel, values, addresses, self._arch(found))
        pairs = [(values[at], copy) for at, copy in copies.items()]
        return buffer, found, pairs, scratch

    def _copy(self, kernel: CompiledKernel, position: int, value: np.ndarray, index: int) -> Any:
        if self._torch.cuda.is_current_stream_capturing():
            where = f"{kernel.label}(): argument {position} {kernel.parameters[position].name!r}"
            raise ArgumentError(where, "a NumPy array", "CUDA tensors under graph capture", "Copy it before.")
        # As bytes, because torch does not know every dtype of NumPy.
        content = np.frombuffer(value.tobytes(), dtype=np.uint8).copy()
        return self._torch.from_numpy(content).to(f"cuda:{index}")

    def _context(self, index: int) -> AbstractContextManager[None]:
        """Torch's primary context of device ``index``, current in this thread."""
        contexts = self._local.__dict__.setdefault("contexts", {})
        if index not in contexts:
            context = _for_ever(self._driver.Device(index).retain_primary_context())
            contexts[index] = _Pushed(context, self._driver.Context.pop)
        return contexts[index]

    def _stream(self, index: int) -> AbstractContextManager[Any]:
        """The PyCUDA stream for one launch, ordered with torch's current stream; None is the default stream."""
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

    def _ready(
        self, kernel: CompiledKernel, index: int, grid: Any, block: Any, shared_bytes: int, buffer_bytes: int
    ) -> _Ready:
        """What a launch is when it is checked; most are as one before."""
        known = (grid.__class__, block.__class__, shared_bytes.__class__) == (tuple, tuple, int)
        key = index, kernel.key, grid, block, shared_bytes
        found = self._checked.get(key) if known else None
        if found is None:
            shape = parameters.check_launch(kernel, grid, block, shared_bytes, self._arch(index))
            found = _Ready(self._function(kernel, index, shape[2], buffer_bytes), *shape)
            if known:
                if len(self._checked) >= _MOST_CHECKED:
                    self._checked.clear()
                self._checked[key] = found
        return found

    def _function(self, kernel: CompiledKernel, index: int, shared_bytes: int, buffer_bytes: int) -> Any:
        """The loaded function, allowed to use ``shared_bytes`` of dynamic shared memory."""
        key = (index, kernel.key)
        loaded = self._functions.get(key)
        if loaded is None:
            if self._torch.cuda.is_current_stream_capturing():
                raise ArgumentError(
                    "kernel",
                    f"{kernel.label}, which is not loaded yet",
                    "loaded kernels under graph capture",
                    "Launch it once before.",
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
        """The loaded module, one for all kernels of a program: they share its variables."""
        key = (index, self._digest(kernel))
        if key not in self._modules:
            self._modules[key] = _for_ever(self._driver.module_from_buffer(self._image(kernel, index)))
        return self._modules[key]

    @staticmethod
    def _digest(kernel: CompiledKernel) -> str:
        code = None if _simulated() else kernel.cubin
        return hashlib.sha256(code or kernel.ptx.encode()).hexdigest()

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """The content of a device variable of the kernel's program, by its name in the PTX.

        Waits for torch's current stream.
        """
        with self._variable(kernel, symbol) as (place, size):
            content = bytearray(size)
            self._driver.memcpy_dtoh(content, place)
        return bytes(content)

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of a device variable. Waits for torch's current stream before."""
        with self._variable(kernel, symbol) as (place, _):
            self._driver.memcpy_htod(place, content)

    def copy_variable(self, kernel: CompiledKernel, symbol: str, tensor: Any) -> None:
        """Copy a contiguous CUDA tensor of its size into a device variable, in the order of torch's current stream."""
        index = tensor.get_device()
        with self._lock, self._context(index), self._driver_errors(kernel), self._stream(index) as stream:
            place, size = self._module(kernel, index).get_global(symbol)
            self._driver.memcpy_dtod_async(place, tensor.data_ptr(), size, stream)

    def reset_variables(self, kernel: CompiledKernel) -> None:
        """Give every variable of the kernel's program its initial value: the next launch loads it anew."""
        with self._lock:
            digest = self._digest(kernel)
            for key in [key for key in self._modules if key[1] == digest]:
                old = self._modules.pop(key)
                self._checked.clear()
                self._functions = {known: one for known, one in self._functions.items() if one.module is not old}

    @contextmanager
    def _variable(self, kernel: CompiledKernel, symbol: str) -> Iterator[tuple[Any, int]]:
        index = self._torch.cuda.current_device()
        self._torch.cuda.current_stream(index).synchronize()
        with self._lock, self._context(index), self._driver_errors(kernel):
            yield self._module(kernel, index).get_global(symbol)

    def _image(self, kernel: CompiledKernel, index: int) -> bytes:
        """The machine code where this GPU runs it, else the PTX, which the driver then compiles.

        Raises ArgumentError for code that uses what this GPU's architecture does not have.
        """
        capability = self._capability(index)
        if self.runs_machine_code and runs_on(kernel.arch, capability, machine_code=True) and kernel.cubin is not None:
            return kernel.cubin
        if not runs_on(kernel.arch, capability, machine_code=False):
            there = self._arch(index)
            raise ArgumentError(
                "kernel", f"{kernel.label} for {kernel.arch}", f"code for {there}", "Compile it for that."
            )
        if not self.runs_machine_code and _may_take_too_many_registers(kernel) and kernel.cubin is not None:
            # The simulated driver holds a launch to what the machine code takes.
            return images.image(kernel.ptx, resources_of(kernel.cubin, kernel.arch)) + b"\0"
        return kernel.ptx.encode() + b"\0"

    @contextmanager
    def _driver_errors(self, kernel: CompiledKernel) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise self._fault(kernel, error) from error

    def _fault(self, kernel: CompiledKernel, error: Exception) -> KernelFault:
        return KernelFault(f"{kernel.label} ({kernel.arch}) on {self.description}: {error}")


def runs_on(arch: str, capability: tuple[int, int], *, machine_code: bool) -> bool:
    """Whether code for ``arch`` runs on a GPU of compute capability (major, minor), as machine code or as PTX.

    Machine code runs on its own major version from its minor one on, PTX on everything from its version on. Code that
    is specific to an architecture (``"sm_90a"``) runs there alone, code for a family (``"sm_100f"``) on the family's
    members from its own on. Source: CUDA C++ Programming Guide, "Application Compatibility" and "Feature Set Compiler
    Targets".
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    own = int(digits[:-1]), int(digits[-1])
    if arch.endswith("a"):
        return own == capability
    if machine_code or arch.endswith("f"):
        return own[0] == capability[0] and own[1] <= capability[1]
    return own <= capability


def _encoded(tensor_map: TensorMap) -> bytes:
    """The driver's own bytes of a tensor map. Raises ArgumentError where it refuses it."""
    rank, index = len(tensor_map.sizes), DRIVER_ELEMENTS.index(tensor_map.element)
    room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + 64)
    at = (ctypes.addressof(room) + 63) // 64 * 64  # the driver asks for this alignment
    sizes, strides = (ctypes.c_uint64 * rank)(*tensor_map.sizes), (ctypes.c_uint64 * 4)(*tensor_map.strides)
    box, steps = (ctypes.c_uint32 * rank)(*tensor_map.box), (ctypes.c_uint32 * rank)(*tensor_map.steps)
    result = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), index, rank, ctypes.c_void_p(tensor_map.address), sizes, strides, box, steps,
        0, SWIZZLES.index(tensor_map.swizzle), 0, int(tensor_map.fill == "nan"),
    )  # fmt: skip
    if result:
        remedy = "See cuTensorMapEncodeTiled; it needs compute capability 9.0."
        raise ArgumentError("tensor map", tensor_map, f"what the driver encodes (it says {result})", remedy)
    return ctypes.string_at(at, TENSOR_MAP_BYTES)


def _may_take_too_many_registers(kernel: CompiledKernel) -> bool:
    """Whether a block of it might not fit: with 255 registers a thread, no more than 256 threads always do."""
    return kernel.thread_bound is None or kernel.thread_bound[0] > 256


class _Pushed(AbstractContextManager[None]):
    """A context that is current in a block, in the one thread that it belongs to; cheap, since each launch enters."""

    def __init__(self, context: Any, pop: Callable[[], None]):
        self._push, self._pop = context.push, pop

    def __enter__(self) -> None:
        self._push()

    def __exit__(self, *_: object) -> None:
        self._pop()


def _refuse(options: LaunchOptions) -> None:
    """Raise ArgumentError for the first option that is not the default one."""
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            remedy = 'Only device="sim" can; use that.'
            if field.name == "cluster":
                remedy = "Declare it in the kernel, __cluster_dims__(x, y, z): PyCUDA launches no others."
            raise ArgumentError(field.name, value, 'nothing on device "cuda"', remedy)


def _simulated() -> bool:
    running = simulated.current()
    return running is not None and running.simulated


def _for_ever(value: Any) -> Any:
    """Keep ``value`` alive to the end of the process.

    PyCUDA's objects clean up in the thread that made them; when the interpreter ends, that thread or the driver may be
    gone, and a module may still be part of a captured graph.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value
