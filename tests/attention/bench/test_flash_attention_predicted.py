"""Predicted beside measured times of attention: how the file is read, what is refused, and that the table is right."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from workbench.attention.bench.flash_attention import problem_of, run, shapes_of
from workbench.cli import main
from workbench.errors import ArgumentError, UnknownNameError

HEAD = "batch,seqlen,heads,head_size,causal,measured_us\n"
FILE = f"# measured by hand\n{HEAD}2,256,2,64,1,30.5\n2,256,2,64,0,40\n"


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(FILE)
    return path


def test_reading(measured):
    note, shapes = shapes_of(measured)
    assert note == "measured by hand"
    assert [str(shape) for shape in shapes] == [
        "2 x 256, 2 heads of 64, causal", "2 x 256, 2 heads of 64"
    ]  # fmt: skip
    assert [shape.measured_us for shape in shapes] == [30.5, 40.0]


REFUSED = {
    "no file": (None, "cannot be read"),
    "a column": ("batch,seqlen\n1,2\n", "columns batch, seqlen"),
    "nothing": ("", "columns none"),
    "no rows": (HEAD, "no rows"),
    "words": (f"{HEAD}1,two,3,64,1,5\n", "row 1"),
    "a short row": (f"{HEAD}1,512,3,64,1,5\n1,512,3\n", "row 2"),
    "a time of nothing": (f"{HEAD}1,512,3,64,1,0\n", "row 1"),
    "no heads": (f"{HEAD}1,512,0,64,1,5\n", "row 1"),
    "no number": (f"{HEAD}1,512,3,64,1,nan\n", "row 1"),
    "half causal": (f"{HEAD}1,512,3,64,2,5\n", "row 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what, tmp_path):
    content, message = REFUSED[what]
    path = tmp_path / "measured.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ArgumentError, match=message):
        shapes_of(path)


def test_other_refusals(measured):
    with pytest.raises(ArgumentError, match="clock_mhz"):
        run(measured, clock_mhz=0)
    with pytest.raises(UnknownNameError, match="h100-sxm"):
        run(measured, model="a computer")
    with pytest.raises(ArgumentError, match="a GPU of sm_90"):
        run(measured, model="a100-sxm-80gb")


def test_without_a_mask_the_work_is_the_same(measured):
    causal, full = map(problem_of, shapes_of(measured)[1])
    assert (causal.num_heads, causal.num_queries, causal.num_tokens) == (2, 256, 256)
    assert (full.num_heads, full.num_kv_heads, full.num_queries, full.num_tokens) == (4, 2, 128, 256)


def test_the_command(measured):
    command = ["bench", "flash-attention", str(measured), "--clock-mhz", "1500"]
    result = CliRunner().invoke(main, [*command, "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.output[result.output.index("{") :])
    assert record["clock_hz"] == 1.5e9
    assert [row["bound_by"] for row in record["rows"]] == ["schedule"] * 2
    first, second = (row["predicted_us"] for row in record["rows"])
    assert 3 < first < second < 30
    assert record["ratios"] == pytest.approx(sorted([first / 30.5, second / 40]))
    assert record["spearman"] == 1.0


@pytest.mark.long
def test_the_table(measured):
    text = str(run(measured, clock_mhz=1500))
    assert "at 1,500 MHz" in text
    assert "measured elsewhere (measured by hand)" in text
    assert text.count("µs") == 4
