"""An op over sizes: which are tried, what each figure is, what torch has, and how it is shown."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.cli import main
from workbench.comparison.bench.size_sweep import MEMORY
from workbench.comparison.bench.sizes import sizes_of
from workbench.errors import ArgumentError, UnknownNameError

KERNEL = """
extern "C" __global__ void scaled(float *out, const float *x, int n)
{ for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += THREADS * gridDim.x) out[i] = FACTOR * x[i]; }
"""


@wb.op(name="swept_product")
def product(a, b):
    return a @ b


product.case("square", a=wb.randn("m", "k"), b=wb.randn("k", "n"), m=4, n=8, k=16)
product.cuda(
    """extern "C" __global__ void multiplied(float *out, const float *a, const float *b, int n, int k)
    { float sum = 0; for (int i = 0; i < k; ++i) sum += a[blockIdx.x * k + i] * b[i * n + threadIdx.x];
      out[blockIdx.x * n + threadIdx.x] = sum; }""",
    grid="a.shape[0]",
    block="b.shape[1]",
    args={"n": "b.shape[1]", "k": "a.shape[1]"},
)


@wb.op(name="swept_scale")
def scale(x):
    return (x + x) * 1.0


scale.case("flat", x=wb.randn("rows", "cols"), rows=2, cols=64)
options = {"grid": "x.shape[0]", "block": "THREADS", "args": {"n": "x.numel()"}, "tune": {"THREADS": (32, 64)}}
scale.cuda(KERNEL, macros={"FACTOR": 2}, name="right", where=["THREADS <= x.shape[1]"], **options)
scale.cuda(KERNEL, macros={"FACTOR": "3 if x.shape[1] == 128 else 2"}, name="sometimes", **options)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(tmp_path_factory.mktemp("sweep")))
        return scale.sweep(cols=[16, 64, 128], rows=[2, 4], device="sim")


def test_every_combination_is_tried_with_each_variant(sweep):
    assert sweep.names == ("cols", "rows")
    expected = [
        (cols, rows, name) for cols in (16, 64, 128) for rows in (2, 4) for name in ("torch", "right", "sometimes")
    ]
    assert [(*point.sizes.values(), point.trial.variant) for point in sweep.points] == expected
    assert {point.trial.case for point in sweep.points} == {f"flat cols={c} rows={r}" for c, r, _ in expected}
    outcomes = {(p.trial.variant, p.sizes["cols"]): p.trial.outcome for p in sweep.points}
    wrong = {place: outcome for place, outcome in outcomes.items() if outcome != "ok"}
    assert wrong == {("right", 16): "restricted", ("sometimes", 128): "wrong_result"}
    assert not sweep.all_correct
    with pytest.raises(UnknownNameError, match=r"right at cols=17.*cols=16 rows=2; cols=16 rows=4"):
        sweep.at("right", cols=17)


def test_a_restricted_size_is_no_wrong_one():
    assert scale.sweep(cols=[16, 64], variants="right", device="sim").all_correct


def test_figures_are_those_of_the_attempts(sweep):
    point = sweep.at("right", cols=64, rows=4)
    least = 2 * 4 * 64 * 4
    assert point.minimum_bytes == least
    assert point.figures["time"] == pytest.approx(point.trial.seconds * 1e6)
    assert point.figures["bandwidth"] == pytest.approx(least / point.trial.seconds / 1e9)
    assert point.figures["instructions"] == point.trial.counts["warp_instructions"]
    assert (point.figures["bytes"], point.figures["sectors"]) == (least, least / 32)
    assert point.figures["throughput"] is None, "no product of matrices"
    assert sweep.bound(point.sizes) == pytest.approx(least / 2039e9 * 1e6, rel=0.01), "an A100's memory"
    assert sweep.bound(point.sizes, "bytes") == least
    assert sweep.bound(point.sizes, "instructions") is None


def test_operations_are_those_of_the_products():
    found = product.sweep(m=4, n=[8, 16], k=[16, 32], together=True, figure="throughput", device="sim")
    points = [point for point in found.points if point.trial.variant == "multiplied"]
    assert [tuple(point.sizes.values()) for point in points] == [(4, 8, 16), (4, 16, 32)]
    for point in points:
        m, n, k = point.sizes.values()
        assert point.operations == 2 * m * n * k
        assert point.figures["throughput"] == pytest.approx(2 * m * n * k / point.trial.seconds / 1e12)


def test_torch_has_no_time_on_the_simulator_and_says_so(sweep):
    assert all(point.figures["time"] is None for point in sweep.points if point.trial.variant == "torch")
    (table,) = sweep.tables()
    assert list(table.columns) == ["cols", "rows", "right", "sometimes", MEMORY]
    assert "no line for torch: " in table.note
    assert "On a GPU it is measured." in table.note
    with pytest.raises(ArgumentError, match=r"variants: got torch; .*CUDA C\+\+ or Triton"):
        scale.sweep(cols=[16, 32], variants="torch", device="sim")


def test_bytes_of_torch_are_those_of_its_calls():
    found = scale.sweep(cols=[64, 128], rows=2, variants=["torch", "right"], figure="bytes", device="sim")
    (table,) = found.tables()
    assert list(table.columns) == ["cols", "rows", "torch", "right", MEMORY]
    one = 2 * 64 * 4
    assert found.at("torch", cols=64).figures["bytes"] == (3 + 2) * one, "x + x reads two and writes one, * reads one"
    assert found.at("right", cols=64).figures["bytes"] == 2 * one
    assert "bytes of torch: of the tensors that its calls read and write" in table.note


def test_the_table_has_a_row_for_each_size(sweep):
    (table,) = sweep.tables()
    assert [row[:2] for row in table.rows] == [[c, r] for c in ("16", "64", "128") for r in ("2", "4")]
    at = {tuple(row[:2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert at["64", "4"]["right"] == f"{sweep.at('right', cols=64, rows=4).figures['time']:.2f}"
    assert at["16", "2"]["right"] == "restricted"
    assert at["128", "2"]["sometimes"] == "wrong_result"
    assert table.title.startswith("swept_scale, flat over cols, rows: time in µs, predicted for A100")
    for words in ("right is restricted at cols=16 rows=2 and at 1 more: ", "THREADS <= x.shape[1]"):
        assert words in " ".join(str(sweep).split())


def test_the_plot_has_a_line_for_each_variant_and_other_size(sweep):
    pytest.importorskip("matplotlib")
    axes = sweep.plot()
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {f"{variant} rows={rows}" for variant in ("right", "sometimes") for rows in (2, 4)}
    drawn = [None if value != value else value for value in lines["right rows=4"].get_ydata()]
    assert drawn == [None, *(sweep.at("right", cols=cols, rows=4).figures["time"] for cols in (64, 128))]
    assert list(lines["right rows=4"].get_xdata()) == [16, 64, 128]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cols", "time in µs")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "64", "128"]
    bytes_drawn = [line.get_label() for line in sweep.plot(figure="bytes").get_lines()]
    assert {"torch rows=2", f"{MEMORY} rows=2"} < set(bytes_drawn)


def test_rows_are_the_same_in_csv_a_frame_and_json(sweep, tmp_path):
    pytest.importorskip("pandas")
    text = sweep.to_csv(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == text
    rows, frame, document = list(csv.DictReader(io.StringIO(text))), sweep.to_frame(), json.loads(sweep.to_json())
    assert len(rows) == len(frame) == len(document["rows"]) == len(sweep.points)
    for row, record, point in zip(rows, document["rows"], sweep.points, strict=True):
        assert (row["cols"], row["variant"]) == (str(point.sizes["cols"]), point.trial.variant)
        for name, value in point.figures.items():
            assert (row[name] or None) == (None if value is None else str(value))
            assert record[name] == value


def test_words_are_an_axis_too():
    pytest.importorskip("matplotlib")
    found = wb.sweep_sizes(
        "paged_attention",
        {"dtype": ["float16", "bfloat16"]},
        variants=["cuda_thread_group"],
        figure="sectors",
        device="sim",
    )
    assert found.all_correct
    assert [text.get_text() for text in found.plot().get_xticklabels()] == ["float16", "bfloat16"]


def test_a_tuned_configuration_is_used_where_it_is_legal(fresh_home):
    wb.tune(scale, scale.case("flat").override(name="flat cols=64", cols=64), "right", device="sim")
    recorded = scale.sweep(cols=[16, 64, 128], variants="right", device="sim")
    assert [point.origin for point in recorded.points] == ["", "tuned, exact", "tuned, nearest"]
    fixed = scale.sweep(cols=[64, 128], variants="right", configs={"right": {"THREADS": 32}}, device="sim")
    assert [(point.origin, point.trial.config) for point in fixed.points] == [("given", {"THREADS": 32})] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "over: got no sizes"),
        ({"cols": []}, r"over\['cols'\]: got \[\]"),
        ({"cols": [64, 64]}, "one or more different values"),
        ({"cold": [64]}, r"cold; allowed: .*cols.*cols=1024"),
        ({"cols": [64, "many"]}, "case size 'cols': got 'many'; allowed: a whole number"),
        ({"name": ["a", "b"]}, "name of each case is made"),
        ({"cols": [64, 128], "rows": [1, 2, 3], "together": True}, "2 values of cols, 3 values of rows"),
        ({"cols": [64, 128], "figure": "speed"}, "'speed'.*time, bandwidth"),
        ({"cols": [64, 128], "figure": "throughput"}, "figure: got throughput"),
        ({"cols": [64, 128], "configs": {"wrong": {}}}, "'wrong'.*torch, right"),
        ({"cols": [8, 16], "variants": "right"}, "none that supports the case at these sizes"),
    ],
)
def test_what_cannot_be_swept_is_refused_by_name(given, message):
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        scale.sweep(**given, device="sim")


def test_sizes_from_a_terminal():
    assert sizes_of(["cols=512,1024", "scale=0.5", "dtype=float16"]) == {
        "cols": [512, 1024], "scale": [0.5], "dtype": ["float16"],
    }  # fmt: skip
    for wrong in (["cols"], ["cols="], ["cols=1,,2"], ["=1"], ["cols=1", "cols=2"]):
        with pytest.raises(ArgumentError, match="SIZE=VALUE,VALUE"):
            sizes_of(wrong)


OP = """
import workbench as wb

@wb.op
def added(x):
    return x + 1

added.case("small", x=wb.randn("n"), n=64)
added.case("large", x=wb.randn("n"), n=96)
added.cuda(
    '''extern "C" __global__ void add(float *out, const float *x, int n)
    { for (int i = threadIdx.x; i < n; i += N) out[i] = x[i] + 1; }''',
    tune={"N": (32, 64)}, grid=1, block="N", args={"n": "x.numel()"},
)
"""


@pytest.fixture
def bench(tmp_path: Path, fresh_home: Path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "added_ops", raising=False)
    (tmp_path / "added_ops.py").write_text(OP)
    return lambda *words: CliRunner().invoke(
        main, ["bench", f"{tmp_path}/added_ops.py:added", "--device", "sim", *words]
    )


@pytest.mark.parametrize("ending", ["", ".svg"])
def test_a_terminal_prints_the_table_and_saves_a_picture_with_its_rows(bench, tmp_path, ending):
    pytest.importorskip("matplotlib")
    done = bench("--over", "n=32,64,128", "--case", "large", "--config", "N=64", "--save", f"{tmp_path}/over{ending}")
    assert done.exit_code == 0, done.output
    assert "added, large over n: time in µs, predicted for A100" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.strip()[:1].isdigit()] == ["32", "64", "128"]
    picture = (tmp_path / f"over{ending or '.png'}").read_bytes()
    assert picture.startswith(b"\x89PNG") if not ending else b"<svg" in picture
    rows = list(csv.DictReader((tmp_path / "over.csv").read_text().splitlines()))
    assert {(row["n"], row["config"]) for row in rows if row["variant"] == "add"} == {
        (n, "N=64") for n in ("32", "64", "128")
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--together",), "together: got given; allowed: nothing without --over"),
        (("--save", "a.png"), "save: got given; allowed: nothing without --over"),
        (("--over", "n=32,64", "--save", "a.txt"), "a path ending in .png, .svg, .pdf"),
        (("--over", "n=32,64", "--case", "small", "--case", "large"), "one case with --over"),
        (("--over", "n=32,64", "--config", "M=2"), "add has N"),
    ],
)
def test_what_a_terminal_cannot_sweep_is_refused(bench, words, message):
    done = bench(*words)
    assert (done.exit_code, message in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.gpu
def test_torch_is_measured_on_a_gpu():
    found = scale.sweep(cols=[64, 128], variants=["torch", "right"], device="cuda")
    assert all(point.trial.basis == "measured" for point in found.points), str(found)
    assert found.without_line == ()
    with pytest.raises(ArgumentError, match="figure of time, as a GPU"):
        scale.sweep(cols=[64, 128], figure="sectors", device="cuda")
