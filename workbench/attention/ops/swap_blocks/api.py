"""`swap_blocks`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from workbench.attention.ops.constants import under_capture
from workbench.attention.ops.copy_blocks.api import check_alike, check_copies, check_pairs, layers_of
from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, tensors_of
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import RunTensors, check_apart, check_devices


@names_wrong_kinds
def swap_blocks(
    source_caches: Sequence[torch.Tensor],
    target_caches: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
) -> None:
    """Copy pages from one set of caches into another, to swap a sequence out or back in.

    For each pair and each cache i: ``target_caches[i][destination] = source_caches[i][source]``, bit for bit. After
    vLLM's kernel of this name, which takes one pair of caches at a time.

    Args:
        source_caches: for example the key and the value cache of every layer; ``[num_blocks, ...]`` in any layout and
            dtype, pages contiguous, starting on 16 bytes, of the same size in all of them, all on one device.
        target_caches: as many caches as source_caches, all on one device, with pages of the same size. No target shares
            memory with any other cache (inside a cache use `copy_blocks`).
        pairs: ``[num_pairs, 2] int64``, (source page, target page), on either device; no target twice. A CUDA graph
            captures the call only if everything is on the GPU.
        variant: "auto" (on a CPU, and between a CPU and a GPU, the torch variant; on a GPU the tuned one), "tuned", or
            a variant's name, which on a CPU runs in the simulator. Between a CPU and a GPU only torch copies: host
            memory that is not pinned is out of a kernel's reach.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Pages on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    lists = layers_of(source_caches=source_caches, target_caches=target_caches)
    for name, caches in lists.items():
        check_devices(f"{name}[0]", caches[0], **{f"{name}[{i}]": cache for i, cache in enumerate(caches)})
    check_devices("pairs", pairs)
    OP.run(SwapBlocksCaches(**lists, pairs=pairs), variant=variant, config=config)


@dataclass
class SwapBlocksCaches(RunTensors):
    """As many source caches as targets, and pairs ``[num_pairs, 2] int64`` of pages."""

    source_caches: Sequence[torch.Tensor]
    target_caches: Sequence[torch.Tensor]
    pairs: torch.Tensor

    @property
    def on_gpu(self) -> torch.Tensor:
        """A cache that lies on a GPU, if there is one."""
        return self.source_caches[0] if self.source_caches[0].is_cuda else self.target_caches[0]


def problem_of(t: SwapBlocksCaches) -> CopyBlocksProblem:
    """Check all metadata (shapes, strides, dtypes) and, where that costs nothing, pages; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    source_caches, target_caches, pairs = t.source_caches, t.target_caches, t.pairs
    _check_capture(t)
    if len(source_caches) != len(target_caches):
        raise ArgumentError(
            "target_caches", f"{len(target_caches)} caches", f"{len(source_caches)}, as many as sources", "Pair them."
        )
    sources, targets = (
        {f"{side}[{i}]": cache for i, cache in enumerate(caches)}
        for side, caches in (("source_caches", source_caches), ("target_caches", target_caches))
    )
    source_page, target_page = check_alike(sources), check_alike(targets)
    if source_page != target_page:
        allowed = f"{source_page} bytes, as source_caches[0]"
        raise ArgumentError(
            "target_caches[0]", f"pages of {target_page} bytes", allowed, "Pages of both sides are of one size."
        )
    check_apart(sources | targets, targets, "Inside a cache use copy_blocks.")
    check_pairs(pairs, "source page, target page")
    check_copies(pairs, source_caches[0].shape[0], target_caches[0].shape[0], ("sources", "targets"), "target")
    across = source_caches[0].device != target_caches[0].device
    return CopyBlocksProblem(
        num_pairs=len(pairs),
        num_caches=len(source_caches),
        page_bytes=source_page,
        features=("two devices",) if across else (),
        arch=arch_of(t.on_gpu),
    )


def _check_capture(t: SwapBlocksCaches) -> None:
    """Raise ArgumentError for what would have to be moved to the GPU whose work a CUDA graph captures."""
    gpu = t.on_gpu.device
    if not under_capture(gpu):
        return
    for name, tensor in (
        ("source_caches", t.source_caches[0]),
        ("target_caches", t.target_caches[0]),
        ("pairs", t.pairs),
    ):
        if tensor.device != gpu:
            came, allowed = f"device {tensor.device} under graph capture", str(gpu)
            raise ArgumentError(name, came, allowed, f"Move it with .to({allowed!r}) before the capture.")


OP: DescribedOp = op(
    name="swap_blocks",
    tensors=SwapBlocksCaches,
    in_place=("target_caches",),
    like=lambda t: t.on_gpu,
    make=lambda t: tensors_of(t.source_caches, t.target_caches, t.pairs),
    namespace="workbench",
)(problem_of)
