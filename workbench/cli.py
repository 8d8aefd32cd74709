"""The command ``workbench``: doctor, compare, diff, compare-code, check, trace, occupancy, tune, run and others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from workbench import __version__
from workbench.analysis.difference.command import Baseline, WithStatuses, baseline_options, fail_if_option, finish
from workbench.base.config_text import ConfigText
from workbench.base.files import out_of_space, raise_if_full
from workbench.base.lazy import offered
from workbench.base.options import (
    Pages,
    complete_op,
    config_option,
    device_option,
    json_option,
    names,
    pages_options,
    tell,
    tell_on_the_way,
    without,
)
from workbench.base.progress import be_quiet
from workbench.base.terminal import plain, say
from workbench.errors import ArgumentError, FileError, StoreError, WorkbenchError

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.tuning.bench.size_sweep import SizeSweep


def _quiet_option() -> click.Option:
    """Return the option of every command that turns progress bars off."""

    def heed(ctx: click.Context, option: click.Parameter, given: bool) -> None:
        if given:
            be_quiet()

    return click.Option(
        ["-q", "--quiet"], is_flag=True, expose_value=False, callback=heed, help="Show no progress bars."
    )


class _Group(click.Group):
    """Group that prints a WorkbenchError as one message and exits with 2; a traceback is left for faults of our own.

    Installed packages add commands by the entry points of a group that names some.
    """

    entry_points = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(offered(self.entry_points) if self.entry_points else ())})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = super().get_command(ctx, name)
        if found is None and self.entry_points and (point := offered(self.entry_points).get(name)) is not None:
            found = point.load()
        if found is not None and not any(option.name == "quiet" for option in found.params):
            found.params.append(_quiet_option())
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (WorkbenchError, OSError) as error:
            if not isinstance(error, StoreError):  # its message names a full disk already
                try:
                    raise_if_full(error)
                except FileError as full:
                    error = full
            if not isinstance(error, WorkbenchError):
                raise
            say(f"workbench: {error}", err=True)
            sys.exit(2)


# A command declares the options that it reads itself; the others are passed on under their own names.


class _Main(_Group):
    """The commands, with those of installed packages."""

    entry_points = "workbench.commands"


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="kernel-workbench")
def main() -> None:
    """Develop GPU kernels, with or without a GPU.

    An OP is one of the workbench (paged_attention, ...), of an installed package, or one of your own in a file:
    my_ops.py:row_softmax.
    """


_cases_option = names("case", "A case of the op (repeatable; default: its small one).")
_case_option = click.option("--case", metavar="NAME", help="A case of the op (default: its small one).")
_replay_option = click.option(
    "--device", default="auto", show_default=True, help="auto, sim, cuda, or replay:FILE for a recorded sweep."
)
_sample_option = click.option(
    "--sample",
    default=None,
    type=int,
    metavar="BLOCKS",
    help="On the simulator count about so many blocks of each launch (16 are a good number), and scale.",
)
_model_option = click.option("--model", help="Without a GPU, the one to predict for (default: an A100).")
_config_option = config_option(
    "Use this configuration, as tables print it: 'NUM_THREADS=128 VEC=4', 'VARIANT:...' where several variants have "
    "these tunables (repeatable); tunables left out have their untuned values."
)
_tuned_option = click.option("--tuned", is_flag=True, help="Use the configurations that were tuned for the case.")
_judged_option = click.option(
    "--judged-on", default=None, metavar="NAME", help="With --sample the small case that values are judged on."
)


@main.command()
@click.option("--fix", is_flag=True, help="Run the remedies that are commands, then look again.")
@names("part", "With --fix only these rows of the report, such as PyCUDA (repeatable).")
@json_option
def doctor(fix: bool, parts: list[str] | None, as_json: bool) -> None:
    """Show what this machine can do, and how to get what is missing."""
    from workbench.doctor import doctor as examine
    from workbench.doctor import fix as run

    if parts and not fix:
        raise ArgumentError("--part", ", ".join(parts), "--part together with --fix", "Add --fix.")
    report = examine()
    if fix:
        run(report, parts or (), tell_on_the_way)
        importlib.invalidate_caches()
        report = examine()
    tell(report, as_json)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and ops in SHELL.

    For bash, add this line to ~/.bashrc: eval "$(workbench completion bash)"
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    say(made(main, {}, "workbench", "_WORKBENCH_COMPLETE").source())


@main.command(cls=WithStatuses)
@click.argument("op", shell_complete=complete_op)
@_cases_option
@device_option
@names("variant", "Only these variants (repeatable).", metavar=None)
@_config_option
@_tuned_option
@_model_option
@_sample_option
@_judged_option
@baseline_options("compare")
@pages_options
@json_option
def compare(
    op: str,
    cases: list[str] | None,
    configs: list[ConfigText],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
    **options: Any,
) -> None:
    """Compare the variants of OP side by side, each checked against the float64 reference.

    Of several cases --json prints one document a line.
    """
    from workbench.ops.own.files import load_op
    from workbench.ops.selection import configs_of
    from workbench.tuning.comparison import compare as run

    found = load_op(op)

    def on(name: str | None) -> Any:
        given = configs_of(found, configs, options["variants"], found.case(name))
        return run(found, name, configs=given, **options)

    _run_cases(cases, on, lambda comparison: comparison.all_correct, as_json, baseline, pages)


@main.command(cls=WithStatuses)
@click.argument("before", type=click.Path(dir_okay=False))
@click.argument("now", type=click.Path(dir_okay=False))
@fail_if_option
@pages_options
@json_option
def diff(before: str, now: str, fail_if: tuple[str, ...], as_json: bool, pages: Pages) -> None:
    """Show what changed between two saved results of compare, or two of trace, by figure and by source line."""
    from workbench.analysis.difference import diff as run

    finish(run(before, now, fail_if=fail_if), as_json, pages)


@main.command()
@click.argument("kind", required=False)
def schema(kind: str | None) -> None:
    """Print the JSON schema of the --json output of a KIND such as compare; without one, list the kinds."""
    import json

    from workbench.base.documents import KINDS
    from workbench.base.documents import schema as found

    if kind is None:
        for name, (command, _) in KINDS.items():
            say(f"{name:22} {command}")
    else:
        say(json.dumps(found(kind), indent=2))


class _WithOutcomes(click.Command):
    """Command whose help ends with the exit statuses; the table is read when it is asked for."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from workbench.judge.outcomes import listed

        with formatter.section("Exit status, that of the first failure (2: a wrong argument)"):
            formatter.write(listed() + "\n")


@main.command(cls=_WithOutcomes)
@click.argument("op", required=False, shell_complete=complete_op)
@click.option(
    "--kernelbench",
    nargs=2,
    multiple=True,
    metavar="PROBLEM.py SOLUTION.py",
    help="Judge ModelNew of SOLUTION.py by Model of PROBLEM.py, on torch's simulated device (repeatable; several are "
    "judged on all cores, and verdicts kept: those of the same files are not judged again).",
)
@click.option("--full", is_flag=True, help="With --kernelbench: at the problem's own sizes.")
@click.option(
    "--skip-torch-compile",
    is_flag=True,
    help="With --kernelbench: leave out the time of the reference by torch.compile.",
)
@click.option(
    "--candidate", metavar="FILE", help="Judge this: a .py file with declare(op), or a .cu file for the CUDA variant."
)
@names("variant", "Only these variants (repeatable).")
@names("case", "Only these cases (repeatable).")
@click.option("--all-configs", is_flag=True, help="Every legal configuration, not the default one only.")
@click.option("--seeds", default=2, show_default=True, help="Number of seeds to draw.")
@click.option("--seed", "given", multiple=True, type=int, help="Use this seed instead (repeatable), from a verdict.")
@click.option("--seconds", default=60.0, show_default=True, help="Limit of describing a case, and of running it.")
@click.option(
    "--memory", "memory_mib", default=4096, show_default=True, metavar="MIB", help="Limit of a process and a workspace."
)
@without("elsewhere", "Leave out inputs that are 100 and 10,000 times as large, and negative.")
@click.option("--sandbox", is_flag=True, help="Run a candidate's code without network, files read-only (bubblewrap).")
@pages_options
@click.option("--json", "as_json", is_flag=True, help="Machine-readable; the schema is workbench/judge/schema.json.")
def check(
    op: str | None, all_configs: bool, seeds: int, given: tuple[int, ...], as_json: bool, pages: Pages,
    kernelbench: tuple[tuple[str, str], ...], full: bool, skip_torch_compile: bool, **options: Any,
) -> None:  # fmt: skip
    """Judge the kernels of OP (a name, or FILE.py:NAME), or a candidate for it, without trusting them.

    With --kernelbench instead of OP, judge a solution in KernelBench's format; for several, --json prints one a line.

    Each kernel runs on the PTX machine on inputs that it has not seen, with all checks, and with the warps in two
    orders.

    Without --sandbox this is no sandbox: the Python file of a candidate can read and write what you can.
    """
    if kernelbench:
        options |= {"all_configs": all_configs, "torch_compile": not skip_torch_compile}
        _check_kernelbench(op, kernelbench, as_json, pages, full=full, seeds=list(given) or seeds, **options)
    from workbench.judge import check as run
    from workbench.ops.own.files import load_op

    if full or skip_torch_compile or op is None:
        got = "--full" if full else "--skip-torch-compile" if skip_torch_compile else "nothing"
        raise ArgumentError("op", got, "OP, or --kernelbench PROBLEM.py SOLUTION.py", "Name one of the two.")
    try:
        found = load_op(op)
    except WorkbenchError:
        raise
    except (Exception, SystemExit) as error:  # no status of the file's own may look like an outcome
        if out_of_space(error):
            raise
        what = f"{op!r}: {type(error).__name__}: {error}"
        raise ArgumentError("op", what, "a file that can be imported", "Correct it.") from error
    judgement = run(found, config="all" if all_configs else None, seeds=list(given) or seeds, **options)
    tell(judgement, as_json)
    pages.write(judgement)
    sys.exit(judgement.exit_status)


def _check_kernelbench(
    op: str | None, pairs: tuple[tuple[str, str], ...], as_json: bool, pages: Pages, **options: Any
) -> NoReturn:
    from workbench.judge import check_kernelbench, check_many

    used = {name: options.pop(name) for name in ("candidate", "variants", "cases", "sandbox", "all_configs")}
    used |= {"skip_elsewhere": not options.pop("elsewhere"), "op": op is not None}
    unfit = [name for name, value in used.items() if value]
    if unfit:
        raise ArgumentError(unfit[0], "given", "nothing beside --kernelbench", "A problem has no such choice.")
    if len(pairs) == 1:
        judgement = check_kernelbench(*pairs[0], **options)
        tell(judgement, as_json)
        pages.write(judgement)
        sys.exit(judgement.exit_status)
    judgements = []
    for judgement in check_many(pairs, **options):
        say(judgement.to_json(indent=None) if as_json else judgement)  # a line of JSON for each
        judgements.append(judgement)
    pages.write(*judgements)
    sys.exit(next((one.exit_status for one in judgements if one.exit_status), 0))


@main.command(cls=WithStatuses)
@click.argument("op", shell_complete=complete_op)
@_cases_option
@click.option("--variant", default=None, help="The variant to look into; not needed where there is only one.")
@_config_option
@_tuned_option
@_model_option
@_sample_option
@baseline_options("trace")
@pages_options
@json_option
def trace(
    op: str,
    cases: list[str] | None,
    configs: list[ConfigText],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
    **options: Any,
) -> None:
    """Show what one variant of OP does to memory, source line by source line.

    Of several cases --json prints one document a line.
    """
    from workbench.ops.own.files import load_op
    from workbench.ops.selection import config_of
    from workbench.ops.tracing import trace as run

    found = load_op(op)

    def on(name: str | None) -> Any:
        chosen, config = config_of(found, configs, options["variant"], found.case(name))
        return run(found, name, **options | {"variant": chosen, "config": config})

    _run_cases(cases, on, lambda traced: True, as_json, baseline, pages)


def _run_cases(
    cases: list[str] | None,
    on: Callable[[str | None], Any],
    correct: Callable[[Any], bool],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
) -> NoReturn:
    """Print the result ``on`` each case, write pages of all, and exit: with 1 if one is not ``correct``.

    Without ``cases`` the one is None, which stands for the op's small one. Raises ArgumentError for several cases with
    a saved result, which is that of one case.
    """
    if cases is None or len(cases) == 1:
        result = on(cases[0] if cases else None)
        baseline.finish(result, as_json, pages, correct(result))
    if baseline.used:
        got = ", ".join(cases)
        raise ArgumentError("--case", got, "one case with --save and --against", "Save each case to a file of its own.")
    results = []
    for name in cases:
        results.append(on(name))
        _tell_one(results[-1], as_json)
    pages.write(*results)
    sys.exit(0 if all(map(correct, results)) else 1)


def _tell_one(result: Any, as_json: bool) -> None:
    """Print one of several results of a command, as JSON in a single line."""
    if as_json:
        import json

        say(json.dumps(json.loads(result.to_json())))
    else:
        tell(result, as_json=False)


_kernel_arch_option = click.option("--arch", metavar="sm_90", help="Compile for this (default: the first that fits).")


@main.command()
@click.argument("what", metavar="[OP|FILE.cu[:KERNEL]]", required=False, shell_complete=complete_op)
@_case_option
@click.option("--variant", default=None, help="The variant; not needed where there is only one.")
@config_option("Tunables of the variant, or macros of a .cu file (default: untuned).")
@_kernel_arch_option
@click.option("--block", type=int, help="Threads of a block (default: those of the op's launch).")
@click.option("--registers", type=int, help="Registers per thread (default: the kernel's).")
@click.option("--shared", "shared_bytes", type=int, metavar="BYTES", help="Dynamic shared memory per block.")
@click.option("--plot", metavar="FILE.png", type=click.Path(dir_okay=False), help="Also save the plots as a picture.")
@json_option
def occupancy(
    what: str | None, configs: list[ConfigText], arch: str | None, plot: str | None, as_json: bool, **options: Any
) -> None:
    """Show a kernel's occupancy over block sizes and registers, what limits it, and what the next step would gain.

    Without OP it is that of figures: workbench occupancy --block 256 --registers 42 --arch sm_90.
    """
    from workbench.tuning.occupancy import occupancy as run

    if len(configs) > 1:
        raise ArgumentError("config", f"{len(configs)} of them", "one", "Write all its tunables in one --config.")
    result = run(**options | _named(what, options["variant"], configs, arch))
    tell(result, as_json)
    if plot:
        result.save_plot(plot)


@main.command("compare-code")
@click.argument("what", metavar="OP|FILE.cu[:KERNEL]", shell_complete=complete_op)
@click.argument("other", metavar="[FILE.cu[:KERNEL]]", required=False)
@_case_option
@names("variant", "A variant; two compare them.")
@config_option("Tunables of a variant, or macros of a .cu file; two compare them.")
@click.option("--arch", "archs", multiple=True, metavar="sm_90", help="An architecture; two compare them.")
@click.option("--only", type=click.Choice(("ptx", "sass")), help="Show PTX or machine code only.")
@json_option
def compare_code(
    what: str, other: str | None, configs: list[ConfigText], archs: tuple[str, ...], only: str | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Compare PTX and machine code of two variants, configurations, architectures or kernels side by side."""
    from workbench.ops.own.files import is_kernel_file, load_kernel, load_op
    from workbench.tuning.code_comparison import compare_code as run

    for name, few in (("config", configs), ("arch", archs), ("variant", options["variants"] or ())):
        if len(few) > 2:
            raise ArgumentError(name, f"{len(few)} of them", "one or two", "Compare two at a time.")
    if is_kernel_file(what):
        left, right = ((archs[at] if archs else None, configs[at].macros() if configs else None) for at in (0, -1))
        options |= {"op": load_kernel(what, *left), "other": load_kernel(other or what, *right)}
    else:
        found = load_op(what)
        options |= {"op": found, "arch": archs or None, "other": other and load_kernel(other)}
        options |= _sides(found, options["variants"], configs)
    result = run(**options)
    if as_json:
        say(result.to_json())
    else:
        say(result if only is None else getattr(result, only))


def _named(what: str | None, variant: str | None, configs: list[ConfigText], arch: str | None) -> dict[str, Any]:
    """Return ``op``, ``variant``, ``config`` and ``arch`` for a kernel of a file, for an op, or for figures alone."""
    from workbench.ops.own.files import is_kernel_file, load_kernel, load_op

    if what is not None and is_kernel_file(what):
        return {"op": load_kernel(what, arch, configs[0].macros() if configs else None), "variant": variant}
    if what is None:
        return {"op": None, "variant": variant, "config": configs[0].settings if configs else None, "arch": arch}
    found = load_op(what)
    sides = _sides(found, [variant] if variant else None, configs)
    return {"op": found, "arch": arch} | {name[:-1]: values and values[0] for name, values in sides.items()}


def _sides(op: Op, variants: list[str] | None, configs: list[ConfigText]) -> dict[str, Any]:
    """Return ``variants`` and ``configs`` of one or two kernels of an op; a single one of either is that of both."""
    from workbench.ops.selection import settings_of

    if not configs:
        return {"variants": variants, "configs": None}
    candidates = [[op.variant(name)] for name in variants or ()] or [[one for one in op.variants if one.compiles]]
    count = max(len(candidates), len(configs))
    sides = [
        settings_of(candidates[min(at, len(candidates) - 1)], configs[min(at, len(configs) - 1)], only_known=False)
        for at in range(count)
    ]
    return {"variants": [variant.name for variant, _ in sides], "configs": [settings for _, settings in sides]}


@main.command()
@click.argument("op", shell_complete=complete_op)
@names("case", "Tune for these cases (repeatable).")
@names("variant", "Only these variants (repeatable).", metavar=None)
@_replay_option
@_model_option
@click.option(
    "--strategy",
    default="exhaustive",
    show_default=True,
    help="exhaustive, random, greedy, predicted, bayesian or kernel_tuner:NAME.",
)
@click.option("--budget", default=None, help="At most this many configurations (24) or seconds (30s) per variant.")
@click.option("--store", default=None, type=click.Path(dir_okay=False), help="File that keeps the results (SQLite).")
@click.option("--quick", is_flag=True, help="A small case and a few configurations of each variant.")
@click.option("--retry-failed", is_flag=True, help="Retry configurations that failed before.")
@click.option(
    "--isolation",
    type=click.Choice(("auto", "process", "none")),
    default="auto",
    show_default=True,
    help="Measure in a process that may hang and crash, or in this one; auto: a process on a GPU.",
)
@_sample_option
@_judged_option
@click.option("--save", default=None, type=click.Path(dir_okay=False), help="Write one variant's sweep to this file.")
@pages_options
@json_option
def tune(op: str, save: str | None, as_json: bool, pages: Pages, **options: Any) -> None:
    """Sweep the configurations of OP, keep every outcome, and record the winner for OP to use.

    Interrupt it whenever you like: the same command goes on where it stopped.
    """
    from contextlib import closing

    from rich.console import Console

    from workbench.ops.own.files import load_op
    from workbench.tuning import ProgressBar, summary_table
    from workbench.tuning import tune as run
    from workbench.tuning.sweep import sweep_of
    from workbench.tuning.sweep_record import check_path

    if save:
        check_path(save)
    with closing(ProgressBar()) as bar:
        result = run(load_op(op), progress=bar, **options)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=as_json)
    if as_json:
        say(result.to_json())
    else:
        console.print(summary_table(result))
        console.print(plain(result))
    pages.write(result)
    if result.interrupted:
        sys.exit(130)
    if save:
        console.print(plain(f"sweep written to {sweep_of(result).save(save)}"))


@main.command()
@click.argument("what", metavar="SWEEP|FILE.py:OP")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--format", "kind", type=click.Choice(("sweep", "kernel-tuner", "t4", "t4-metadata")), default="sweep")
@click.option("--variant", help="For an op, the kernel to export (default: the fastest tuned one).")
def export(what: str, path: str, kind: str, variant: str | None) -> None:
    """Write a sweep or an own op to PATH.

    A sweep (a file, a Kernel Tuner cache, or the name of a shipped sweep) is written in another format. An op of one's
    own, FILE.py:OP, is written as one Python file that needs only torch and PyCUDA or Triton.
    """
    if ".py:" in what:
        from workbench.ops.own.files import load_op

        say(f"written to {load_op(what).export(path, variant)}")
        return
    from workbench.tuning.kernel_tuner_files import export as run
    from workbench.tuning.sweep import load

    say(f"written to {run(load(what), path, kind)}")


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--check", is_flag=True, help="Watch every launch; report findings, and exit with 1 if there are any.")
@click.option("--strict", is_flag=True, help="Like --check; also report violations of rules that GPUs tolerate.")
@click.option("--trace", metavar="FILE.html", help="Write a page with every launch, line by line.")
@click.option("--arch", help="sm_80, sm_89 or sm_90: compile for this (default: the model's).")
@click.option("--model", help="The GPU that the simulated devices stand for (default: h200; Triton: a100-sxm-80gb).")
@click.option("--seconds-limit", type=click.FloatRange(min=0, min_open=True), help="Time limit of a launch.")
@click.option("--devices", default=1, help="Number of simulated devices.")
@click.option(
    "--memory",
    "memory_gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Memory of each device (default: half of this machine's).",
)
@click.option("--exact-name", is_flag=True, help="Leave '(simulated)' out of the devices' name.")
@click.option("--first-config", is_flag=True, help="Autotuners of Triton take their first configuration that runs.")
@click.option("--inductor", is_flag=True, help="Also run what torch.compile writes for tensors on the CPU.")
@click.option("--simulated", "force", is_flag=True, help="Simulate the devices even if there is a GPU.")
@click.option("--nvcc", default="", metavar="WORDS", help="Options and more files for nvcc: '-I include -DN=8 b.cu'.")
def run(script: str, arguments: tuple[str, ...], **options: Any) -> None:
    """Run a program that launches kernels, in Python or in CUDA C++ (.cu); without a GPU, on simulated devices.

    A command, such as make, runs with an nvcc on PATH whose programs are simulated too.

    The program is SCRIPT with its ARGUMENTS; options of the workbench stand before it. Every launch counts: PyCUDA's
    and Triton's, those of load_cuda and load_ptx, of ops, checks and traces, also in processes that the program starts.
    With --check the exit status is 1 for a finding and 2 if nothing was launched; else it is the program's own.
    """
    from workbench.programs.running import run_program

    sys.exit(run_program(script, arguments, **options))


@main.group()
def setup() -> None:
    """Install what pip alone cannot."""


@setup.command("pycuda")
def setup_pycuda() -> None:
    """Build PyCUDA without a CUDA installation, and install it into this environment."""
    from workbench.driver.pycuda_setup import install

    install(say)


@setup.command("cupy")
def setup_cupy() -> None:
    """Install a CuPy for CUDA 13 that also runs on the simulated driver into this environment."""
    from workbench.driver.cupy_setup import install

    say(f"CuPy {install(say)}")


@setup.command("nvcc")
def setup_nvcc() -> None:
    """Install nvcc, the compiler of CUDA programs: 99 MB by pip; fetch the headers of cuBLAS and cuRAND."""
    from workbench.driver.nvcc_setup import install

    say(f"nvcc {install(say)}")


@setup.command("gpu")
def setup_gpu() -> None:
    """Compile the simulated cuda device of the installed torch; otherwise it is compiled on first use."""
    from workbench.driver.torch_device.library import prepare

    say(f"ready: {prepare(say)}")


class _BenchGroup(_Group):
    """The named benchmarks; any other name is an op."""

    entry_points = "workbench.benchmarks"

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return super().get_command(ctx, name) or _bench_op(name)


@main.group(cls=_BenchGroup)
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
    @_model_option
    @click.option(
        "--over",
        multiple=True,
        metavar="SIZE=VALUE,...",
        help="Vary a size of one case, cols=512,1024,2048 (repeatable: every combination).",
    )
    @click.option("--together", is_flag=True, help="With several --over: first values together, then second ones.")
    @click.option("--figure", metavar="NAME", help="With --over: time, bandwidth, sectors, ... (default: time).")
    @_config_option
    @_sample_option
    @_judged_option
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


@bench.command("tune")
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


@bench.command("predict")
@names("sweep", "Only these sweeps (default: the shipped ones).", metavar="FILE")
@click.option("--measured", metavar="FOLDER", help="Published search spaces: Kernel Tuner caches or T4 results.")
@click.option("--sources", metavar="FOLDER", help="Their kernels and launches (default: ours of the same design).")
@click.option("--model", help="The device model, where a file names no GPU that has one.")
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


if __name__ == "__main__":
    main()
