"""Fixtures of the op tests: the simulator, and a judge of configurations."""

from __future__ import annotations

import pytest
from mutants.judged import Verdict, judged

from workbench.launch import devices
from workbench.launch.sim import Simulator


@pytest.fixture(scope="session")
def sim():
    return devices.get("sim")


@pytest.fixture(scope="session")
def judge(sim):
    """Judge a configuration in the simulator, for its own architecture or another."""

    def run(variant, config, case, *, checks=False, arch=sim.arch) -> Verdict:
        return judged(variant, config, case, Simulator(arch=arch), checks=checks)

    return run


@pytest.fixture(scope="module")
def own_home(tmp_path_factory):
    """No tuned table of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield
