"""The sliders over a kernel's tunables, driven through their traits."""

from unittest.mock import Mock

import pytest

pytest.importorskip("ipywidgets", reason='no widgets: python -m pip install -e ".[lab]"')

from workbench import ops, ui
from workbench.errors import ArgumentError, CompileError, ConfigurationError
from workbench.ops.tracing import trace
from workbench.ui.explorer import KernelExplorer

OP = ops.get("paged_attention")
CASE = OP.case("small", num_heads=2, num_kv_heads=1, head_size=128, seq_lens=(33,))


def keys_of(trace):
    line = next(line.line for line in trace.lines if "key[j].load(" in line.text)
    return next(request for request in trace.recording.requests if request.kernel_line == line)


@pytest.fixture(scope="module")
def picture_of():
    return lambda trace: ui.warp_map(keys_of(trace))


@pytest.fixture
def explorer(picture_of):
    tunables = ["BLOCK_SIZE", "THREAD_GROUP_SIZE", "VEC_SIZE"]
    return KernelExplorer("paged_attention", CASE, variant="cuda_thread_group", tunables=tunables, picture=picture_of)


def test_it_begins_with_the_untuned_rule(explorer):
    assert explorer.config == explorer.variant.default_config(CASE.problem())
    assert {name: slider.value for name, slider in explorer.sliders.items()} == {
        "BLOCK_SIZE": 16,
        "THREAD_GROUP_SIZE": 2,
        "VEC_SIZE": 4,
    }
    assert explorer.broken == []
    assert keys_of(explorer.trace).sectors == 8


def test_a_slider_traces_the_kernel_again(explorer):
    before, picture = explorer.trace, explorer._image.value
    explorer.sliders["VEC_SIZE"].value = 8
    assert explorer.config["VEC_SIZE"] == 8
    assert explorer.trace.report.instructions < before.report.instructions
    assert keys_of(explorer.trace).sectors == 16
    assert explorer._image.value != picture
    assert f"{explorer.trace.report.instructions:,}" in explorer._table.value
    assert f"{before.report.instructions:,}" in explorer._table.value, "beside where it began"


@pytest.mark.long
def test_the_configuration_moves_the_sliders(explorer):
    explorer.config = {**explorer.config, "THREAD_GROUP_SIZE": 4, "VEC_SIZE": 2}
    assert explorer.sliders["THREAD_GROUP_SIZE"].value == 4
    assert explorer.sliders["VEC_SIZE"].value == 2
    assert keys_of(explorer.trace).bytes_per_lane == 4


def test_an_illegal_configuration_names_its_rule_and_keeps_the_facts(explorer):
    before = explorer.trace
    explorer.sliders["THREAD_GROUP_SIZE"].value = 1
    assert [rule.split(":")[0] for rule in explorer.broken] == ["a warp stays in its page"]
    assert explorer.trace is before
    assert "a warp stays in its page" in explorer._table.value
    assert "a warp stays in its page" in repr(explorer)
    assert "before" in repr(explorer)
    assert explorer._image.layout.visibility == "hidden"
    assert "text/html" not in explorer._repr_mimebundle_()[0]
    explorer.sliders["BLOCK_SIZE"].value = 32
    assert explorer.broken == []
    assert explorer.trace is not before
    assert "illegal" not in explorer._table.value


@pytest.mark.long
def test_a_page_without_javascript_shows_table_and_picture(explorer, picture_of):
    data, _ = explorer._repr_mimebundle_()
    assert data["text/plain"] == repr(explorer)
    assert "sectors per request" in data["text/plain"]
    assert data["text/html"].endswith(picture_of(explorer.trace).cell_html())
    # nbval compares it: the same again, and no address in it.
    again = KernelExplorer("paged_attention", CASE, variant="cuda_thread_group")
    assert repr(again) == repr(explorer)


def test_it_says_that_it_computes_and_shows_no_old_number_as_the_present_one(explorer, monkeypatch):
    seen = []

    def watched(*arguments, **options):
        seen.append((explorer.busy, explorer._table.value, explorer._image.layout.visibility))
        return trace(*arguments, **options)

    monkeypatch.setattr("workbench.ui.explorer.trace", watched)
    explorer.sliders["VEC_SIZE"].value = 8
    ((busy, table, picture),) = seen
    assert busy
    assert "compiling and running" in table
    assert "VEC_SIZE=8" in table
    assert "opacity:0.45" in table
    assert ">before</th>" in table
    assert ">now</th>" not in table
    assert picture == "hidden"
    assert not explorer.busy
    assert ">now</th>" in explorer._table.value
    assert explorer._image.layout.visibility == "visible"


def test_a_run_that_fails_leaves_it_ready_for_the_next(explorer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("workbench.ui.explorer.trace", Mock(side_effect=CompileError("no")))
        with pytest.raises(CompileError):
            explorer.sliders["VEC_SIZE"].value = 8
        assert not explorer.busy
        assert "compiling" not in explorer._table.value
    explorer.sliders["VEC_SIZE"].value = 2
    assert keys_of(explorer.trace).bytes_per_lane == 4


def test_what_it_refuses():
    with pytest.raises(ArgumentError, match="WARPS"):
        KernelExplorer("paged_attention", CASE, variant="cuda_thread_group", tunables=["WARPS"])
    illegal = OP.variant("cuda_thread_group").default_config(CASE.problem()) | {"THREAD_GROUP_SIZE": 1}
    with pytest.raises(ConfigurationError, match="a warp stays in its page"):
        KernelExplorer("paged_attention", CASE, variant="cuda_thread_group", config=illegal)
