"""Solutions are forked from one process: none sees another, and none spoils the process that forks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from solutions import HONEST, PROBLEMS

import workbench as wb
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.driver.torch_device.library import installed_torch
from workbench.judge.arguments import MEMORY_MIB
from workbench.judge.kernelbench.nursery import shared
from workbench.judge.sandbox import NoSandbox, command
from workbench.judge.verdict import Judgement

_TORCH = installed_torch()
pytestmark = pytest.mark.skipif(_TORCH is None or _TORCH.problem is not None, reason="takes torch's build for CUDA 13")

_LEAVES_TRACES = """
import os, sys, tempfile, torch
sys.modules["left"] = os.environ["LEFT"] = torch.left = "left"
sys.path.append("left")
os.chdir("/")
with open(os.path.join(tempfile.gettempdir(), "left"), "w") as file:
    file.write("left")
"""
_LOOKS_FOR_TRACES = """
import os, sys, tempfile, torch
places = [sys.modules, os.environ, vars(torch), sys.path, os.listdir(tempfile.gettempdir())]
found = [index for index, place in enumerate(places) if "left" in place or "LEFT" in place]
if found or os.getcwd() == "/":
    raise RuntimeError(f"traces of another solution: {found}")
"""
_LOOKS_FOR_WORK_OF_ITS_OWN = """
import os, pathlib, sys
from triton.runtime.cache import triton_key
class ModelNew(ModelNew):
    def forward(self, x):
        result = super().forward(x)
        assert "torch._dynamo" not in sys.modules
        assert triton_key.cache_info().misses == 1
        assert triton_key() == triton_key.__wrapped__()
        files = [*pathlib.Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.*")]
        assert files and not [one for one in files if one.name.startswith("cuda_utils")], files
        return result
"""
_LEAVES_FILES = """
import os, pathlib, socket
def tried(function):
    try:
        return function()
    except OSError as error:
        return type(error).__name__
places = ["/tmp", "/var/tmp", "/dev", "/dev/shm", PRIVATE]
found = [
    tried(lambda: socket.create_connection(("192.0.2.1", 9), 1)), tried(lambda: open(NOTE, "w")),
    [place for place in places if pathlib.Path(place, "left").exists()],
]
if found != ["OSError", "OSError", []]:
    raise RuntimeError(f"in a sandbox: {found}")
for place in places:
    tried(lambda: pathlib.Path(place, "left").write_text("left"))
"""


def _judged(folder: Path, before: str = "", after: str = "", sandbox: bool = False) -> Judgement:
    problem, solution = folder / "problem.py", folder / "solution.py"
    problem.write_text(PROBLEMS["scale"].replace("4096", "61").replace("16384", "250"))
    solution.write_text(before + HONEST["triton scale"][1] + after)
    return wb.check_kernelbench(problem, solution, full=True, torch_compile=False, elsewhere=False, sandbox=sandbox)


def test_a_solution_sees_nothing_of_the_one_before(tmp_path: Path):
    for before in (_LEAVES_TRACES, _LOOKS_FOR_TRACES):
        found = _judged(tmp_path, before)
        assert found.ok, str(found)


@pytest.mark.parametrize("end", ["os._exit(7)", "os.kill(os.getpid(), 9)", "os.kill(os.getppid(), 9)"])
def test_the_next_solution_is_judged_after_one_that_ended_its_process(tmp_path: Path, end: str):
    found = _judged(tmp_path, f"import os\n{end}\n")
    assert found.outcome == ("not_loaded" if "getppid" in end else "crashed"), str(found)
    server = shared(DEFAULT_MODEL, MEMORY_MIB).process
    found = _judged(tmp_path)
    assert found.ok, str(found)
    assert shared(DEFAULT_MODEL, MEMORY_MIB).process is server


def test_a_solution_inherits_triton_and_imports_no_dynamo(tmp_path: Path):
    found = _judged(tmp_path, after=_LOOKS_FOR_WORK_OF_ITS_OWN)
    assert found.ok, str(found)


def test_a_sandbox_has_no_network_and_nothing_of_the_solution_before(tmp_path: Path):
    try:
        command((), 64)
    except NoSandbox as error:
        pytest.skip(str(error))
    names = _LEAVES_FILES.replace("NOTE", repr(str(tmp_path / "note")))
    for _ in range(2):
        found = _judged(tmp_path, names.replace("PRIVATE", 'os.environ["WORKBENCH_HOME"]'), sandbox=True)
        assert found.ok, str(found)
    assert not (tmp_path / "note").exists()
