"""A sample of a large case's blocks, in tuning, comparing and tracing, with values judged on a small one."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.tuned import read_table
from workbench.ops.variant import CudaVariant
from workbench.ptx.sample import Sampled, dependence, squares_of, standard_error

BLUR = r"""
extern "C" __global__ void blur(float* __restrict__ out, const float* __restrict__ image, int height, int width)
{
    const int x = blockIdx.x * BX + threadIdx.x, y = blockIdx.y * BY + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) sum += image[(y + i) * (width + 2) + x + j];
    out[y * width + x] = sum + SHIFT;
}
"""
EXCHANGED = r"""
extern "C" __global__ void exchanged(float* out, const float* image, int height, int width)
{
    const int row = blockIdx.x * (width + 2);
    for (int x = threadIdx.x; x < width + 2; x += BX) atomicExch(out + row + x, 2 * image[row + x]);
}
"""


def sizes(image):
    return {"height": image.shape[0] - 2, "width": image.shape[1] - 2}


def blurred(shift: int = 0, rows: str = "height", where=()):
    @wb.op
    def blur(image):
        return 9 * torch.nn.functional.avg_pool2d(image[None], 3, 1)[0]

    blur.case("small", image=wb.randn(34, 82, dtype="float32"))
    blur.case("large", image=wb.randn(514, 770, dtype="float32"))
    grid = ("cdiv(width, BX)", "cdiv(height, BY)")
    args = ("out", "image", "height", "width")
    tune = {"BX": (16, 32), "BY": (2, 4)}
    options = {"sizes": sizes, "grid": grid, "block": ("BX", "BY"), "args": args, "macros": {"SHIFT": shift}}
    blur.cuda(BLUR.replace("y >= height", f"y >= {rows}"), kernel="blur", tune=tune, where=where, **options)
    return blur


def test_counts_of_a_sample_stand_for_all_blocks_and_values_for_the_small_case(tmp_path):
    blur = blurred()
    options = {"store": tmp_path / "rows.sqlite", "record": False}
    whole, part = wb.tune(blur, "large", **options), wb.tune(blur, "large", sample=16, **options)
    assert (part.new, part.reused) == (4, 0), "rows of all blocks do not answer for a sample"
    assert wb.tune(blur, "large", sample=16, **options).reused == 4
    assert wb.tune(blur, "large", sample=32, **options).reused == 0
    for one, other in zip(whole.trials, part.trials, strict=True):
        assert other.ok
        assert other.counts["warp_instructions"] == pytest.approx(one.counts["warp_instructions"], rel=0.02)
        assert other.predicted_seconds == pytest.approx(one.predicted_seconds, rel=0.1)
        assert other.max_error < one.max_error * 2
        sample = other.counts["sample"]
        assert sample["blocks"] == 16 < sample["of"] == one.counts["grid_blocks"]
    (note,) = part.notes
    assert "judged on small" in note
    assert "4 configurations (at worst 16 of " in note


def test_what_is_only_run_is_compiled_without_machine_code(tmp_path, monkeypatch):
    blur = blurred()
    made, kernels = {}, CudaVariant.kernels

    def remembered(variant, config, problem, arch, *, machine_code):
        made.setdefault(problem, []).append(machine_code)
        return kernels(variant, config, problem, arch, machine_code=machine_code)

    monkeypatch.setattr(CudaVariant, "kernels", remembered)
    wrong = blurred(shift=1)
    for op in (blur, wrong):
        made.clear()
        run = wb.tune(op, "large", sample=16, store=tmp_path / "rows.sqlite", record=False, isolation="none")
        small, large = (op.cases[name].problem(arch=run.device.arch) for name in ("small", "large"))
        assert not any(made[small])
        assert made[large][0], "the run that is counted"
        assert all(trial.resources["registers"] for trial in run.trials)
        assert all(trial.compile_seconds is not None for trial in run.trials)


def test_a_winner_of_a_sample_is_known_as_one_and_gives_way_to_all_blocks(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    blur = blurred()
    entries = []
    for sample in (16, None, 16):
        run = wb.tune(blur, "large", sample=sample)
        entries += [entry.sample for entry in read_table(run.table_path).entries if entry.op == "blur"]
    assert entries == ["about 16 blocks; values judged on small", "", ""]


def test_what_only_the_small_case_shows_is_told(tmp_path):
    """Right for up to 64 rows: a large case is not computed in whole, which no value of the small one can tell."""
    short = blurred(rows="min(height, 64)")
    run = wb.tune(short, "large", sample=16, store=tmp_path / "rows.sqlite", record=False)
    assert {trial.outcome for trial in run.trials} == {"ok"}
    assert any("times the least" in note for note in run.notes), run.notes


def test_configurations_that_the_small_case_takes_away_are_told(tmp_path):
    blur = blurred(where=["width % BX == 0"])
    run = wb.tune(blur, "large", sample=16, store=tmp_path / "rows.sqlite", record=False)
    assert len(run.trials) == 2
    assert run.notes[0] == "blur: 2 more configurations are not legal on small, which judges values."


@pytest.mark.long
def test_a_wrong_kernel_is_found_on_the_small_case(tmp_path):
    run = wb.tune(blurred(shift=1), "large", sample=16, store=tmp_path / "rows.sqlite", isolation="process")
    assert {trial.outcome for trial in run.trials} == {"wrong_result"}
    assert all("(on case small)" in trial.message for trial in run.trials)


def test_what_depends_on_other_blocks_runs_in_full_and_says_so(tmp_path):
    @wb.op
    def doubled(image):
        return 2 * image

    doubled.case("small", image=wb.randn(8, 34, dtype="float32"))
    doubled.case("large", image=wb.randn(64, 130, dtype="float32"))
    args = ("out", "image", "height", "width")
    options = {"sizes": sizes, "grid": "height + 2", "block": "BX", "args": args}
    doubled.cuda(EXCHANGED, kernel="exchanged", tune={"BX": (64,)}, **options)
    run = wb.tune(doubled, "large", sample=16, store=tmp_path / "rows.sqlite", record=False)
    assert [trial.counts["sample"]["blocks"] for trial in run.trials] == [64]
    assert any("All blocks ran in 1 configurations: they can depend on " in note for note in run.notes), run.notes


def test_comparisons_and_traces_say_which_blocks_they_are_of():
    blur = blurred()
    compared = wb.compare(blur, "large", sample=16)
    assert compared.all_correct
    assert compared.facts()["blocks that ran"][1].startswith("16 of ")
    traced, whole = (wb.trace(blur, "large", variant="blur", sample=sample) for sample in (16, None))
    assert "16 of " in traced.title
    assert traced.summary()["blocks that ran"].value == 16
    predicted = [trace.summary()["predicted µs"].value for trace in (traced, whole)]
    assert predicted[0] == pytest.approx(predicted[1], rel=0.1)


@pytest.mark.parametrize(
    ("case", "options", "named"),
    [
        ("small", {"sample": 16}, "case"),
        ("large", {"sample": 16, "judged_on": "large"}, "judged_on"),
        ("large", {"judged_on": "small"}, "judged_on"),
        ("large", {"sample": 0}, "sample"),
    ],
)
def test_what_cannot_be_sampled_is_refused(case, options, named):
    with pytest.raises(ArgumentError, match=named):
        wb.tune(blurred(), case, **options)
    with pytest.raises(ArgumentError, match=named):
        wb.compare(blurred(), case, **options)


def test_a_judge_that_there_is_not_is_named():
    with pytest.raises(UnknownNameError, match="judged_on"):
        wb.tune(blurred(), "large", sample=16, judged_on="tiny")


def test_a_trace_is_sampled_or_recorded():
    with pytest.raises(ArgumentError, match="sample"):
        wb.trace(blurred(), "large", variant="blur", sample=16, record_block=(0, 0, 0))


def test_the_error_is_that_of_uneven_places():
    squares = squares_of((64, 64), 16)
    even = {block: 100 for square in squares for block in square}
    assert standard_error(squares, even, 64 * 64) == 0
    assert standard_error(squares[:1], even, 64 * 64) is None, "one place tells none"
    assert "error is unknown" in str(Sampled(4, 4096, None))
    uneven = {block: 100 + 10 * at for at, square in enumerate(squares) for block in square}
    assert standard_error(squares, uneven, 64 * 64) == pytest.approx(1.2 * 12.9 / 115 / 2, rel=0.01)
    assert "6.7%" in str(Sampled(16, 4096, standard_error(squares, uneven, 4096)))


@pytest.mark.parametrize(
    ("instruction", "depends"),
    [
        ("atom.global.add.u32", True),
        ("red.add.f32", True),
        ("ld.acquire.gpu.u32", True),
        ("ld.volatile.global.u32", True),
        ("membar.gl", True),
        ("fence.acq_rel.gpu", True),
        ("atom.shared.add.u32", False),
        ("ld.volatile.shared.u32", False),
        ("membar.cta", False),
        ("redux.sync.add.s32", False),
        ("ld.global.nc.f32", False),
        ("bar.sync", False),
        ("fence.proxy.async.shared::cta", False),
    ],
)
def test_which_instructions_let_blocks_see_each_other(instruction, depends):
    assert bool(dependence(["mov.u32", instruction])) is depends
