"""Rules of legal configurations that variants of several ops share, and helpers to make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.base.packages import arch_number
from workbench.ops import Config, Restriction, next_power_of_2

STATIC_SHARED = 48 * 1024
"""Largest number of bytes of shared memory that a block may declare."""


def rules(*given: Restriction | tuple[str, str] | tuple[str, str, str]) -> tuple[Restriction, ...]:
    """Return restrictions; a row (name, formula, and its meaning if that is not plain) becomes one."""
    return tuple(one if isinstance(one, Restriction) else Restriction.of(*one) for one in given)


THREADS = Restriction.of("threads per block", "NUM_THREADS % 32 == 0 and 32 <= NUM_THREADS <= 1024")

TILE_TOKENS = Restriction.of("powers of two", "is_power_of_two(TILE_TOKENS)")


def is_from(arch: str, number: int) -> bool:
    """Return True if an architecture, such as "sm_90a", has that number or a higher one."""
    return arch_number(arch) >= number


TMA = Restriction(
    "TMA",
    "arch is sm_90 or newer: for others Triton turns descriptors into pointers, and kernels with pointers are faster",
    lambda config, problem: is_from(problem.arch, 90),
    of_arch=True,
)


def grid(*sizes: str) -> Restriction:
    """Return the rule that sizes of the problem, or formulas of them, fit into a grid's second and third dimension."""
    largest = sizes[0] if len(sizes) == 1 else f"max({', '.join(sizes)})"
    return Restriction.of("grid", f"{largest} <= 65535", "the second and third dimension of a grid hold no more")


def default_tile(problem: Any) -> int:
    """Return a tile of 64 tokens, or of fewer if a head is large."""
    return max(16, min(64, 8192 // next_power_of_2(problem.head_size)))


def tile_in_registers(elements: int) -> Restriction:
    """Return the rule that a thread's share of a tile of tokens is at most so many elements."""
    rule = f"TILE_TOKENS * next_power_of_2(head_size) <= {elements} * 32 * num_warps"
    return Restriction.of("a tile fits in registers", rule, f"{elements} elements per thread")


def shared_memory(taken: Callable[[Config, Any], int], formula: str, *, static: bool = False) -> Restriction:
    """Return the rule that a block's shared memory fits its architecture, or with ``static`` the limit of declarations.

    ``taken`` returns its bytes; ``formula`` is the text of that for readers of the rule.
    """

    def holds(config: Config, problem: Any) -> bool:
        return taken(config, problem) <= (STATIC_SHARED if static else shared_limit(problem))

    most = f"{STATIC_SHARED}, declared statically" if static else "the limit of a block of arch"
    return Restriction("shared memory", f"{formula} bytes <= {most}", holds)


def shared_limit(problem: Any) -> int:
    """Return the bytes of shared memory that one block may take on the problem's architecture."""
    from workbench.toolchain import limits_of

    return limits_of(problem.arch).shared_per_block
