"""Commands under ``workbench run``: child processes, the signals passed on to them, and their exit status."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.driver.elf import is_elf, read_elf
from workbench.driver.library_files import runtime_path
from workbench.driver.toolkit import toolkit_folder
from workbench.programs.children import VARIABLE


def run_command(words: Sequence[str]) -> int:
    """Run a command, such as ``make test`` or ``./program``, and return its exit status as a shell does.

    SIGINT, SIGTERM and SIGHUP go to the command and do not end this process, which still has to write the report.
    """
    file = Path(words[0]).resolve()
    program = file if file.is_file() else None
    with subprocess.Popen(words, executable=program, env=_environment(file)) as child, _passed_on(child):
        status = child.wait()
    return status if status >= 0 else 128 - status


def _environment(file: Path) -> dict[str, str]:
    """Return the environment of a command that joins the run, with our toolkit as CUDA_HOME and CUDA_PATH if unset.

    If the program has an RPATH, which may lead to NVIDIA's runtime, LD_PRELOAD loads ours before it.
    """
    environment = dict(os.environ)
    if VARIABLE not in environment:
        return environment
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        environment.setdefault(variable, str(toolkit_folder()))
    if is_elf(file) and read_elf(file).has_rpath:
        libraries = [str(runtime_path()), *filter(None, [os.environ.get("LD_PRELOAD")])]
        environment["LD_PRELOAD"] = ":".join(libraries)
    return environment


@contextmanager
def _passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT or not _in_foreground():
            child.send_signal(number)

    kept = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Return True if the terminal sends Ctrl-C to this process's group, and so to the command itself as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
