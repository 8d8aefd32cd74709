"""Folders of a candidate's own, in a sandbox that serves one candidate after the other.

A process takes new, empty folders in the place of the sandbox's writable ones, in name spaces of its own. They are gone
when the last process in them has ended. What one candidate leaves there, or in System V's shared memory, no other one
finds. Nor can a candidate uncover what lies below: it keeps none of the rights by which the folders were mounted.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import WorkbenchError

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x00020000, 0x08000000, 0x10000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _AGAIN, _BIND, _WITH_THOSE_BELOW = 1, 2, 4, 32, 4096, 16384
_DROP_FROM_BOUND = 24
_CAPABILITIES_VERSION = 0x20080522


def take(folders: Sequence[str], kept: Sequence[str], mib: int) -> None:
    """Give this process, which has one thread, its own ``folders``, each of at most ``mib`` MiB.

    ``kept`` are files and folders in them that stay, as they can be read now. Raises WorkbenchError if the kernel
    refuses it.
    """
    user, group = os.getuid(), os.getgid()
    _require(_LIBC.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_IPC), "new name spaces")
    for name, content in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(content)
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in kept]
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        _mount("tmpfs", folder, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={mib}m,mode=0700")
    for path, fd in opened:
        there = f"/proc/self/fd/{fd}"
        if not os.path.exists(path):  # not in a folder that was kept before
            os.makedirs(path if os.path.isdir(there) else os.path.dirname(path), exist_ok=True)
            if not os.path.isdir(there):
                Path(path).touch()
            _mount(there, path, "", _BIND | _WITH_THOSE_BELOW, "")
            _mount("", path, "", _AGAIN | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES, "")
        os.close(fd)
    _drop_capabilities()


def _mount(what: str, where: str, kind: str, flags: int, options: str) -> None:
    words = [ctypes.c_char_p(os.fsencode(one)) for one in (what, where, kind)]
    _require(_LIBC.mount(*words, ctypes.c_ulong(flags), ctypes.c_char_p(options.encode())), where)


def _drop_capabilities() -> None:
    number = 0
    while _LIBC.prctl(_DROP_FROM_BOUND, ctypes.c_ulong(number), 0, 0, 0) == 0:  # until there is no such capability
        number += 1
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _require(_LIBC.capset(header, (ctypes.c_uint32 * 6)()), "capabilities")


def _require(result: int, what: str) -> None:
    if result:
        raise WorkbenchError(f"A sandbox cannot serve another candidate: {what}: {os.strerror(ctypes.get_errno())}.")
