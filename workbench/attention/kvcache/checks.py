"""Checks of layers, tensors, devices and dtypes, shared by the contiguous and the paged cache."""

from __future__ import annotations

import torch

from workbench.errors import ArgumentError


def check_layer(layer: int, num_layers: int) -> int:
    """Return the index of a layer; ArgumentError if there is no such layer."""
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < num_layers:
        raise ArgumentError("layer", repr(layer), f"0 to {num_layers - 1}", "Layers are counted from 0.")
    return layer


def check_tokens(
    key: torch.Tensor, value: torch.Tensor, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Check that new keys and values are ``[num_tokens, num_kv_heads, head_size]`` of the cache's dtype and device.

    Raises:
        ArgumentError: if one differs; it names the tensor and the difference.
    """
    for name, tensor in (("key", key), ("value", value)):
        if tuple(tensor.shape) != shape:
            raise ArgumentError(
                name, f"shape {tuple(tensor.shape)}", f"[num_tokens, num_kv_heads, head_size] = {shape}", "Reshape it."
            )
        if tensor.dtype != dtype:
            raise ArgumentError(name, tensor.dtype, f"{dtype}, that of the cache", f"Convert it with .to({dtype}).")
        if tensor.device != device:
            raise ArgumentError(name, f"device {tensor.device}", f"{device}, that of the cache", "Move it with .to().")


def check_device(device: torch.device | str) -> torch.device:
    """Return the device if torch can make tensors there; otherwise ArgumentError with torch's reason."""
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        remedy = f"torch says: {reason}."
        raise ArgumentError("device", repr(device), '"cpu", or a GPU that torch finds', remedy) from error


def check_cache_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype if a cache can hold it; otherwise ArgumentError."""
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ArgumentError("dtype", repr(dtype), "torch.float32, float16 or bfloat16", "Choose the model's dtype.")
    return dtype
