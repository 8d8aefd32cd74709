"""Views given to the built-in ops: right or refused by name, and what they do not write stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from workbench import ops
from workbench.errors import ArgumentError


def _apart(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return these values with others between them in one dimension."""
    return torch.stack([tensor, torch.full_like(tensor, 7)], dim + 1).select(dim + 1, 0)


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    """Return these values with the first dimension innermost in memory."""
    return tensor.permute(*reversed(range(tensor.dim()))).contiguous().permute(*reversed(range(tensor.dim())))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as whole numbers: caches have NaN where nobody has written."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows apart": lambda one: _apart(one, 0),
    "a middle dimension apart": lambda one: _apart(one, one.dim() // 2),
    "elements apart": lambda one: _apart(one, one.dim() - 1),
    "columns first": _reversed,
    "an odd offset": lambda one: torch.cat([one.flatten()[:1], one.flatten()])[1:].view(one.shape),
}

CALLS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "paged_attention": ("cuda_thread_group", ("query", "key_cache", "value_cache", "block_tables", "seq_lens"), ()),
    "contiguous_attention": ("cuda_register_softmax", ("query", "kv_cache", "seq_lens"), ()),
    "reshape_and_cache": ("triton_tiled", ("key", "value", "key_cache", "value_cache", "slot_mapping"),
                          ("key_cache", "value_cache")),
    "gather_cache": ("cuda_tiled", ("key_cache", "value_cache", "block_tables", "seq_lens"), ()),
    "causal_attention": ("triton_flash", ("query", "key", "value"), ()),
}  # fmt: skip
"""Op -> a variant, its arguments that are tensors, and those among them that it writes."""


@pytest.mark.parametrize("name", CALLS)
def test_views_are_right_or_refused(name: str):
    variant, arguments, written = CALLS[name]
    op = ops.get(name)
    case = op.quick_case
    given = {one: getattr(case.inputs(case.problem()), one) for one in arguments}
    right, refused = 0, []

    def called(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        found = op.function(**tensors, variant=variant)
        several = found if isinstance(found, tuple) else () if found is None else (found,)
        return [*several, *(tensors[one] for one in written)]

    expected = [one.clone() for one in called({one: tensor.clone() for one, tensor in given.items()})]
    for argument in arguments:
        for layout, laid in LAYOUTS.items():
            tensors = {one: tensor.clone() for one, tensor in given.items()} | {argument: laid(given[argument])}
            view = tensors[argument]
            memory = _bits(torch.empty(0, dtype=view.dtype).set_(view.untyped_storage()))
            outside = torch.ones_like(memory, dtype=torch.bool)
            outside.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(False)
            before = memory.clone()
            try:
                found = called(tensors)
            except ArgumentError as error:
                refused.append((argument in str(error), torch.equal(memory, before), layout, str(error)))
                continue
            right += 1
            assert torch.equal(memory[outside], before[outside]), (argument, layout)
            wrong = [not torch.equal(_bits(one), _bits(other)) for one, other in zip(found, expected, strict=True)]
            assert not any(wrong), (argument, layout)
    assert all(named and unchanged for named, unchanged, *_ in refused), refused
    assert right >= len(arguments)
