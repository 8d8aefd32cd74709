"""A sandbox for a candidate's process, by bubblewrap: no network, no other process, files read-only, a private /tmp.

It needs the program ``bwrap`` and namespaces that an unprivileged account may make; `command` names the one that is
missing. The process that runs a candidate's kernels and compares their results stays outside.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from workbench.errors import WorkbenchError

_PRIVATE = ("/tmp", "/var/tmp")
"""Folders that are empty and writable inside, except for the package's files and the candidate's own folder."""
_MEMORY = "/dev/shm"
_NESTED = ("unshare", "--user", "--mount", "--ipc", "--map-current-user", "true")
_SECONDS = 20


class NoSandbox(WorkbenchError):
    """A sandbox was asked for and cannot be made; the message gives the reason and the remedy."""


def command(readable: Iterable[Path], mib: int, folder: Path | None = None, *, several: bool = False) -> list[str]:
    """Return the words to put in front of a command that is to run in the sandbox.

    ``readable`` are files and folders that the command must find although they may lie in a private folder. ``mib``
    bounds the data that it can write there, if bubblewrap can. ``folder`` is a further private folder. With ``several``
    its processes can have name spaces of their own. Raises NoSandbox.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox(
            "--sandbox: there is no program bwrap (bubblewrap) here. Install it (apt install bubblewrap), or run the "
            "judge in a container."
        )
    sized = ["--size", str(mib << 20)] if "--size" in _said(program, "--help") else []
    words = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += _rights() if several else []
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += [*sized, "--tmpfs", _MEMORY, "--remount-ro", "/dev"]
    for private in filter(os.path.isdir, _PRIVATE):
        words += [*sized, "--tmpfs", private]
    for one in needed(readable):
        words += ["--ro-bind", one, one]
    if folder is not None:
        words += [*sized, "--tmpfs", str(folder)]
    words += ["--chdir", "/"]
    said = _said(*words, "true")
    if said:
        raise NoSandbox(
            f"--sandbox: bubblewrap cannot make a sandbox here: {said}. Where accounts may not make namespaces "
            "(kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, a container without "
            "them), allow it, or run the judge in a container of its own."
        )
    return [*words, "--"]


def needed(readable: Iterable[Path]) -> list[str]:
    """Return the given paths and Python's import paths that a private folder would hide, outer ones first."""
    given = {*map(str, readable), sys.prefix, sys.base_prefix, *_folders_of_package(), *filter(None, sys.path)}
    paths = sorted({*map(os.path.abspath, given), *map(os.path.realpath, given)})
    return [one for one in paths if any(one.startswith(f"{outer}/") for outer in _PRIVATE) and os.path.exists(one)]


def private(folder: str) -> list[str]:
    """Return the folders that can be written inside, with a further one."""
    return [*filter(os.path.isdir, _PRIVATE), _MEMORY, folder]


@functools.cache
def serves_several() -> bool:
    """Return True if processes in a sandbox can have name spaces of their own, as `private_folders.take` needs."""
    program = shutil.which("bwrap")
    words = ("--unshare-all", "--cap-drop", "ALL", *_rights(), "--ro-bind", "/", "/", "--proc", "/proc")
    return program is not None and not _said(program, *words, *_NESTED)


def _rights() -> list[str]:
    """Return bubblewrap's words for what Linux asks of root in a name space that is to have root in another one."""
    return ["--cap-add", "CAP_SETFCAP"] if os.getuid() == 0 else []


def _folders_of_package() -> Iterable[str]:
    found = importlib.util.find_spec(__name__.partition(".")[0])
    return (found and found.submodule_search_locations) or ()


def _said(*words: str) -> str:
    """Return the text that a command prints as it fails, or as its help; empty for one that succeeds in silence."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    text = " ".join((done.stdout + done.stderr).split())
    return text or ("" if done.returncode == 0 else f"it exits with status {done.returncode}")
