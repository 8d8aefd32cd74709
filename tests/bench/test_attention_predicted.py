"""What is predicted without a GPU: counts on the line through two small runs, against the machine's own count."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from workbench import devices
from workbench.bench.attention import Cell
from workbench.bench.attention.contender import Ours, ours
from workbench.bench.attention.peers import TorchSdpa
from workbench.bench.attention.predicted import Predictor
from workbench.cli import main
from workbench.ops.paged_attention import OP
from workbench.tuning.device_models import device_model
from workbench.tuning.predict import predict_counts

SPLIT = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}


@pytest.fixture(scope="module")
def predictor():
    return Predictor(device_model("h200"), devices.get("sim"))


@pytest.mark.parametrize(
    ("variant", "config", "cell"),
    [
        ("cuda_partitioned", SPLIT, Cell(4, 2, num_seqs=3, context=2048, head_size=64)),
        ("cuda_partitioned", SPLIT | {"PARTITION_SIZE": 4096}, Cell(4, 2, num_seqs=3, context=2048, head_size=64)),
        ("cuda_thread_group", None, Cell(4, 2, num_seqs=2, context=2048, head_size=64)),
    ],
    ids=["more partitions", "within one", "not split"],
)
def test_extrapolated_counts_are_those_of_the_full_cell(predictor, variant, config, cell):
    one = Ours(OP.variant(variant))
    config = config or one.variant.default_config(cell.problem(one.form, "sm_80"))
    expected, found = predictor._count(cell, one, config), predictor.counts(cell, one, config)
    for right, guess in zip(expected, found.get("parts", [found]), strict=True):
        assert guess["grid_blocks"] == right["grid_blocks"]
        for name in ("warp_instructions", "global_load_sectors", "global_store_sectors", "shared_wavefronts"):
            assert guess[name] == pytest.approx(right[name], rel=0.02), name
        # Heads beside each other share a sector of partial results, and there are two KV heads.
        assert guess["unique_bytes_read"] == pytest.approx(right["unique_bytes_read"], rel=0.03, abs=512)
    right, guess = (
        predict_counts({"parts": counts}, predictor.model).seconds for counts in (expected, found.get("parts", [found]))
    )
    assert guess == pytest.approx(right, rel=0.02)


def test_one_long_sequence_is_slow_unless_it_is_split(predictor):
    cell, counted = Cell(8, 2, num_seqs=1, context=8192, head_size=64), len(predictor.counted)
    whole, split = predictor(cell, [Ours(OP.variant(name)) for name in ("cuda_thread_group", "cuda_partitioned")])
    assert whole.outcome == split.outcome == "predicted"
    assert split.seconds < whole.seconds / 2
    assert whole.prediction["device"] == "H200-SXM5-141GB"
    assert split.bytes_per_second < predictor.model.dram_bytes_per_second
    assert len(predictor.counted) == counted + 2
    predictor(cell, [Ours(OP.variant("cuda_partitioned"))])
    assert len(predictor.counted) == counted + 2, "counted once"


def test_what_cannot_be_predicted_is_blank_and_says_why(predictor):
    peer, lacking = predictor(Cell(32, 1), [TorchSdpa(True), Ours(OP.variant("cuda_grouped_mma"))])
    assert (peer.outcome, lacking.outcome) == ("blank", "blank")
    assert "without a GPU" in peer.note
    assert "num_heads / num_kv_heads <= 16" in lacking.note


def test_a_wrong_kernel_has_no_prediction(predictor, monkeypatch):
    variant = OP.variant("cuda_partitioned")
    launches = variant.launches

    def fewer_blocks(self, *of):  # nobody is the last to be done
        (launch,) = launches(*of)
        return (dataclasses.replace(launch, grid=(*launch.grid[:2], launch.grid[2] - 1)),)

    monkeypatch.setattr(type(variant), "launches", fewer_blocks)
    cell = Cell(8, 4, num_seqs=1, context=2048, head_size=64)
    (row,) = predictor(cell, [Ours(variant)])
    assert row.outcome in ("wrong", "failed")
    assert row.seconds is None


def test_the_command_predicts_labels_and_keeps(tmp_path, monkeypatch, fresh_home):
    cells = (Cell(4, 2, num_seqs=64, context=1024, head_size=64), Cell(4, 2, 1, 1024, "int8", 64))
    monkeypatch.setattr("workbench.bench.attention.grid", lambda block_size: cells)
    monkeypatch.setattr("workbench.bench.attention.benchmark.ours", lambda: ours()[:1])
    path = tmp_path / "bench.json"
    command = ["bench", "--device", "sim", "--peers", "--minutes", "5", "--out", str(path), "--model", "h100-sxm"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "PREDICTED for H100-SXM5-80GB" in done.output
    assert "not measured" in done.output
    assert "cannot know" in done.output
    record = json.loads(path.read_text())
    assert record["head"]["basis"] == "predicted"
    assert {row["outcome"] for row in record["rows"]} == {"predicted", "blank"}
    assert path.with_suffix(".png").exists()

    again = CliRunner().invoke(main, [*command, "--json"])
    assert json.loads(again.stdout[again.stdout.index("{") :])["rows"] == record["rows"], "nothing twice"
    other = CliRunner().invoke(main, [*command[:-1], "h200"])
    assert other.exit_code == 2
    assert "machine" in other.output


def test_options_of_the_command_do_not_go_with_another_benchmark():
    done = CliRunner().invoke(main, ["bench", "--peers", "sim"])
    assert done.exit_code == 2
    assert "peers" in done.output
