"""What a tuning run chooses, refuses and shows."""

from __future__ import annotations

import io
import re

import pytest
import toy
from rich.console import Console
from toy import ALL_ENDS, WrongCase, tune_steps

from workbench.errors import ArgumentError, UnknownNameError
from workbench.tuning import Limits, lookup, summary_table, tune

# -- choosing ---------------------------------------------------------------------------------------------------


def test_the_choice_does_not_depend_on_the_order_and_ties_are_told():
    run = tune_steps(toy.steps_variant(pages=(8, 16)))
    assert run.best.config == {"STEPS": 1, "PAGE": 8}, "of equal ones the first of the space"
    assert [choice.config for choice in run.ties] == [{"STEPS": 1, "PAGE": 16}]
    assert "1 more may be as fast" in str(run)
    shuffled = tune_steps(toy.steps_variant(pages=(8, 16)), strategy="random")
    assert shuffled.best.config == run.best.config
    assert [trial.config for trial in shuffled.trials] == [trial.config for trial in run.trials]


def test_each_variant_has_its_best_and_its_default():
    slow, fast = toy.steps_variant(values=(5, 6), name="slow"), toy.steps_variant(values=(2, 3), name="fast")
    run = tune_steps(slow, fast)
    assert {name: choice.config["STEPS"] for name, choice in run.best_by_variant.items()} == {"slow": 5, "fast": 2}
    assert list(run.best_by_variant) == ["slow", "fast"]
    assert run.best.variant == "fast"
    assert run.default_of(slow).config == {"STEPS": 6}
    assert tune_steps(slow, fast, variants="slow").best.variant == "slow"


def test_over_several_cases_the_mean_of_relative_times_decides():
    cases = [toy.ToyCase("one", 64), toy.ToyCase("two", 128)]
    run = tune_steps(toy.steps_variant(values=(1, 2)), cases=cases)
    assert len(run.trials) == 4
    assert run.best.config == {"STEPS": 1}
    assert run.best.score == 1
    assert run.ranking[1].score == pytest.approx(2, rel=0.01)
    assert [trial.case for trial in run.best.trials] == ["one", "two"]


def test_one_wrong_case_is_enough_to_lose():
    cases = [toy.ToyCase("right", 64), WrongCase("wrong", 64)]
    run = tune_steps(toy.steps_variant(values=(1, 2)), cases=cases)
    assert run.best is None
    assert run.outcomes == {"ok": 2, "wrong_result": 2}


def test_what_has_no_time_wins_nothing_and_says_why():
    run = tune("copy_blocks", variants="torch", device="sim")
    assert (run.best, run.outcomes) == (None, {"ok": 1})
    assert "  computed by torch on the CPU: there is no kernel to predict a time for" in str(run).splitlines()
    assert "no configuration has a time" in run._repr_html_()


# -- arguments and results --------------------------------------------------------------------------------------


def returns_a_list(space, start, rng):
    return [space[0]]


def yields_a_configuration(space, start, rng):
    yield space[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cases": "large one"}, "small"),
        ({"cases": []}, "one or more"),
        ({"cases": [None]}, "cases: got NoneType"),
        ({"cases": ["small", "small"]}, "different names"),
        ({"cases": toy.ToyCase(layout="other")}, r"supported \(layout 'other' is one of flat\) takes 12"),
        ({"variants": "other"}, "steps"),
        ({"variants": []}, "variants: got none; allowed: steps"),
        ({"variants": toy.scale_variant()}, "variants: got scale/cuda_scale"),
        ({"device": None}, "device: got None"),
        ({"strategy": None}, "strategy: got None"),
        ({"strategy": returns_a_list}, "strategy: got a function that returns list"),
        ({"strategy": yields_a_configuration}, "strategy: got a generator that yields dict"),
        ({"limits": {"seconds": 1}}, r"limits: got \{'seconds': 1\}"),
        ({"executor": map}, r"executor: got type.*client\.get_executor"),
    ],
)
def test_arguments_that_mean_nothing(options, message):
    with pytest.raises(ArgumentError, match=message):
        tune(toy.steps_op(), **({"device": "sim"} | options))


def test_an_op_is_a_name_or_a_value():
    with pytest.raises(UnknownNameError, match="paged_attention"):
        tune("no such op")
    with pytest.raises(ArgumentError, match=r"op: got function.*paged_attention"):
        tune(returns_a_list)


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"instructions": -1}, {"compile_seconds": float("nan")}])
def test_limits_are_above_zero(limits):
    with pytest.raises(ArgumentError, match=rf"limits\.{next(iter(limits))}: got"):
        Limits(**limits)


def test_any_iterable_of_cases_or_variants_will_do():
    op = toy.steps_op(values=(1, 2))
    for several in (op.cases, op.cases.values(), iter(["small"])):
        assert len(tune(op, several, device="sim").trials) == 2
    assert len(tune(op, variants=iter(op.variants), device="sim").trials) == 2


def test_progress_is_told_after_each_attempt():
    told = []
    tune_steps(progress=told.append)
    assert [one.done for one in told] == list(range(1, 13))
    assert {one.total for one in told} == {12}
    assert told[-1].best.config == {"STEPS": 1}


def test_the_winner_is_what_a_lookup_finds():
    variant = toy.steps_variant(pages=(8, 16))
    run = tune_steps(variant)
    assert run.recorded == 2, "one for each page size"
    op = toy.steps_op(variant)
    found = lookup(op, None, toy.ToyProblem(64, page=16))
    assert (found.level, found.config) == ("exact", {"STEPS": 1, "PAGE": 16})
    assert found.gain == pytest.approx(12, rel=0.01)


def test_what_is_shown_labels_its_times_and_repeats_itself():
    pandas = pytest.importorskip("pandas")
    variant = toy.steps_variant(values=ALL_ENDS, pages=(8, 16), behaviour=toy.fail_by_value)
    run, again = tune_steps(variant), tune_steps(variant)
    assert (run.reused, again.new) == (0, 0)
    assert "predicted for A100-SXM4-80GB" in str(run)
    assert run._repr_html_() == again._repr_html_()
    assert repr(run) == repr(again)
    assert "predicted µs" in run._repr_html_()
    frame = run.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["STEPS"]) == [steps for steps in ALL_ENDS for _ in range(2)]
    assert set(frame["PAGE"]) == {8, 16}
    assert [list(trial.config) for trial in again.trials] == [["STEPS", "PAGE"]] * 14
    assert frame["measured_us"].isna().all()
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(summary_table(run))
    text = console.export_text()
    assert "times predicted for A100-SXM4-80GB" in text
    for outcome in run.outcomes:
        assert len(re.findall(rf"  {outcome}(?::|  )", text)) == run.outcomes[outcome]


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_a_terminal_of_any_width_shows_whole_numbers(width):
    """What does not fit is left out by name, never cut."""
    run = tune_steps(toy.steps_variant(values=(1, 1000, 100_000), pages=(8, 16)))
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary_table(run))
    text = console.export_text()
    assert "…" not in text
    lines = [line.split() for line in text.splitlines() if re.match(r" *\d+ +\d+ +\d", line)]
    times = {f"{trial.seconds * 1e6:.2f}" for trial in run.trials}
    assert {(line[0], line[1]) for line in lines} == {(str(s), str(p)) for s in (1, 1000, 100_000) for p in (8, 16)}
    assert {line[2] for line in lines} == times
    assert max(map(len, text.splitlines())) <= width
    rest = re.findall(r"\((?:all have [^;]*; )?no room for (.*?)\)", text.replace("\n", " "))
    assert bool(rest) == (width == 40)


def test_a_page_shows_the_error_as_a_share_of_its_bound_and_no_column_that_says_nothing():
    run = tune_steps(toy.steps_variant(pages=(8, 16)))
    page = run._repr_html_()
    heads = re.findall(r"<th [^>]*>(.*?)</th>", page)
    assert heads[:3] == ["STEPS", "PAGE", "predicted µs"]
    assert not {"outcome", "case", "spill"} & set(heads)
    assert "all have outcome ok" in page
    assert "…" not in page


def test_the_plot_shows_every_variant():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = tune_steps(toy.steps_variant(name="a"), toy.steps_variant(name="b")).plot()
    assert [line.get_label() for line in ax.get_lines()] == ["a", "a: default", "b", "b: default"]
    assert "predicted" in ax.get_ylabel()
