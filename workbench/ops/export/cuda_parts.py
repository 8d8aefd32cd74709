# mypy: allow-untyped-defs, no-check-untyped-defs
"""Functions of exported files with kernels in CUDA C++, which are copied into them word for word; see `parts`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import threading
from pathlib import Path

import torch

if torch.cuda.is_available():
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        cuda, pycuda_error = None, error

SOURCE = ""
HEADERS: dict[str, str] = {}
OPTIONS: tuple[str, ...] = ()
PARAMETERS: tuple[str, ...] = ()


def cuda_folders():
    """Return the folders of NVIDIA's pip packages, which torch's CUDA builds bring, and of a CUDA installation."""
    found = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in found.submodule_search_locations] if found else []
    installed = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    packages = [folder for root in roots for folder in sorted(root.iterdir())]
    return [*packages, *map(Path, installed), Path("/usr/local/cuda")]


@functools.cache
def nvrtc():
    """Load NVIDIA's compiler library, of the CUDA version that torch is built for."""
    major = torch.version.cuda.split(".")[0]
    for folder in cuda_folders():
        for library in folder.glob(f"lib*/libnvrtc.so.{major}*"):
            for builtins in library.parent.glob("libnvrtc-builtins.so.*"):  # the compiler looks for it by name alone
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(library))
    raise RuntimeError(f"NVRTC {major} was not found: pip install nvidia-cuda-nvrtc, or set CUDA_HOME")


def compile_cuda(names, macros, arch):
    """Compile SOURCE; return its machine code, its PTX, and the mangled names of the kernels."""
    library, program = nvrtc(), ctypes.c_void_p()

    def strings(texts):
        return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))

    def read(what):
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, content)
        return content.raw

    options = [f"--gpu-architecture={arch}", *OPTIONS]
    options += [f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in macros]
    options += [f"--include-path={folder / part}" for folder in cuda_folders() for part in ("include", "include/cccl")]
    headers = strings(HEADERS.values()), strings(HEADERS)
    library.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"kernel.cu", len(HEADERS), *headers)
    for name in names:
        library.nvrtcAddNameExpression(program, name.encode())
    if library.nvrtcCompileProgram(program, len(options), strings(options)):
        raise RuntimeError("NVRTC refused the kernel:\n" + read("ProgramLog").rstrip(b"\0").decode())
    lowered = [ctypes.c_char_p() for _ in names]
    for name, text in zip(names, lowered, strict=True):
        library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(text))
    return read("CUBIN"), read("PTX"), [text.value.decode() for text in lowered]


@functools.cache
def load(index, names, macros):
    """Return the module for a GPU and a configuration, and its kernels. Call it in torch's context."""
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(index))
    machine_code, ptx, lowered = compile_cuda(names, macros, arch)
    try:
        module = cuda.module_from_buffer(machine_code)
    except cuda.Error:  # some drivers take PTX alone
        module = cuda.module_from_buffer(ptx)
    kernels = [module.get_function(name) for name in lowered]
    for kernel, types in zip(kernels, PARAMETERS, strict=True):
        kernel.prepare(types)
    return module, kernels


contexts = threading.local()  # PyCUDA ties them to their thread


@contextlib.contextmanager
def torch_stream(index):
    """Make torch's context current for PyCUDA, and yield a stream in the order of torch's current one."""
    if cuda is None:
        remedy = "pip install pycuda; where the kernel workbench is installed: workbench setup pycuda"
        raise ImportError(f"a kernel on cuda tensors needs PyCUDA ({pycuda_error}): {remedy}") from pycuda_error
    made = vars(contexts).setdefault("made", {})
    if index not in made:
        cuda.init()
        context = cuda.Device(index).retain_primary_context()
        context.push()
        stream = cuda.Stream(1)  # as torch's own, it does not wait for the default stream
        cuda.Context.pop()
        made[index] = context, stream, torch.cuda.ExternalStream(stream.handle, device=index)
    context, stream, same_stream = made[index]
    current = torch.cuda.current_stream(index)
    context.push()
    try:
        if current.cuda_stream == 0:
            yield None  # the default stream
        else:  # PyCUDA launches on no stream but its own, which waits for torch's before, and torch's for it after
            same_stream.wait_stream(current)
            try:
                yield stream
            finally:
                current.wait_stream(same_stream)
    finally:
        cuda.Context.pop()
