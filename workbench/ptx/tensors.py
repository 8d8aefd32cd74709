"""Tensors that a kernel cannot take, because they have no elements in memory: refused by name before a launch."""

from __future__ import annotations

from typing import Any, NoReturn

from workbench.errors import ArgumentError

_ALLOWED = "a tensor with its elements in memory"
_PARTS = {
    "sparse_coo": ".indices()", "sparse_csr": ".crow_indices(), .col_indices()", "sparse_bsr": ".crow_indices(), "
    ".col_indices()", "sparse_csc": ".ccol_indices(), .row_indices()", "sparse_bsc": ".ccol_indices(), .row_indices()",
}  # fmt: skip
_LOWEST = 1 << 16  # no memory lies below this address


def address_of(where: str, tensor: Any) -> int:
    """Return the address of a tensor's first element; 0 for a tensor without elements.

    Raises ArgumentError, naming ``where``, for a tensor that has a shape and no memory: a FakeTensor, another layout
    than torch.strided, a storage that was freed.
    """
    if tensor.__class__.__name__ == "FakeTensor":
        refuse_without_elements(where, tensor)
    try:
        address: int = tensor.data_ptr()
    except RuntimeError as error:
        refuse_without_elements(where, tensor, error)
    if address < _LOWEST and tensor.numel():
        refuse_without_elements(where, tensor)
    return address


def refuse_without_elements(where: str, tensor: Any, error: RuntimeError | None = None) -> NoReturn:
    """Raise ArgumentError, naming ``where``, for a tensor without memory, of which torch may have raised ``error``."""
    layout = str(getattr(tensor, "layout", "")).removeprefix("torch.").removeprefix("_")
    if tensor.__class__.__name__ == "FakeTensor":
        got = "a FakeTensor, which has a shape and no elements"
        remedy = "Pass a real tensor: torch makes these to trace shapes, and a kernel needs values."
    elif getattr(tensor, "is_meta", False):
        got, remedy = "a tensor on meta, which has a shape and no elements", "Make it on the device of the launch."
    elif layout not in ("strided", ""):
        parts = f", or its parts: {_PARTS[layout]}, .values()" if layout in _PARTS else ""
        got, remedy = f"a tensor of layout {layout}", f"Pass .to_dense(){parts}."
    elif error is not None:
        said = str(error).partition("\n")[0]
        got = f"a {type(tensor).__name__} that cannot say where its elements are ({said})"
        remedy = "Pass a plain tensor; inside torch.func's transforms and subclasses there may be none."
    else:
        got = f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} whose storage was freed or is too small"
        remedy = "Its untyped_storage() was resized, or it only wraps other tensors: pass one that has its elements."
    raise ArgumentError(where, got, _ALLOWED, remedy) from error
