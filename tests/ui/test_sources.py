"""Sources side by side."""

from __future__ import annotations

import pytest

from workbench.errors import ArgumentError
from workbench.ops import variant
from workbench.ui.sources import kernel_source, side_by_side


def test_the_kernels_have_the_same_steps():
    panes = side_by_side("paged_attention", ["cuda_thread_group", "triton_online_softmax"])
    titles = list(panes.steps)
    assert titles[1:] == ["1. Load", "2. Score", "3. Softmax / Rescale", "4. Accumulate", "5. Reduce"]
    assert "tl.exp2" in panes.steps[titles[3]][1]
    assert "__syncthreads" in panes.steps[titles[3]][0]
    assert "<pre" in panes._repr_html_()
    assert "4. Accumulate" in repr(panes)


def test_nothing_of_a_kernel_is_lost():
    panes = side_by_side("paged_attention", ["cuda_thread_group"])
    shown = "".join(text for (text,) in panes.steps.values())
    source = kernel_source(variant("paged_attention", "cuda_thread_group"))
    assert "".join(shown.split()) == "".join(source.split())


def test_torch_has_no_kernel():
    with pytest.raises(ArgumentError, match="CUDA C\\+\\+ or Triton"):
        side_by_side("paged_attention", ["torch"])
