"""Operators on the device's sparse tensors, computed on the host: torch's GPU kernels for them need CUB and cuSPARSE.

Indices and values lie in the device's memory as dense tensors. An operator copies them to the host, and its result is
copied back to the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

_FUNCTIONS = (
    "_coalesce", "add.Tensor", "sub.Tensor", "mul.Tensor", "mm", "addmm", "bmm", "hspmm", "_sparse_sparse_matmul",
    "_sparse_softmax", "_sparse_log_softmax", "_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data",
    "_sparse_sum_backward", "sparse_mask", "_sparse_mask_projection", "sspaddmm",
)  # fmt: skip
_IN_PLACE = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "addmm_")
KEYS = ("SparseCUDA", "SparseCsrCUDA")


def register() -> list[torch.library.Library]:
    """Register the operators for the sparse dispatch keys; they stay registered while the returned libraries live."""
    libraries = []
    for key in KEYS:
        library = torch.library.Library("aten", "IMPL", key)
        for name in (*_FUNCTIONS, *_IN_PLACE):
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.impl(name, _on_host(name, in_place=name in _IN_PLACE), allow_override=True)
        libraries.append(library)
    return libraries


def _on_host(name: str, in_place: bool) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*arguments: Any, **options: Any) -> Any:
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        device = tensors[0].device
        on_host, named = tree_map_only(Tensor, Tensor.cpu, (arguments, options))
        result = tree_map_only(Tensor, lambda one: one.to(device), operator(*on_host, **named))
        return arguments[0].copy_(result) if in_place else result

    return call
