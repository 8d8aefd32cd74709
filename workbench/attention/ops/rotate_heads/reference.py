"""The Hadamard rotation by its matrix.

The matrix of Sylvester's construction, divided by the square root of its size so that it is orthonormal:

    H[i, j] = (-1)^(number of ones in i & j) / sqrt(size)

It is symmetric and its own inverse, and ``(q H) . (k H) = q . k``.
"""

from __future__ import annotations

import torch


def hadamard(size: int) -> torch.Tensor:
    """Return the orthonormal Hadamard matrix ``[size, size] float64``; ``size`` is a power of two."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix * size**-0.5


def rotated(heads: torch.Tensor, block: int) -> torch.Tensor:
    """Return heads ``[..., head_size]`` with each of their blocks multiplied by the matrix, in float64."""
    return (heads.double().unflatten(-1, (-1, block)) @ hadamard(block)).flatten(-2)
