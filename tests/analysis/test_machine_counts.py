"""Machine code as basic blocks with their schedule, and how often each ran by what ran of the PTX."""

from __future__ import annotations

import pytest

from workbench.analysis.prediction.machine_counts import Ran, block_executions, machine_counts, pipe_of
from workbench.toolchain import compile_cuda
from workbench.toolchain.sass_flow import WAITS, blocks_of


def instruction(text: str, line: int, stall: int = 1, sets: int = 7, waits: int = 0) -> str:
    control = (stall | sets << 5 | 7 << 8 | waits << 11) << 41
    return (
        f'\t//## File ".nv_debug_ptx_txt", line {line}\n        /*0010*/  {text} ;  /* 0x0000000000000000 */\n'
        f"                   /* {control:#018x} */"
    )


LOOP = "\n".join(
    [
        ".text.f:",
        instruction("MOV R1, c[0x0][0x28]", 1, 2),
        ".L_x_1:",
        instruction("LDG.E R2, [R4.64]", 2, 4, sets=0),
        instruction("FFMA R3, R2, c[0x3][0x0], R3", 3, 5, waits=1),
        instruction("@P0 BRA `(.L_x_1)", 4, 6),
        instruction("STG.E [R6.64], R3", 5, 1),
        instruction("EXIT", 6, 5),
        ".L_x_2:",
        instruction("BRA `(.L_x_2)", 0),
        "$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath:",
        instruction("MUFU.RCP R0, R1", 3),
    ]
)


def test_blocks_have_the_assemblers_schedule():
    start, loop, end = blocks_of(LOOP)
    assert [len(block.instructions) for block in (start, loop, end)] == [1, 3, 2]
    assert loop.back_to == 1
    assert loop.clocks == 4 + 5 + 6
    assert loop.waited["global"] * WAITS["global"] == WAITS["global"] - 4, "the load's latency, less its own stall"
    assert loop.instructions[1].constant
    assert loop.instructions[2].predicated


def test_what_cannot_be_moved_says_how_often_a_block_ran():
    lines = {
        1: Ran("mov", 8),
        2: Ran("ld", 80),
        3: Ran("fma", 80),
        4: Ran("bra", 80),
        5: Ran("st", 8),
        6: Ran("ret", 8),
    }
    blocks = blocks_of(LOOP)
    assert block_executions(blocks, lines) == pytest.approx([8, 80, 8])
    counts = machine_counts(blocks, lines, 8)
    assert counts["instructions"] == 8 + 3 * 80 + 2 * 8
    assert counts["pipes"] == {"alu": 8, "memory": 88, "fma": 80, "heavy": 80}
    assert counts["waits"]["global"] == pytest.approx(10 * (WAITS["global"] - 4) / WAITS["global"])


def test_a_loop_that_was_turned_round_is_taken_apart():
    """Three rows of four before the loop, four in it: each line's executions belong to both copies."""
    rows = [instruction("LDS R2, [R4]", line, sets=0) for line in (2, 3, 4, 5)]
    text = "\n".join([".text.f:", *rows[:3], ".L_x_1:", *rows, instruction("@P0 BRA `(.L_x_1)", 9)])
    lines = {2: Ran("ld", 128), 3: Ran("ld", 128), 4: Ran("ld", 128), 5: Ran("ld", 96), 9: Ran("setp", 1)}
    assert block_executions(blocks_of(text), lines) == pytest.approx([32, 96], rel=1e-3)


RARE_CALL = "\n".join(
    [
        ".text.f:",
        instruction("LDS R2, [R4]", 1, sets=0),
        instruction("FCHK P0, R2, R3", 2),
        instruction("@!P0 BRA `(.L_x_1)", 2),
        instruction("CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath)", 2),
        instruction("MOV R5, R6", 2),
        ".L_x_1:",
        instruction("@P1 FFMA R3, R2, R3, R3", 3),
        instruction("@P1 FADD R3, R2, R3", 4),
        instruction("EXIT", 5),
        "$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath:",
        instruction("ISETP.GT.U32.AND P0, PT, R10, 0xfd, PT", 2, 4),
        instruction("@!P0 BRA `(.L_x_2)", 2, 5),
        instruction("MUFU.RSQ R5, -QNAN", 2, 4),
        ".L_x_2:",
        instruction("RET.REL.NODEC R2 `(f)", 2, 5),
        ".L_x_3:",
        instruction("BRA `(.L_x_3)", 0),
    ]
)


def rare_lines(slow_paths: float) -> dict[int, Ran]:
    """Of `RARE_CALL`: the code behind the call is of lines that only some warps ran, each under its guard."""
    return {1: Ran("ld", 80), 2: Ran("div", 80, slow_paths), 3: Ran("fma", 5), 4: Ran("add", 5), 5: Ran("ret", 80)}


def test_what_a_rare_call_parts_runs_as_often():
    blocks = blocks_of(RARE_CALL)
    assert block_executions(blocks, rare_lines(0)) == pytest.approx([80, 0, 0, 80])
    assert machine_counts(blocks, rare_lines(0), 8)["instructions"] == 80 * (3 + 3)


def test_a_slow_path_runs_as_often_as_warps_need_it():
    blocks = blocks_of(RARE_CALL)
    assert block_executions(blocks, rare_lines(16)) == pytest.approx([80, 16, 16, 80])
    assert [share for _, share in blocks[1].calls] == [1, 0.5, 1], "a branch with a guard is taken every second time"
    counts = machine_counts(blocks, rare_lines(16), 8)
    assert counts["instructions"] == 80 * (3 + 3) + 16 * (2 + 2 + 0.5 * 1 + 1)
    assert counts["pipes"]["special"] == 80 + 16 / 2, "FCHK, and MUFU in the subroutine"


def test_copies_of_a_call_share_its_slow_paths_as_often_as_they_are_come_to():
    call = RARE_CALL.splitlines()
    first = call.index(".L_x_1:")
    begun = "\n".join(call[1:first])  # the load and the division, once more, behind a loop of them
    text = "\n".join([
        ".text.f:", begun.replace(".L_x_1", ".L_x_8"), ".L_x_8:", instruction("LDS R9, [R4]", 7, sets=0),
        instruction("@P2 EXIT", 8), *call[1:],
    ])  # fmt: skip
    returns = {5: Ran("ret", 40), 8: Ran("ret", 80)}
    lines = rare_lines(60) | {1: Ran("ld", 120), 2: Ran("div", 120, 60), 7: Ran("ld", 80)} | returns
    blocks = blocks_of(text)
    calls = [round(times) for block, times in zip(blocks, block_executions(blocks, lines), strict=True) if block.calls]
    assert calls == [40, 20]


def test_a_subroutine_that_no_branch_goes_over_is_always_called():
    text = RARE_CALL.replace("@!P0 BRA `(.L_x_1)", "IADD3 R9, R9, 0x1, RZ")
    assert block_executions(blocks_of(text), rare_lines(0)) == pytest.approx([80, 80])


def test_lines_that_never_ran_have_machine_code_that_never_ran():
    """A loop for what is left over, with guarded loads: its lines are not among those that were executed."""
    rest = [".L_x_1:", instruction("@P1 LDG.E R2, [R4.64]", 2), instruction("IADD3 R4, R4, 4, RZ", 3)]
    text = "\n".join([".text.f:", instruction("STS [R4], R2", 1), *rest, instruction("@P0 BRA `(.L_x_1)", 4)])
    assert block_executions(blocks_of(text), {1: Ran("st", 8)}) == pytest.approx([8, 0])
    start = [instruction("BSSY B0, `(.L_x_1)", 1), instruction("STS [R4], R2", 1)]
    without_branch = "\n".join([".text.f:", *start, *rest])
    assert block_executions(blocks_of(without_branch), {1: Ran("st", 8)}) == pytest.approx([8, 0])


@pytest.mark.parametrize(
    ("base", "pipe"), [("FFMA", "fma"), ("IMAD", "fma"), ("LOP3", "alu"), ("F2I", "special"), ("LDS", "memory")]
)
def test_pipes(base, pipe):
    assert pipe_of(base) == pipe


DIVISION = """
extern "C" __global__ void f(float *x, const float *y, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += y[i] / x[i];
    x[threadIdx.x] = sum;
}
"""


def test_machine_code_counts_what_a_division_takes():
    import numpy as np

    from workbench.analysis.prediction.counting import launch_counts
    from workbench.launch import devices

    kernel = compile_cuda(DIVISION, "f", arch="sm_86", threads_per_block=64)
    x, y = np.ones(64, np.float32), np.ones(64, np.float32)
    report = devices.get("sim").launch(kernel, 2, 64, [x, y, 40], statistics=True)
    counts = launch_counts(report, kernel)
    warps, divisions = 4, 40
    assert counts["machine"]["pipes"]["special"] == warps * divisions * 2, "MUFU.RCP and FCHK, no slow path"
    assert counts["machine"]["pipes"]["memory"] == pytest.approx(warps * (2 * divisions + 1), rel=0.01)


def test_a_division_of_zero_by_zero_runs_the_slow_path():
    import numpy as np

    from workbench.analysis.prediction.counting import launch_counts
    from workbench.launch import devices

    kernel = compile_cuda(DIVISION, "f", arch="sm_86", threads_per_block=64)
    counts = {}
    for value in (0, 1):
        x = np.full(64, value, np.float32)
        report = devices.get("sim").launch(kernel, 2, 64, [x, x, 40], statistics=True)
        counts[value] = launch_counts(report, kernel)["machine"]
    warps, divisions = 4, 40
    more = (counts[0]["instructions"] - counts[1]["instructions"]) / warps / divisions
    assert 20 < more < 80, "23 instructions of the subroutine are those of 0 / 0, and a few lead there"
    assert counts[0]["clocks"] > counts[1]["clocks"]


def test_collectives_of_lanes_that_have_parted_do_not_run():
    """ptxas keeps them behind the kernel's end; a branch leads there only if the lanes of the warp have parted."""
    shuffle = "$__internal_0_$__cuda_sm70_shflsync_bfly_p"
    text = "\n".join([
        ".text.f:", instruction("LDS R2, [R4]", 1, sets=0), instruction("BRA.DIV ~URZ, `(.L_x_1)", 2),
        instruction("SHFL.BFLY PT, R3, R2, 0x1, 0x1f", 2, sets=0), ".L_x_2:", instruction("STS [R4], R3", 3),
        instruction("EXIT", 4), ".L_x_1:", instruction(f"CALL.REL.NOINC `({shuffle})", 2),
        instruction("BRA `(.L_x_2)", 2), f"{shuffle}:", instruction("WARPSYNC R9", 2),
        instruction("RET.REL.NODEC R4 `(f)", 2),
    ])  # fmt: skip
    blocks = blocks_of(text)
    assert [block.parted for block in blocks] == [False, False, False, True, False]
    lines = {1: Ran("ld", 8), 2: Ran("shfl", 8), 3: Ran("st", 8), 4: Ran("ret", 8)}
    assert block_executions(blocks, lines)[3] == 0
