"""Machine code read by what the disassembler said of the same instructions before, beside the disassembler's text."""

from __future__ import annotations

import json

import pytest

from workbench import ops
from workbench.base.home import cache_folder
from workbench.toolchain import compile_cuda, disassembly, disk_cache, sass_codes, tools
from workbench.toolchain.cubin import Cubin
from workbench.toolchain.sass_flow import SassCode, blocks_of, code_in

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_120")
SOURCE = r"""
__device__ __noinline__ float rare(float x) { return tanhf(x) / (x + 3.0f); }
extern "C" __global__ void f(float *out, const float *x, int n)
{
    __shared__ float part[256];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += i % 3 ? x[i] / (1.5f + i) : rare(x[i]) STEP;
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = rsqrtf(part[0]);
}
"""


def kernels_of(arch: str):
    """Kernels of one source whose instructions differ a little, and one with branches of every kind."""
    for step in ("", "* 2.0f", "+ sqrtf(x[i])", "* 2.0f + __expf(x[i])"):
        yield compile_cuda(SOURCE.replace("STEP", step), "f", arch=arch, machine_code=True)
    op = ops.get("contiguous_attention")
    variant = op.variant("cuda_register_softmax")
    problem = op.quick_case.problem(arch=arch)
    yield variant.compile(variant.default_config(problem), problem, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.sampled(2)
def test_what_is_read_is_what_nvdisasm_shows(arch):
    for kernel in kernels_of(arch):
        text = disassembly.disassemble_with_schedule(kernel)
        assert len(Cubin(kernel.cubin).lines(kernel.name)) == len(code_in(text).placed)
        for _ in range(2):  # learned from, then read
            assert sass_codes.blocks_of_kernel(kernel) == blocks_of(text), kernel.label


def test_what_was_learned_is_read_without_nvdisasm_by_the_next_process(monkeypatch):
    kernels = [*kernels_of("sm_80")]
    learned = [sass_codes.blocks_of_kernel(kernel) for kernel in kernels]
    sass_codes._known_of.cache_clear()
    monkeypatch.setattr(tools, "run_program", lambda *_: pytest.fail("nothing is to be disassembled"))
    assert [sass_codes.blocks_of_kernel(kernel) for kernel in kernels] == learned


def test_a_kind_that_turns_out_to_be_another_is_not_read_any_more():
    kernel = next(kernels_of("sm_80"))
    expected = sass_codes.blocks_of_kernel(kernel)
    known = sass_codes._known_of("sm_80", cache_folder())
    bits, kind = next((bits, kind) for bits, kind in known.kinds.items() if kind.base == "FFMA")
    known.learn({bits: kind._replace(name="MOV", base="MOV")})
    assert known.kinds[bits] is None
    assert sass_codes.blocks_of_kernel(kernel) == expected


def test_a_branch_that_does_not_lead_where_it_is_shown_to_is_not_read():
    kernel = next(kernels_of("sm_80"))
    shown, routines = code_in(disassembly.disassemble_with_schedule(kernel))
    at = next(at for at, one in enumerate(shown) if one.instruction.base == "BRA" and one.target not in (None, at))
    moved = [*shown[:at], shown[at]._replace(target=shown[at].target - 1), *shown[at + 1 :]]
    kinds = sass_codes._learned(Cubin(kernel.cubin), kernel.name, SassCode(moved, routines))
    assert [kind for kind in kinds.values() if kind and kind.base == "BRA"] == []
    assert [kind for kind in kinds.values() if kind and kind.base == "FFMA"]


def test_a_table_that_was_cut_is_made_again():
    kernel = next(kernels_of("sm_80"))
    expected = sass_codes.blocks_of_kernel(kernel)
    known = sass_codes._known_of("sm_80", cache_folder())
    disk_cache.entry_path(known._key).write_bytes(b"half of a")
    sass_codes._known_of.cache_clear()
    assert sass_codes.blocks_of_kernel(kernel) == expected
    assert json.loads(disk_cache.load(known._key)["kinds"])
