"""What the package starts beside a process ends by itself when that process is killed, and says nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import gone, wait_until

START = r"""
import multiprocessing, os, socket, time
from concurrent.futures import ProcessPoolExecutor
from workbench.toolchain import nvrtc_client
from workbench.base.worker import Worker

BUSY = "import os, time; open('begun', 'w').write(f'{os.getpid()}\\n'); time.sleep(1e6)"
PACKAGE = '''
import sys, types, workbench
package = sys.modules["workbench.judge"] = types.ModuleType("workbench.judge")
package.__path__ = [workbench.__path__[0] + "/judge"]
'''

def idle():
    exec(BUSY)

SLOW_END = '''
import atexit, runpy, time
atexit.register(lambda: [time.sleep(0.01) for _ in range(10)])
runpy.run_path(FILE, run_name="__main__")
'''

def compile_(text):  # by a server that takes a while to end, so that its children end before it
    with open("server.py", "w") as file:
        file.write(SLOW_END.replace("FILE", repr(nvrtc_client.nvrtc_server.__file__)))
    nvrtc_client.nvrtc_server.__file__ = "server.py"
    nvrtc_client.compile_program("./libfake.so", {"text": text, "name": "x.cu", "names": [], "flags": []}, "x.cu")

def judge(warm_up):  # one that is never done with a request, and spares the seconds that importing torch takes
    exec(PACKAGE)
    from workbench.judge import nursery
    doubles = f"from workbench.judge import forker; forker._warm_up = lambda: exec({warm_up!r})\n"
    doubles += f"forker._role = lambda role: lambda *_: exec({BUSY!r})\n"
    begin, serve = nursery._PROGRAM.split("from workbench.judge.")
    nursery._PROGRAM = begin + PACKAGE + doubles + "from workbench.judge." + serve
    nursery.shared().start()
    return nursery.shared()

def pool():
    from workbench.base.worker import end_with_pool
    made = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    made.submit(end_with_pool, os.getpid()).result()
    return made
"""
CALLERS = {
    "NVRTC's server": "compile_('count'); idle()",
    "NVRTC's server, compiling": "compile_('hang begun')",
    "a worker": "worker = Worker(); worker.call(os.getpid); idle()",
    "a worker, in a call": "Worker().call(exec, BUSY)",
    "a judge, starting": "judge(BUSY); os.wait()",
    "a judge": "child = judge('').fork('run', 100); idle()",
    "a judge, running": "child = judge('').fork('run', 100); child.send({}, 60); child.answer(1e6)",
    "a judge, answering": """
shared = judge("")
type(shared._forker).reply = lambda forker, fds: (forker.control.recv(1, socket.MSG_PEEK), idle())
shared.fork("run", 100)
""",
    "a pool's worker": "made = pool(); idle()",
    "a pool's worker, in a task": "pool().submit(exec, BUSY).result()",
}


def descendants(pid: int) -> set[int]:
    found = {
        int(word) for one in Path(f"/proc/{pid}/task").iterdir() for word in (one / "children").read_text().split()
    }
    return found.union(*map(descendants, found))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build a fake NVRTC with")
    path = tmp_path_factory.mktemp("library") / "libfake.so"
    source = Path(__file__).parent / "toolchain" / "fake_nvrtc.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.mark.parametrize("kind", CALLERS)
def test_it_ends_and_says_nothing(kind: str, library: Path, tmp_path: Path):
    (tmp_path / "libfake.so").symlink_to(library)
    begun, said = tmp_path / "begun", tmp_path / "said"
    # Python's own tracker tells of the semaphores of a pool, which it removes.
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONWARNINGS": "ignore:resource_tracker"}
    command = [sys.executable, "-c", START + CALLERS[kind]]
    with said.open("wb") as file:
        caller = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file, env=environment)
    wait_until(lambda: (begun.exists() and begun.read_text().endswith("\n")) or caller.poll() is not None)
    assert caller.poll() is None, said.read_text()
    pids = descendants(caller.pid)
    assert pids
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(open(f"/proc/{pid}/fd/2")) for pid in pids]
        caller.kill()
        caller.wait()
        wait_until(lambda: all(map(gone, pids)), 20)
        assert {output.read() for output in outputs} == {""}
    assert not list(tmp_path.glob("workbench-judge-*"))
