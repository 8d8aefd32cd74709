"""Checks of tensor arguments that several ops share; each raises `ArgumentError` before anything is written."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
import torch

from workbench.errors import ArgumentError

ALIGNMENT = 16
"""Alignment in bytes of caches and of their pages."""


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


def check_dtype(name: str, tensor: torch.Tensor, allowed: Iterable[torch.dtype], why: str = "") -> None:
    """Check that a tensor has one of the dtypes."""
    if tensor.dtype not in (allowed := list(allowed)):
        raise ArgumentError(
            name,
            f"dtype {tensor.dtype}",
            " or ".join(map(str, allowed)),
            f"{why} Convert it with .to({allowed[0]}).".lstrip(),
        )


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


def check_query_shape(query: torch.Tensor) -> None:
    """Check that there is a head size, before anything is computed from it."""
    if query.dim() != 3 or query.shape[1] == 0 or query.shape[2] == 0:
        raise ArgumentError("query", f"shape {tuple(query.shape)}", "[num_seqs, num_heads, head_size]", "Reshape it.")


def check_query(query: torch.Tensor, scale: float, dtypes: Iterable[torch.dtype]) -> None:
    """Check the queries of a decode step, ``[num_seqs, num_heads, head_size]``, and their scale."""
    check_dtype("query", query, dtypes)
    check_query_shape(query)
    if query.stride(2) != 1 or query.stride(1) != query.shape[2]:
        raise ArgumentError(
            "query",
            f"strides {query.stride()}",
            f"(any, {query.shape[2]}, 1): the heads of a sequence side by side",
            "Call query.contiguous().",
        )
    if not math.isfinite(scale):
        raise ArgumentError("scale", scale, "a finite number", "The default is head_size ** -0.5.")


def check_groups(num_heads: int, num_kv_heads: int, remedy: str = "Pass every head of a group.") -> None:
    """Check that the query's heads are groups of one size, one for each KV head."""
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ArgumentError("query", f"{num_heads} heads", f"a multiple of the {num_kv_heads} KV heads", remedy)


def check_vector(name: str, tensor: torch.Tensor, length: int, dtype: torch.dtype, remedy: str) -> None:
    """Check that a tensor is ``[length]``, contiguous, of a dtype."""
    check_dtype(name, tensor, [dtype])
    if tuple(tensor.shape) != (length,) or not tensor.is_contiguous():
        got = f"shape {tuple(tensor.shape)}, strides {tensor.stride()}"
        raise ArgumentError(name, got, f"({length},), contiguous", remedy)


def check_within(name: str, tensor: torch.Tensor, first: int, last: int, meaning: str, remedy: str) -> None:
    """Check that every number of an index vector is between ``first`` and ``last``.

    Raises ArgumentError for the first that is not.
    """
    wrong = (tensor < first) | (tensor > last)
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ArgumentError(f"{name}[{place}]", int(tensor[place]), f"{first} to {last}{meaning}", remedy)


def check_out(out: torch.Tensor, query: torch.Tensor) -> None:
    """Check that a result has the query's shape and dtype, is contiguous and starts on `ALIGNMENT` bytes."""
    check_dtype("out", out, [query.dtype])
    if out.shape != query.shape or not out.is_contiguous() or out.data_ptr() % ALIGNMENT:
        raise ArgumentError(
            "out",
            f"shape {tuple(out.shape)}, strides {out.stride()}, address {out.data_ptr():#x}",
            f"shape {tuple(query.shape)}, contiguous, starting on {ALIGNMENT} bytes",
            "Pass torch.empty(query.shape, dtype=query.dtype, device=query.device), or None.",
        )


def check_pages(name: str, cache: torch.Tensor) -> None:
    """Check that each page of a cache ``[num_blocks, ...]`` is contiguous and starts on `ALIGNMENT` bytes."""
    dense = 1
    for size, stride in zip(reversed(cache.shape[1:]), reversed(cache.stride()[1:]), strict=True):
        if size != 1 and stride != dense:
            raise ArgumentError(name, f"strides {cache.stride()}", "each page contiguous", f"Call {name}.contiguous().")
        dense *= size
    apart = cache.stride(0) * cache.element_size()
    if cache.shape[0] > 1 and (apart % ALIGNMENT or cache.stride(0) < dense):
        raise ArgumentError(
            name,
            f"pages {apart} bytes apart",
            f"a multiple of {ALIGNMENT}, at least {dense * cache.element_size()}",
            f"Call {name}.contiguous(); pages of a multiple of {ALIGNMENT} bytes keep the rule.",
        )
    if cache.data_ptr() % ALIGNMENT:
        raise ArgumentError(
            name,
            f"address {cache.data_ptr():#x}",
            f"a multiple of {ALIGNMENT} bytes, for 16-byte accesses",
            f"Call {name}.clone().",
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


def alignment_of(*tensors: torch.Tensor) -> int:
    """Return the largest power of two, up to `ALIGNMENT` bytes, that divides the start of every row of each tensor.

    A row is the innermost contiguous part: the address and all strides but the last count.
    """
    bits = ALIGNMENT
    for tensor in tensors:
        bits |= tensor.data_ptr()
        for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True):
            if size > 1:
                bits |= stride * tensor.element_size()
    return bits & -bits


def look_at_values(tensor: torch.Tensor) -> bool:
    """Return True if the values of an index tensor may be read.

    On a GPU that needs ``WORKBENCH_CHECK_INDICES=1``, as it waits for the GPU and cannot be captured in a CUDA graph.
    """
    return not tensor.is_cuda or os.environ.get("WORKBENCH_CHECK_INDICES") == "1"
