"""The command ``workbench``: doctor, compare, diff, check, prove, trace, tune, run and others."""

from __future__ import annotations

import importlib

import click

from workbench.base.command_group import CommandGroup
from workbench.base.options import json_option, names, tell, tell_on_the_way
from workbench.base.terminal import say
from workbench.base.versions import __version__
from workbench.errors import ArgumentError

_PLACES = {
    "bench": "workbench.comparison.bench.commands:bench",
    "check": "workbench.judge.commands:check",
    "compare": "workbench.comparison.commands:compare",
    "compare-code": "workbench.comparison.code_commands:compare_code",
    "completion": "workbench.cli:completion",
    "debug": "workbench.ui.debug_commands:debug",
    "diff": "workbench.analysis.difference.commands:diff",
    "doctor": "workbench.cli:doctor",
    "export": "workbench.tuning.commands:export",
    "occupancy": "workbench.comparison.code_commands:occupancy",
    "prove": "workbench.programs.commands:prove",
    "run": "workbench.programs.commands:run",
    "schema": "workbench.cli:schema",
    "serve": "workbench.service.commands:serve",
    "setup": "workbench.driver.commands:setup",
    "trace": "workbench.comparison.commands:trace",
    "tune": "workbench.tuning.commands:tune",
    "watch": "workbench.comparison.watch_commands:watch",
}
"""Modules that import nothing but click and their options, so that help and completion stay fast."""


# A command declares the options that it reads itself; the others are passed on under their own names.
@click.group(
    cls=CommandGroup,
    places=_PLACES,
    entry_points="workbench.commands",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, package_name="kernel-workbench")
def main() -> None:
    """Develop GPU kernels, with or without a GPU.

    An OP is one of the workbench (paged_attention, ...), of an installed package, or one of your own in a file:
    my_ops.py:row_softmax.
    """


@click.command()
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


@click.command()
@click.pass_context
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and ops in SHELL.

    For bash, add this line to ~/.bashrc: eval "$(workbench completion bash)"
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    say(made(ctx.find_root().command, {}, "workbench", "_WORKBENCH_COMPLETE").source())


@click.command()
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


if __name__ == "__main__":
    main()
