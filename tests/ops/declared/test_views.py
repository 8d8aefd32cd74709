"""Views given to declared ops: right, or refused by name, and no neighbour's byte changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from simulated_gpu.plugin import environment, missing
from views import BY_STRIDES, EXPORTED, FLAT, FORMS, PAIRS, outcome, pair, paired, view, viewed, viewed_in_place

import workbench as wb
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch import devices
from workbench.ops import registry, tuned
from workbench.tuning.measuring.measure import evaluate


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    yield
    for op in (viewed, viewed_in_place, pair):
        registry.OWN.pop(op.name, None)


@pytest.fixture(scope="module")
def on_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """How every form's exported file fares with every layout, on a simulated GPU."""
    problem = missing()
    if problem is not None:
        assert not os.environ.get("WORKBENCH_REQUIRE_GPU_DOUBLE"), problem
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("views")
    for form in EXPORTED:
        FORMS[form][0].export(folder / f"{form}.py", form)
    pair.export(folder / "pair.py")
    command = [sys.executable, str(Path(__file__).with_name("run_exported_views.py")), str(folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("form", EXPORTED)
def test_views_given_to_an_exported_file(on_a_gpu: dict[str, dict[str, str]], form: str):
    assert on_a_gpu[form] == FORMS[form][1]


def test_arguments_that_share_memory_given_to_an_exported_file(on_a_gpu: dict[str, dict[str, str]]):
    assert on_a_gpu["pair"] == {name: expected for name, (_, _, expected) in PAIRS.items()}


@pytest.mark.parametrize("form", FORMS)
def test_views_are_right_or_refused(form: str):
    op, expected = FORMS[form]
    writes = form.endswith("in_place")
    found = {name: outcome(lambda x: op(x, variant=form), view(name), writes=writes) for name in expected}
    assert found == expected


def test_a_tuned_kernel_is_one_that_takes_the_view(monkeypatch: pytest.MonkeyPatch):
    """The last declared one that can; and of those of an op that has none, the error names the tensor."""
    assert outcome(lambda x: viewed(x, variant="tuned"), view("transposed"), writes=False) == "right"
    monkeypatch.setattr(viewed, "variants", tuple(one for one in viewed.variants if one.name in ("torch", "flat")))
    tuned.forget()
    assert outcome(lambda x: viewed(x, variant="tuned"), view("transposed"), writes=False) == "refused"
    assert outcome(lambda x: viewed(x), view("transposed"), writes=False) == "right"  # torch, on the CPU


def test_an_error_names_the_stride_and_the_remedy():
    given = view("transposed").tensor
    with pytest.raises(ArgumentError) as told:
        viewed(given, variant="rows")
    assert str(told.value) == (
        "x: got strides (1, 6) of float32[6, 8]; allowed: a stride of 1 in dimension 1: the declaration of "
        'viewed/rows names no other stride beside x.stride(0). Pass x.contiguous(), declare contiguous=("x",), which '
        'copies it, or give the kernel "x.stride(1)".'
    )
    with pytest.raises(ArgumentError, match="contiguous: got 'y'; allowed: True, or of x"):
        viewed.cuda(FLAT, grid=1, block=32, args=("out", "x", 1), contiguous=("y",))


@pytest.mark.parametrize("columns", PAIRS)
def test_what_is_written_shares_no_element_with_another_argument(columns: str):
    """As queries and keys in one projection, whose rows lie between each other's."""
    assert paired(lambda x, y: pair(x, y, variant="pair_rows"), columns) == PAIRS[columns][2]


SUMS = r"""
extern "C" __global__ void clear(float *out) { out[threadIdx.x] = 0; }
extern "C" __global__ void add(float *out, const float *x) {
    atomicAdd(out + threadIdx.x, x[blockIdx.x * 8 + threadIdx.x]);
}
"""


def test_nothing_to_launch():
    """No elements: an empty result. No blocks, but elements: right where another kernel writes them, else refused."""

    @wb.op(name="summed")
    def summed(x):
        return x.sum(0)

    launch = {"grid": "x.shape[0]", "block": "x.shape[1]"}
    cleared = wb.step("add", args=("out", "x"), **launch)
    summed.cuda(SUMS, kernel="clear", name="both", grid=1, block=8, args=("out",), then=[cleared])
    summed.cuda(SUMS, kernel="add", name="alone", args=("out", "x"), **launch)
    assert torch.equal(summed(torch.ones(0, 8), variant="both"), torch.zeros(8))
    assert torch.equal(summed(torch.ones(3, 8), variant="both"), torch.full((8,), 3.0))
    assert summed(torch.ones(3, 0), variant="alone").shape == (0,)
    with pytest.raises(ArgumentError, match=r"grid: got \(0,\), but out is float32\[8\]"):
        summed(torch.ones(0, 8), variant="alone")
    with pytest.raises(UnknownNameError):
        summed(torch.ones(3, 0), variant="none")


def test_nothing_to_measure():
    """A kernel in place, of a case without rows."""
    viewed_in_place.case("empty", x=wb.randn(0, 8))
    trial = evaluate(viewed_in_place.variant("flat_in_place"), {}, viewed_in_place.case("empty"), devices.get("sim"))
    assert (trial.outcome, trial.message) == ("launch_error", "no kernel has a block to run for the case")
    with pytest.raises(ArgumentError, match="case: got empty"):
        wb.trace(viewed_in_place, "empty", variant="flat_in_place")


def test_cases_of_views_run_as_any_other():
    """Traced, checked and compared; their memory lies on the device as it lies here."""

    @wb.op(name="of_views")
    def of_views(x):
        return 2 * x + 1

    def columns(generator):
        return torch.randn(4, 64, generator=generator)[:, 8:16]

    def rows(generator):
        return torch.randn(1, 8, generator=generator).expand(4, 8)

    for name, made in (("columns", columns), ("expanded", rows)):
        of_views.case(name, x=made)
    launch = {"sizes": lambda x: {"rows": x.shape[0], "cols": x.shape[1]}, "grid": "rows", "block": 32}
    names = ("out", "x", "cols", "x.stride(0)")
    of_views.cuda(BY_STRIDES, kernel="rows_cuda", macros={"OUT": "cols"}, args=names, **launch)
    for name in of_views.cases:
        trial = evaluate(of_views.variant("rows_cuda"), {}, of_views.case(name), devices.get("sim"))
        assert trial.ok, trial.message
    registry.OWN.pop("of_views")
