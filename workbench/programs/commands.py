"""The commands ``workbench run``, and ``workbench prove``, which runs a program too."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from workbench.analysis.device_models import device_model
from workbench.base.architectures import MACHINE_ARCHS_TEXT
from workbench.base.op_names import check_op
from workbench.base.options import Pages, checked, complete_op, json_option, names, pages_options, tell
from workbench.base.terminal import say
from workbench.base.time_limit import IDLE_SECONDS
from workbench.errors import ArgumentError

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
@click.option(
    "--late", is_flag=True, help="Run what is enqueued as late as the order of streams allows (docs/STREAMS.md)."
)
@click.option(
    "--seed",
    "first_schedule",
    type=click.IntRange(min=0),
    default=0,
    metavar="S",
    help="The first of the --schedules, or what --late runs earlier (default: 0, with --late nothing).",
)
@click.option("--debug-on-finding", is_flag=True, help="Like --check; stop inside the launch, and read commands.")
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
@click.option(
    "--exact-against",
    "others",
    multiple=True,
    metavar="OTHER.py",
    help="Run both on elements of a ring, and say whether they are the same computation (docs/EXACT.md; repeatable).",
)
@click.option("--numerics", is_flag=True, help="Say where infinities and NaN were born, and what conversions lost.")
@click.option("--errors", is_flag=True, help="Like --numerics; also say which line loses digits, against float64.")
@click.option("--simulated", "force", is_flag=True, help="Simulate the devices even if there is a GPU.")
@click.option("--nvcc", default="", metavar="WORDS", help="Options and more files for nvcc: '-I include -DN=8 b.cu'.")
def run(
    script: str,
    arguments: tuple[str, ...],
    module: bool,
    page: str | None,
    nvcc: str,
    others: tuple[str, ...],
    **devices: Any,
) -> None:
    """Run a program that launches kernels, in Python or in CUDA C++ (.cu); without a GPU, on simulated devices.

    A command, such as make, runs with an nvcc on PATH whose programs are simulated too.

    The program is SCRIPT with its ARGUMENTS; options of the workbench stand before it. Every launch counts: PyCUDA's
    and Triton's, those of load_cuda and load_ptx, of ops, checks and traces, also in processes that the program starts.
    With --check the exit status is 1 for a finding and 2 if nothing was launched; else it is the program's own.
    """
    from workbench.programs.device_options import DeviceOptions
    from workbench.programs.running import run_program

    if others:
        from workbench.programs.exact_programs import compare_programs

        unfit = {"-m": module, "--trace": page, "--nvcc": nvcc, "--check": devices["check"], "--late": devices["late"]}
        if given := [name for name, value in unfit.items() if value]:
            raise ArgumentError(given[0], "given", "no value with --exact-against", "Run it on its own.")
        say(compare_programs(script, others, arguments, DeviceOptions(**devices | {"force": True}, exact=True)))
        sys.exit(0)  # whatever the answer: a difference fails nothing
    late_alone = {"--check": devices["check"], "--strict": devices["strict"], "--schedules": devices["schedules"]}
    late_alone |= {"--trace": page, "--inductor": devices["inductor"]}
    if devices["late"] and (given := [name for name, value in late_alone.items() if value]):
        raise ArgumentError(given[0], "given", "no value with --late", "Run it on its own.")
    if devices["first_schedule"] and not (devices["late"] or devices["schedules"]):
        raise ArgumentError(
            "--seed", devices["first_schedule"], "no value without --late or --schedules", "Add one of them."
        )
    options = DeviceOptions(**devices, trace=page is not None)
    defines = [word for word in arguments if re.match(r"-[DU]\w", word)]
    if defines and script.endswith((".cu", ".py")):
        words = " ".join(defines)
        remedy = f" For the compiler: --nvcc '{words}', before {script}." if script.endswith(".cu") else ""
        say(f"workbench: {words} goes to the program, as all that stands behind {script}.{remedy}", err=True)
    sys.exit(run_program(script, arguments, options, module=module, page=page, nvcc=nvcc))


def _is_program(text: str) -> bool:
    return Path(text).is_file()


def _check_target(text: str) -> None:
    if not _is_program(text):
        check_op(text)


@click.command(epilog="Exit status: 0 proved, 1 refuted, 2 a wrong argument or no launch, 3 unknown.")
@click.argument("target", metavar="OP|PROGRAM", shell_complete=complete_op, callback=checked(_check_target))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@names("variant", "Of an op, only these variants (repeatable).")
@click.option("--case", help="Of an op, the case whose sizes become symbols; default the first one.")
@click.option(
    "--fact",
    "facts",
    multiple=True,
    metavar="TEXT",
    help="Of an op, a comparison of sizes, 'cols % 16 == 0', or of a tensor's elements v, 'index: 0 <= v < rows' "
    "(repeatable).",
)
@click.option("--arch", help="Architecture to compile for (default: sm_80; of a program the model's).")
@click.option("--effort", type=int, help="Resources of the solver; the same number means the same on every machine.")
@click.option("--nvcc", default="", metavar="WORDS", help="Of a program in CUDA C++, options and more files for nvcc.")
@pages_options
@json_option
def prove(
    target: str, arguments: tuple[str, ...], variants: list[str] | None, case: str | None, facts: tuple[str, ...],
    arch: str | None, effort: int | None, nvcc: str, as_json: bool, pages: Pages,
) -> None:  # fmt: skip
    """Prove the kernels of OP (a name, or FILE.py:NAME) for all sizes: bounds, races and barriers.

    Of a PROGRAM, in Python or CUDA C++ (a file), the kernels that it launches are proved, after it has run on simulated
    devices; the sizes of its launches become symbols as far as they determine arrays and grids. Its arguments follow
    it, behind -- if they begin with a dash.

    A kernel is refuted by a launch in which the PTX machine finds the fault.
    """
    if _is_program(target):
        given = {"variant": variants, "case": case, "fact": facts}
        if unfit := [name for name, value in given.items() if value]:
            raise ArgumentError(unfit[0], "given", "no value for a program", "Name an op for it: FILE.py:NAME.")
        from workbench.programs.proving import prove_program

        sys.exit(prove_program(target, arguments, arch=arch, effort=effort, nvcc=nvcc, as_json=as_json, pages=pages))
    if arguments or nvcc:
        raise ArgumentError("arguments", " ".join([*arguments, nvcc]), "none for an op", "Name a program for them.")
    from workbench.proof.commands import prove_op

    found = prove_op(target, facts=facts, effort=effort, arch=arch or "sm_80", variants=variants, case=case)
    tell(found, as_json)
    pages.write(found)
    sys.exit(found.exit_status)
