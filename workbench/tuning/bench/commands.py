"""Commands that judge the tuner itself: ``workbench bench tune`` and ``predict``."""

from __future__ import annotations

from typing import Any

import click

from workbench.analysis.device_models import device_model
from workbench.base.options import checked, json_option, names, tell, tell_on_the_way, without


@click.command("tune")
@names("sweep", "Only these sweeps (default: the shipped ones).", metavar="FILE")
@click.option("--measured", metavar="FOLDER", help="Also published search spaces: Kernel Tuner caches or T4 results.")
@click.option("--seeds", default=50, show_default=True, help="Searches of each strategy on each sweep.")
@click.option("--tolerance", default=0.02, show_default=True, help="Good enough: within this share of the best.")
@click.option("--budget", default=250, show_default=True, help="Evaluations after which a search ends.")
@without("peers", "Leave out Kernel Tuner's strategies.")
@json_option
def bench_tune(as_json: bool, tolerance: float, budget: int, **options: Any) -> None:
    """Compare search strategies on recorded sweeps, beside Kernel Tuner's.

    With --measured, Kernel Tuner's strategies and 50 seeds it takes about an hour on one core.
    """
    from workbench.tuning.bench.tune import SearchEnd, run

    tell(run(progress=tell_on_the_way, end=SearchEnd(tolerance, budget), **options), as_json)


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
