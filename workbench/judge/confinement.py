"""Confinement of a candidate's process: it cannot signal or trace other processes, set their limits, or leave keys.

A filter of system calls (seccomp) needs no privileges and cannot be removed again; processes started later inherit it.
If the kernel has Landlock (5.13, signals from 6.12), the memory of others under /proc is closed as well. Files and the
network stay open; closing them needs a sandbox, see `workbench.judge.sandbox`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple

from workbench.errors import WorkbenchError

_LIBC = ctypes.CDLL(None, use_errno=True)

_SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 4, 22, 38
_MODE_FILTER = 2
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION_FLAG, _BENEATH_PATH, _MAKE_CHAR_DEVICE, _SCOPE_SIGNAL, _SIGNALS_SINCE = 1, 1, 1 << 6, 1 << 1, 6
_REFER, _REFER_SINCE = 1 << 13, 2

# Classic BPF over struct seccomp_data: the call's number at 0, the architecture at 4, arguments from 16.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH = 0, 4
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_X32 = 0x40000000

_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_FIOSETOWN, _SIOCSPGRP, _TIOCSCTTY, _TIOCSTI = 0x8901, 0x8902, 0x540E, 0x5412


class _Calls(NamedTuple):
    """The numbers of one architecture's system calls."""

    audit_arch: int
    to_self: tuple[int, ...]
    """Calls whose first argument is a process, which must be this one.

    They are kill, tgkill, tkill, rt_sigqueueinfo and rt_tgsigqueueinfo.
    """
    limits: int
    """prlimit64, whose process must be this one, or 0, which is also this one."""
    fcntl: int
    ioctl: int
    never: tuple[int, ...]
    """Calls that are always refused.

    They are ptrace, process_vm_readv and _writev, pidfd_send_signal, pidfd_getfd, setpriority, sched_setscheduler,
    _setparam and _setattr, ioprio_set; add_key, request_key and keyctl, because a session's keys outlive a candidate.
    """


_ARCHITECTURES = {
    "x86_64": _Calls(
        0xC000003E,
        (62, 234, 200, 129, 297),
        302,
        72,
        16,
        (101, 310, 311, 424, 438, 141, 144, 142, 314, 251, 248, 249, 250),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        (129, 131, 130, 138, 240),
        261,
        25,
        29,
        (117, 270, 271, 424, 438, 140, 119, 118, 274, 30, 217, 218, 219),
    ),
}


def unavailable() -> str:
    """Return the reason why no process can be confined here, or an empty text."""
    if platform.machine() not in _ARCHITECTURES:
        return f"the numbers of system calls are known for {', '.join(_ARCHITECTURES)}, not for {platform.machine()}"
    _LIBC.prctl(_SET_SECCOMP, _MODE_FILTER, None, 0, 0)  # without a program: EFAULT if the kernel has filters
    reason = ctypes.get_errno()
    return "" if reason == errno.EFAULT else f"this kernel has no filters of system calls: {os.strerror(reason)}"


def confine() -> None:
    """Forbid this process, and all that it starts, every system call that reaches another process.

    Such a call fails with EPERM. Raises WorkbenchError if the kernel cannot do it.
    """
    if reason := unavailable():
        raise WorkbenchError(f"A candidate's process cannot be confined: {reason}.")
    program = b"".join(_filter(_ARCHITECTURES[platform.machine()], os.getpid()))
    content = ctypes.create_string_buffer(program, len(program))
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _close_memory()
    _prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(program) // 8, ctypes.addressof(content))))


def hide_memory(hidden: bool) -> None:
    """Close this process's memory to other processes of the account, or open it again."""
    _prctl(_SET_DUMPABLE, int(not hidden))


class _Program(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _prctl(option: int, *arguments: object) -> None:
    given = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in (*arguments, 0, 0, 0, 0)[:4]]
    if _LIBC.prctl(option, *given):
        reason = ctypes.get_errno()
        raise WorkbenchError(f"prctl({option}) failed: {os.strerror(reason)}")


def _filter(calls: _Calls, own: int) -> Iterator[bytes]:
    """Yield the instructions, 8 bytes each; every rule ends in an answer of its own or falls through to the next."""
    yield _instruction(_LOAD, _ARCH)
    yield _instruction(_EQUAL, calls.audit_arch, 1, 0)
    yield _instruction(_RETURN, _REFUSE)
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_AT_LEAST, _X32, 0, 1)
    yield _instruction(_RETURN, _REFUSE)
    for number in calls.never:
        yield from _rule(number, [_instruction(_RETURN, _REFUSE)])
    for number in calls.to_self:
        yield from _rule(number, _only(0, (own,)))
    yield from _rule(calls.limits, _only(0, (0, own)))
    yield from _rule(calls.fcntl, _none_of(1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX)))
    yield from _rule(calls.ioctl, _none_of(1, (_FIOSETOWN, _SIOCSPGRP, _TIOCSCTTY, _TIOCSTI)))
    yield _instruction(_RETURN, _ALLOW)


def _rule(number: int, answer: list[bytes]) -> Iterator[bytes]:
    yield _instruction(_EQUAL, number, 0, len(answer))
    yield from answer


def _only(argument: int, values: tuple[int, ...]) -> list[bytes]:
    return _compared(argument, values, _ALLOW, _REFUSE)


def _none_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    return _compared(argument, values, _REFUSE, _ALLOW)


def _compared(argument: int, values: tuple[int, ...], found: int, otherwise: int) -> list[bytes]:
    """Return a rule on the low half of an argument, all that the kernel reads of a process or a command."""
    jumps = [_instruction(_EQUAL, one, len(values) - index, 0) for index, one in enumerate(values)]
    load = _instruction(_LOAD, 16 + 8 * argument)
    return [load, *jumps, _instruction(_RETURN, otherwise), _instruction(_RETURN, found)]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _close_memory() -> None:
    """Enter a Landlock domain, if the kernel supports it: processes outside can no longer be traced or signalled."""
    with contextlib.suppress(WorkbenchError):
        version = _landlock(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG)
        scoped = _SCOPE_SIGNAL if version >= _SIGNALS_SINCE else 0
        # A domain must restrict at least one right on files: making a character device, which takes privileges anyway.
        # A domain refuses to move files between folders unless a rule allows it, and compilers' caches move files.
        moves = _REFER if version >= _REFER_SINCE else 0
        attributes = struct.pack("=QQQ", _MAKE_CHAR_DEVICE | moves, 0, scoped)[: 24 if scoped else 8]
        rules = _landlock(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
        try:
            if moves:
                _allow_everywhere(rules, moves)
            _landlock(_LANDLOCK_RESTRICT, rules, 0)
        finally:
            os.close(rules)


def _allow_everywhere(rules: int, rights: int) -> None:
    root = os.open("/", os.O_PATH)
    try:
        _landlock(_LANDLOCK_ADD_RULE, rules, _BENEATH_PATH, struct.pack("=Qi", rights, root), 0)
    finally:
        os.close(root)


def _landlock(number: int, *arguments: object) -> int:
    result = _LIBC.syscall(number, *arguments)
    if result < 0:
        raise WorkbenchError(os.strerror(ctypes.get_errno()))
    return result
