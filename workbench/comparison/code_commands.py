"""Commands on compiled kernels: ``workbench occupancy`` and ``compare-code``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workbench.base.config_text import ConfigText
from workbench.base.op_names import check_op
from workbench.base.options import checked, complete_op, config_option, json_option, names, tell
from workbench.base.terminal import say
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.ops.op import Op


def _check_what(text: str) -> None:
    """Refuse a misspelt op before anything heavy is imported; files with kernels are looked for later."""
    if ".cu" not in text and ".ptx" not in text:
        check_op(text)


_case_option = click.option("--case", metavar="NAME", help="A case of the op (default: its small one).")


@click.command()
@click.argument(
    "what", metavar="[OP|FILE.cu[:KERNEL]]", required=False, shell_complete=complete_op, callback=checked(_check_what)
)
@_case_option
@click.option("--variant", default=None, help="The variant; not needed where there is only one.")
@config_option("Tunables of the variant, or macros of a .cu file (default: untuned).")
@click.option("--arch", metavar="sm_90", help="Compile for this (default: the first that fits).")
@click.option("--block", type=int, help="Threads of a block (default: those of the op's launch).")
@click.option("--registers", type=int, help="Registers per thread (default: the kernel's).")
@click.option("--shared", "shared_bytes", type=int, metavar="BYTES", help="Dynamic shared memory per block.")
@click.option("--plot", metavar="FILE.png", type=click.Path(dir_okay=False), help="Also save the plots as a picture.")
@json_option
def occupancy(
    what: str | None, configs: list[ConfigText], arch: str | None, plot: str | None, as_json: bool, **options: Any
) -> None:
    """Show a kernel's occupancy over block sizes and registers, its limits, and the gain of the next step.

    Without OP it is that of figures: workbench occupancy --block 256 --registers 42 --arch sm_90.
    """
    if what is None and not (options["block"] and options["registers"]):
        raise click.UsageError("Missing argument 'OP' (a name, or FILE.py:NAME), or both --block and --registers.")
    from workbench.comparison.occupancy import occupancy as run

    if len(configs) > 1:
        raise ArgumentError("config", f"{len(configs)} options", "one", "Write all its tunables in one --config.")
    result = run(**options | _named(what, options["variant"], configs, arch))
    tell(result, as_json)
    if plot:
        result.save_plot(plot)


@click.command("compare-code")
@click.argument("what", metavar="OP|FILE.cu[:KERNEL]", shell_complete=complete_op, callback=checked(_check_what))
@click.argument("other", metavar="[FILE.cu[:KERNEL]]", required=False)
@_case_option
@names("variant", "A variant; two compare them.")
@config_option("Tunables of a variant, or macros of a .cu file; two compare them.")
@click.option("--arch", "archs", multiple=True, metavar="sm_90", help="An architecture; two compare them.")
@click.option("--only", type=click.Choice(("ptx", "sass")), help="Show PTX or machine code only.")
@click.option("--exact", is_flag=True, help="Also say whether both are the same computation (docs/EXACT.md).")
@click.option("--grid", "grids", multiple=True, metavar="8,4", help="Blocks of files' kernels; two differ.")
@click.option("--block", "blocks", multiple=True, metavar="32", help="Threads of a block; two differ.")
@click.option(
    "--arg", "args", multiple=True, metavar="TENSOR|NUMBER", help="An argument, in order: float32[8,70] or 3."
)
@json_option
def compare_code(
    what: str, other: str | None, configs: list[ConfigText], archs: tuple[str, ...], only: str | None, as_json: bool,
    grids: tuple[str, ...], blocks: tuple[str, ...], args: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Compare PTX and machine code of two variants, configurations, architectures or kernels side by side."""
    from workbench.comparison.code_comparison import compare_code as run
    from workbench.ops.files import is_kernel_file, load_kernel, load_op

    for name, few in (("config", configs), ("arch", archs), ("variant", options["variants"] or ())):
        if len(few) > 2:
            raise ArgumentError(name, f"{len(few)} values", "one or two", "Compare two at a time.")
    if is_kernel_file(what):
        left, right = ((archs[at] if archs else None, configs[at].macros() if configs else None) for at in (0, -1))
        options |= {"op": load_kernel(what, *left), "other": load_kernel(other or what, *right)}
    else:
        found = load_op(what)
        options |= {"op": found, "arch": archs or None, "other": other and load_kernel(other)}
        options |= _sides(found, options["variants"], configs)
    if grids or blocks or args:
        from workbench.comparison.exact_code import argument_of, dimensions_of

        options |= {"grid": list(map(dimensions_of, grids)) or None, "block": list(map(dimensions_of, blocks)) or None}
        options |= {"args": [*map(argument_of, args)]}
    result = run(**options)
    if as_json:
        say(result.to_json())
    elif only is None:
        say(result)
    else:
        say("\n".join([str(getattr(result, only)), *result.exact_notes]))


def _named(what: str | None, variant: str | None, configs: list[ConfigText], arch: str | None) -> dict[str, Any]:
    """Return ``op``, ``variant``, ``config`` and ``arch`` for a kernel of a file, for an op, or for figures alone."""
    from workbench.ops.files import is_kernel_file, load_kernel, load_op

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
