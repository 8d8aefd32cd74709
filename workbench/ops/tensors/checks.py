"""Names of dtypes and elements, the memory of tensors, and checks that raise `ArgumentError` before a run."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
import torch

from workbench.errors import ArgumentError


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype's name in problems and cases, such as ``"float16"``."""
    return str(dtype).removeprefix("torch.")


def element_name(name: str, shape: Sequence[int], index: int) -> str:
    """Return the name of the element at ``index`` in row-major order: ``out[3, 1]``, or ``out`` without dimensions."""
    place = ", ".join(str(int(one)) for one in torch.unravel_index(torch.tensor(index), tuple(shape)))
    return f"{name}[{place}]" if place else name


def real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs (real, imaginary), with one dimension more; other numbers unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def check_devices(first: str, tensor: torch.Tensor, **others: torch.Tensor | None) -> None:
    """Check that all are tensors on the device of the first; torch would choose the implementation by any of them."""
    for name, other in {first: tensor, **others}.items():
        if other is None and name != first:
            continue
        if not isinstance(other, torch.Tensor):
            raise ArgumentError(name, f"type {type(other).__name__}", "a torch.Tensor", "Use torch.as_tensor().")
        if other.device != tensor.device:
            raise ArgumentError(
                name,
                f"device {other.device}",
                f"{tensor.device}, that of {first}",
                f"Move it with .to({str(tensor.device)!r}).",
            )


def check_apart(
    tensors: Mapping[str, torch.Tensor | None], written: Container[str], remedy: str = "Pass another tensor."
) -> None:
    """Check that no byte of a written tensor belongs to another tensor; ``written`` has the names of the former."""
    given = {name: one for name, one in tensors.items() if one is not None and one.numel()}
    reached = reached_writing = 0
    for start, size, writes in sorted([(one.data_ptr(), extent(one), name in written) for name, one in given.items()]):
        if start < (reached if writes else reached_writing):
            break
        reached = max(reached, start + size)
        if writes:
            reached_writing = start + size
    else:
        return  # the usual case takes a few microseconds
    spans = sorted((one.data_ptr(), one.data_ptr() + extent(one), name) for name, one in given.items())
    before: list[tuple[int, str]] = []
    for start, end, name in spans:
        before = [one for one in before if one[0] > start]
        for _, other in before:
            if (name in written or other in written) and share_memory(given[name], given[other]):
                first, second = (name, other) if name in written else (other, name)
                raise ArgumentError(first, f"memory that {second} has too", "memory of its own: it is written", remedy)
        before.append((end, name))


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two tensors have a byte in common; views that only lie between each other's elements have none.

    The answer is exact, except for strides that would take NumPy more than a second or so: these count as shared.
    """
    try:
        return np.shares_memory(addresses(one), addresses(other), max_work=1_000_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def addresses(tensor: torch.Tensor) -> np.ndarray:
    """Return the places of a tensor's elements as an array that must not be read: they may be in a GPU's memory."""
    item = tensor.element_size()
    place = {
        "version": 3,
        "typestr": f"|V{item}",
        "data": (tensor.data_ptr(), True),
        "shape": tuple(tensor.shape),
        "strides": tuple(item * stride for stride in tensor.stride()),
    }
    return np.asarray(type("Place", (), {"__array_interface__": place})())


def extent(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (1 + steps) * tensor.element_size()
