"""torch's own operator database on the device: a part of it by default, all of it among the long tests."""

from __future__ import annotations

from typing import Any

import operator_database
import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.simulated_only("NVIDIA's GPU runs torch's own kernels")]

EXCEPTIONS = {
    "histogram": "torch has it on the CPU alone",
    "histogramdd": "torch has it on the CPU alone",
    "tensor_split": "its tensor of indices has to be on the CPU",
    "sparse.mm.reduce": "torch has it on the CPU alone",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "torch has it on the CPU alone",
}


def full_name(entry: Any) -> str:
    """Return the name of an entry with its variant's."""
    return f"{entry.name}.{entry.variant_test_name}".rstrip(".")


@pytest.mark.parametrize(
    ("part", "samples"),
    [((7, 24), 2), *[pytest.param((part, 12), 10, marks=pytest.mark.long) for part in range(1, 13)]],
    ids=str,
)
def test_results_and_gradients_are_those_of_the_cpu(part: tuple[int, int], samples: int):
    wrong, tried = {}, 0
    for entry in operator_database.entries([], part):
        if torch.float32 in entry.dtypes and full_name(entry) not in EXCEPTIONS:
            tried += 1
            if (why := operator_database.difference(entry, torch.float32, samples)) is not None:
                wrong[full_name(entry)] = why
    assert tried > 20
    assert wrong == {}


@pytest.mark.parametrize("name", ["histogramdd", "tensor_split", "sparse.mm.reduce"])
def test_exceptions_are_exceptions(name: str):
    entries = operator_database.entries([], (1, 1))
    (entry,) = [one for one in entries if full_name(one) == name]
    assert operator_database.difference(entry, torch.float32, 10) is not None


def test_a_wrong_operator_is_told(monkeypatch: pytest.MonkeyPatch):
    (entry,) = operator_database.entries(["sin"], (1, 1))
    assert operator_database.difference(entry, torch.float32, 2) is None
    monkeypatch.setattr(entry, "op", lambda x: torch.sin(x) + (1e-3 if x.is_cuda else 0))
    assert "not close" in operator_database.difference(entry, torch.float32, 2)
