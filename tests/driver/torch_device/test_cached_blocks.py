"""Blocks that torch's allocator keeps between the tests of a suite, each of which is memory of the host."""

import gc

import pytest
import torch

from workbench import pytest_plugin

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("megabytes", "kept"), [(320, False), (64, True)])
def test_many_cached_bytes_are_freed(megabytes, kept):
    """Free what is cached above the limit, and leave less than that to the next test."""
    gc.collect()  # the tensors of other tests
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    tensor = torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda")
    del tensor
    assert torch.cuda.memory_reserved() > before
    pytest_plugin._free_cached()
    assert (torch.cuda.memory_reserved() > before) is kept
