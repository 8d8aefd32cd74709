"""One judge for right kernels and mutants alike."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.errors import KernelFault
from workbench.ops.variant import Check


@dataclass(frozen=True)
class Verdict:
    """Result of running one configuration on one case: the comparison with the answer, and the findings of checks."""

    check: Check | None
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.check is not None and self.check.ok and not self.findings

    def __str__(self) -> str:
        return f"{self.check}" + "".join(f"\n  {finding}" for finding in self.findings)


def judged(variant, config, case, device, tensors=None, *, checks=False, **options) -> Verdict:
    """Run a configuration on a case, on its own inputs or on ``tensors``, and return the verdict.

    That has the error with its bound, and what the machine found.
    """
    problem = case.problem(config, arch=device.arch)
    tensors = tensors or case.inputs(problem)
    try:
        report = variant.run(config, problem, tensors, device, checks=checks, **options)
    except KernelFault as fault:
        return Verdict(None, (str(fault),))
    findings = tuple(map(str, report.findings)) if checks and report is not None else ()
    return Verdict(case.check(tensors.out), findings)
