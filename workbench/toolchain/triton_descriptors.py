"""Tensor descriptors in the signatures of Triton's kernels: one argument, several parameters of the PTX."""

from __future__ import annotations


def is_descriptor(kind: str) -> bool:
    """Return True if a type in Triton's signature is that of a tensor descriptor."""
    return kind.startswith("tensordesc")


def descriptor_names(name: str, kind: str, *, mapped: bool) -> list[str]:
    """Return the names of a descriptor's parameters; if ``mapped``, TMA copies and the first one is a tensor map."""
    axes = range(kind[kind.index("[") :].split("]")[0].count(",") + 1)
    sizes = [f"{name}.{what}[{axis}]" for what in ("shape", "strides") for axis in axes]
    return [name, *sizes] if mapped else [name, *sizes, f"{name}.padding", f"{name}.round_f32_to_tf32", *sizes]
