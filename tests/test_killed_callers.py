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
from workbench.base.processes.worker import Worker

BUSY = "import os, time; open('begun', 'w').write(f'{os.getpid()}\\n'); time.sleep(1e6)"
def idle():
    exec(BUSY)

def compile_(text):
    nvrtc_client.compile_program("./libfake.so", {"text": text, "name": "x.cu", "names": [], "flags": []}, "x.cu")

DOUBLE = '''
def prepare(*_):
    exec(WARM_UP)
    return lambda role: lambda *_: exec(BUSY)
'''

def judge(warm_up):  # one that is never done with a request, and spares the seconds that importing torch takes
    from workbench.judge import nursery
    with open("double.py", "w") as file:
        file.write(DOUBLE.replace("WARM_UP", repr(warm_up)).replace("BUSY", repr(BUSY)))
    nursery.shared()._prepare = "double.py:prepare"
    nursery.shared().start()
    return nursery.shared()

def pool():
    from workbench.base.processes.ending import end_with_pool
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
    "a judge, running": "child = judge('').fork('run', 100); child.request({}, 60); child.json(1e6)",
    "a judge, answering": """
shared = judge("")
shared.process.await_start()
shared.process.receive = lambda *_: (shared.process._channel.socket.recv(1, socket.MSG_PEEK), idle())
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
