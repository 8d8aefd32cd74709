"""Inputs as they occur: kernels that are wrong for ties, zeros, large means, NaN or repeats alone, and right twins."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.judge import Judge
from workbench.ops.declared.elsewhere import Meaningless

ROWS, COLS = 4, 48
HEAD = f'#define COLS {COLS}\nextern "C" __global__ void f'
PER_ROW = f"(float *out, const float *x) {{{{ const float *r = x + blockIdx.x * {COLS}; {{body}} }}}}"
ALL = "for (int c = 0; c < COLS; ++c) "
MAXIMUM = f"float m = r[0]; {ALL} m = fmaxf(m, r[c]); "
SOFTMAX = f"{MAXIMUM}float s = 0; {ALL} s += expf(r[c] - m); FACTOR {ALL} out[blockIdx.x * COLS + c] = VALUE;"
SOFTMAX_RIGHT = SOFTMAX.replace("FACTOR", "").replace("VALUE", "expf(r[c] - m) / s")
OUT = f"{ALL} out[blockIdx.x * COLS + c] = "
NORM = f"float m = 0, v = 0; {ALL} m += r[c] / COLS; SQUARES {OUT} (r[c] - m) * rsqrtf(v + 1e-5f);"
MAGNITUDE = f"float s = 0; {ALL} s += r[c] * r[c] / COLS; {ALL} out[blockIdx.x * COLS + c] = r[c] * rsqrtf(sEPSILON);"


def softmax(x):
    return torch.softmax(x, dim=-1)


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def rms_norm(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def relu(x):
    return torch.relu(x)


def per_row(body: str) -> str:
    return HEAD + PER_ROW.format(body=body)


def softmax_with(factor: str, value: str) -> str:
    return per_row(SOFTMAX.replace("FACTOR", factor).replace("VALUE", value))


WRONG = {
    "ties: a sum that counts equal maxima twice": (
        softmax,
        softmax_with(f"int t = 0; {ALL} t += r[c] == m; if (t > 1) s *= 2;", "expf(r[c] - m) / s"),
        {"tied", "constant", "zero", "one_hot"},
    ),
    "constant: rows of equal elements": (
        softmax,
        softmax_with(f"bool e = true; {ALL} e &= r[c] == r[0];", "e ? 1 : expf(r[c] - m) / s"),
        {"constant", "zero"},
    ),
    "nan: lost by a comparison": (
        softmax,
        softmax_with("", "s > 0 ? expf(r[c] - m) / s : 0"),
        {"nan"},
    ),
    "minus_inf: a guard against empty rows": (
        softmax,
        softmax_with("bool empty = isinf(m) && m < 0;", "empty ? 0 : expf(r[c] - m) / s"),
        {"minus_inf"},
    ),
    "large_mean: a variance that cancels": (
        layer_norm,
        per_row(NORM.replace("SQUARES", f"{ALL} v += r[c] * r[c] / COLS; v = fmaxf(v - m * m, 0.f);")),
        {"large_mean"},
    ),
    "zero: no epsilon": (rms_norm, per_row(MAGNITUDE.replace("EPSILON", "")), {"zero"}),
    "denormal: taken for something else": (
        relu,
        per_row(f"{ALL} out[blockIdx.x * COLS + c] = r[c] < 0 ? 0 : r[c] < 1e-38f && r[c] > 0 ? 1 : r[c];"),
        {"denormal"},
    ),
    "sorted: only neighbours that descend are looked at": (
        lambda x: (x[:, 1:] < x[:, :-1]).sum(-1).float(),
        per_row("int n = 0; for (int c = 1; c < COLS; ++c) n += r[c] < r[c - 1]; out[blockIdx.x] = n ? n : 1;"),
        {"sorted", "zero"},
    ),
    "heavy_tails: a table of powers": (
        lambda x: x.abs().clamp_max(200).floor(),
        per_row(f"{ALL} out[blockIdx.x * COLS + c] = floorf(fminf(fabsf(r[c]), 64));"),
        {"heavy_tails", "x100"},
    ),
}
RIGHT = {
    "softmax": (softmax, per_row(SOFTMAX_RIGHT)),
    "layer norm": (layer_norm, per_row(NORM.replace("SQUARES", f"{ALL} v += (r[c] - m) * (r[c] - m) / COLS;"))),
    "rms norm": (rms_norm, per_row(MAGNITUDE.replace("EPSILON", " + 1e-6f"))),
    "relu": (relu, per_row(f"{ALL} out[blockIdx.x * COLS + c] = r[c] < 0 ? 0 : r[c];")),
    "descents": (
        lambda x: (x[:, 1:] < x[:, :-1]).sum(-1).float(),
        per_row("int n = 0; for (int c = 1; c < COLS; ++c) n += r[c] < r[c - 1]; out[blockIdx.x] = n;"),
    ),
}
COUNT = "(int *out, const int *ids) { if (blockIdx.x == 0) STEP; }"
COUNTS = {
    "an addition": ("atomicAdd(out + ids[threadIdx.x], 1)", set()),
    "a store": ("out[ids[threadIdx.x]] = 1", {"repeated", "skewed", "extreme"}),
    "an exchange": ("atomicExch(out + ids[threadIdx.x], 1)", {"repeated", "skewed", "extreme"}),
    "the last bin left out": ("if (ids[threadIdx.x] < 4095) atomicAdd(out + ids[threadIdx.x], 1)", {"extreme"}),
}


def wrong_changes(reference, source: str, **options) -> set[str]:
    op = wb.op(reference, name="structured")
    op.case("small", **options.pop("inputs", {"x": wb.randn(ROWS, COLS)}))
    op.cuda(source, **({"kernel": "f", "grid": ROWS, "block": 1, "args": ("out", "x")} | options))
    with Judge(op, seeds=[3]) as judge:
        usual, *others = judge.check()
    assert usual.ok, usual
    assert {one.outcome for one in others} <= {"wrong_elsewhere"}
    return {one.case.removeprefix("small, ") for one in others}


@pytest.mark.parametrize("name", WRONG)
def test_what_only_some_inputs_show_is_found(name: str):
    reference, source, expected = WRONG[name]
    assert wrong_changes(reference, source) >= expected


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_are_right_for_all_inputs_as_they_occur(name: str):
    assert wrong_changes(*RIGHT[name]) == set()


@pytest.mark.parametrize("name", COUNTS)
def test_repeated_and_extreme_indices(name: str):
    step, expected = COUNTS[name]
    zero = 'extern "C" __global__ void z(int *out) { out[blockIdx.x * 256 + threadIdx.x] = 0; }\n'

    def counts(ids):
        return (
            torch.zeros(4096, dtype=torch.int64, device=ids.device)
            .index_add(0, ids.long(), torch.ones_like(ids.long()))
            .int()
        )

    found = wrong_changes(
        counts,
        zero + HEAD + COUNT.replace("STEP", step),
        inputs={"ids": wb.randint(0, 4096, 16)},
        kernel="z",
        grid=16,
        block=256,
        args=("out",),
        then=[wb.step("f", grid=1, block=16, args=("out", "ids"))],
    )
    assert found == expected


def test_what_a_fact_excludes_is_not_tried():
    op = wb.op(lambda index: index * 2, name="doubled", facts={"index": "distinct"})
    op.case("drawn", index=wb.randint(0, 1 << 20, 2))
    with pytest.raises(Meaningless, match="its facts exclude it"):
        op.case("drawn").elsewhere("repeated").require_meaning()
    op.case("drawn").elsewhere("extreme").require_meaning()
