"""``wb.compare(op, arch=...)``: variants for several architectures side by side."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.comparison.comparison import ArchComparison
from workbench.errors import ArgumentError, UnknownNameError

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


@pytest.fixture(scope="module")
def compared() -> ArchComparison:
    return wb.compare("causal_attention", variants=["cuda_mma", "triton_descriptors"], arch=ARCHS)


def test_a_row_for_each_architecture_that_a_variant_has_code_for(compared):
    assert isinstance(compared, ArchComparison)
    assert compared.all_correct, compared
    pairs = [(trial.variant, trial.arch) for trial in compared.trials]
    assert pairs == [("cuda_mma", arch) for arch in ARCHS] + [("triton_descriptors", arch) for arch in ARCHS[1:]]
    (table,) = compared.tables()
    assert [row[:2] for row in table.rows] == pairs
    assert "<td" in compared._repr_html_()
    assert "cuda_mma for sm_80, cuda_mma for sm_90a" in repr(compared)
    assert list(compared.to_frame().index) == pairs


def test_each_time_is_that_of_a_gpu_of_its_architecture(compared):
    gpus = {"sm_80": "a100-sxm-80gb", "sm_90a": "h100-sxm", "sm_100a": "b200", "sm_120a": "rtx-5090"}
    for trial in compared.trials:
        assert trial.predicted_for == gpus[trial.arch]
        assert trial.seconds > 0
    for variant in ("cuda_mma", "triton_descriptors"):
        assert compared[variant, "sm_100"] is compared[variant, "sm_100a"]
    assert len({trial.seconds for trial in compared.trials}) == len(compared.trials)


def test_a_variant_of_several_architectures_needs_both_names(compared):
    with pytest.raises(UnknownNameError, match=r"\('cuda_mma', 'sm_80'\)"):
        compared["cuda_mma"]
    with pytest.raises(UnknownNameError, match="sm_90a"):
        compared["triton_descriptors", "sm_80"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"arch": ("sm_80", "sm_42")}, "arch"),
        ({"arch": ()}, "arch"),
        ({"arch": ("sm_90", "sm_90a")}, "arch"),
        ({"arch": "sm_80", "model": "l4"}, "model"),
        ({"arch": ("sm_80", "sm_100"), "variants": "cuda_wgmma"}, "variants"),
        ({"arch": "sm_80", "variants": "torch_naive"}, "variants"),
    ],
    ids=str,
)
def test_what_is_refused(options, name):
    with pytest.raises(ArgumentError) as caught:
        wb.compare("causal_attention", **options)
    assert caught.value.argument == name
