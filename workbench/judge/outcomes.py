"""The outcomes of judging a candidate: the name, exit status and meaning of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OK = "ok"

OUTCOMES: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        OK: (0, "nothing was found, for any seed and in either order of warps"),
        "wrong_result": (1, "an element misses its bound against the float64 reference"),
        # 2 is what the command line returns for a wrong argument
        "unwritten": (3, "an element of an output is as it was before the launch"),
        "changed_input": (4, "an argument that is not declared in place was written"),
        "guard_written": (5, "memory around a buffer was written, and no check of the machine saw it"),
        "aliased": (6, "an output is passed to no kernel, while another tensor is passed twice"),
        "out_of_bounds": (7, "an access outside a buffer or shared memory, misaligned, or to read-only memory"),
        "race": (8, "threads, warps or blocks meet at an address without a barrier"),
        "uninitialised": (9, "memory was read before anything had written it"),
        "barrier": (10, "a barrier, mask or mbarrier is misused, or a deadlock"),
        "fault": (11, "a trap, a failed assertion, a stack overflow"),
        "timeout": (12, "the time limit was reached"),
        "memory": (13, "the memory limit was reached"),
        "no_kernel": (14, "plain torch, or nothing: there is no kernel to judge"),
        "not_loaded": (15, "the candidate's file or declaration raises an error"),
        "not_compiled": (16, "the compiler refuses the source"),
        "unsupported": (17, "no legal configuration, a launch that no GPU takes, PTX beyond the machine"),
        "crashed": (18, "a process ended: a crash, or an exit"),
        "invalid": (19, "the answer of the candidate's process is not a description of launches"),
        "unstable": (20, "asked twice for the same launch, the declaration gives two answers"),
        "op_changed": (21, "a file of the op was changed while the candidate was judged"),
        "wrong_elsewhere": (22, "right on the case's inputs, wrong on the same of another magnitude or structure"),
        "refuted": (28, "right on the inputs that were tried, and a proof finds sizes or an order at which it fails"),
        "cached": (23, "the results of an earlier call, or no launch for inputs that were there before"),
        "unfinished": (24, "work was left on a stream or a thread that the caller does not wait for"),
        "tampered": (25, "functions of torch or of the judge were replaced"),
        "host_computed": (27, "right for the inputs that its host code saw, wrong for others in their place"),
        "not_judged": (26, "of many candidates: the op, the problem or its reference fails for this one"),
    }
)
"""Outcome -> (exit status of ``workbench check``, meaning). With several verdicts the first failure's status counts."""

_OF_FINDINGS = {
    "out-of-bounds": "out_of_bounds",
    "misaligned": "out_of_bounds",
    "write to read-only memory": "out_of_bounds",
    "shared race": "race",
    "warp race": "race",
    "global race": "race",
    "cp.async data read before wait": "race",
    "uninitialised shared read": "uninitialised",
    "uninitialised global read": "uninitialised",
    "divergent barrier": "barrier",
    "absent lane": "barrier",
    "mismatched mask": "barrier",
    "barrier misuse": "barrier",
    "mbarrier misuse": "barrier",
    "deadlock": "barrier",
    "results that the order changes": "race",
    "timeout": "timeout",
}


def of_finding(kind: str) -> str:
    """Return the outcome of a finding of the machine."""
    return _OF_FINDINGS.get(kind, "fault")


def further(findings: int) -> str:
    """Return the end of a message about the first of so many findings: the number of the others."""
    others = findings - 1
    return f" ({others} further finding{'s' if others > 1 else ''})" if others > 0 else ""


def exit_status(outcome: str) -> int:
    """Return the exit status of ``workbench check`` for an outcome."""
    return OUTCOMES[outcome][0]


def listed() -> str:
    """Return the table of outcomes as lines for a help text."""
    return "\n".join(f"{status:>4}  {name}: {meaning}" for name, (status, meaning) in OUTCOMES.items())
