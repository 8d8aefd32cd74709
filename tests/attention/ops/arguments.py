"""Arguments that no op takes, made of good ones, and what the error has to say."""

import re

import torch

from workbench.errors import ArgumentError


def with_entry(tensor, index, value):
    """Return a copy of a tensor with another value at ``index``."""
    changed = tensor.clone()
    changed[index] = value
    return changed


def misaligned(tensor):
    """Return the same values one element after an address that 16 bytes divide."""
    storage = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    storage[1:] = tensor.flatten()
    return storage[1:].view(tensor.shape)


def every_other(tensor, dim):
    """Return the same values in a tensor whose stride in ``dim`` is doubled."""
    return torch.stack([tensor, tensor], dim + 1).select(dim + 1, 0)


def assert_refused(error, argument, message):
    """Assert that an error names the argument, says what ``message`` matches, what is allowed, and a remedy."""
    assert isinstance(error, ArgumentError)
    assert error.argument == argument
    assert re.search(message, str(error)), str(error)
    assert error.allowed
    assert error.remedy
