"""pip of this environment, for what ``workbench setup`` gets."""

from __future__ import annotations

import subprocess
import sys

from workbench.errors import MissingToolError


def pip(*arguments: str, needs: str) -> None:
    """Run pip. Raises MissingToolError with what it ``needs`` and the last lines that it prints."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
        raise MissingToolError("\n".join([f"pip {arguments[0]} failed. {needs}:", *lines[-12:]]))
