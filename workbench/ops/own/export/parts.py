"""What exported files have in common, word for word: `inspect.getsource` copies these functions into them.

Nothing of the workbench is there in an exported file: what a function here names must be among what the file imports
and defines, and the first lines below only stand for its tables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

CONFIGURATIONS: list = []
UNTUNED: list = []


def cdiv(number, divisor):
    """The quotient, rounded up."""
    return -(-number // divisor)


def next_power_of_2(number):
    """The smallest power of two that is not below a number."""
    return 1 << max(int(number) - 1, 0).bit_length()


def ctype(tensor):
    """What CUDA C++ calls a tensor's elements."""
    names = {
        torch.float16: "__half",
        torch.bfloat16: "__nv_bfloat16",
        torch.float32: "float",
        torch.float64: "double",
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
    """The ``same`` and the ``sizes`` of a call's arguments."""
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


def choose(device, arguments, legal):
    """What was tuned for this GPU, else for its architecture, at the nearest sizes; else the first untuned one."""
    same, sizes = described(*arguments)
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    found = [one for one in CONFIGURATIONS if (one.arch, one.same) == (arch, same) and legal(one.config)]
    found = [one for one in found if one.gpu == torch.cuda.get_device_name(device)] or found
    if found:  # a distance of 1 is a factor of two in one size
        return min(found, key=lambda one: math.dist(in_log(one.sizes), in_log(sizes))).config
    return first_legal(legal)


def in_log(sizes):
    """Sizes as logarithms to base 2."""
    return [math.log2(size + 1) for size in sizes]


def first_legal(legal):
    """The first untuned configuration that is legal."""
    for config in UNTUNED:
        if legal(config):
            return config
    raise ValueError("no configuration is legal for these arguments")


def one_device(*tensors):
    """The device of the tensors. Raises ValueError where they are on several."""
    devices = {tensor.device for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise ValueError(f"tensors on {', '.join(map(str, devices))}: they must be on one device")
    return devices.pop()


def check_dtype(name, tensor, *allowed):
    """Raise TypeError for elements that the kernel would misread."""
    if tensor is not None and tensor.dtype not in allowed:
        raise TypeError(f"{name} is {tensor.dtype}; the kernel is written for {', '.join(map(str, allowed))}")


def widened(value):
    """A copy, in float64 where it is a tensor of real numbers."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.double() if value.is_floating_point() else value.clone()


def on_gpu(value):
    """A tensor's copy there."""
    return value.cuda() if isinstance(value, torch.Tensor) else value


def worst_error(found, expected, tolerance):
    """The largest error as a share of the allowed one: relative to an element and the root mean square of all."""
    if found.shape != expected.shape:
        return math.inf
    found, expected = found.cpu().double(), expected.double()
    finite = expected[expected.isfinite()]
    size = finite.square().mean().sqrt() if finite.numel() else 0.0
    allowed = tolerance * (expected.abs().nan_to_num(0.0, 0.0, 0.0) + size)
    right = torch.where(expected.isnan(), found.isnan(), found == expected)
    share = torch.where(right, 0.0, ((found - expected).abs() / allowed).nan_to_num(math.inf, math.inf))
    return share.max().item() if share.numel() else 0.0
