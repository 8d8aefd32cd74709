"""PTX and machine code side by side: keys, alignment, counts, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.analysis.code_alignment import align
from workbench.analysis.code_listing import CodeLine, ptx_key, ptx_listings, sass_key
from workbench.cli import main
from workbench.comparison.code_comparison import CodeDifference
from workbench.errors import ArgumentError, ConfigurationError
from workbench.toolchain.ptx_text import kernels_of_ptx
from workbench.toolchain.sass_counts import counts_by_ptx_line

SCALE = """
extern "C" __global__ void NAME(float *y, const float *x, float a, int n) {
    __shared__ float part[128];
    part[threadIdx.x] = a;
    __syncthreads();
    for (int i = VEC * (blockIdx.x * blockDim.x + threadIdx.x); i < n; i += VEC * gridDim.x * blockDim.x) {
#if VEC == 4
        float4 v = *(const float4 *)(x + i);
        *(float4 *)(y + i) = make_float4(a * v.x, a * v.y, a * v.z, part[127 - threadIdx.x] * v.w);
#else
        y[i] = part[127 - threadIdx.x] * x[i];
#endif
    }
}
"""


def scale(vec: int, name: str = "scale"):
    return wb.load_cuda(SCALE, macros={"VEC": vec, "NAME": name}, device="sim")[name]


@pytest.fixture(scope="module")
def compared():
    return wb.compare_code(scale(1), scale(4))


@pytest.mark.parametrize(
    ("key", "first", "second", "equal"),
    [
        (sass_key, "@!P0 IADD3 R4, R5, R4, RZ", "@!P2 IADD3 R7, R1.reuse, R7, RZ", True),
        (sass_key, "IADD3 R4, R5, R4, RZ", "IADD3 R4, R5, R6, RZ", False),
        (sass_key, "IADD3 R4, R5, R4, RZ", "IADD3 R4, R5, R4, R6", False),
        (sass_key, "LDG.E R4, [R2.64]", "LDG.E.128 R4, [R2.64]", False),
        (sass_key, "LDG.E R4, [R2.64+0x10]", "LDG.E R4, [R2.64+0x20]", False),
        (sass_key, "@P0 BRA `(.L_x_3)", "@P1 BRA `(.L_x_12)", True),
        (sass_key, "ULEA UR4, UR5, UR4, 0x18", "ULEA UR6, UR8, UR6, 0x18", True),
        (sass_key, "MOV R4, UR4", "MOV R4, R5", False),
        (ptx_key, "@%p1 bra $L__BB0_3", "@%p7 bra $L__BB0_12", True),
        (ptx_key, "fma.rn.f32 %f3, %f1, %f2, %f3", "fma.rn.f32 %f9, %f7, %f8, %f9", True),
        (ptx_key, "fma.rn.f32 %f3, %f1, %f2, %f3", "fma.rn.f32 %f9, %f7, %f8, %f7", False),
        (ptx_key, "mov.u32 %r1, %tid.x", "mov.u32 %r1, %tid.y", False),
        (ptx_key, "mov.b32 %r1, %f1", "mov.b32 %r1, %r2", False),
    ],
)
def test_names_of_registers_and_labels_do_not_count(key, first: str, second: str, equal: bool):
    assert (key(first) == key(second)) is equal


@pytest.mark.parametrize("seed", range(10))
def test_alignment_keeps_both_listings_in_order(seed: int):
    generator = random.Random(seed)
    code = [CodeLine(f"{kind}.{at}", f"{kind}.{at % 7}", kind) for at in range(60) for kind in generator.choice("ab")]
    other = [one for one in code if generator.random() < 0.8]
    lines = align(code, other)
    assert [one.left for one in lines if one.left] == code
    assert [one.right for one in lines if one.right] == other
    assert all(one.left or one.right for one in lines)
    assert sum(one.alike for one in lines) >= 0.8 * len(other), "what was left out is all that differs"


def test_a_change_stands_beside_what_it_changes():
    left = [CodeLine("LDG.E R4", "LDG.E R0", "LDG.32"), CodeLine("FADD R1", "FADD R0", "FADD")]
    right = [CodeLine("MOV R1", "MOV R0", "MOV"), CodeLine("LDG.E.128 R4", "LDG.E.128 R0", "LDG.128"), left[1]]
    assert [one.mark for one in align(left, right)] == [">", "~", ""]
    assert [one.mark for one in align(right, left)] == ["<", "~", ""]


def test_a_kernel_is_alike_under_another_name():
    same = wb.compare_code(scale(4), scale(4, "other"))
    for found in (same.ptx, same.sass):
        assert found.alike == found.totals[0] == found.totals[1] > 10
        assert [row[0] for row in found.listing().rows] == [f"⋮ {len(found.lines)} alike"]
        assert len(found.listing(None).rows) == len(found.lines)


def test_classes_are_counted_as_everywhere(compared):
    for at, side in enumerate((compared.left, compared.right)):
        whole = sum(counts_by_ptx_line(side.kernel).values(), Counter())
        assert {kind: pair[at] for kind, pair in compared.sass.counts.items() if pair[at]} == whole
    assert compared.sass.counts["LDG.32"] == (1, 0)
    assert compared.sass.counts["LDG.128"] == (0, 1)
    assert compared.ptx.counts["fp32"] == (1, 4)
    gaps = [abs(a - b) for a, b in compared.sass.counts.values()]
    assert gaps == sorted(gaps, reverse=True)
    first = next(iter(compared.sass.counts))
    assert compared.sass.classes().rows[0][0] == first
    assert compared.sass.classes().rows[-1][1:3] == tuple(f"{total:,}" for total in compared.sass.totals)


def test_text_and_html_show_both_sides(compared):
    assert compared.names == ("VEC=1", "VEC=4")
    text = str(compared)
    assert text.index("LDG.128 ") < text.index("machine code side by side") < text.index("PTX side by side")
    row = next(line for line in text.splitlines() if "ld.global.v4.f32" in line)
    assert row.index("ld.global.f32") < row.index("~") < row.index("ld.global.v4.f32")
    html = compared._repr_html_()
    assert html.count("<details>") == 2
    assert "&gt;" in html
    assert "background:rgba(0,114,178,0.18)" in html


def test_an_op_at_two_configurations():
    found = wb.compare_code("copy_blocks", variants="cuda_vectors", configs=[{}, {"NUM_THREADS": 64}])
    assert [one.kernel.threads_per_block for one in (found.left, found.right)][1] == 64
    assert found.names[1] == "NUM_THREADS=64"
    assert found.left.title.startswith("copy_blocks/cuda_vectors ")


def test_two_architectures():
    found = wb.compare_code("copy_blocks", variants="cuda_vectors", arch=["sm_80", "sm_90"])
    assert found.names == ("sm_80", "sm_90")
    assert found.sass.alike < found.sass.totals[0]


def test_what_the_machine_does_not_execute_is_counted_by_opcode():
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry {}()\n{{\n.reg .b32 %r<3>;\n{}ret;\n}}\n"
    known = kernels_of_ptx(text.format("known", "mov.u32 %r1, %tid.x;\nadd.s32 %r2, %r1, 1;\n"))["known"]
    unknown = kernels_of_ptx(text.format("unknown", "mov.u32 %r1, %tid.x;\nnewest.op.s32 %r2, %r1;\n"))["unknown"]
    assert [one.kind for one in ptx_listings(known)[0]] == ["other", "integer", "control"]
    both = [[one.kind for one in listing] for listing in ptx_listings(known, unknown)]
    assert both == [["mov", "add", "ret"], ["mov", "newest", "ret"]]


def test_without_machine_code_there_is_the_ptx(compared):
    bare = dataclasses.replace(compared.left.kernel, assembly=None)
    found = wb.compare_code(bare, compared.right.kernel)
    assert isinstance(found.ptx, CodeDifference)
    assert "there is no machine code" in str(found)
    assert json.loads(found.to_json())["sass"] is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "other"),
        ({"configs": {"NUM_THREADS": 64}}, "other"),
        ({"variants": ["cuda_vectors"] * 3}, "variants"),
        ({"variants": []}, "variants"),
        ({"variants": "cuda_vectors", "arch": ["sm_80", "sm_90", "sm_89"]}, "arch"),
        ({"variants": ["cuda_vectors", "torch"]}, "variant"),
    ],
)
def test_refuses_what_is_not_two(given: dict, named: str):
    with pytest.raises(ArgumentError) as error:
        wb.compare_code("copy_blocks", **given)
    assert error.value.argument == named


def test_refuses_a_tunable_that_there_is_none_of():
    with pytest.raises(ConfigurationError, match="unknown"):
        wb.compare_code("copy_blocks", variants="cuda_vectors", configs=[{}, {"VEC": 4}])


def test_the_command(tmp_path: Path):
    file = tmp_path / "scale.cu"
    file.write_text(SCALE.replace("NAME", "scale"))

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["compare-code", *words])
        assert done.exit_code == (2 if done.output.startswith("workbench:") else 0), done.output
        return done.output

    assert "scale VEC=1 and scale VEC=4" in run(str(file), "--config", "VEC=1", "--config", "VEC=4")
    only = run(f"{file}:scale", "--config", "VEC=4", "--arch", "sm_80", "--arch", "sm_90", "--only", "sass")
    assert "machine code: static" in only
    assert "PTX" not in only
    assert "one or two" in run(str(file), *["--arch", "sm_80"] * 3)
