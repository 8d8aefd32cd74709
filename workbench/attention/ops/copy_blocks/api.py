"""`copy_blocks`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, tensors_of
from workbench.attention.ops.tensor_checks import check_dtype, check_pages, look_at_values
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import RunTensors, check_apart, check_devices


@names_wrong_kinds
def copy_blocks(
    key_caches: Sequence[torch.Tensor],
    value_caches: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
) -> None:
    """Copy pages inside the caches of every layer, in place, as copy-on-write needs when sequences diverge.

    For each cache and each pair: ``cache[destination] = cache[source]``, bit for bit. After vLLM's kernel of this name.

    Args:
        key_caches: one cache per layer, ``[num_blocks, ...]`` in any layout and dtype, or one tensor ``[num_layers,
            num_blocks, ...]``; pages contiguous, starting on 16 bytes, alike in all of them, each in memory of its own.
            On a GPU they may be separate allocations; in the simulator each allocation is a launch of its own.
        value_caches: as key_caches.
        pairs: ``[num_pairs, 2] int64``, (source page, destination page). A page may be the source of several pairs; no
            destination may be another pair's source or destination, because the order of copies is undefined.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Pages on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    lists = layers_of(key_caches=key_caches, value_caches=value_caches)
    named = {f"{name}[{i}]": cache for name, caches in lists.items() for i, cache in enumerate(caches)}
    check_devices("key_caches[0]", named["key_caches[0]"], **named, pairs=pairs)
    OP.run(CopyBlocksCaches(**lists, pairs=pairs), variant=variant, config=config)


@dataclass
class CopyBlocksCaches(RunTensors):
    """The caches of every layer, and pairs ``[num_pairs, 2] int64`` of pages."""

    key_caches: Sequence[torch.Tensor]
    value_caches: Sequence[torch.Tensor]
    pairs: torch.Tensor

    @property
    def all(self) -> list[torch.Tensor]:
        """The key caches, then the value caches."""
        return [*self.key_caches, *self.value_caches]


def problem_of(t: CopyBlocksCaches) -> CopyBlocksProblem:
    """Check all metadata (shapes, strides, dtypes) and, where that costs nothing, pages; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    lists = {"key_caches": t.key_caches, "value_caches": t.value_caches}
    if len(t.key_caches) != len(t.value_caches):
        raise ArgumentError(
            "value_caches",
            f"{len(t.value_caches)} caches",
            f"{len(t.key_caches)}, as many as key_caches",
            "One of each per layer.",
        )
    named = {f"{name}[{i}]": one for name, caches in lists.items() for i, one in enumerate(caches)}
    page = check_alike(named)
    check_apart(named, named)
    check_pairs(t.pairs, "source page, destination page")
    check_inside(t.pairs, t.key_caches[0].shape[0])
    arch = arch_of(t.key_caches[0])
    return CopyBlocksProblem(num_pairs=len(t.pairs), num_caches=len(named), page_bytes=page, arch=arch)


def layers_of(**caches: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """Return the caches of every layer as lists, by the names of the arguments. Raises ArgumentError for none."""
    lists = {name: list(layers) for name, layers in caches.items()}
    for name, layers in lists.items():
        if not layers:
            raise ArgumentError(name, "no cache", "one cache per layer", "Skip the call if there is no layer.")
    return lists


def check_alike(caches: Mapping[str, torch.Tensor]) -> int:
    """Check that named caches have pages, and pages of the same number, size and distance; return a page's bytes."""
    first, wanted = "", (0, 0, 0)
    for name, cache in caches.items():
        if cache.dim() < 2 or cache.numel() == 0:
            raise ArgumentError(name, f"shape {tuple(cache.shape)}", "[num_blocks, ...]", "The pages come first.")
        check_pages(name, cache)
        page = cache[0].numel() * cache.element_size()
        found = cache.shape[0], page, page if cache.shape[0] == 1 else cache.stride(0) * cache.element_size()
        first, wanted = (first, wanted) if first else (name, found)
        if found != wanted:
            text = "{} pages of {} bytes, {} bytes apart"
            remedy = "All layers of a cache must be alike."
            raise ArgumentError(name, text.format(*found), f"{text.format(*wanted)}, as {first}", remedy)
    return wanted[1]


def check_pairs(pairs: torch.Tensor, meaning: str) -> None:
    """Check dtype, shape and strides of pairs of pages."""
    check_dtype("pairs", pairs, [torch.int64])
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not pairs.is_contiguous():
        raise ArgumentError(
            "pairs",
            f"shape {tuple(pairs.shape)}, strides {pairs.stride()}",
            f"[num_pairs, 2], contiguous: {meaning}",
            "Call pairs.contiguous().",
        )


def check_copies(
    pairs: torch.Tensor, num_sources: int, num_targets: int, caches: tuple[str, str], written: str
) -> None:
    """Check that every page exists and that no two pairs write the same one, if `look_at_values` allows it.

    ``caches`` are the names of the two sides in messages, and ``written`` that of a pair's second page.
    """
    if not look_at_values(pairs):
        return
    wrong = (pairs < 0) | (pairs >= torch.tensor([num_sources, num_targets], device=pairs.device))
    if wrong.any():
        pair, side = wrong.nonzero()[0].tolist()
        raise ArgumentError(
            f"pairs[{pair}, {side}]",
            int(pairs[pair, side]),
            f"0 to {(num_sources, num_targets)[side] - 1}, the pages of the {caches[side]}",
            f"A pair is (source page, {written} page).",
        )
    order = pairs[:, 1].sort(stable=True)
    twice = order.values[1:] == order.values[:-1]
    if twice.any():
        at = int(twice.nonzero()[0])
        raise ArgumentError(
            f"pairs[{int(order.indices[at + 1])}, 1]",
            f"{int(order.values[at])}, the {written} of pairs[{int(order.indices[at])}] too",
            f"each {written} once",
            "Two copies to one page would overwrite each other in an undefined order.",
        )


def check_inside(pairs: torch.Tensor, num_blocks: int) -> None:
    """Run `check_copies` inside one cache, where no destination may be another pair's source either."""
    check_copies(pairs, num_blocks, num_blocks, ("cache", "cache"), "destination")
    if not look_at_values(pairs):
        return
    sources, destinations = pairs.unbind(1)
    both = torch.isin(destinations, sources)
    if both.any():
        at = int(both.nonzero()[0])
        raise ArgumentError(
            f"pairs[{at}, 1]",
            f"{int(destinations[at])}, which is also a source",
            "pages that no pair reads",
            "The order of copies is undefined: make two calls.",
        )


OP: DescribedOp = op(
    name="copy_blocks",
    tensors=CopyBlocksCaches,
    in_place=("key_caches", "value_caches"),
    like=lambda t: t.key_caches[0],
    make=lambda t: tensors_of(t.all, t.all, t.pairs),
    namespace="workbench",
)(problem_of)
