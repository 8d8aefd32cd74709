"""Commands under ``workbench bench``: an op's kernels beside torch, search strategies, predicted times."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from workbench.analysis.device_models import device_model
from workbench.base.command_group import CommandGroup
from workbench.base.config_text import ConfigText
from workbench.base.lazy import offered
from workbench.base.op_names import op_file
from workbench.base.options import checked, device_option, json_option, names, tell, tell_on_the_way, without
from workbench.errors import ArgumentError
from workbench.tuning.command_options import judged_option, model_option, sample_option, variant_config_option

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.tuning.bench.size_sweep import SizeSweep


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
    places={name: f"{__name__}:bench_{name}" for name in ("predict", "tune")},
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
    from workbench.ops.selection import configs_of
    from workbench.tuning.bench.size_sweep import check_picture
    from workbench.tuning.bench.sizes import sizes_of, sweep_sizes

    if cases is not None and len(cases) > 1:
        raise ArgumentError("case", ", ".join(cases), "one case with --over", "Its sizes are what varies.")
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
        from workbench.ops.own.files import load_op

        if over:
            result: Any = _sweep_sizes(load_op(name), over, **options)
        else:
            from workbench.tuning.bench.own_op import run

            only = ("together", "figure", "configs", "sample", "judged_on", "save")
            if unfit := [one for one in only if options.pop(one)]:
                raise ArgumentError(unfit[0], "given", "nothing without --over", "Name a size: --over cols=512,1024.")
            result = run(load_op(name), **options)
        tell(result, as_json)
        if not result.all_correct:
            sys.exit(1)

    return command


@click.command("tune")
@names("sweep", "Only these sweeps (default: the shipped ones).", metavar="FILE")
@click.option("--measured", metavar="FOLDER", help="Also published search spaces: Kernel Tuner caches or T4 results.")
@click.option("--seeds", default=50, show_default=True, help="Searches of each strategy on each sweep.")
@click.option("--tolerance", default=0.02, show_default=True, help="Good enough: within this share of the best.")
@click.option("--budget", default=250, show_default=True, help="Evaluations after which a search ends.")
@without("peers", "Leave out Kernel Tuner's strategies.")
@json_option
def bench_tune(as_json: bool, **options: Any) -> None:
    """Compare search strategies on recorded sweeps, beside Kernel Tuner's.

    With --measured, Kernel Tuner's strategies and 50 seeds it takes about an hour on one core.
    """
    from workbench.tuning.bench.tune import run

    tell(run(progress=tell_on_the_way, **options), as_json)


@click.command("predict")
@names("sweep", "Only these sweeps (default: the shipped ones).", metavar="FILE")
@click.option("--measured", metavar="FOLDER", help="Published search spaces: Kernel Tuner caches or T4 results.")
@click.option("--sources", metavar="FOLDER", help="Their kernels and launches (default: ours of the same design).")
@click.option(
    "--model", callback=checked(device_model), help="The device model, where a file names no GPU that has one."
)
@click.option("--limit", default=60, show_default=True, type=click.IntRange(min=20), help="Configurations of a space.")
@click.option("--seed", default=0, show_default=True, help="Seed of the sample of configurations.")
@click.option("--compile-seconds", default=120.0, show_default=True, help="Time limit of compiling a configuration.")
@click.option("--record", metavar="FILE", help="Put the figures of --measured into this record.")
@json_option
def bench_predict(
    sweeps: list[str] | None, measured: str | None, record: str | None, as_json: bool, **options: Any
) -> None:
    """Compare predicted times with measured sweeps; without any, show how much rankings depend on the figures.

    With --measured, compare with complete search spaces that others measured: compiles and runs a sample of each.
    """
    if measured is None:
        from workbench.tuning.bench.predict import run

        tell(run(sweeps), as_json)
        return
    from workbench.tuning.bench.measured import judge_all

    judgement = judge_all(measured, said=None if as_json else tell_on_the_way, **options)
    if record is not None:
        from workbench.tuning.bench.prediction_record import write

        write(judgement, record)
    tell(judgement, as_json)
