"""A process for each compile: always a first one, several at once, and what happens to one costs only that one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import gone, wait_until

from workbench.errors import CompileError, CompilerCrash, CompileTimeout, MissingToolError
from workbench.toolchain import nvrtc_client
from workbench.toolchain.nvrtc_client import compile_limit, compile_program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler to build a fake NVRTC with")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("library") / "libfake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, Path(__file__).with_name("fake_nvrtc.c")], check=True)
    yield str(path)
    nvrtc_client.stop()


def compile_(library: str, text: str, flags: tuple[str, ...] = ()) -> tuple[int, int]:
    """How many programs the process had compiled with this one, and the process that forked it."""
    request = {"text": text, "name": "x.cu", "names": [], "flags": list(flags)}
    count, server = compile_program(library, request, "x.cu")["ptx"].split(" of ")
    return int(count), int(server)


def begun(path: Path) -> list[int]:
    """The processes of a compile that hangs: its own, and the server's."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return [int(word) for word in path.read_text().split()]


def test_every_compile_is_the_first_one_of_its_process(library: str):
    answers = [compile_(library, "count") for _ in range(5)]
    assert {count for count, _ in answers} == {1}
    assert len({server for _, server in answers}) == 1


def test_two_threads_compile_at_once(library: str, tmp_path: Path):
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(compile_, library, f"meet {tmp_path}/met", flags) for flags in ((), ("one",))]
        assert [future.result()[0] for future in both] == [1, 1]


def test_what_hangs_is_ended_at_its_limit(library: str, tmp_path: Path):
    with compile_limit(0.3), pytest.raises(CompileTimeout, match=r"0\.3 s to compile x\.cu"):
        compile_(library, f"hang {tmp_path}/begun")
    child, server = begun(tmp_path / "begun")
    wait_until(lambda: gone(child))
    assert compile_(library, "count") == (1, server)


def test_what_crashes_costs_one_error_that_names_the_signal(library: str):
    _, server = compile_(library, "count")
    with pytest.raises(CompilerCrash, match=r"crashed while compiling x\.cu: .*SIGSEGV"):
        compile_(library, "crash")
    assert compile_(library, "count") == (1, server)


def test_what_the_library_itself_refuses_is_said(library: str):
    with pytest.raises(CompileError, match="nvrtcCreateProgram failed: an error"):
        compile_(library, "refuse")


def test_a_server_that_was_killed_is_started_again(library: str, tmp_path: Path):
    _, first = compile_(library, "count")
    os.kill(first, signal.SIGKILL)
    _, second = compile_(library, "count")
    assert second != first
    with ThreadPoolExecutor(1) as pool, compile_limit(30):
        waiting = pool.submit(compile_, library, f"once {tmp_path}/begun")
        assert begun(tmp_path / "begun")[1] == second
        os.kill(second, signal.SIGKILL)
        count, third = waiting.result()
    assert count == 1
    assert third not in (first, second), "compiled again by another one"


def test_a_server_that_keeps_being_killed_is_an_error(library: str, tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(compile_, library, f"hang {tmp_path}/begun")
        for _ in range(2):
            child, server = begun(tmp_path / "begun")
            (tmp_path / "begun").unlink()
            os.kill(server, signal.SIGKILL)
            wait_until(lambda child=child: gone(child))
        with pytest.raises(CompileError, match="ended twice while compiling"):
            waiting.result()


def test_ctrl_c_ends_the_compile_and_not_the_server(library: str, tmp_path: Path):
    def interrupt():
        begun(tmp_path / "begun")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    _, server = compile_(library, "count")
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        compile_(library, f"hang {tmp_path}/begun")
    wait_until(lambda: gone(begun(tmp_path / "begun")[0]))
    assert compile_(library, "count") == (1, server)


def test_a_fork_has_a_server_of_its_own(library: str):
    _, parent_server = compile_(library, "count")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(compile_(library, "count")[1]).encode())
            nvrtc_client.stop()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        child_server = int(answer.read())
    os.waitpid(child, 0)
    assert child_server != parent_server
    wait_until(lambda: gone(child_server))
    assert compile_(library, "count") == (1, parent_server)


def test_a_killed_caller_takes_server_and_compiles_with_it(library: str, tmp_path: Path):
    program = f"""
from workbench.toolchain.nvrtc_client import compile_program
request = {{"text": "hang {tmp_path}/begun", "name": "x.cu", "names": [], "flags": []}}
compile_program({library!r}, request, "x.cu")
"""
    caller = subprocess.Popen([sys.executable, "-c", program])
    child, server = begun(tmp_path / "begun")
    caller.kill()
    caller.wait()
    wait_until(lambda: gone(child) and gone(server))


def test_a_process_may_compile_in_forks_of_itself(library: str, tmp_path: Path):
    program = f"""
import json, os, resource, threading
from workbench.errors import WorkbenchError
from workbench.toolchain import nvrtc_client

def compile_(text):
    request = {{"text": text, "name": "x.cu", "names": [], "flags": []}}
    try:
        with nvrtc_client.compile_limit(0.5 if text.startswith("hang") else 30):
            count, forker = nvrtc_client.compile_program({library!r}, request, "x.cu")["ptx"].split(" of ")
    except WorkbenchError as error:
        return type(error).__name__
    return [int(count), int(forker) == os.getpid()]

nvrtc_client.compile_in_own_forks()
found = [compile_(text) for text in ("count", "count", "crash", "hang {tmp_path}/begun", "count")]
stop = threading.Event()
threading.Thread(target=stop.wait).start()
found.append(compile_("count"))
stop.set()
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
nvrtc_client._OWN_FORK_BYTES = 4 << 30
found.append(compile_("count"))
nvrtc_client.stop()
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    own, of_server = [1, True], [1, False]
    wanted = [own, own, "CompilerCrash", "CompileTimeout", own, of_server, of_server]
    assert json.loads(done.stdout) == wanted, "by a server where there is another thread, or too little room"
    assert gone(begun(tmp_path / "begun")[0])


def test_a_library_that_cannot_be_loaded_is_said(tmp_path: Path):
    (tmp_path / "libnvrtc.so").write_text("no library")
    with pytest.raises(MissingToolError, match=r"libnvrtc\.so cannot be loaded: "):
        compile_(str(tmp_path / "libnvrtc.so"), "count")
