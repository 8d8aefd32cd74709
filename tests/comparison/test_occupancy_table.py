"""The occupancy table: its cells, what it says of the next step, and what it refuses."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.cli import main
from workbench.comparison.occupancy_steps import LaunchFigures, steps_from
from workbench.errors import ArgumentError, UnknownNameError
from workbench.toolchain.occupancy import LIMITS, most_registers, most_shared_bytes, occupancy

CUDA = """
template <int N> __global__ void __launch_bounds__(N) sums(float *x) {
    extern __shared__ float rest[];
    __shared__ float part[N];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = part[N - 1 - threadIdx.x] + rest[0];
}
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
"""


def drawn(generator: random.Random) -> tuple[LaunchFigures, str]:
    arch = generator.choice(list(LIMITS))
    shared = generator.choice([0, generator.randint(0, LIMITS[arch].shared_per_block)])
    return LaunchFigures(32 * generator.randint(1, 32), generator.randint(17, 255), shared), arch


@pytest.mark.parametrize("seed", range(8))
def test_the_most_that_fits_fits_and_one_more_does_not(seed: int):
    figures, arch = drawn(random.Random(seed))
    limits = LIMITS[arch]
    for blocks in range(1, limits.max_blocks + 1):
        registers, shared = most_registers(limits, figures.block, blocks), most_shared_bytes(limits, blocks)
        if 0 < registers < limits.registers_per_thread:
            assert occupancy(limits, figures.block, registers).fits["registers"] >= blocks
            assert occupancy(limits, figures.block, registers + 1).fits["registers"] < blocks
        if 0 <= shared < limits.shared_per_block:
            assert occupancy(limits, figures.block, 16, shared).fits["shared memory"] >= blocks
            assert occupancy(limits, figures.block, 16, shared + 1).fits["shared memory"] < blocks


@pytest.mark.parametrize("seed", range(40))
def test_the_nearest_step_gains_and_nothing_nearer_does(seed: int):
    figures, arch = drawn(random.Random(seed))
    limits = LIMITS[arch]
    now = figures.on(limits)
    steps = list(steps_from(figures, limits))
    assert all(step.occupancy.warps_per_sm > now.warps_per_sm and step.change for step in steps)
    same = [step.figures for step in steps if step.figures.block == figures.block]
    if same:
        nearest = same[0]
        less = [
            replace(nearest, registers=nearest.registers + 1),
            replace(nearest, shared_bytes=nearest.shared_bytes + 1),
        ]
        changed = [nearest.registers < figures.registers, nearest.shared_bytes < figures.shared_bytes]
        assert any(changed)
        for one, counts in zip(less, changed, strict=True):
            assert not counts or one.on(limits).blocks_per_sm == now.blocks_per_sm
    others = [step.figures.block for step in steps if step.figures.block != figures.block]
    distance = abs(others[0] - figures.block) if others else 1024
    between = (size for size in range(32, 1025, 32) if 0 < abs(size - figures.block) < distance)
    assert all(replace(figures, block=size).on(limits).warps_per_sm <= now.warps_per_sm for size in between)


def test_figures_alone():
    table = wb.occupancy(block=256, registers=42, shared_bytes=2048, arch="sm_90")
    assert (table.occupancy.blocks_per_sm, table.most_registers, table.most_shared_bytes) == (5, 48, 45568)
    assert [step.change for step in table.steps] == ["40 registers instead of 42", "32 registers instead of 42"]
    text = str(table)
    assert "5 blocks, 40 of 64 warps: 62%, limited by registers" in " ".join(text.split())
    assert "with 40 registers instead of 42       6  75% instead of 62%" in text
    assert "__launch_bounds__(256, 6)" in text
    rows = {int(line.split()[0]): line for line in text.splitlines() if line.strip()[:1].isdigit() and "%" in line}
    assert " ".join(rows[256].split()) == "256 100% w 75% r [62% r] 50% r 38% r 25% r 25% r 12% r"
    assert text.count("[") == 2, "one cell is this launch's, and the title says so"


def test_every_row_is_that_of_the_calculator():
    table = wb.occupancy(block=96, registers=33, arch="sm_86", over_blocks=[64, 1000], over_registers=[64])
    assert [(row["block"], row["registers"]) for row in table.rows] == [
        (block, count) for block in (64, 96, 1000) for count in (40, 64)
    ]
    for row in table.rows:
        found = occupancy("sm_86", row["block"], row["registers"])
        assert (row["blocks_per_sm"], row["occupancy"], row["limited_by"]) == (
            found.blocks_per_sm, found.fraction, found.limited_by,
        )  # fmt: skip


def test_a_kernel_brings_its_figures_and_its_rule(tmp_path: Path):
    module = wb.load_cuda(CUDA, arch="sm_90")
    kernel = module["sums<128>"]
    table = wb.occupancy(kernel, block=128, shared_bytes=64)
    assert table.figures == LaunchFigures(128, kernel.compiled.registers, 512 + 64, barriers=1)
    assert "at most 128 threads" in " ".join(str(table).split())
    with pytest.raises(ArgumentError, match="block: missing"):
        wb.occupancy(module.twice)
    with pytest.raises(ArgumentError, match=r"arch: got 'sm_80'; allowed: sm_90 of twice"):
        wb.occupancy(module.twice, block=32, arch="sm_80")


def test_an_op_brings_its_launch():
    table = wb.occupancy("reshape_and_cache", variant="cuda_tiled", arch="sm_89")
    kernel = wb.compile("reshape_and_cache", variant="cuda_tiled", arch="sm_89")
    assert table.occupancy == kernel.occupancy
    assert re.fullmatch("reshape_and_cache/cuda_tiled .* for sm_89", table.title)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"block": 256}, "registers"),
        ({"registers": 32}, "block"),
        ({"block": 256, "registers": 300}, "registers"),
        ({"block": 256, "registers": 0}, "registers"),
        ({"block": 2048, "registers": 32}, "threads_per_block"),
        ({"block": 256, "registers": 32, "shared_bytes": -1}, "shared_bytes"),
        ({"block": 256, "registers": 32, "arch": "sm_20"}, "arch"),
        ({"block": 256, "registers": 32, "variant": "cuda"}, "variant"),
        ({"block": 256, "registers": 32, "over_blocks": [0]}, "over_blocks"),
        ({"block": 256, "registers": 32, "over_registers": []}, "over_registers"),
        ({"op": "paged_attention", "variant": "torch_gather"}, "variant"),
    ],
)
def test_refuses_what_has_no_occupancy(given: dict, named: str):
    with pytest.raises(ArgumentError) as error:
        wb.occupancy(**given)
    assert error.value.argument == named


def test_points_over_one_figure():
    table = wb.occupancy(block=128, registers=64, arch="sm_80")
    registers = {point.registers: found.blocks_per_sm for point, found in table.over("registers")}
    assert (registers[64], registers[65], len(registers)) == (8, 7, 255)
    shared = table.over("shared_bytes")
    assert [shared[at][0].shared_bytes for at in (0, -1)] == [0, 163 * 1024]
    assert [found.blocks_per_sm for _, found in shared] == sorted(
        (found.blocks_per_sm for _, found in shared), reverse=True
    )
    with pytest.raises(UnknownNameError, match="warps"):
        table.over("warps")


def test_the_plot_marks_the_launch(tmp_path: Path):
    matplotlib = pytest.importorskip("matplotlib", reason='python -m pip install -e ".[lab]"')
    matplotlib.use("Agg")
    table = wb.occupancy(block=128, registers=72, shared_bytes=4096, arch="sm_80")
    axes = table.plot()
    marks = [next(line for line in ax.lines if line.get_label() == "this launch").get_xydata()[0] for ax in axes]
    assert [tuple(mark) for mark in marks] == [(figure, table.occupancy.fraction) for figure in (128, 72, 4)]
    with pytest.raises(ArgumentError, match="1 Axes"):
        table.plot(axes[:1])
    table.save_plot(tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    with pytest.raises(ArgumentError, match=r"'.*a\.txt'"):
        table.save_plot(tmp_path / "a.txt")


def test_the_command(tmp_path: Path):
    file = tmp_path / "sums.cu"
    file.write_text(CUDA)

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["occupancy", *words])
        assert done.exit_code == (2 if done.output.startswith("workbench:") else 0), done.output
        return done.output

    assert run("--block", "256", "--registers", "42", "--arch", "sm_90").startswith(
        "a kernel for sm_90, block 256: 5 blo"
    )
    found = json.loads(run(f"{file}:twice", "--block", "64", "--arch", "sm_89", "--json"))
    assert (found["arch"], found["block"], found["blocks_per_sm"]) == ("sm_89", 64, 24)
    assert "sums<128> for sm_80" in run(f"{file}:sums<128>", "--block", "128", "--shared", "1024")
    assert "no file" in run(str(tmp_path / "nowhere.ptx"))
    assert "NAME=VALUE" in run(str(file), "--config", "N")


def test_the_page_has_what_the_command_prints():
    page = (Path(__file__).parents[2] / "docs" / "CODE.md").read_text()
    command, printed = re.search(r"```sh\nworkbench (occupancy [^\n]*)\n```\n\n```text\n(.*?)```", page, re.S).groups()
    assert CliRunner().invoke(main, command.split()).output == printed
