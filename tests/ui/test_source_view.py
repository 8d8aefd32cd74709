"""The source view, driven through its traits: what the gutter says against the trace, and what a selection shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("anywidget", reason='no widgets: python -m pip install -e ".[lab]"')

import numpy as np
from view_kernels import TRANSPOSES, attention, line_of, transpose

import workbench as wb
from workbench import ui
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ui.page_sections import view_data
from workbench.ui.source_facts import LABELS
from workbench.ui.source_widget import SourceView

VARIANTS = ["cuda_thread_group", "triton_online_softmax"]


def rows_of(view: SourceView) -> dict[int, dict]:
    return {row["line"]: row for row in view.state["rows"] if "line" in row}


@pytest.fixture(scope="module")
def race():
    """The tiled transpose with its barrier planted out, traced and checked."""
    text = TRANSPOSES.read_text().replace("  __syncthreads();\n", "", 1)
    kernel = wb.load_cuda(text, device="sim").transpose_tiled
    matrix = np.arange(64 * 64, dtype=np.float32)
    run = {"grid": (2, 2), "block": (32, 8), "args": [np.zeros_like(matrix), matrix, 64, 64]}
    return wb.trace_kernel(kernel, **run), wb.check_kernel(kernel, **run)


# -- the gutter ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gutter_says_what_the_trace_counted(variant):
    trace = attention(variant)
    view = ui.source_view(trace)
    for line in trace.lines:
        assert view.value(line.line) == f"{100 * line.share:.1f} %"
    view.fact = "sectors"
    for line in trace.lines:
        wanted = ""
        if line.global_requests:
            wanted = f"{line.sectors_per_request:.1f} / {line.ideal_sectors_per_request:.1f}"
        assert view.value(line.line) == wanted
    view.fact = "wavefronts"
    assert [view.value(line.line) for line in trace.lines if line.shared_requests] == [
        f"{line.shared_wavefronts:,} / {line.shared_ideal_wavefronts:,}" for line in trace.lines if line.shared_requests
    ]
    view.fact = "lanes"
    assert {view.value(line.line) for line in trace.lines} == {f"{line.active_lanes:.0f} of 32" for line in trace.lines}


def test_waits_stand_at_the_barriers():
    trace = attention("cuda_thread_group")
    view = ui.source_view(trace, fact="waits")
    marked = {line: row["text"].strip() for line, row in rows_of(view).items() if view.value(line)}
    assert set(marked.values()) == {"__syncthreads();"}
    assert {line: view.value(line) for line in marked} == {
        line.line: f"{line.barrier_waits:,}" for line in trace.lines if line.barrier_waits
    }


@pytest.mark.parametrize(
    ("fact", "kernel", "text", "value"),
    [
        ("sectors", "naive", "// copy", "18.0 / 4.0"),  # loads of 4 sectors, stores of 32
        ("bytes", "naive", "// copy", "147 kB, 22 %"),  # 4096 floats each way, 8 times as many bytes on the way out
        ("wavefronts", "tiled", "// copy", "4,096 / 128"),
        ("wavefronts", "padded", "// copy", "128 / 128"),
    ],
)
def test_transposes_differ_where_they_should(fact, kernel, text, value):
    view = ui.source_view(transpose(kernel), fact=fact)
    line = line_of(transpose(kernel), text)
    assert view.value(line) == value
    assert rows_of(view)[line]["values"][fact][0] == value


def test_heat_is_relative_to_the_hottest_line_and_zero_at_the_ideal():
    tiled, padded = (ui.source_view(transpose(name)) for name in ("tiled", "padded"))
    heats = {
        fact: [row["values"][fact][1] for row in rows_of(tiled).values() if fact in row["values"]] for fact in LABELS
    }
    assert max(heats["instructions"]) == max(heats["wavefronts"]) == max(heats["bytes"]) == 1
    assert all(0 <= heat <= 1 for values in heats.values() for heat in values)
    for fact in ("wavefronts", "sectors"):
        cool = [row["values"][fact][1] for row in rows_of(padded).values() if fact in row["values"]]
        assert cool == [0, 0], "no line is hot where nothing is lost"


def test_idle_lanes_make_a_line_hot():
    trace = attention("cuda_thread_group")
    rows = rows_of(ui.source_view(trace))
    idle = {line.line: line.instructions * (32 - line.active_lanes) for line in trace.lines}
    most = max(idle.values())
    assert most > 0
    for line, cost in idle.items():
        assert rows[line]["values"]["lanes"][1] == pytest.approx(cost / most)


def test_the_listing_is_the_kernels_source_without_long_gaps():
    view = ui.source_view(attention("cuda_thread_group"))
    lines = Path(view.files[0]).read_text().splitlines()
    for number, row in rows_of(view).items():
        if number:
            assert row["text"] == lines[number - 1]
    assert any("accumulate_page(float" in row["text"] for row in rows_of(view).values()), "a function's head"
    numbers = [number for number in rows_of(view) if number]
    assert numbers == sorted(numbers)
    assert "// 2. Score" in "\n".join(row["text"] for row in rows_of(view).values()), "comments between lines"


def test_headers_show_where_a_trace_is_unfolded():
    trace = attention("cuda_thread_group")
    view = ui.source_view(trace.unfolded())
    names = [path.rsplit("/", 1)[-1] for path in view.files]
    assert names[0] == "paged_attention_thread_group.cu"
    assert "reductions.cuh" in names
    assert {row["head"] for row in view.state["rows"] if "head" in row} == set(names)
    header = next(row for row in view.state["rows"] if row.get("path", "").endswith("reductions.cuh") and row["values"])
    view.select(header["line"], "reductions.cuh")
    assert view.detail["file"] == "reductions.cuh"
    assert sum(row["executions"] for row in view.detail["ptx"]) > 0
    assert "— reductions.cuh" in str(view)
    with pytest.raises(UnknownNameError, match=r"reductions\.cuh"):
        view.select(1, "other.cuh")


# -- a selection ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_selected_line_shows_its_ptx_and_machine_code(variant):
    trace = attention(variant)
    view = ui.source_view(trace)
    assert view.detail == {}
    hottest = max((line for line in trace.lines if line.line), key=lambda line: line.global_sectors)
    view.selected_line = hottest.line
    detail = view.detail
    assert (detail["line"], detail["text"]) == (hottest.line, hottest.text)
    assert sum(row["executions"] for row in detail["ptx"]) == hottest.instructions
    assert any(row["text"].startswith(("ld.global", "cp.async")) for row in detail["ptx"] if "sectors" in row["cost"])
    costs = [bool(row["cost"]) for row in detail["ptx"]]
    assert costs == sorted(costs, reverse=True), "what moves or waits comes first"
    assert detail["sass"] == trace.sass.at(hottest.path, hottest.line).brief
    assert dict(detail["facts"])["warp instructions"].startswith(f"{hottest.instructions:,} (")
    view.selected_line = 0
    assert view.detail == {}


def test_a_selection_changes_the_detail_and_the_text():
    trace = transpose("tiled")
    view = ui.source_view(trace, line=line_of(trace, "// copy"))
    assert "ld.shared.f32" in str(view)
    assert "32 requests, 1,024 wavefronts (ideal 32)" in {row["cost"] for row in view.detail["ptx"]}
    view.selected_line = line_of(trace, "__syncthreads")
    assert "bar.sync" in str(view)
    assert "ld.shared.f32" not in str(view)


def test_a_line_of_another_place_is_refused_and_nothing_changes():
    trace = transpose("padded")
    view = ui.source_view(trace, line=line_of(trace, "// copy"))
    before = view.detail
    with pytest.raises(ArgumentError, match=r"a line of transposes\.cu that is shown"):
        view.selected_line = 4
    assert (view.selected_line, view.detail) == (line_of(trace, "// copy"), before)
    with pytest.raises(UnknownNameError, match="instructions, lanes, sectors"):
        view.fact = "temperature"
    assert view.fact == "instructions"
    with pytest.raises(UnknownNameError):
        ui.source_view(trace, fact="temperature")
    with pytest.raises(ArgumentError):
        ui.source_view(trace, line=4)


# -- findings ------------------------------------------------------------------------------------------------------


def test_findings_mark_both_sides_of_a_race(race):
    trace, checks = race
    assert checks.findings, "the planted race is found"
    view = ui.source_view(trace, fact="findings", checks=checks)
    sides = {finding.line for finding in checks} | {finding.other_line for finding in checks if finding.other_line}
    assert {line for line in rows_of(view) if view.value(line)} == sides
    assert len(sides) == 2
    kinds = {finding.kind for finding in checks}
    assert all(any(kind in view.value(line) for kind in kinds) for line in sides)
    first = next(iter(checks))
    view.selected_line = first.line
    assert first.message in view.detail["findings"]
    assert f"✗ {first.kind}" in str(view)
    view.selected_line = first.other_line
    assert any("the other side of" in text or first.message in text for text in view.detail["findings"])


def test_without_findings_the_gutter_is_empty():
    view = ui.source_view(transpose("tiled"), fact="findings")
    assert not any(view.value(line) for line in rows_of(view))
    assert str(view).splitlines()[1] == "findings (not checked): checks: not run; checks=True, or --check, runs them"
    checked = ui.source_view(transpose("tiled"), fact="findings", checks=())
    assert str(checked).splitlines()[1] == "findings (0): none"


def test_the_button_of_findings_says_whether_anything_was_checked(race):
    trace, checks = race
    labels = [ui.source_view(trace, checks=each).state["facts"][-1]["label"] for each in (None, (), checks)]
    assert labels == ["findings (not checked)", "findings (0)", f"findings ({len(checks)})"]
    assert view_data(trace)["state"]["facts"][-1]["label"] == "findings (not checked)"


# -- how it looks without a browser --------------------------------------------------------------------------------


def test_the_text_has_the_lines_that_matter_with_a_bar():
    trace = transpose("tiled")
    view = ui.source_view(trace, fact="wavefronts")
    text = str(view).splitlines()
    assert text[0] == trace.title
    assert text[1].startswith("wavefronts: passes through the banks")
    write, read = (line for line in text if re.match(r" *\d+ .*/", line))  # two lines touch shared memory
    assert "4,096 / 128 ████████ " in read
    assert "█" not in write
    assert max(map(len, str(ui.source_view(attention("triton_online_softmax"))).splitlines())) <= 80


def test_repr_and_bundle_are_the_same_for_the_same_trace():
    trace = transpose("naive")
    one, other = ui.source_view(trace), ui.source_view(trace)
    assert repr(one) == repr(other) == f"<source view of {trace.title}: instructions>"
    assert "0x" not in str(one)
    data, _ = one._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert (data["text/plain"], data["text/html"]) == (str(other), other.to_html())
    one.selected_line = line_of(trace, "// copy")
    assert repr(one) == f"<source view of {trace.title}: instructions, line {one.selected_line} selected>"


def test_html_is_escaped_and_keeps_its_bars_as_text():
    view = ui.source_view(attention("cuda_thread_group"))
    page = view.to_html()
    assert "sum_over_lanes&lt;1, THREAD_GROUP_SIZE&gt;" in page
    assert "████████" in page
    assert re.sub(r' style="[^"]*"', "", page).count("█") == page.count("█")
    assert not re.search(r"https?:|<script", page)


def test_the_state_is_json_and_nothing_is_fetched():
    for variant in VARIANTS:
        view = ui.source_view(attention(variant), line=line_of(attention(variant), "load"))
        assert len(json.dumps([view.state, view.detail])) < 400_000
    for text in (SourceView._esm, SourceView._css):
        assert not re.search(r"https?:|\bimport\b|url\(|fetch\(", str(text))


def test_the_package_loads_its_views_when_they_are_used():
    import subprocess
    import sys

    code = (
        "import sys; from workbench import ui; heavy = {'torch', 'anywidget', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy; assert callable(ui.warp_map) and 'torch' not in sys.modules; "
        "import workbench.ui.request_stepper; assert callable(ui.bank_map) and callable(ui.warp_maps)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_stage_is_shown_with_its_lines_of_the_source():
    trace = transpose("tiled")
    view = ui.source_view(trace)
    assert [name for name, _ in view.stages] == ["ptx", "sass"]
    assert (view.stage, view.code) == ("", [])
    view.stage = "ptx"
    copy = line_of(trace, "// copy")
    rows = [row for row in view.code if row[2] == copy]
    assert any("ld.shared" in row[0] for row in rows)
    assert all(row[1] == view.files[0] for row in rows)
    assert sum(row[3] for row in rows if "ld.shared" in row[0]) == 128
    view.stage = ""
    assert view.code == []
    with pytest.raises(UnknownNameError, match=r"stage.*'ttir'.*ptx, sass"):
        view.stage = "ttir"
