"""The tuner on a real CUDA kernel in the simulator: every way that an attempt can end, and a sensible winner."""

from __future__ import annotations

import pytest
import toy

from workbench.tuning import Limits, Store, evaluate, lookup, tune

MODES = {0: "ok", 1: "wrong_result", 2: "compile_error", 3: "launch_error", 4: "timeout"}


@pytest.mark.parametrize(("mode", "outcome"), MODES.items())
def test_each_planted_fault_has_its_outcome(mode, outcome):
    from workbench.launch import devices

    config = {"VEC_SIZE": 1, "NUM_THREADS": 64, "STRIDED": 0, "MODE": mode}
    variant = toy.scale_variant(modes=tuple(MODES))
    trial = evaluate(variant, config, toy.CASES["small"], devices.get("sim"), limits=Limits(seconds=0.5))
    assert trial.outcome == outcome, trial.message
    assert (trial.seconds is not None) == (mode == 0)
    if mode:
        assert trial.message
    if mode == 2:
        assert "scale.cu" in trial.message
        assert "planted" in trial.message
    else:
        assert trial.resources["registers"] > 0
    if mode == 3:
        assert "scale.cu" in trial.message or "out" in trial.message


def test_what_only_the_assembler_refuses_is_a_compile_error_and_not_run():
    from workbench.launch import devices

    config = {"VEC_SIZE": 1, "NUM_THREADS": 64, "STRIDED": 0, "MODE": 5}
    trial = evaluate(toy.scale_variant(modes=(5,)), config, toy.CASES["small"], devices.get("sim"))
    assert trial.outcome == "compile_error", trial.message
    assert "uses too much shared data" in trial.message
    assert not trial.counts


@pytest.mark.long
def test_a_sweep_with_every_fault_ends_with_the_right_winner():
    op = toy.scale_op(modes=tuple(MODES))
    run = tune(op, "large", device="sim", limits=Limits(seconds=0.1), variants="cuda_scale", budget=None)
    assert len(run.trials) == 80
    assert run.outcomes == dict.fromkeys(("ok", "compile_error", "launch_error", "wrong_result", "timeout"), 16)
    assert run.best.config["MODE"] == 0
    assert lookup(op, None, toy.CASES["large"].problem()).config == run.best.config
    again = tune(op, "large", device="sim", limits=Limits(seconds=0.1))
    assert (again.new, again.reused, again.best.config) == (0, 80, run.best.config)


def test_counts_are_exact_and_uncoalesced_accesses_are_predicted_slower():
    run = tune(toy.scale_op(threads=(32, 64)), "large", device="sim")
    rows = {(t.config["VEC_SIZE"], t.config["NUM_THREADS"], t.config["STRIDED"]): t for t in run.trials}
    requests = 65536 // 32
    for (vec, _, strided), trial in rows.items():
        counts = trial.counts
        assert counts["unique_bytes_read"] == counts["unique_bytes_written"] == 4 * 65536
        assert counts["grid_blocks"] * counts["block_threads"] * vec == 65536
        if strided or vec == 1:
            assert counts["global_load_sectors"] == 4 * requests
    assert rows[4, 64, 0].counts["global_load_sectors"] >= rows[4, 64, 1].counts["global_load_sectors"]
    assert all(trial.prediction["parts"]["dram"] > 0 for trial in rows.values())


def test_what_the_compiler_made_is_kept_with_the_row():
    tune(toy.scale_op(), "small", device="sim", budget=3)
    with Store() as store:
        for record in store.records():
            assert record["compile_seconds"] > 0
            assert record["resources"]["registers"] > 0
            assert record["resources"]["compiler"].startswith("nvrtc")
            assert record["case_json"] == toy.CASES["small"].to_dict()
            assert "nvidia-cuda-nvrtc" in record["versions"]
            assert record["started"] <= record["finished"]
