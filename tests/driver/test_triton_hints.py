"""Mistakes that no access shows: notes on launches that have one, none on their corrected twins."""

from __future__ import annotations

import warnings

import pytest
import torch
import triton
import triton_hints

import workbench as wb
from workbench.errors import PredictedTimeWarning


def grid(meta):
    return (triton.cdiv(200, meta["BLOCK"]),)


def notes_of(*calls) -> str:
    """The notes on the launches of calls ``(kernel, grid, *arguments)``, which run in order and have no finding."""
    with warnings.catch_warnings(), wb.simulated_triton(checks=True, force=True) as device:
        warnings.simplefilter("ignore", PredictedTimeWarning)
        for kernel, places, *arguments in calls:
            kernel[places](*arguments)
    assert not device.findings
    return "\n".join(note for launch in device.launches for note in launch.notes)


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        ("double_in_place", {}, "the trials of @triton.autotune wrote x, which the kernel reads and writes: 200 of"),
        ("double_in_place", {"restore_value": ["x"]}, ""),
        ("add_to", {}, "the trials of @triton.autotune wrote x"),
        ("add_to", {"reset_to_zero": ["x"]}, ""),
    ],
)
def test_trials_that_change_what_they_read(function, options, words):
    kernel = triton_hints.tuned(getattr(triton_hints, function), ["n"], **options)
    notes = notes_of((kernel, grid, torch.ones(200), 200))
    assert words in notes
    assert bool(words) == bool(notes)
    line = getattr(triton_hints, function).__code__.co_firstlineno
    assert not words or notes.startswith(f"triton_hints.py:{line}: ")


def test_a_scratch_that_trials_leave_is_no_mistake():
    kernel = triton_hints.tuned(triton_hints.through_scratch, [])
    calls = [(kernel, grid, torch.zeros(n), torch.zeros(n), torch.ones(n), n) for n in (200, 100)]
    assert notes_of(*calls) == ""


@pytest.mark.parametrize("key", [[], ["n"]])
def test_a_key_without_a_number_on_which_the_configuration_depends(key):
    large = {"early_config_prune": lambda configs, given, **_: [c for c in configs if c.kwargs["BLOCK"] >= given["n"]]}
    kernel = triton_hints.tuned(triton_hints.doubled_rows, key, **({"prune_configs_by": large} if key else {}))
    results = [torch.zeros(4, n) for n in (64, 200)]
    notes = notes_of(*((kernel, (4,), y, torch.ones_like(y), y.shape[1]) for y in results))
    assert bool((results[1] == 2).all()) == bool(key)
    words = "lacks n: tuned with n=64, it runs BLOCK=64 with n=200, for which BLOCK=256 gives something else in 544 of"
    assert (words in notes) != bool(key)
    assert bool(notes) != bool(key)


@pytest.mark.parametrize("passed", [False, True])
def test_a_view_whose_strides_a_kernel_does_not_get(passed):
    y, x = torch.zeros(64), torch.ones(64, 2)[:, 0]
    kernel = triton.jit(triton_hints.strided if passed else triton_hints.plain)
    notes = notes_of((kernel, (1,), y, x, *((x.stride(0),) if passed else ())))
    words = "x is a tensor of shape (64,) with strides (2,): the kernel gets its address, but not its strides"
    assert notes == ("" if passed else words)


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize(("function", "reached"), [("row_max", "out"), ("gathered", "an address"), ("masked_copy", "")])
def test_masked_lanes_without_other_that_reach_a_result(function, reached, filled):
    kernel = triton.jit(getattr(triton_hints, function))
    out, x = torch.zeros(100), torch.zeros(100) - 1 + (function == "gathered")
    notes = notes_of((kernel, (1,), out, x, 100, filled))
    words = (
        "tl.load with mask= and without other= leaves masked lanes undefined (zeros today), and what they hold reaches"
    )
    assert notes.partition(": ")[2].startswith(f"{words} {reached}.") if reached and not filled else notes == ""
