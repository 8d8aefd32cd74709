# mypy: allow-untyped-defs, no-check-untyped-defs
"""Functions of exported files, which `inspect.getsource` copies into them word for word.

Nothing of the workbench is there in an exported file: what a function here names must be among what the file imports
and defines, and the first lines below only stand for its tables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from workbench.ops.expressions import cdiv, is_power_of_two, next_power_of_2
from workbench.ops.tensors.checks import addresses, share_memory
from workbench.ops.tensors.layout import first_gap, repeats

__all__ = ["addresses", "cdiv", "is_power_of_two", "next_power_of_2"]

CONFIGURATIONS: list = []
UNTUNED: list = []
TOLERANCE: dict = {}


def ctype(tensor):
    """Return the C++ type of the elements of a tensor or a dtype."""
    names = {
        torch.float16: "__half",
        torch.bfloat16: "__nv_bfloat16",
        torch.float32: "float",
        torch.float64: "double",
        torch.complex64: "float2",
        torch.complex128: "double2",
        torch.float8_e4m3fn: "__nv_fp8_e4m3",
        torch.float8_e5m2: "__nv_fp8_e5m2",
        torch.uint8: "unsigned char",
        torch.int8: "signed char",
        torch.int16: "short",
        torch.int32: "int",
        torch.int64: "long long",
        torch.bool: "bool",
    }
    return names[getattr(tensor, "dtype", tensor)]


class Tuned(NamedTuple):
    """The best configuration of a tuning run."""

    gpu: str
    arch: str
    same: tuple  # what must be the same: of a tensor dtype, dimensions, and strides where it is not contiguous
    sizes: tuple  # of which the nearest will do
    config: dict


def described(*arguments):
    """Return what must be equal between calls that share a configuration, and the sizes, which may be near."""
    same, sizes = [], []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            same += [value.dtype, value.dim(), None if value.is_contiguous() else value.stride()]
            sizes += value.shape
        elif isinstance(value, int) and not isinstance(value, bool):
            sizes.append(value)
        elif not isinstance(value, float):
            same.append(value)
    return tuple(same), tuple(sizes)


def distance(sizes, others):
    """Return the distance between sizes; a factor of two in one of them counts 1."""
    return math.dist([math.log2(size + 1) for size in sizes], [math.log2(size + 1) for size in others])


def first_legal(legal):
    """Return the first untuned configuration that is legal. Raises ValueError if none is."""
    for config in UNTUNED:
        if legal(config):
            return config
    raise ValueError("no configuration is legal for these arguments")


def choose(device, arguments, legal):
    """Return the legal configuration that was tuned at the nearest sizes, or the first untuned one if none was.

    Configurations tuned on this GPU come before others of its architecture.
    """
    same, sizes = described(*arguments)
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    found = [one for one in CONFIGURATIONS if (one.arch, one.same) == (arch, same) and legal(one.config)]
    found = [one for one in found if one.gpu == torch.cuda.get_device_name(device)] or found
    if found:
        return min(found, key=lambda one: distance(one.sizes, sizes)).config
    return first_legal(legal)


def one_device(*tensors):
    """Return the device of the tensors. Raises ValueError if they are on several."""
    devices = {tensor.device for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise ValueError(f"tensors on {', '.join(map(str, devices))}: they must be on one device")
    return devices.pop()


def check_strides(name, tensor, known=()):
    """Raise ValueError for strides that a kernel does not expect; it knows those of the dimensions ``known``."""
    found = None if tensor is None else first_gap(tensor.shape, tensor.stride(), known)
    if found is not None:
        dim, dense = found
        what = f"{name} has strides {tensor.stride()}; the kernel reads it with {dense} in dimension {dim}"
        raise ValueError(f"{what}: pass {name}.contiguous()")


def check_written(name, tensor, **others):
    """Raise ValueError for a tensor whose elements share memory with each other or with another argument."""
    if repeats(tensor.shape, tensor.stride()):
        raise ValueError(f"{name} has strides {tensor.stride()}, but is written: pass {name}.clone()")
    for other, one in others.items():
        if one is not None and share_memory(tensor, one):
            raise ValueError(f"{name} is written, and shares memory with {other}: pass {other}.clone()")


def has_blocks(grid, **outputs):
    """Return True if a grid has blocks. Raises ValueError for one without blocks that has outputs to write."""
    for name, out in outputs.items():
        if 0 in grid and out.numel():
            raise ValueError(f"the grid {grid} has no blocks, but {name} has {out.numel()} elements")
    return 0 not in grid


def allocate(size, alignment, stream):
    """Return memory in which Triton puts the tensor descriptors that a kernel builds."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def for_both(inputs):
    """Return the inputs of a case for the kernel, on the GPU, and for the reference, in float64."""
    given = [value.cuda() if isinstance(value, torch.Tensor) else value for value in inputs]
    return given, [in_double(value) if isinstance(value, torch.Tensor) else value for value in inputs]


def in_double(tensor):
    """Return a tensor in double precision; integers stay as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def difference(found, expected):
    """Describe a result's error beyond rounding, or return an empty text.

    The tolerance is relative to the sum of an element's size and the root mean square of all elements.
    """
    tolerance, found = TOLERANCE[found.dtype], in_double(found.cpu())
    expected = expected.to(found.dtype)
    size = expected[expected.isfinite()].abs().double().square().mean().sqrt().nan_to_num().item()
    try:
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""
