"""What the decoder shares between statements of one shape, and the lives of registers that their slots rest on."""

from __future__ import annotations

import random

import numpy as np
import pytest
from ptx_support import HEADER, module

from workbench import ptx
from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.ptx import assemble, calls, parse
from workbench.ptx.allocate import Slots
from workbench.ptx.machine import BRANCH, EXIT

STORE = "ld.param.u64 %d60, [out]; st.global.u32 [%d60], %r1; st.global.u32 [%d60+4], %r2;"


def _pair(body: str) -> list[int]:
    out = np.zeros(2, np.uint32)
    text = module("pair", ".param .u64 out", body + STORE)
    ptx.Program(text)["pair"].launch(1, 1, [out])
    return out.tolist()


def test_the_sink_in_destinations() -> None:
    """What is not written leaves everything else as it is."""
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, 7; setp.eq.u32 %p1, %r1, 0;
    shfl.sync.down.b32 _|%p2, %r1, 1, 31, -1; shfl.sync.down.b32 %r3|_, %r1, 1, 31, -1; vote.sync.any.pred _, %p1, -1;
    match.any.sync.b32 _, %r1, -1; redux.sync.add.u32 _, %r1, -1; add.u32 _, %r1, %r2; selp.u32 %r1, 5, 6, %p2;"""
    assert _pair(body) == [5, 7]


def test_the_sink_in_a_fragment() -> None:
    """Half of a product's results, as a kernel that needs the other rows only names them."""
    body = """mov.u32 %r1, %laneid; mov.b32 %r2, 0x3c003c00; mov.b32 %r3, 0x3f800000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{d}}},
        {{%r2, %r2, %r2, %r2}}, {{%r2, %r2}}, {{%r3, %r3, %r3, %r3}};
    ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r1, 8, %d1; st.global.v2.u32 [%d2], {{%r11, %r13}};"""
    results = []
    for fragment in ("%r11, %r12, %r13, %r14", "%r11, _, %r13, _"):
        out = np.zeros(64, np.float32)
        text = module("product", ".param .u64 out", body.format(d=fragment))
        ptx.Program(text)["product"].launch(1, 32, [out])
        results.append(out)
    assert (results[0] == 17).all()
    np.testing.assert_array_equal(*results)


def test_registers_of_128_bits() -> None:
    body = """.reg .b128 %q<2>; .reg .b128 %whole; .shared .align 16 .b8 tile[32];
    mov.u64 %d1, 0x1111222233334444; mov.u64 %d2, 0x5555666677778888; mov.b128 %q0, {%d1, %d2};
    st.shared.b128 [tile], %q0; ld.shared.b128 %q1, [tile]; st.shared.b128 [tile+16], %q1;
    ld.shared.b128 %whole, [tile+16]; mov.b128 %q0, %whole; mov.b128 {_, %d3}, %q0; mov.b128 {%d4, %d5}, %q0;
    cvt.u32.u64 %r1, %d3; cvt.u32.u64 %r2, %d4;"""
    assert _pair(body) == [0x77778888, 0x33334444]


def test_128_bits_of_four_registers() -> None:
    body = """.reg .b128 %q; mov.u32 %r3, 0x11112222; mov.u32 %r4, 0x33334444; mov.u32 %r5, 0x55556666;
    mov.u32 %r6, 0x77778888; mov.b128 %q, {%r3, %r4, %r5, %r6}; mov.b128 {%d1, %d2}, %q;
    mov.b128 {_, %r1, _, %r7}, %q; mov.b128 {%r8, _, _, _}, %q; cvt.u32.u64 %r9, %d2;
    xor.b32 %r1, %r1, %r8; sub.u32 %r2, %r7, %r9;"""
    assert _pair(body) == [0x33334444 ^ 0x11112222, 0x77778888 - 0x55556666]


@pytest.mark.parametrize("form", ["mov.b64 %d1, {%h1, %h2, %h3};", "mov.b32 {%h1}, %r1;", "mov.b16 {%y1}, %h2;"])
def test_vectors_that_do_not_fill_the_register_are_refused(form: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=r"registers for \d+ bits"):
        _pair(form)


def test_an_access_of_128_bits_is_aligned_to_them() -> None:
    body = ".reg .b128 %q; .shared .align 16 .b8 tile[32]; ld.shared.b128 %q, [tile+8];"
    with pytest.raises(KernelFault, match="misaligned: 16 bytes"):
        _pair(body)


@pytest.mark.parametrize("where", ["out+4", "out+100000", "out-8"])
def test_a_load_past_the_parameters_is_a_fault(where: str) -> None:
    """Loads past the parameters read what lay behind them in this process."""
    with pytest.raises(KernelFault, match=r"out-of-bounds: 8 bytes at offset \d+ of the parameters"):
        _pair(f"ld.param.u64 %d9, [{where}];")


def test_registers_of_like_names_and_different_widths() -> None:
    """A statement's shape takes %a1 and %a2 for the same; their forms are not."""
    body = """.reg .b32 %a1; .reg .b64 %a2; .reg .b32 %b<3>; mov.b32 %a1, 5; mov.b64 %a2, 6; cvt.u32.u64 %b1, %a2;
    { .reg .b64 %b1; .reg .b32 %c; mov.b64 %b1, 7; cvt.u32.u64 %c, %b1; mov.b32 %b2, %c; } add.u32 %r1, %a1, %b1;
    mov.b32 %r2, %b2;"""
    assert _pair(body) == [11, 7]


def test_accesses_at_other_offsets_are_of_one_form_but_for_the_immediate() -> None:
    body = """.shared .align 4 .b8 tile[16]; mov.u32 %r9, tile; st.shared.u32 [%r9+4], 4; st.shared.u32 [%r9], 1;
    st.shared.u32 [%r9+8], 8; add.u32 %r8, %r9, 12; st.shared.u32 [%r8+-0], 12; ld.shared.u32 %r3, [%r8-8];
    ld.shared.u32 %r4, [%r8]; ld.shared.u32 %r5, [%r9+0x8]; ld.shared.u32 %r6, [%r9];
    mad.lo.u32 %r1, %r3, 100, %r4; mad.lo.u32 %r2, %r5, 100, %r6;"""
    assert _pair(body) == [412, 801]


def _steps(text: str) -> list:
    return ptx.Program(text)["k"].decoded.code


def test_statements_of_one_shape_share_a_form() -> None:
    body = "add.s32 %r1, %r2, 5; add.s32 %r3, %r4, 5; add.s32 %r3, %r3, 5; add.s32 %r3, %r4, 6; add.s32 %r3, %r4, %r5;"
    forms = [step.form for step in _steps(module("k", "", body))[:5]]
    assert forms[0] is forms[1] is forms[2]
    assert len({*forms[2:]}) == 3


def test_a_register_that_occurs_twice_in_one_statement_and_not_in_the_next() -> None:
    body = "mov.u32 %r1, 3; mov.u32 %r2, 10; sub.s32 %r2, %r2, %r1; sub.s32 %r1, %r2, %r1; sub.s32 %r2, %r1, %r2;"
    assert _pair(body) == [4, 2**32 - 3]
    body = "mov.u32 %r3, 3; mov.u32 %r4, 10; sub.s32 %r1, %r4, %r3; sub.s32 %r2, %r3, %r3; sub.s32 %r2, %r2, %r4;"
    assert _pair(body) == [7, 2**32 - 10]


def test_a_scope_hides_names_and_gives_them_back() -> None:
    inner = "{ .reg .b64 %r1; .reg .b32 t; mov.u64 %r1, 7; cvt.u32.u64 t, %r1; add.s32 %r2, t, 0; }"
    assert _pair("mov.u32 %r1, 5;" + inner + "add.s32 %r1, %r1, 0;") == [5, 7]
    nested = "{ .reg .b32 t; mov.u32 t, 1; { .reg .b32 t; mov.u32 t, 2; add.s32 %r1, t, 0; } add.s32 %r2, t, 0; }"
    assert _pair(nested) == [2, 1]
    with pytest.raises(UnsupportedInstructionError, match="the operand t"):
        _pair("{ .reg .b32 t; mov.u32 t, 1; } add.s32 %r1, t, 0;")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("add.s32 %r1, %r1, %d2;", "%d2, which has 64 bits"),
        ("add.s32 %r1, %r2, %d2;", "%d2, which has 64 bits"),
        ("@%r3 add.s32 %r1, %r2, %r3;", "the guard %r3"),
        ("bra A, A;", "2 operands"),
    ],
)
def test_a_refusal_names_what_was_written_also_after_statements_of_that_opcode(statement: str, reason: str) -> None:
    before = "A: add.s32 %r1, %r2, %r3; add.s32 %r1, %r1, %r3; @%p1 bra A;"
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(module("k", "", before + statement))["k"]


def test_a_statement_knows_its_line_and_the_last_loc_before_it() -> None:
    text = module("k", "", ".loc 1 7 0\nmov.u32 %r1, 1;\n.loc 1 8 0\n.loc 1 9 0\nmov.u32 %r1, 2;") + '.file 1 "a.cu"\n'
    kernel = ptx.Program(text)["k"]
    assert [kernel.source_of(pc) for pc in range(2)] == [("a.cu", 7), ("a.cu", 9)]
    lines = [line for line, written in enumerate(text.split("\n"), 1) if written.startswith("mov")]
    assert [step.statement.line for step in kernel.decoded.code[:2]] == lines


@pytest.mark.parametrize("seed", range(40))
def test_no_register_that_is_live_loses_its_slot(seed: int) -> None:
    """Against liveness per instruction, worked out step by step over random control flow."""
    rng = random.Random(seed)
    blocks = rng.randint(1, 9)
    lines = []
    for block in range(blocks):
        lines.append(f"L{block}:")
        for _ in range(rng.randint(0, 5)):
            guard = rng.choice(["", "", "@%p1 ", "@!%p2 "])
            a, b, c = (rng.randint(1, 6) for _ in range(3))
            lines.append(guard + rng.choice([f"add.s32 %r{a}, %r{b}, %r{c};", f"setp.lt.s32 %p{a}, %r{b}, {c};"]))
        if rng.random() < 0.7:
            lines.append(rng.choice(["", "@%p3 "]) + f"bra L{rng.randrange(blocks)};")
    parsed = parse.parse(module("k", "", "\n".join(lines)))
    unit = calls.units(parsed, parsed.entries["k"], lambda name: 0)[-1]
    part = assemble._lay_out(unit, True)
    slots, registers = Slots(), unit.symbols.registers
    table = assemble._Table(part.code, slots)
    offsets = slots.registers(part.blocks, part.order, table.accesses(), registers)
    for live in _live(part):
        assert all(offsets[n] for n in live)
        assert len({offsets[n] for n in live}) == len(live)


def test_a_chain_of_values_needs_one_slot() -> None:
    lines = "".join(f"add.s32 %r{i + 1}, %r{i}, 1;" for i in range(1, 20))
    parsed = parse.parse(module("k", "", "mov.u32 %r1, %tid.x;" + lines))
    unit = calls.units(parsed, parsed.entries["k"], lambda name: 0)[-1]
    part, slots = assemble._lay_out(unit, True), Slots()
    accesses, registers = assemble._Table(part.code, slots).accesses(), unit.symbols.registers
    offsets = slots.registers(part.blocks, part.order, accesses, registers)
    assert len(set(offsets[offsets > 0].tolist())) == 1


def _live(part: assemble._Part) -> list[set[int]]:
    """The registers that are live before each step."""
    jumps, code = dict(part.jumps), part.code
    live: list[set[int]] = [set() for _ in range(len(code) + 1)]
    changed = True
    while changed:
        changed = False
        for pc, step in enumerate(code):
            form, guarded = step.form, step.guard is not None
            after = set(live[jumps[pc]]) if pc in jumps else set()
            if form.kind not in (BRANCH, EXIT) or guarded:
                after |= live[pc + 1]
            written = set() if guarded else {step.registers[place].number for place in form.writes}
            read = {step.registers[place].number for place in form.reads} | ({step.guard.number} if guarded else set())
            if (before := after - written | read) != live[pc]:
                live[pc], changed = before, True
    return live


def test_a_long_run_of_blanks_between_statements_is_no_burden() -> None:
    text = f"{HEADER}.visible .entry k()\n{{{' ' * 200_000}ret;{chr(10) * 200_000}}}\n"
    assert len(_steps(text)) >= 1
