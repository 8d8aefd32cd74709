"""The command ``workbench run``."""

from __future__ import annotations

import sys
from typing import Any

import click

from workbench.analysis.device_models import device_model
from workbench.base.architectures import MACHINE_ARCHS_TEXT
from workbench.base.options import checked
from workbench.base.time_limit import IDLE_SECONDS

_LIMIT = (
    f"Time limit of a launch (default: {IDLE_SECONDS:g} s of processor time in which no thread ends and no barrier "
    "completes; inf: none)."
)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--check", is_flag=True, help="Watch every launch; report findings, and exit with 1 if there are any.")
@click.option("--strict", is_flag=True, help="Like --check; also report violations of rules that GPUs tolerate.")
@click.option(
    "--schedules",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Like --check; run each launch in N other orders first, and report values that change.",
)
@click.option("--seed", "first_schedule", default=0, metavar="S", help="The first of the --schedules (default: 0).")
@click.option("--trace", "page", metavar="FILE.html", help="Write a page with every launch, line by line.")
@click.option("--arch", help=f"{MACHINE_ARCHS_TEXT}: compile for this (default: the model's).")
@click.option(
    "--model",
    callback=checked(device_model),
    help="The GPU that the simulated devices stand for (default: h200; Triton: a100-sxm-80gb).",
)
@click.option("--seconds-limit", type=click.FloatRange(min=0, min_open=True), help=_LIMIT)
@click.option("--devices", default=1, help="Number of simulated devices.")
@click.option(
    "--memory",
    "memory_gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Memory of each device (default: half of this machine's).",
)
@click.option("--exact-name", is_flag=True, help="Leave '(simulated)' out of the devices' name.")
@click.option("--first-config", is_flag=True, help="Triton and Helion take a first configuration, untuned.")
@click.option("--inductor", is_flag=True, help="Also run what torch.compile writes for tensors on the CPU.")
@click.option(
    "--fmad/--no-fmad", default=True, help="Contract products and sums to FMA, as the assembler does (default)."
)
@click.option("--simulated", "force", is_flag=True, help="Simulate the devices even if there is a GPU.")
@click.option("--nvcc", default="", metavar="WORDS", help="Options and more files for nvcc: '-I include -DN=8 b.cu'.")
def run(
    script: str, arguments: tuple[str, ...], module: bool, page: str | None, force: bool, nvcc: str, **devices: Any
) -> None:
    """Run a program that launches kernels, in Python or in CUDA C++ (.cu); without a GPU, on simulated devices.

    A command, such as make, runs with an nvcc on PATH whose programs are simulated too.

    The program is SCRIPT with its ARGUMENTS; options of the workbench stand before it. Every launch counts: PyCUDA's
    and Triton's, those of load_cuda and load_ptx, of ops, checks and traces, also in processes that the program starts.
    With --check the exit status is 1 for a finding and 2 if nothing was launched; else it is the program's own.
    """
    from workbench.programs.device_options import DeviceOptions
    from workbench.programs.running import run_program

    options = DeviceOptions(**devices, trace=page is not None)
    sys.exit(run_program(script, arguments, options, module=module, page=page, force=force, nvcc=nvcc))
