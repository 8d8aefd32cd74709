"""Variants side by side, and one variant line by line."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest

import workbench as wb
from workbench import ops
from workbench.errors import ArgumentError, MissingToolError, UnknownNameError

OP = ops.get("paged_attention")


@pytest.fixture(scope="module")
def comparison():
    return wb.compare("paged_attention", "small", device="sim")


def test_every_variant_is_there_and_right(comparison):
    able = [variant.name for variant in OP.variants if not variant.unsupported(OP.case("small").problem())]
    assert [trial.variant for trial in comparison.trials] == able
    assert len(able) >= 5
    assert comparison.all_correct
    assert "all correct" in repr(comparison)
    with pytest.raises(UnknownNameError, match=r"cuda_tread_group.*cuda_thread_group"):
        comparison["cuda_tread_group"]


def test_the_table_shows_what_was_counted(comparison):
    facts = comparison.facts()
    cuda = comparison["cuda_thread_group"]
    at = [trial.variant for trial in comparison.trials].index("cuda_thread_group")
    assert facts["registers per thread"][at] == str(cuda.resources["registers"])
    assert facts["warp instructions"][at] == f"{cuda.counts['warp_instructions']:,}"
    assert facts["time"][at].startswith("predicted ")
    assert facts["time"][0] == "–", "there is no kernel of ours behind the torch variant"
    for text in (str(comparison), comparison._repr_html_()):
        assert "global sectors per request" in text
        assert "predicted" in text


def test_bytes_touched_are_at_least_the_minimum(comparison):
    frame = comparison.to_frame()
    kernels = frame[frame.language != "torch"]
    assert (kernels.unique_bytes >= kernels.minimum_bytes).all()
    assert (kernels.time_is == "predicted").all()


def test_one_variant_by_name_and_a_configuration_for_another():
    only = wb.compare("paged_attention", variants="torch", device="sim")
    assert [trial.variant for trial in only.trials] == ["torch"]
    with pytest.raises(UnknownNameError, match=r"configs: got 'cuda'; allowed: torch\."):
        wb.compare("paged_attention", variants="torch", device="sim", configs={"cuda": {}})


def test_a_frame_without_pandas_says_how_to_get_it(comparison, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingToolError, match="pip install"):
        comparison.to_frame()


def test_a_wrong_variant_is_shown_and_not_raised():
    """A rule that forgets the scale: same kernel, wrong argument."""
    right = OP.variant("cuda_thread_group")

    (step,) = right.steps
    unscaled = dataclasses.replace(step, arguments={**step.arguments, "scale": lambda config, problem, tensors: 1.0})
    wrong = dataclasses.replace(right, steps=(unscaled,))
    found = wb.compare("paged_attention", "small", [wrong], "sim")
    assert not found.all_correct
    assert found.trials[0].outcome == "wrong_result"
    assert found.trials[0].seconds is None
    assert "NO (wrong_result)" in str(found)


def test_the_table_names_an_architecture_that_a_variant_needs():
    one = ops.get("paged_attention").case("small").override(kv_cache_dtype="fp8_e4m3", seq_lens=(20,))
    found = wb.compare("paged_attention", one, ["triton_partitioned", "cuda_partitioned"], device="sim")
    assert found.all_correct
    assert found.facts()["compiled for"] == ("sm_89", "–")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownNameError, match="paged_attention"):
        wb.compare("attention")
    with pytest.raises(UnknownNameError, match="llama-3-8b"):
        wb.compare("paged_attention", "llama-9")
    with pytest.raises(UnknownNameError, match="cuda_thread_group"):
        wb.compare("paged_attention", "small", ["cuda_thread"])


@pytest.fixture(scope="module", params=["cuda_thread_group", "triton_online_softmax"])
def traced(request):
    return wb.trace("paged_attention", "small", variant=request.param)


def test_a_trace_names_buffers_as_the_source_does(traced):
    assert [name for name, _ in traced.buffers.rows][:4] == ["out", "query", "key_cache", "value_cache"]


def test_a_trace_accounts_for_every_instruction(traced):
    assert sum(line.instructions for line in traced.lines) == traced.report.instructions
    assert sum(line.global_sectors for line in traced.lines) == (
        traced.report.global_load_sectors + traced.report.global_store_sectors
    )
    assert sum(line.shared_conflicts for line in traced.lines) == traced.report.shared_conflicts
    assert len(traced.to_frame()) == len(traced.lines)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal_shows_every_variant_and_whole_numbers(comparison, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = str(comparison)
    assert max(map(len, text.splitlines())) <= columns
    for trial in comparison.trials:
        assert trial.variant in text
        if trial.counts:
            assert f"{trial.counts['warp_instructions']:,}" in text
            assert f"NUM_THREADS={trial.config.get('NUM_THREADS', '')}" in text or "NUM_THREADS" not in trial.config
            assert f"predicted {trial.seconds * 1e6:.2f} µs" in " ".join(text.split())


def test_a_page_does_not_break_numbers(comparison):
    page = comparison._repr_html_()
    numbers = re.findall(r"\d\.\de-\d+", page)
    assert len(numbers) >= 2
    assert page.count('<span style="white-space:nowrap">') == len(numbers)


def test_a_trace_names_the_lines_of_the_kernel(traced):
    busiest = max(traced.lines, key=lambda line: line.global_sectors)
    words = ("key[j].load", "value[i].load", "key_cache +", "value_cache +")
    assert any(word in busiest.text for word in words), "the line that moves most bytes is a load of K or V"
    assert len({line.file for line in traced.lines}) == 1, "what is inlined from headers counts where it is used"
    assert re.search(rf"^ *{busiest.line} .*{re.escape(busiest.text.strip()[:40])}", str(traced), re.MULTILINE)
    assert f">{busiest.line}</td>" in traced._repr_html_()


def test_torch_has_nothing_to_trace():
    with pytest.raises(ArgumentError, match="no kernel to trace"):
        wb.trace("paged_attention", variant="torch")


HALF = """#include <cuda_fp16.h>
extern "C" __global__ void {name}(half *out, const half *x, const half *y) {{
    const int i = blockIdx.x * 512 + threadIdx.x;
    const float a = __half2float(x[i]), b = __half2float(y[i]);
    out[i] = __float2half(expf(a - b) * a - logf(fabsf(b) + {constant}));
}}"""


def half_op(constant: str):
    """An op whose reference misses its own answer in float64 by more than the bound, computed in half precision."""
    import torch

    @wb.op
    def half_logs(x, y):
        return torch.exp(x - y) * x - torch.log(y.abs() + 1e-3)

    half = torch.float16
    half_logs.case("small", x=wb.randn(64, 512, dtype=half), y=wb.randn(64, 512, dtype=half))
    text = HALF.format(name="in_float", constant=constant)
    half_logs.cuda(text, name="in_float", grid=lambda x: x.shape[0], block=512, args=("out", "x", "y"))
    return half_logs


def test_the_reference_is_not_judged_by_its_own_answer(tmp_path):
    op = half_op("1e-3f")
    found = wb.compare(op, device="sim")
    reference, kernel = found["torch"], found["in_float"]
    assert reference.max_error > reference.error_bound, "its half precision is beyond the bound"
    assert reference.error_bound == kernel.error_bound, "one bound for one case"
    assert kernel.max_error < kernel.error_bound
    assert found.all_correct
    assert "not judged, the reference" in found.facts()["correct"][0]
    base = tmp_path / "base.json"
    found.save(base)
    assert wb.diff(base, found, fail_if="warp_instructions > 1.02").ok


def test_a_kernel_and_a_second_function_of_torch_are_judged():
    op = half_op("3e-3f")
    op.torch(lambda x, y: x * 0, name="zeros")
    found = wb.compare(op, device="sim")
    assert [trial.outcome for trial in found.trials] == ["ok", "wrong_result", "wrong_result"]
    assert not found.all_correct
    assert len({trial.error_bound for trial in found.trials}) == 1
