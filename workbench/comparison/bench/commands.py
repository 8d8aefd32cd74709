"""Commands under ``workbench bench``: an op's kernels beside torch, search strategies, predicted times."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from workbench.base.command_group import CommandGroup
from workbench.base.config_text import ConfigText
from workbench.base.lazy import offered
from workbench.base.op_names import op_file
from workbench.base.options import device_option, json_option, names, tell, tell_on_the_way
from workbench.errors import ArgumentError
from workbench.tuning.command_options import judged_option, model_option, sample_option, variant_config_option

if TYPE_CHECKING:
    from workbench.comparison.bench.size_sweep import SizeSweep
    from workbench.ops.op import Op


class _BenchGroup(CommandGroup):
    """The named benchmarks; any other name is an op."""

    def other_command(self, name: str) -> click.Command | None:
        """Return the command that benchmarks the op of that name; None where there is no such op."""
        if op_file(name) is None and name not in offered("workbench.ops"):
            return None
        return _bench_op(name)

    def names_of_commands(self) -> Iterable[str]:
        """Return the benchmarks and the installed ops."""
        return [*super().names_of_commands(), *offered("workbench.ops")]


@click.group(
    cls=_BenchGroup,
    places={name: f"workbench.tuning.bench.commands:bench_{name}" for name in ("predict", "tune")},
    entry_points="workbench.benchmarks",
)
def bench() -> None:
    """Run benchmarks, as ratios measured in one run.

    With an op, workbench bench my_ops.py:row_softmax, compare that op's kernels with torch. Without a GPU the times are
    predicted, and labelled so.
    """


def _sweep_sizes(
    op: Op, over: tuple[str, ...], cases: list[str] | None, save: str | None, configs: list[ConfigText], **options: Any
) -> SizeSweep:
    """Run `workbench.sweep_sizes` with the arguments of a terminal, and save the picture."""
    from workbench.comparison.bench.size_sweep import check_picture
    from workbench.comparison.bench.sizes import sizes_of, sweep_sizes
    from workbench.ops.selection import configs_of

    if cases is not None and len(cases) > 1:
        raise ArgumentError("case", ", ".join(cases), "one case with --over", "--over varies the sizes of one case.")
    if save:
        check_picture(save)
    case = op.case(cases[0] if cases else None)
    options |= {"figure": options["figure"] or "time", "configs": configs_of(op, configs, options["variants"], case)}
    sweep = sweep_sizes(op, sizes_of(over), case, **options)
    if save:
        picture, table = sweep.save(save)
        tell_on_the_way(f"written to {picture} and {table}")
    return sweep


def _bench_op(name: str) -> click.Command:
    """Return the command that benchmarks an op."""

    @click.command(name)
    @names("case", "Only these cases (repeatable).")
    @names("variant", "Only these variants (repeatable).", metavar=None)
    @device_option
    @model_option
    @click.option(
        "--over",
        multiple=True,
        metavar="SIZE=VALUE,...",
        help="Vary a size of one case, cols=512,1024,2048 (repeatable: every combination).",
    )
    @click.option("--together", is_flag=True, help="With several --over: first values together, then second ones.")
    @click.option("--figure", metavar="NAME", help="With --over: time, bandwidth, sectors, ... (default: time).")
    @variant_config_option
    @sample_option
    @judged_option
    @click.option("--save", metavar="FILE.png", help="With --over: write the plot, and the rows as CSV beside it.")
    @json_option
    def command(as_json: bool, over: tuple[str, ...], **options: Any) -> None:
        """Time the kernels of an op on its cases, or over sizes of one, beside torch and torch.compile."""
        from workbench.ops.files import load_op

        if over:
            result: Any = _sweep_sizes(load_op(name), over, **options)
        else:
            from workbench.comparison.bench.own_op import run

            only = ("together", "figure", "configs", "sample", "judged_on", "save")
            if unfit := [one for one in only if options.pop(one)]:
                raise ArgumentError(unfit[0], "given", "nothing without --over", "Name a size: --over cols=512,1024.")
            result = run(load_op(name), **options)
        tell(result, as_json)
        if not result.all_correct:
            sys.exit(1)

    return command
