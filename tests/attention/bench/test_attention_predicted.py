"""Predictions without a GPU: counts of one sequence taken as copies, against the machine's own count."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from workbench.analysis.device_models import device_model
from workbench.analysis.prediction.counting import launch_counts
from workbench.analysis.prediction.predict import predict_counts
from workbench.attention.bench.paged_attention import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import Ours, ours
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP
from workbench.attention.bench.paged_attention.peers import TorchSdpa
from workbench.attention.bench.paged_attention.predicted import Predictor
from workbench.attention.ops.paged_attention import OP
from workbench.cli import main
from workbench.errors import WrongResultError
from workbench.launch import devices

SPLIT = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}


@pytest.fixture(scope="module")
def predictor():
    return Predictor(device_model("h200"), devices.get("sim"))


@pytest.mark.parametrize(
    ("variant", "config", "cell"),
    [
        ("cuda_partitioned", SPLIT, BenchmarkCell(4, 2, num_seqs=3, context=2048, head_size=64)),
        (
            "cuda_partitioned",
            SPLIT | {"PARTITION_SIZE": 4096},
            BenchmarkCell(4, 2, num_seqs=3, context=2048, head_size=64),
        ),
        ("cuda_thread_group", None, BenchmarkCell(4, 2, num_seqs=2, context=2048, head_size=64)),
        ("cuda_thread_group", None, BenchmarkCell(4, 2, num_seqs=2, context=2048, head_size=64, cache="fp8")),
    ],
    ids=["more partitions", "within one", "not split", "fp8"],
)
def test_counts_of_copies_are_those_of_the_full_cell(predictor, variant, config, cell):
    one = Ours(OP.variant(variant))
    config = config or one.variant.default_config(cell.problem(one.form, "sm_80"))
    expected = [launch_counts(report, kernel) for kernel, report in predictor.run(cell, one, config)]
    found = predictor.counts(cell, one, config)
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
    cell, counted = BenchmarkCell(8, 2, num_seqs=1, context=8192, head_size=64), len(predictor.ran)
    whole, split = predictor(cell, [Ours(OP.variant(name)) for name in ("cuda_thread_group", "cuda_partitioned")])
    assert whole.outcome == split.outcome == "predicted"
    assert split.seconds < whole.seconds / 2
    assert whole.prediction["device"] == "H200-SXM5-141GB"
    assert split.bytes_per_second < predictor.model.dram_bytes_per_second
    assert len(predictor.ran) == counted + 2
    predictor(cell, [Ours(OP.variant("cuda_partitioned"))])
    assert len(predictor.ran) == counted + 2, "counted once"


def test_what_cannot_be_predicted_is_blank_and_says_why(predictor):
    peer, lacking = predictor(BenchmarkCell(32, 1), [TorchSdpa(True), Ours(OP.variant("cuda_grouped_mma"))])
    assert (peer.outcome, lacking.outcome) == ("blank", "blank")
    assert "without a GPU" in peer.note
    assert "num_heads / num_kv_heads <= 16" in lacking.note


def test_a_variant_is_counted_on_an_architecture_that_it_runs_on(predictor):
    (row,) = predictor(
        BenchmarkCell(4, 2, num_seqs=2, context=256, head_size=64), [Ours(OP.variant("triton_descriptors"))]
    )
    assert row.outcome == "predicted", row.note


@pytest.mark.parametrize("one", ours(), ids=lambda one: one.name)
@pytest.mark.sampled(3)
def test_pages_of_one_token_are_read_or_refused_with_the_rule(predictor, one):
    (row,) = predictor(BenchmarkCell(4, 2, num_seqs=2, context=1024, head_size=64, block_size=1), [one])
    by_pointers = one.variant.language == "triton" and one.name != "triton_descriptors"
    if by_pointers or one.name == "cuda_thread_group":
        assert row.outcome == "predicted", row.note
    else:
        assert row.outcome == "blank"
        assert "BLOCK_SIZE" in row.note


@pytest.mark.parametrize(
    ("happens", "outcome", "note"),
    [
        (WrongResultError("error 1"), "wrong", "error 1"),
        (RuntimeError("no memory\nand more"), "failed", "RuntimeError: no memory"),
        (predict_counts, "blank", "not one block fits on a multiprocessor of H200"),
    ],
    ids=["wrong", "failed", "does not fit"],
)
def test_what_happens_to_a_prediction_is_said(predictor, monkeypatch, happens, outcome, note):
    def predict(self, cell, one, config):
        if happens is not predict_counts:
            raise happens
        too_much = {"block_threads": 128, "grid_blocks": 1, "registers": 32, "shared_bytes": 1 << 20}
        return predict_counts(too_much, self.model)

    monkeypatch.setattr(Predictor, "predict", predict)
    (row,) = predictor(BenchmarkCell(4, 2, 1, 1024, head_size=64), ours()[:1])
    assert (row.outcome, row.seconds) == (outcome, None)
    assert row.note.startswith(note)


def test_a_prediction_whose_time_is_up_is_for_the_next_run():
    late = Predictor(device_model("h200"), devices.get("sim"), now=lambda: 2.0, deadline=1.0)
    (row,) = late(BenchmarkCell(4, 2, 1, 1024, head_size=64), ours()[:1])
    assert (row.outcome, row.note) == ("blank", TIME_IS_UP)


@pytest.mark.parametrize(("distance", "tuned"), [(0.5, True), (1.5, False)])
def test_a_tuned_configuration_of_about_this_size_is_taken(monkeypatch, distance, tuned):
    found = SimpleNamespace(entry="an entry", distance=distance, config={"BLOCK_SIZE": 16})
    asked = []
    monkeypatch.setattr(
        "workbench.attention.bench.paged_attention.contender.lookup", lambda *args: (asked.append(args[-1]), found)[1]
    )
    one, cell = Ours(OP.variant("cuda_partitioned")), BenchmarkCell(4, 2, 1, 1024, head_size=64)
    config = one.config(cell, "sm_90", "h200")
    assert asked == ["h200"]
    assert (config == found.config) == tuned
    assert tuned or config == one.variant.default_config(cell.problem("x", "sm_90"))


def test_a_wrong_kernel_has_no_prediction(predictor, monkeypatch):
    variant = OP.variant("cuda_partitioned")
    launches = variant.launches

    def fewer_blocks(self, *of):  # nobody is the last to be done
        (launch,) = launches(*of)
        return (dataclasses.replace(launch, grid=(*launch.grid[:2], launch.grid[2] - 1)),)

    monkeypatch.setattr(type(variant), "launches", fewer_blocks)
    cell = BenchmarkCell(8, 4, num_seqs=1, context=2048, head_size=64)
    (row,) = predictor(cell, [Ours(variant)])
    assert row.outcome in ("wrong", "failed")
    assert row.seconds is None


def test_the_command_predicts_labels_and_keeps(tmp_path, monkeypatch, fresh_home):
    cells = (BenchmarkCell(4, 2, num_seqs=64, context=1024, head_size=64), BenchmarkCell(4, 2, 1, 1024, "int8", 64))
    monkeypatch.setattr("workbench.attention.bench.paged_attention.grid", lambda block_size: cells)
    monkeypatch.setattr("workbench.attention.bench.paged_attention.benchmark.ours", lambda: ours()[:1])
    path = tmp_path / "bench.json"
    command = [
        "bench",
        "attention",
        "--device",
        "sim",
        "--peers",
        "--minutes",
        "5",
        "--out",
        str(path),
        "--model",
        "h100-sxm",
    ]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "PREDICTED for H100-SXM5-80GB" in done.output
    assert "not measured" in done.output
    assert "does not model" in done.output
    record = json.loads(path.read_text())
    assert record["head"]["basis"] == "predicted"
    assert {row["outcome"] for row in record["rows"]} == {"predicted", "blank"}
    assert path.with_suffix(".png").exists()

    again = CliRunner().invoke(main, [*command, "--json"])
    assert json.loads(again.stdout[again.stdout.index("{") :])["rows"] == record["rows"], "nothing twice"
    other = CliRunner().invoke(main, [*command[:-1], "h200"])
    assert other.exit_code == 2
    assert "machine" in other.output
