"""PTX text into statements, entries and variables; and the refusals."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from ptx_support import HEADER, module

import workbench as wb
from workbench import ptx
from workbench.errors import UnsupportedInstructionError, WorkbenchError
from workbench.ptx import parse
from workbench.ptx.parse import Label, Scope, Statement

TEXT = r"""// a comment with .entry inside
.version 9.0
.target sm_90, debug
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .const .align 8 .f64 table[2] = {0d3FF0000000000000, 0d4000000000000000};
.global .align 4 .u32 counter = 7;
.visible .entry first(
    .param .u64 .ptr .align 1 first_param_0, /* a pointer */
    .param .align 8 .b8 first_param_1[20],
    .param .f32 first_param_2
)
.maxntid 128, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<9>;
	.loc	1 10 3
	mov.u32 	%r1, %tid.x;
$L__BB0_1:
	.loc	1 12 5, function_name $L__info_string0, inlined_at 2 40 9
	@!%p1 bra 	$L__BB0_1;
	{ .reg .b32 %r1; mov.u32 %r1, 5; }
	mov.u32 %r2, %r1; add.s32
       %r3, %r2,
       1;
	ret;
}
	.file	1 "/tmp//odd name.cu"
	.file	2 "b.cuh"
	.section .debug_str { $L__info_string0: .b8 95, 0 }
"""


def test_module() -> None:
    parsed = parse.parse(TEXT)
    assert parsed.version == "9.0"
    assert parsed.target == "sm_90, debug"
    assert {n: str(p) for n, p in parsed.files.items()} == {1: "/tmp/odd name.cu", 2: "b.cuh"}
    entry = parsed.entries["first"]
    assert [(p.name, p.type, p.size, p.align, p.offset) for p in entry.parameters] == [
        ("first_param_0", "u64", 8, 8, 0),
        ("first_param_1", "b8", 20, 8, 8),
        ("first_param_2", "f32", 4, 4, 28),
    ]
    assert entry.max_threads == (128, 1, 1)
    assert parsed.variables["dynamic"].external
    assert parsed.variables["table"].size == 16
    assert parsed.variables["counter"].initial == "7"


def test_statements_know_their_lines() -> None:
    parsed = parse.parse(TEXT)
    items = list(parsed.body(parsed.entries["first"]))
    statements = [item for item in items if isinstance(item, Statement)]
    lines = TEXT.split("\n")
    for statement in statements:
        assert statement.opcode in lines[statement.line - 1]
    assert [s.line for s in statements] == [18, 21, 22, 23, 23, 26]
    branch = statements[1]
    assert (branch.guard, branch.negated, branch.operands) == ("%p1", True, "$L__BB0_1")
    assert (branch.location.file, branch.location.line) == (1, 12)
    assert (branch.location.caller.file, branch.location.caller.line) == (2, 40)
    assert branch.text == "@!%p1 bra $L__BB0_1"
    assert [item.name for item in items if isinstance(item, Label)] == ["$L__BB0_1"]
    assert [item.opens for item in items if isinstance(item, Scope)] == [True, False]


def test_the_cut_of_a_body_agrees_with_its_items() -> None:
    """What the core finds in a statement is what the parser reads there."""
    body = """A:.loc 1 7 0\nB : @ %p1 bra A;@!%p2 bra.uni $L_b;$L_b: ld.global.v2.u32 {%r1,%r22}, [%d1+-8] ;
    red.global.add.u32 [%d1], 1;\n.pragma "nothing";.loc 1 8 0
    mov.f32 %r3, 0f3F800000; cp.async.cg.shared.global.L2::128B [%r1], [%d1], 16;{.reg .b16 x; } mov.u32 %r4, %tid.x;"""
    parsed = parse.parse(module("cut", "", body))
    parts = parsed.body(parsed.entries["cut"])
    kinds = {Statement: 0, Label: 0, Scope: 0}
    for start, guard, negated, shape, names in parts.rows():
        item = parts.item(start)
        kinds[type(item)] = kinds.get(type(item), 0) + 1
        if isinstance(item, Label):
            assert (shape, names) == (item.name, None)
        elif isinstance(item, Statement):
            assert (guard, negated) == (item.guard, item.negated)
            if item.opcode.startswith("bra"):
                assert (shape, names) == (None, item.operands)
            else:
                assert shape.startswith(item.opcode + " ")
                assert all(name in item.operands for name in names)
                assert shape.count("#") == len(names)
        else:
            assert (shape, names) == (None, None)
    assert (kinds[Statement], kinds[Label], kinds[Scope]) == (8, 3, 2)
    shapes = {row[3]: row[4] for row in parts.rows()}
    assert shapes["ld.global.v2.u32 {%r#,%r#}, [%d#+-8]"] == ("%r1", "%r22", "%d1")
    assert shapes["mov.f32 %r#, 0f3F800000"] == ("%r3",)
    assert shapes["mov.u32 %r#, %tid.x#"] == ("%r4", "%tid.x")


def test_white_space_inside_an_opcode_as_inline_ptx_has_it() -> None:
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param .u64 %rd1, [out];
    mov .u32 %r1, 5;
    .loc_intermediate 2 9 4
    add .u32\t%r2, %r1, 2;
    st .global
      .u32 [%rd1], %r2;
    ret;
}
"""
    )
    out = np.zeros(1, np.int32)
    wb.load_ptx(text, device="sim").k(1, 1, out)
    assert out[0] == 7


def test_the_source_of_one_kernel_keeps_its_lines() -> None:
    text = f"""{HEADER}
.visible .global .align 4 .u32 total = 7; // {{
.visible .entry first(.param .u64 out)
{{
    ret; // }}
}}
.func (.reg .b32 %r1) helper() {{ ret; }}
.weak
  .entry second(.param .u64 out)
.maxntid 32
{{ ret; }}
.entry third() {{ ret; }}
"""
    whole = parse.parse(text)
    for name, entry in whole.entries.items():
        alone = parse.parse(whole.source_of(name))
        assert list(alone.entries) == [name]
        assert alone.entries[name].line == entry.line
        assert alone.entries[name].max_threads == entry.max_threads
        assert (list(alone.functions), list(alone.variables)) == (["helper"], ["total"])


def test_characters_beyond_ascii() -> None:
    body = "mov.u32 %r1,\u00a05; // größer\nadd.u32 %r2, %r1, %r1;"
    assert ptx.Program(module("k", "", body))["k"].launch(1, 32, []).instructions == 3
    with pytest.raises(ptx.PtxSyntaxError, match="cannot read '→"):
        ptx.Program(module("k", "", "mov.u32 %r1, 5;\n→ mov.u32 %r1, 5;"))["k"]


def test_merged_code_of_a_header_is_the_kernels() -> None:
    """``.loc`` with line 0 and no call site: the compiler merged code of several places."""
    body = ".loc 1 10 3\nmov.u32 %r1, 1;\n.loc 2 0 7\nmov.u32 %r2, 2;\n.loc 2 5 7\nmov.u32 %r3, 3;"
    parsed = parse.parse(module("merged", "", body) + '.file 1 "kernel.cu"\n.file 2 "header.cuh"\n')
    found = [item.location for item in parsed.body(parsed.entries["merged"]) if isinstance(item, Statement)][:3]
    assert [(place.file, place.line) for place in found] == [(1, 10), (2, 0), (2, 5)]
    assert [(place.kernel_site.file, place.kernel_site.line) for place in found] == [(1, 10), (1, 0), (2, 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a PTX module"),
        (".version 8.0\n.target sm_80\n.entry f() {\n mov.u32 %r1, 1;\n", "line 3: the brace"),
        (HEADER + ".entry f()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1 5\n}", "PTX line 7: cannot read 'mov.u32 %r1 5'"),
        (module("f", "", "bra NOWHERE;"), "NOWHERE"),
    ],
)
def test_broken_text(text: str, message: str) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=message):
        ptx.Program.from_text(text)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("frobnicate.b32 %r1, %r2;", "does not support this instruction"),
        ("add.s31 %r1, %r2, %r3;", "does not support this instruction"),
        ("add.s32 %r1, %d2, %r3;", "has 64 bits where 32 belong"),
        ("add.s32 %r1, %r2;", "2 operands"),
        ("add.s32 %r1, %r2, %nope;", "%nope"),
        ("add.s32 %r1, %r2, elsewhere;", "elsewhere"),
        ("mov.u32 %r1, %cluster_ctaid.w;", "%cluster_ctaid.w"),
        ("setmaxnreg.inc.sync.aligned.u32 36;", "36 registers, where a multiple of 8 from 24 to 256 belongs"),
        ("red.async.mmio.release.sys.global.add.u32 [%d1], %r1;", "red.global"),
        ("wgmma.mma_async.sync.aligned.m64n8.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, 0;", "wgmma has no .m64n8"),
        ("mov.u32 _, %r1;", "the destination _"),
        ("call.uni vprintf, (%d1);", "its operands are not what this instruction takes"),
        ("ld.global.u32 %r1, [%r2];", "a 32-bit register as a global address"),
        ("ld.global.v4.u32 {%r1, %r2}, [%d1];", "2 values for 4 elements"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};",
            "m16n8k8",
        ),
    ],
)
def test_unsupported_instruction_is_named_before_anything_runs(statement: str, reason: str) -> None:
    body = f".loc 1 33 2\n{statement}"
    text = module("refused", ".param .u64 out", body) + '.file 1 "kernels/demo.cu"\n'
    with pytest.raises(UnsupportedInstructionError) as caught:
        ptx.Program.from_text(text)
    message = str(caught.value)
    assert reason in message
    assert statement.rstrip(";") in message
    assert f"PTX line {text.split(chr(10)).index(statement) + 1}" in message
    assert "kernels/demo.cu:33" in message


def test_one_unsupported_kernel_does_not_block_its_neighbour() -> None:
    text = module("bad", "", "frobnicate.b32 %r1;") + module("good", "", "mov.u32 %r1, 1;").removeprefix(HEADER)
    program = ptx.Program.from_text(text)
    assert list(program.kernels) == ["bad", "good"]
    assert program.kernels["good"].launch(1, 32, []).instructions == 2
    with pytest.raises(UnsupportedInstructionError, match="kernel bad"):
        program.kernels["bad"]
    with pytest.raises(WorkbenchError, match="bad, good"):
        program.kernels["missing"]


def test_labels_belong_to_their_braces() -> None:
    """Inline assembly that the compiler inlines twice brings its labels twice."""
    wait = "{ mov.u32 %r2, 3; AGAIN: add.u32 %r1, %r1, 1; sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; "
    wait += "@%p1 bra AGAIN; { bra OUT; } OUT: }"
    body = f"mov.u32 %r1, 0; ld.param.u64 %d1, [out]; {wait} {wait} bra END; END: st.global.u32 [%d1], %r1;"
    out = np.zeros(1, np.uint32)
    ptx.Program(module("twice", ".param .u64 out", body))["twice"].launch(1, 1, [out])
    assert out[0] == 6


def test_programs_are_kept_by_content() -> None:
    text = module("kept", "", "mov.u32 %r1, 1;")
    assert ptx.Program.from_text(text) is ptx.Program.from_text(str(text))


def test_mangled_text_never_crashes() -> None:
    rng = random.Random(0)
    pieces = TEXT.split(" ")
    for _ in range(300):
        mangled = list(pieces)
        for _ in range(rng.randint(1, 6)):
            i = rng.randrange(len(mangled))
            mangled[i] = rng.choice(
                [
                    "",
                    "{",
                    "}",
                    ";",
                    ",",
                    "[",
                    "0x",
                    ".reg",
                    "@%p9",
                    pieces[rng.randrange(len(pieces))],
                    mangled[i][::-1],
                ]
            )
        with contextlib.suppress(WorkbenchError):
            ptx.Program(" ".join(mangled))["first"]


def test_importing_the_machine_loads_neither_torch_nor_triton() -> None:
    code = "import sys, workbench.ptx; sys.exit(any(m in sys.modules for m in ('torch', 'triton', 'pycuda')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_decoding_is_quick() -> None:
    line = "mad.lo.s32 %r{0}, %r{1}, %r{2}, %r{0}; setp.lt.s32 %p{0}, %r{0}, 7; @%p{0} ld.global.f32 %r{1}, [%d1+{0}];"
    body = "\n".join(line.format(i % 50 + 1, i % 49 + 2, i % 48 + 3) for i in range(533))
    text = module("long", ".param .u64 in", body)
    best = min(_seconds(text) for _ in range(3))
    assert best < 0.25, f"{best * 1e3:.0f} ms for 1,600 instructions (30 ms on a quiet machine)"


def _seconds(text: str) -> float:
    start = time.perf_counter()
    ptx.Program(text)["long"]
    return time.perf_counter() - start
