"""Infinities and NaN are named at the line of their birth; corrected twins are silent; conversions are counted."""

import math
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench import ops
from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.numerics import NumericsReport
from workbench.analysis.watching import Watch, watch
from workbench.programs.running import tell_numerics
from workbench.ptx.numerics import NumericsLog

SOURCE = Path(__file__).with_name("cuda_numerics.cu")
LINES = SOURCE.read_text().splitlines()


@pytest.fixture(scope="module")
def program():
    return wb.load_cuda(SOURCE, arch="sm_100a")


def line_of(name):
    """The line that ends with a name."""
    return next(number for number, text in enumerate(LINES, 1) if text.endswith(f"// {name}"))


def floats(*values):
    """32 values, the last one repeated."""
    return np.array([*values, *[values[-1]] * (32 - len(values))], np.float32)


def launched(kernel, *args):
    return wb.trace_kernel(kernel, grid=1, block=32, args=args, numerics=True).numerics


OUT = np.zeros(32, np.float32)
INF = math.inf
BORN = [
    ("masked_row", "nan", (OUT, floats(-INF)), (-INF, -INF)),
    ("exp_overflow", "infinity", (OUT, floats(3, 200, 1)), (200,)),
    ("padded_slots", "nan", (OUT, floats(0.5), np.r_[floats(1)[:20], floats(INF)[:12]], 20), (0, INF, 10)),
    ("norm_of_zeros", "infinity", (OUT, floats(0)), (0,)),
    ("half_scores", "infinity", (np.zeros(32, np.float16), floats(300), floats(250)), (75000,)),
    ("scale_of_zero", "nan", (OUT, floats(0)), (0, 0)),
    ("log_of_zero", "infinity", (OUT, floats(0.5, 0, 0.25)), (0,)),
    ("merged_halves", "nan", (OUT, np.r_[floats(-INF), floats(-INF)]), (-INF, -INF)),
    ("empty_mean", "nan", (OUT, floats(1), 0), (0, 0)),
    ("negative_variance", "nan", (OUT, floats(1000.3, 1000)), (-0.0625,)),
    ("half_sum", "infinity", (OUT, floats(4000).astype(np.float16)), (64000, 4000)),
    ("arc_cosine", "nan", (OUT, floats(1.0001)), None),
    ("through_shared", "nan", (OUT, floats(9, 9, 1, 9)), (-3,)),
    ("product_overflow", "infinity", (OUT, floats(1)), None),
    ("product_of_nothing", "nan", (OUT, floats(INF)), (0, INF, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "args", "operands"), BORN, ids=[row[0] for row in BORN])
def test_a_birth_is_named(program, name, kind, args, operands):
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    report = launched(program[name], *args, 0)
    births = [one for one in report.births if one.place.line == line_of(name)]
    assert [one.event for one in births] == [kind], report
    assert not report, report
    if operands is not None:
        assert births[0].operands == pytest.approx(operands, nan_ok=True), report
    assert launched(program[name], *args, 1), "the corrected twin is silent"


def test_saturation_is_counted(program):
    x, out = floats(1000, 5, 1e-6, 0), np.zeros(32, np.uint16)
    (line,) = [line for line in launched(program.saturated_codes, out, x, 0).lines if line.conversions]
    assert line.line == line_of("saturated_codes")
    # 1000 and its half are beyond 448, 1e-6 and its half below half of 2^-9.
    assert line.conversions == {"e4m3": (64, 0, 2, 2, 0, 1000.0)}
    report = launched(program.saturated_codes, out, floats(1000, 5, 0), 1)
    assert report
    assert [one.conversions for one in report.lines if one.conversions] == [{"e4m3": (64, 0, 0, 0, 0, 250.0)}]


def test_every_format(program):
    out = np.zeros(192, np.uint32)
    report = launched(program.narrowed, out, floats(3e38, 1000, 5, 1e-9, math.nan, 0))
    found = {name: line.conversions[name] for line in report.lines for name in line.conversions}
    assert {name: counts[:5] for name, counts in found.items()} == {
        "e2m1": (64, 0, 4, 2, 2), "ue8m0": (64, 0, 2, 0, 0), "e5m2": (64, 0, 2, 2, 0),
        "bf16": (32, 0, 0, 0, 0), "f16": (32, 1, 0, 1, 0), "s8": (32, 0, 2, 0, 1),
    }  # fmt: skip
    assert {line.line for line in report.lines if line.conversions} == {line_of(name) for name in found}
    assert found["f16"][5] == pytest.approx(3e38)


def test_a_chain_leads_through_shared_memory(program):
    report = launched(program.through_shared, OUT.copy(), floats(9, 9, 1, 9), 0)
    (passed,) = [line for line in report.lines if line.line == line_of("multiplied")]
    chain = passed.first_passed
    assert [(one.event, one.where) for one in chain] == [
        ("through", ""), ("load", "shared memory"), ("store", "shared memory"), ("nan", "")
    ]  # fmt: skip
    assert [one.thread[0] for one in chain] == [3, 3, 2, 2]
    assert chain[-1].operands == (-3,)
    assert chain[-1].reached
    assert chain[-1].place.line == line_of("through_shared")


def test_a_chain_leads_through_kernels(program):
    log, between, out = NumericsLog(), np.zeros(32, np.float32), np.zeros(32, np.float32)
    first = program.written(1, 32, between, floats(1, 0, 2), 0, numerics=log)
    second = program.read_later(1, 32, out, between, numerics=log)
    report = NumericsReport("both", (*first.numerics, *second.numerics))
    (passed,) = [line for line in report.lines if line.passed]
    assert [(one.place.kernel, one.event, one.where) for one in passed.first_passed] == [
        ("read_later", "through", ""), ("read_later", "load", "x[1]"),
        ("written", "store", "out[1]"), ("written", "nan", ""),
    ]  # fmt: skip
    assert passed.first_passed[-1].place.line == line_of("written")
    assert "from cuda_numerics.cu" in str(report)
    assert len(report.to_frame()) == len(report.lines)


def test_the_line_that_loses_the_digits(program):
    random = np.random.default_rng(0)
    x = random.normal(1, 0.1, (64, 32)).astype(np.float32)
    report = launched(program.brain_sum, OUT.copy(), x, 64)
    assert report.errors_from.line == line_of("brain_sum"), report
    assert report.errors_from.share > 0.8

    out = OUT.copy()
    report = launched(program.naive_variance, out, x + 1000, 64)
    worst = report.digits_lost_at
    assert worst.line == line_of("naive_variance"), report
    exact = (x + np.float32(1000)).astype(np.float64).var(0)
    rms = float(np.sqrt(np.mean(np.minimum(np.abs(out - exact) / exact, 1) ** 2)))
    assert worst.digits_lost > 4
    assert max(one.squares[3] / one.results for one in worst.errors) ** 0.5 == pytest.approx(rms, rel=1e-3)
    assert line_of("square") in {line.line for line in report.lines if line.share > 0.3}

    q, k = random.normal(0, 4, 64), random.normal(0, 4, (64, 32))
    args = OUT.copy(), q.astype(np.float32), k.astype(np.float32), 0.125
    report = launched(program.unscaled_scores, *args)
    assert report.errors_from.line == line_of("unscaled_scores"), report
    assert "of the error in global memory comes from cuda_numerics.cu" in str(report)


def test_codes_carry_their_errors(program):
    x, out = np.linspace(1, 100, 32).astype(np.float32), np.zeros(64, np.float32)
    report = launched(program.codes, out, x)
    shares = {line.line: line.share for line in report.lines if line.share}
    errors = [float(((part - x) / x).astype(np.float64) @ ((part - x) / x)) for part in (out[:32], out[32:])]
    expected = dict(zip(map(line_of, ("e4m3 code", "s8 code")), (np.array(errors) / sum(errors)).tolist(), strict=True))
    assert shares == pytest.approx(expected, rel=1e-4)


def test_a_program_and_an_op(program, capsys):
    log, launches = NumericsLog(errors=False), Launches()
    watch(Watch(launches, device_model(), numerics=log))
    try:
        program.written(1, 32, OUT.copy(), floats(1, 0, 2), 0)
    finally:
        watch(None)
    tell_numerics(launches, "program.py")
    told = capsys.readouterr().err
    assert "program.py: infinities and NaN" in told
    assert "div.rn.f32(0, 0) = nan" in told

    case = ops.get("paged_attention").case("small", num_heads=2, num_kv_heads=1, seq_lens=(40,))
    report = wb.trace("paged_attention", case, variant="cuda_thread_group", numerics=True).numerics
    assert report, "nothing is lost"
    assert report.errors_from.share > 0.5
    assert report.errors_from.most < 2**-10, "the rounding of the output to f16"
