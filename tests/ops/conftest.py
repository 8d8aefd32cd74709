"""What the op tests share: the simulator, and one judge for right kernels and mutants alike."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from workbench.errors import KernelFault
from workbench.launch import devices
from workbench.launch.sim import Simulator
from workbench.ops.variant import Check


@dataclass(frozen=True)
class Verdict:
    """What running one configuration on one case brought to light."""

    check: Check | None
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.check is not None and self.check.ok and not self.findings

    def __str__(self) -> str:
        return f"{self.check}" + "".join(f"\n  {finding}" for finding in self.findings)


@pytest.fixture(scope="session")
def sim():
    return devices.get("sim")


@pytest.fixture(scope="session")
def judge(sim):
    """Run a configuration on a case in the simulator, for its own architecture or another: the error against its bound,
    and what the machine found."""

    def run(variant, config, case, *, checks=False, arch=sim.arch) -> Verdict:
        problem = case.problem(config, arch=arch)
        tensors = case.inputs(problem)
        try:
            report = variant.run(config, problem, tensors, Simulator(arch=arch), checks=checks)
        except KernelFault as fault:
            return Verdict(None, (str(fault),))
        findings = tuple(map(str, report.findings)) if checks and report is not None else ()
        return Verdict(case.check(tensors.out), findings)

    return run
