"""The command ``workbench serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.base.options import names, without
from workbench.base.terminal import say
from workbench.errors import MissingToolError

_LOOPBACK = "127.0.0.1"
_GRACE_SECONDS = 3


@click.command()
@click.argument("problems", nargs=-1, required=True)
@click.option("--host", default=_LOOPBACK, show_default=True, help="Address to listen at; others can reach 0.0.0.0.")
@click.option("--port", default=8765, show_default=True, help="Port to listen at.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of tickets, verdicts and the token; default: service in the workbench's own folder.",
)
@click.option(
    "--clients",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="TOML file with a table for each client: token, queued, priority. Default: one client, whose token is in the "
    "state folder.",
)
@click.option("--workers", type=int, help="Judgements at one time; default: one for each core.")
@click.option("--dask", metavar="ADDRESS", help="Judge on the workers of the Dask cluster with this scheduler.")
@click.option("--reward", metavar="MODULE:FUNCTION", help="Function of a ServiceResult that returns the reward.")
@names("forbid", "A module that candidates must not import, instead of the shipped list (repeatable).")
@click.option("--seeds", default=2, show_default=True, help="Seeds of a judgement; always the same for a problem.")
@click.option("--seconds", default=60.0, show_default=True, help="Limit of loading, and of each run, in CPU time.")
@click.option("--memory", "memory_mib", default=4096, show_default=True, metavar="MIB", help="Limit of a process.")
@without("elsewhere", "Leave out inputs of other magnitudes and structures.")
@click.option("--schedules", default=0, show_default=True, help="Also run in so many other orders of blocks and warps.")
@click.option("--prove", is_flag=True, help="Also prove kernels for all sizes that their launches stand for.")
@click.option("--sandbox", is_flag=True, help="Run a candidate's code without network, files read-only (bubblewrap).")
@click.option("--full", is_flag=True, help="Judge problems in KernelBench's format at their own sizes.")
@click.option("--skip-torch-compile", is_flag=True, help="Leave out the reference's time by torch.compile.")
def serve(
    problems: tuple[str, ...], host: str, port: int, state: Path | None, clients: Path | None, workers: int | None,
    dask: str | None, reward: str | None, forbids: list[str] | None, skip_torch_compile: bool, **judging: Any,
) -> None:  # fmt: skip
    """Judge candidates that come in over HTTP (docs/SERVICE.md).

    PROBLEMS are folders of problems in KernelBench's format, FILE.py:OP, names of ops, and puzzles.
    """
    try:
        import prometheus_client  # noqa: F401
        import uvicorn

        from workbench.service.app import application
    except ImportError as error:
        remedy = 'python -m pip install "kernel-workbench[serve]"'
        raise MissingToolError(f"workbench serve needs {error.name}: {remedy}") from error
    from workbench.base.home import home_part
    from workbench.service.clients import Clients
    from workbench.service.problems import JudgingOptions, Problems
    from workbench.service.rewards import reward_of, staged
    from workbench.service.service import Service, ServiceOptions
    from workbench.service.static_stages import FORBIDDEN

    folder = state or home_part("service")
    options = ServiceOptions(
        JudgingOptions(torch_compile=not skip_torch_compile, **judging),
        FORBIDDEN if forbids is None else tuple(forbids),
        staged if reward is None else reward_of(reward),
        workers,
    )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known, file = (Clients.read(clients), clients) if clients is not None else Clients.one(folder)
    served = Problems(problems)
    executor = None
    if dask is not None:
        executor = _cluster(dask)
    with Service(folder, served, options, executor) as service:
        say(f"{len(served)} problems; tokens in {file}; http://{host}:{port}/docs")
        # Open polls and streams would hold up its end: their clients ask again.
        uvicorn.run(
            application(service, known),
            host=host,
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )


def _cluster(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        remedy = 'python -m pip install "kernel-workbench[dask]"'
        raise MissingToolError(f"--dask needs distributed: {remedy}") from error
    return Client(address).get_executor(retries=0)
