"""What the kernels do to memory, and the static side: wide loads, full sectors, few bytes, no spills."""

import dataclasses
import re

import pytest
from sampling import long_if

from workbench import ops
from workbench.attention.ops.paged_attention import case

CUDA = ops.variant("paged_attention", "cuda_thread_group")
TRITON = ops.variant("paged_attention", "triton_online_softmax")
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda variant: variant.name}
WIDE = {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 8, "V_VEC_SIZE": 8, "NUM_THREADS": 128}


def report_of(variant, config, one, sim):
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = variant.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    return report


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_keys_and_values_are_read_once_from_memory(variant, sim):
    """Distinct sectors, what must cross DRAM whatever the caches do: hardly more than the least possible."""
    one = case("llama-3-70b", context=400, num_seqs=2)
    config = variant.default_config(one.problem())
    report = report_of(variant, config, one, sim)
    minimum = one.minimum_bytes(one.problem(config))
    moved = report.unique_bytes_read + report.unique_bytes_written
    assert minimum * 0.99 <= moved <= minimum * 1.04


def test_the_group_reads_its_keys_and_values_again_for_every_query_head(sim):
    """The known weakness of one block per query head: 8 query heads ask for each byte 8 times."""
    one = case("llama-3-70b", context=400, num_seqs=1)
    report = report_of(CUDA, WIDE, one, sim)
    assert 7.5 < 32 * report.global_load_sectors / report.unique_bytes_read < 8.5


def test_sectors_of_the_thread_group_kernel(sim):
    """16 tokens of 8 bytes per vector lie on 8 sectors, of 16 bytes on 16; value rows fill 16."""
    one = case("llama-3-8b", context=256, num_seqs=1)
    for vec, expected in ((4, 8), (8, 16)):
        report = report_of(CUDA, {**WIDE, "VEC_SIZE": vec}, one, sim)
        loads = [
            line for line in report.lines if line.space == "global" and line.is_load and line.bytes > 64 * line.requests
        ]
        sizes = {line.sectors / line.requests for line in loads if line.bytes == line.requests * 32 * vec * 2}
        assert sizes == {expected}
        assert {line.sectors / line.requests for line in loads if ".v4" in line.text} == {16}


def test_wide_loads_of_the_triton_kernel(sim):
    one = case("llama-3-8b", context=256, num_seqs=1)
    for layout in ("x", "nhd", "hnd"):
        config = TRITON.default_config(one.problem())
        report = report_of(TRITON, config, dataclasses.replace(one, layout=layout), sim)
        copied = [line for line in report.lines if "cp.async.cg.shared.global" in line.text and line.requests]
        asked = sum(line.bytes for line in report.lines if line.space == "global" and line.is_load)
        assert sum(line.bytes for line in copied) > 0.95 * asked, layout
        assert all(line.sectors / line.requests <= 16 for line in copied), layout


def test_no_bank_conflicts_to_speak_of(sim):
    """Two wavefronts are the least for a 128-bit load of which the two halves of a warp each need a wavefront."""
    one = case("llama-3-8b", context=256, num_seqs=1)
    report = report_of(CUDA, WIDE, one, sim)
    shared = [line for line in report.lines if line.space == "shared" and line.requests]
    assert max(line.wavefronts / line.requests for line in shared) <= 2
    assert all(line.wavefronts == line.requests for line in shared if ".v4" not in line.text)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arch", [long_if(True, "sm_80"), "sm_90"])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_do_not_spill(variant, arch):
    for dtype, kv_cache_dtype in (("float16", "auto"), ("bfloat16", "auto"), ("float32", "auto"), ("float16", "int8")):
        one = case("llama-3-8b", dtype=dtype, kv_cache_dtype=kv_cache_dtype)
        config = variant.default_config(one.problem())
        kernel = variant.compile(config, one.problem(config, arch=arch), arch)
        assert kernel.spill_bytes == 0, f"{dtype}, {kv_cache_dtype}: {kernel.spill_bytes} bytes"
        assert kernel.registers <= 168
        assert kernel.occupancy.fraction >= 0.12


def test_codes_are_not_converted_one_at_a_time():
    """By the special function units, a quarter as fast as those for integers."""
    one = case("llama-3-8b", dtype="float16", kv_cache_dtype="int8")
    config = CUDA.default_config(one.problem())
    for arch in ("sm_80", "sm_90"):
        assert "I2F.S8" not in CUDA.compile(config, one.problem(config, arch=arch), arch).sass


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_loads_on_the_key_and_value_path_are_16_bytes_wide(arch):
    one = case("llama-3-8b")
    kernel = CUDA.compile(WIDE, one.problem(WIDE, arch=arch), arch)
    widths = re.findall(r"ld\.global\S*?\.(v4\.u32|v2\.u32|u32|u16)", kernel.ptx)
    assert widths.count("v4.u32") >= 8 + 8
    assert "v2.u32" not in widths
    assert len(re.findall(r"LDG\.E\.128", kernel.sass)) >= 8 + 8
