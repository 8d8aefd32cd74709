"""Wrong managers are caught by the very walk that passes the right one.

A mutant is one slip in the syntax tree of a module of the cache (mutants.python), at a line that the walk executes;
the modules are loaded anew with it, and the seeded walk of kv_model must fail. Some are as right as the module (how
long a list is at first, a prefix that is looked for in vain), so what is held is a rate.
"""

import functools
import itertools

import pytest
from kv_model import Model, make_cache, random_steps
from mutants.python import OPERATORS, cpu_seconds, executed_lines, loaded, mutants
from sampling import long_if

PACKAGE = "workbench.attention.kvcache"
NAMES = (
    "prefixes", "block_pool", "layer_groups", "sequence", "group_blocks", "swap_space", "block_manager", "paged",
)  # fmt: skip
MODULES = tuple(f"{PACKAGE}.{name}" for name in NAMES)
"""In the order in which they import each other."""

WALKS = (
    {"prefix_caching": True, "sliding_window": None},
    {"prefix_caching": True, "sliding_window": 6},
    {"prefix_caching": False, "sliding_window": 5, "layout": "x", "block_size": 3},
)


def walk(kind, seeds, steps):
    for seed, configuration in itertools.product(range(seeds), WALKS):
        random_steps(Model(make_cache(kind, **configuration)), seed, steps)


@functools.cache
def executed(*length):
    """The lines that the walk executes, by module; it is one that the right modules pass."""
    kind = loaded(MODULES, {}).PagedKVCache
    with executed_lines(*MODULES) as lines:
        walk(kind, *length)
    return lines


def survives(mutant, *length):
    """Return True if the walk notices nothing."""
    try:
        with cpu_seconds(20):
            walk(loaded(MODULES, {mutant.module: mutant.code}).PagedKVCache, *length)
    except Exception:  # an assertion of the walk, a crash on the way, or no end
        return False
    return True


@pytest.mark.sampled(7)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("seeds", "steps", "count"), [(1, 150, 2), long_if(True, 2, 600, 8)])
def test_most_mutants_are_caught(seeds, steps, count, operator):
    lines = executed(seeds, steps)
    made = [mutant for name in MODULES for mutant in itertools.islice(mutants(operator, name, lines[name]), count)]
    survivors = [str(mutant) for mutant in made if survives(mutant, seeds, steps)]
    # 76% of all are caught; of numbers, which are sizes and first elements, half.
    assert len(survivors) <= 0.6 * len(made), "\n".join(survivors)
    caught = {mutant.module for mutant in made if str(mutant) not in survivors}
    assert len(caught) >= 3, "\n".join(survivors)
