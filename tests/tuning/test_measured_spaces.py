"""Predictions judged on measured search spaces: Kernel Tuner caches, T4 results, and the kernels' launches."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from workbench.base.trials.trial import Trial
from workbench.cli import main
from workbench.errors import CompileTimeout, StoreError, UnknownKeyError
from workbench.toolchain import nvrtc_client
from workbench.tuning.bench.measured import PredictionJudgement, in_order, judge_all, ranking, sampled
from workbench.tuning.bench.prediction_record import read, table, write
from workbench.tuning.bench.spaces import SHIPPED, PublishedSpace, load_space

SOURCE = """
extern "C" __global__ void f(float *out, const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < STEPS; ++i) sum += x[(blockIdx.x * BLOCK + threadIdx.x + i * 4096) % n];
    out[blockIdx.x * BLOCK + threadIdx.x] = sum * scale[0];
}
"""
LAUNCH = """
source = "steps.cu"
kernel = "f"
grid = "cdiv(4194304, BLOCK)"
block = "BLOCK"
arguments = [{dtype = "float32", size = 4194304}, {dtype = "float32", size = 4194304, fill = "normal"}, 4194304]
constants = {scale = {dtype = "float32", size = 1, fill = "uniform"}}
"""
TIMES = {(4, 128): 0.07, (64, 128): 0.4, (256, 128): 1.6}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "steps"
    place.mkdir()
    (place / "steps.cu").write_text("__constant__ float scale[4];" + SOURCE)
    (place / "steps.toml").write_text(LAUNCH)
    rows = {
        f"{steps},{block}": {"STEPS": steps, "BLOCK": block, "time": time, "times": [time, time]}
        for (steps, block), time in TIMES.items()
    }
    rows["8,2048"] = {"STEPS": 8, "BLOCK": 2048, "time": "CompilationFailedConfig"}
    header = {"device_name": "NVIDIA GeForce RTX 3090", "kernel_name": "f", "problem_size": [4194304]}
    header |= {"tune_params_keys": ["STEPS", "BLOCK"], "objective": "time"}
    header |= {"tune_params": {"STEPS": [4, 8, 64, 256], "BLOCK": [128, 2048]}}
    (place / "gpu.json").write_text(json.dumps({**header, "cache": rows}))
    return tmp_path


def test_a_space_is_predicted_and_compared(folder):
    asked = ["--measured", str(folder), "--sources", str(folder), "--record", str(folder / "record.out"), "--json"]
    done = CliRunner().invoke(main, ["bench", "predict", *asked])
    assert done.exit_code == 0, done.output
    (recorded,) = read(folder / "record.out")
    assert (recorded["space"], recorded["seed"], recorded["rows"]) == ("steps", 0, 3)
    (found,) = json.loads(done.output)["spaces"]
    assert (found["space"], found["model"], found["rows"], found["refused"]) == ("steps", "rtx-3090", 3, {})
    assert found["rankings"]["prediction"]["spearman"] == pytest.approx(1)
    assert found["rankings"]["prediction"]["first"] == pytest.approx(1)
    assert found["bounds"]
    assert sum(rows for rows, *_ in found["bounds"].values()) == 3
    assert set(found["rankings"]) >= {"fewest instructions", "highest occupancy", "random", "its own single runs"}


def test_what_was_counted_is_kept_and_what_takes_too_long_to_compile_is_told(folder, fresh_cache, monkeypatch):
    """``compiles`` stands for the compiler: it takes a minute for 256 steps."""
    asked = []

    def compiles(space, config, arch):
        asked.append((config["STEPS"], nvrtc_client._limit.get()))
        if config["STEPS"] == 256 and nvrtc_client._limit.get() < 60:
            raise CompileTimeout("stopped")
        return counted[config["STEPS"]]

    space = load_space("steps", [folder])
    counted = {steps: space.counts({"STEPS": steps, "BLOCK": block}, "sm_86") for steps, block in TIMES}
    (folder / "steps" / "steps.toml").write_text(LAUNCH + "macros = {OTHER = 1}\n")  # another launch: nothing is kept
    monkeypatch.setattr(PublishedSpace, "_count", compiles)
    for _ in range(2):
        (found,) = judge_all(folder, folder, compile_seconds=30).spaces
        assert (found.rows, found.refused) == (2, {"not compiled within 30 s": 1})
        assert "1 more not compiled within 30 s" in str(found)
    assert sorted(asked) == [(4, 30), (64, 30), (256, 30)], "each once, the one that took too long too"
    (found,) = judge_all(folder, folder, compile_seconds=60).spaces
    assert (found.rows, found.refused) == (3, {})
    assert asked[3:] == [(256, 60)]


def test_pairs_by_how_far_their_predictions_differ():
    predicted, measured = np.array([1.0, 1.005, 1.3]), np.array([2.0, 1.0, 3.0])
    assert in_order(predicted, measured) == {"to 1%": (1, 0.0), "to 50%": (2, 1.0)}


def test_t4_results_are_read_and_a_model_may_be_named(folder):
    results = [
        {
            "timestamp": "2024-05-06T07:08:09+00:00",
            "configuration": {"STEPS": steps, "BLOCK": block},
            "objectives": ["time"],
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
        }
        for (steps, block), time in TIMES.items()
    ]
    results.append({**results[0], "configuration": {"STEPS": 8, "BLOCK": 128}, "invalidity": "runtime"})
    (folder / "steps" / "gpu.json").write_text(
        json.dumps({"schema_version": "1.0.0", "metadata": {}, "results": results})
    )
    assert "name a model" in str(judge_all(folder, folder))
    (found,) = judge_all(folder, folder, model="a100-sxm-80gb").spaces
    assert (found.rows, found.gpu) == (3, "gpu")
    assert found.rankings["prediction"].spearman == pytest.approx(1)


def test_the_sample_holds_the_best_and_every_part_of_the_others():
    trials = [
        Trial("o", "v", "cuda", "c", {"A": at}, "d", "sm_86", "ok", measured_seconds=1.0 + at) for at in range(1000)
    ]
    rows = [trial.config["A"] for trial in sampled(trials, 42, seed=1)]
    assert rows[:10] == list(range(10))
    assert len(rows) == 42 == len(set(rows))
    assert np.histogram(rows[10:], np.linspace(10, 1000, 33))[0].tolist() == [1] * 32
    assert rows[:30] == [trial.config["A"] for trial in sampled(trials, 30, seed=1)]
    assert rows != [trial.config["A"] for trial in sampled(trials, 42, seed=2)]
    assert len({trial.config["A"] for trial in sampled(trials, 2000)}) == 1000


def test_a_ranking_knows_the_regret_and_means_over_ties():
    measured = np.array([1.0, 2.0, 4.0, 8.0])
    assert ranking(measured, measured, 1.0).first == 1
    assert ranking(-measured, measured, 1.0).spearman == pytest.approx(-1)
    assert ranking(np.array([1.0, 1.0, 2.0, 3.0]), measured, 1.0).first == 1.5


CONDITIONS = '[measured."NVIDIA GeForce RTX 3090"]\nclock_mhz = 900\nsame_time = ["AGAIN"]\n'


def test_repeated_measurements_that_disagree_are_left_out_and_times_are_predicted_for_their_clock(folder):
    place = folder / "steps"
    cache = json.loads((place / "gpu.json").read_text())
    cache["tune_params_keys"].append("AGAIN")
    cache["tune_params"]["AGAIN"] = [0, 1]
    apart = {(4, 0): 1.0, (4, 1): 1.04, (64, 0): 1.0, (64, 1): 0.6, (256, 0): 1.0, (256, 1): 1.0}
    cache["cache"] = {
        f"{steps},128,{again}": {"STEPS": steps, "BLOCK": 128, "AGAIN": again, "time": TIMES[steps, 128] * factor}
        for (steps, again), factor in apart.items()
    }
    (place / "gpu.json").write_text(json.dumps(cache))
    (as_told,) = judge_all(folder, folder).spaces
    assert (as_told.rows, as_told.unconfirmed, as_told.clock_mhz) == (6, 0, 1695)
    (place / "steps.toml").write_text(LAUNCH + CONDITIONS)
    (found,) = judge_all(folder, folder).spaces
    assert (found.rows, found.valid, found.unconfirmed, found.clock_mhz) == (4, 4, 2, 900)
    (place / "steps.toml").write_text(LAUNCH + CONDITIONS.replace("clock_mhz = 900\n", ""))
    (faster,) = judge_all(folder, folder).spaces
    assert faster.ratio[0] < found.ratio[0] < faster.ratio[0] * 1695 / 900
    assert "at 900 MHz: 4 of 4" in str(found)
    assert "2 more times are not used" in str(found)
    (entry,) = read(write(PredictionJudgement((found,), (), 60, 0), folder / "record.out"))
    assert "RTX 3090 at 900 MHz" in table([entry]).markdown()


@pytest.mark.parametrize(
    "conditions",
    ["measured = 3", "[measured.gpu]\nclock_mhz = 0", "[measured.gpu]\nsame_time = 1", "[measured.gpu]\nspeed = 1"],
)
def test_conditions_that_are_none_are_told(folder, conditions):
    (folder / "steps" / "steps.toml").write_text(LAUNCH + conditions)
    with pytest.raises(StoreError, match="clock_mhz, a number above 0"):
        load_space("steps", [folder])


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (None, UnknownKeyError, "steps.toml|'steps'"),
        ("kernel = ", StoreError, "not a TOML file"),
        ('source = "steps.cu"', StoreError, "lacks kernel, grid"),
        (LAUNCH + "threads = 4\n", StoreError, "has threads"),
    ],
)
def test_a_launch_that_is_not_described_is_told(folder, text, error, told):
    path = folder / "steps" / "steps.toml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(error, match=told):
        load_space("steps", [folder])


def test_a_folder_without_measurements_is_told(tmp_path):
    with pytest.raises(StoreError, match="no file of measured times"):
        judge_all(tmp_path)


@pytest.mark.long
def test_our_convolution_is_described_and_right():
    import torch

    from workbench.launch import devices
    from workbench.ptx.sample import blocks_of

    space = load_space("convolution", [SHIPPED])
    config = {"block_size_x": 16, "block_size_y": 4, "tile_size_x": 2, "tile_size_y": 3, "filter_height": 15}
    config |= {"filter_width": 15, "read_only": 1, "use_padding": 1}
    kernel, sim = space.compile(config, "sm_80"), devices.get("sim")
    image, out = torch.randn(4110, 4110), torch.zeros(4096, 4096)
    weights = torch.randn(15, 15)
    sim.write_variable(kernel, "weights", weights.numpy().tobytes())
    (x, y, _), *_ = blocks_of((128, 342), 4, seed=3)
    sim.launch(kernel, (128, 342), (16, 4), [out, image], sample=[(x, y)])
    part = image[12 * y : 12 * y + 26, 32 * x : 32 * x + 46]
    expected = torch.nn.functional.conv2d(part[None, None].double(), weights[None, None].double())[0, 0]
    torch.testing.assert_close(out[12 * y : 12 * y + 12, 32 * x : 32 * x + 32].double(), expected, atol=1e-4, rtol=1e-4)


def test_a_macro_of_the_description_takes_the_place_of_a_tunable(folder):
    """What was measured did not have what the tunable says: all its values are one kernel."""
    path = folder / "steps" / "steps.toml"
    config = {"STEPS": 64, "BLOCK": 128}
    before = load_space("steps", [folder]).counts(config, "sm_86")
    path.write_text(LAUNCH + "macros = {STEPS = 4}\n")
    space = load_space("steps", [folder])
    assert space.counts(config, "sm_86") == space.counts({**config, "STEPS": 4}, "sm_86")
    assert space.counts(config, "sm_86")["warp_instructions"] < before["warp_instructions"] / 4
