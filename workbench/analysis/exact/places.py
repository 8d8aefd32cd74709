"""Places where the results of two programs differ, and words for them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.analysis.exact.agreement import Part, Results, differing
from workbench.analysis.exact.naming import ExactNames


def differences(results: tuple[Results, Results], part: Part) -> dict[str, torch.Tensor]:
    """Return which elements differ, by output, without outputs that do not."""
    found, wanted = results
    masks = {name: differing(found[name], wanted[name], part) for name in wanted}
    return {name: mask for name, mask in masks.items() if bool(mask.any())}


def places(masks: Mapping[str, torch.Tensor], names: ExactNames) -> list[str]:
    """Return in words which elements differ, a line for each output."""
    found = []
    for name, mask in masks.items():
        positions, wrong = torch.arange(mask.numel()).view(mask.shape), int(mask.sum())
        if wrong == mask.numel():
            found.append(f"every element of {name} differs")
            continue
        for axis in range(mask.dim()):
            indices = mask.movedim(axis, 0).reshape(mask.shape[axis], -1).any(1).nonzero().flatten()
            positions = positions.narrow(axis, int(indices[0]), int(indices[-1] - indices[0]) + 1)
        block = names.place(name, positions.flatten(), mask.shape)
        many = f"{wrong:,} of the {positions.numel():,} elements of {block}"
        others = "" if block == name else f", and no other of {name}"
        found.append(f"{block if wrong == positions.numel() else many} differ{'s' * (wrong == 1)}{others}")
    return found
