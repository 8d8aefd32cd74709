"""The landscape of a space, in numbers and as pictures; the bar of a terminal."""

from __future__ import annotations

import io
import random

import pytest
import toy
from toy import tune_steps

from workbench.errors import ArgumentError
from workbench.ops.variant import Restriction
from workbench.tuning import ProgressBar, Space
from workbench.tuning.result.landscape import cells


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_what_a_walk_over_the_space_finds(seed):
    rng = random.Random(seed)
    rule = Restriction("rule", "A * B < C + 9", lambda config, _: config["A"] * config["B"] < config["C"] + 9)
    space = Space({"A": (4, 1, 2), "B": (1, 2, 8), "C": (1, 5)}, [rule])
    tried = space.sample(rng.randrange(1, len(space)), rng)
    trials = [toy_trial(config, rng.choice(["ok", "ok", "ok", "timeout"]), rng.uniform(1, 2)) for config in tried]
    for row, b in zip(cells(trials, space, "A", "B"), space.parameters["B"], strict=True):
        for cell, a in zip(row, space.parameters["A"], strict=True):
            here = [trial for trial in trials if (trial.config["A"], trial.config["B"]) == (a, b)]
            times = [trial.seconds for trial in here if trial.ok]
            assert (cell.tried, cell.seconds) == (len(here), min(times, default=None))
            assert cell.legal == sum((config["A"], config["B"]) == (a, b) for config in space)
            expected = "ok" if times else "timeout" if here else "untried" if cell.legal else "restricted"
            assert cell.outcome == expected


def toy_trial(config, outcome, seconds):
    from workbench.tuning import Trial

    time = {"measured_seconds": seconds} if outcome == "ok" else {}
    return Trial("op", "variant", "cuda", "case", config, "sim", "sm_80", outcome, **time)


def test_the_heat_map_says_every_time_and_frames_the_best():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    variant = toy.steps_variant(values=(1, 2, 3, 13), pages=(8, 16))
    run = tune_steps(variant)
    ax = run.heat_map("STEPS", "PAGE")
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["3,603", "7,203", "10,803", "compile\nerror"] * 2
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("STEPS", "PAGE", "best predicted [µs]")
    frames = [patch.get_xy() for patch in ax.patches if not patch.get_fill()]
    assert frames == [(-0.5, -0.5), (-0.5, 0.5)]
    for wrong in (("STEPS", "STEPS"), ("STEPS", "other")):
        with pytest.raises(ArgumentError, match="STEPS, PAGE"):
            run.heat_map(*wrong)
    with pytest.raises(ArgumentError, match="steps"):
        run.heat_map("STEPS", "PAGE", variant="other")
    with pytest.raises(ArgumentError, match="small"):
        run.heat_map("STEPS", "PAGE", case="other")
    matplotlib.pyplot.close("all")


def test_the_bar_tells_the_best_and_is_silent_where_nobody_looks():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for file in (Terminal(), io.StringIO()):
        bar = ProgressBar(file)
        tune_steps(progress=bar)
        bar.close()
        last = file.getvalue().replace("\n", "").split("\r")[-1]
        if file.isatty():
            assert "12/12" in last
            assert "best 3602.58 µs predicted: steps STEPS=1" in last
        else:
            assert last == ""
