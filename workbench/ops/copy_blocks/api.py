"""The function that users import: checks its arguments, chooses a variant and configuration, runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops.arguments import check_devices
from workbench.ops.copy_blocks.problem import Problem, by_allocation, tensors_of
from workbench.ops.copy_blocks.validate import check_inside, problem_of
from workbench.ops.dispatch import arch_of, choose, config_text, device_of, parse_config, table_of
from workbench.ops.library_op import custom_op
from workbench.ops.op import Op
from workbench.ops.registry import BUILT_IN


@names_wrong_kinds
def copy_blocks(
    key_caches: Sequence[torch.Tensor],
    value_caches: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
) -> None:
    """Copy pages inside the caches of every layer, in place: what copy-on-write does when sequences diverge.

    For each cache and each pair: ``cache[destination] = cache[source]``, bit for bit. After vLLM's kernel of this name.

    Args:
        key_caches, value_caches: one cache per layer, ``[num_blocks, ...]`` in any layout and dtype, or one tensor
            ``[num_layers, num_blocks, ...]``; pages contiguous, starting on 16 bytes, alike in all of them, each in
            memory of its own. On a GPU they may be separate allocations; in the simulator each allocation is a launch
            of its own.
        pairs: ``[num_pairs, 2] int64``, (source page, destination page). A page may be the source of several pairs; no
            destination may be another pair's source or destination, because pairs are copied in no order.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: anything above that does not hold; nothing is written then. Pages on a GPU are only looked at
            with ``WORKBENCH_CHECK_INDICES=1`` in the environment: that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    lists = {"key_caches": list(key_caches), "value_caches": list(value_caches)}
    for name, caches in lists.items():
        if not caches:
            raise ArgumentError(name, "no cache", "one cache per layer", "Leave the call out where there is no layer.")
    named = {f"{name}[{i}]": cache for name, caches in lists.items() for i, cache in enumerate(caches)}
    check_devices("key_caches[0]", named["key_caches[0]"], **named, pairs=pairs)
    _copy_blocks(*lists.values(), pairs, variant, config_text(config))


@custom_op("workbench::copy_blocks", mutates_args=("key_caches", "value_caches"))
def _copy_blocks(
    key_caches: Sequence[torch.Tensor],
    value_caches: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    variant: str = "auto",
    config: str | None = None,
) -> None:
    op = BUILT_IN["copy_blocks"]
    first = key_caches[0]
    problem = problem_of(key_caches, value_caches, pairs, arch_of(first))
    check_inside(pairs, first.shape[0])
    caches = [*key_caches, *value_caches]
    copy_pages(op, problem, caches, caches, pairs, first, variant, config)


def copy_pages(
    op: Op,
    problem: Problem,
    sources: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    like: torch.Tensor,
    variant: str,
    config: str | None,
) -> None:
    """Choose for and run where ``like`` is; in the simulator each pair of allocations is a launch of its own."""
    chosen, chosen_config = choose(op, problem, variant, parse_config(config), device=table_of(like))
    if problem.num_pairs == 0:
        return
    device, groups = device_of(chosen, like), [(sources, targets)]
    if device is not None:
        pairs = pairs.to(like.device)
        if device.name == "sim":
            groups = by_allocation(sources, targets)
    for some, others in groups:
        chosen.run(chosen_config, problem.of_caches(len(some)), tensors_of(some, others, pairs), device)


_copy_blocks.register_fake(lambda *given, **options: None)
