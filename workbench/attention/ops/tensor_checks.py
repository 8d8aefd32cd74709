"""Checks of queries, caches and index vectors that several ops share.

Each raises `ArgumentError` before anything is written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

import torch

from workbench.errors import ArgumentError

ALIGNMENT = 16
"""Alignment in bytes of caches and of their pages."""


def check_dtype(name: str, tensor: torch.Tensor, allowed: Iterable[torch.dtype], why: str = "") -> None:
    """Check that a tensor has one of the dtypes."""
    if tensor.dtype not in (allowed := list(allowed)):
        raise ArgumentError(
            name,
            f"dtype {tensor.dtype}",
            " or ".join(map(str, allowed)),
            f"{why} Convert it with .to({allowed[0]}).".lstrip(),
        )


def check_query_shape(query: torch.Tensor, rows: str = "num_seqs") -> None:
    """Check that there is a head size, before anything is computed from it; ``rows`` names the first dimension."""
    if query.dim() != 3 or query.shape[1] == 0 or query.shape[2] == 0:
        raise ArgumentError("query", f"shape {tuple(query.shape)}", f"[{rows}, num_heads, head_size]", "Reshape it.")


def check_query(query: torch.Tensor, scale: float, dtypes: Iterable[torch.dtype], rows: str = "num_seqs") -> None:
    """Check the queries of a step, ``[rows, num_heads, head_size]``, and their scale."""
    check_dtype("query", query, dtypes)
    check_query_shape(query, rows)
    if query.stride(2) != 1 or query.stride(1) != query.shape[2]:
        raise ArgumentError(
            "query",
            f"strides {query.stride()}",
            f"(any, {query.shape[2]}, 1): the heads of a token side by side",
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
    """Check that a result has the shape and dtype of ``query``, is contiguous and starts on `ALIGNMENT` bytes."""
    check_dtype("out", out, [query.dtype])
    if out.shape != query.shape or not out.is_contiguous() or out.data_ptr() % ALIGNMENT:
        raise ArgumentError(
            "out",
            f"shape {tuple(out.shape)}, strides {out.stride()}, address {out.data_ptr():#x}",
            f"shape {tuple(query.shape)}, contiguous, starting on {ALIGNMENT} bytes",
            f"Pass torch.empty({tuple(query.shape)}, dtype=query.dtype, device=query.device), or None.",
        )


def check_dense(**wanted: tuple[torch.Tensor, Iterable[int], torch.dtype]) -> None:
    """Check that each named tensor has its shape and dtype, is contiguous and starts on `ALIGNMENT` bytes."""
    for name, (tensor, shape, dtype) in wanted.items():
        check_dtype(name, tensor, [dtype])
        if tensor.shape != tuple(shape) or not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
            raise ArgumentError(
                name,
                f"shape {tuple(tensor.shape)}, strides {tensor.stride()}, address {tensor.data_ptr():#x}",
                f"{tuple(shape)}, contiguous, starting on {ALIGNMENT} bytes",
                f"Call {name}.clone(memory_format=torch.contiguous_format).",
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


def check_slots(slots: torch.Tensor, new_slots: torch.Tensor, num_slots: int) -> None:
    """Check slots of states, which are read and then written, -1 for none, if `look_at_values` allows it.

    No slot is written twice, or by one sequence while another one reads it.
    """
    if not look_at_values(slots):
        return
    meaning = ", the slots of the pool, or -1"
    for name, tensor in (("slots", slots), ("new_slots", new_slots)):
        check_within(name, tensor, -1, num_slots - 1, meaning, "Check the pool's size.")
    clash = new_slots[:, None] == torch.stack([slots, new_slots], 1).flatten()[None]
    own = torch.eye(len(slots), dtype=torch.bool, device=slots.device).repeat_interleave(2, 1)
    wrong = clash & ~own & (new_slots >= 0)[:, None]
    if wrong.any():
        seq, other = wrong.nonzero()[0].tolist()
        verb = "written" if other % 2 else "read"
        raise ArgumentError(
            f"new_slots[{seq}]",
            f"{int(new_slots[seq])}, which sequence {other // 2} has {verb} as well",
            "a slot of its own",
            "The order of sequences is undefined.",
        )
