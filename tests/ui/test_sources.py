"""Sources side by side."""

from __future__ import annotations

import html
import re

import pytest

from workbench.errors import ArgumentError
from workbench.ops import variant
from workbench.ui.sources import coloured, kernel_source, side_by_side


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


def test_panes_share_the_page_and_are_coloured_as_the_theme_says():
    page = side_by_side("paged_attention", ["cuda_thread_group", "triton_online_softmax"])._repr_html_()
    assert "table-layout:fixed;width:100%" in page
    assert "white-space:pre-wrap" in page
    assert "font:12px" in page
    assert re.search(r'<span style="color:var\(--jp-mirror-editor-comment-color,#\w+\);[^"]*">// 1. Load', page)
    assert re.search(r"keyword-color,#\w+\);[^>]*>__shared__<", page), "CUDA"
    assert re.search(r"keyword-color,#\w+\);[^>]*>for<", page)


@pytest.mark.parametrize(("text", "language"), [
    ('__global__ void k(float* x) {  // <why> & "so"\n  x[0] = 1.5f;\n}', "cuda"),
    ("\n    # indented <b>\n    for i in range(3):\n        tl.store(x, 'a & b')\n", "triton"),
])  # fmt: skip
def test_colours_change_no_character(text, language):
    assert html.unescape(re.sub(r"</?span[^>]*>", "", coloured(text, language))) == text.removesuffix("\n")
