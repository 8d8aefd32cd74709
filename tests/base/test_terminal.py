"""What comes from data reaches a terminal as text: no markup, no control characters, wherever it is printed."""

from __future__ import annotations

import io

from click.testing import CliRunner

import workbench as wb
from workbench.base.terminal import plain, visible
from workbench.base.trials.trial import Trial
from workbench.cli import main
from workbench.comparison.bench.own_op import OpBenchmark, OpBenchmarkRow
from workbench.comparison.comparison import Comparison
from workbench.tuning import summary_table

NASTY = "[red]a[/red] [/] :bomb: \x1b[31mred\x1b]0;title\x07 \x9b2J \u202eright"
SHOWN = "[red]a[/red] [/] :bomb: \\x1b[31mred\\x1b]0;title\\x07 \\x9b2J \\u202eright"


def test_control_characters_are_written_out():
    assert visible(NASTY) == SHOWN
    assert visible("a\tb\r\nc é 漢 \ud800\r") == "a\tb\nc é 漢 \\ud800\\r"
    assert plain(NASTY).plain == SHOWN


def printed(table) -> str:
    from rich.console import Console

    console = Console(width=300, file=io.StringIO(), color_system=None)
    console.print(table)
    return console.file.getvalue()


def test_tables_show_names_as_they_are():
    trial = Trial("op", NASTY, "cuda", "small", {}, "sim", "sm_80", "crash", message=NASTY)
    comparison = Comparison(NASTY, NASTY, "sim", (trial,), (1,))
    assert "\x1b" not in str(comparison)
    assert str(comparison).count("\\x1b]0;title") >= 2
    rows = (OpBenchmarkRow(NASTY, trial, 1, ""),)
    assert SHOWN in str(OpBenchmark(NASTY, "predicted", rows))


def test_a_tuning_table_shows_names_as_they_are(tmp_path, fresh_home):
    op = wb.op(lambda x: x + 1, name="odd")
    op.case("[bold]one[/]\x1b[2J", x=wb.randn(4))
    op.cuda(
        'extern "C" __global__ void odd(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] + N; }',
        tune={"N": (1, 2)}, grid=1, block=4, args=("out", "x"), name="odd[/]\x1b[31m",
    )  # fmt: skip
    run = wb.tune(op, device="sim", store=tmp_path / "store.sqlite", isolation="none")
    text = printed(summary_table(run))
    assert "odd / odd[/]\\x1b[31m: times" in text
    assert "\x1b" not in text


def test_messages_of_a_command_hold_no_control_characters(fresh_home):
    found = CliRunner(env={"NO_COLOR": "1"}).invoke(main, ["compare", NASTY])
    assert found.exit_code == 2
    assert "\x1b" not in found.output
    found = CliRunner().invoke(main, ["compare", "copy_blocks", "--device", "sim", "--variant", "\x1b[2J"])
    assert found.exit_code == 2
    assert "\\x1b[2J" in found.output
    assert "\x1b" not in found.output
