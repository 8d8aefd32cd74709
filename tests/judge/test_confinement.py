"""A candidate cannot hold up the judge, outlive its verdict, change the op for others, or read through messages."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from candidates import RIGHT, declared
from click.testing import CliRunner
from judged_ops import row_softmax
from waiting import gone, wait_until

import workbench as wb
from workbench.base.processes import fork_server
from workbench.base.processes.ending import children_of
from workbench.cli import main
from workbench.judge import Judge, NoSandbox, nursery
from workbench.judge.sandbox import command, serves_several
from workbench.ops.files import load_op


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(row_softmax, cases="first", seeds=1) as made:
        yield made


def written(folder: Path, before: str) -> Path:
    path = folder / "candidate.py"
    path.write_text(declared(before=before))
    return path


REACHES = {
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "stops the judge": f"os.kill({os.getpid()}, signal.SIGSTOP)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "stops its group": "os.setpgid(0, os.getpgid(os.getppid())); os.kill(0, signal.SIGSTOP)",
    "by a thread": "call(libc.syscall(number(234, 131), os.getppid(), os.getppid(), signal.SIGSTOP))",
    "by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGSTOP)",
    "by a file": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
    "traces its parent": "call(libc.ptrace(16, os.getppid(), 0, 0))",
    "limits its parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "writes its parent's memory": "open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "leaves a key": "call(libc.syscall(number(248, 217), b'user', b'left', b'text', 4, -3))",
    "slows down": "os.setpriority(os.PRIO_USER, 0, 19)",
}
PREAMBLE = """
import ctypes, fcntl, os, platform, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
number = lambda x86_64, aarch64: x86_64 if platform.machine() == 'x86_64' else aarch64
def call(result):
    if result < 0:
        raise PermissionError(ctypes.get_errno())
"""


@pytest.mark.parametrize("name", REACHES)
def test_a_candidate_reaches_no_other_process(judge: Judge, tmp_path: Path, name: str):
    judgement = judge.check(written(tmp_path, f"{PREAMBLE}{REACHES[name]}\n"))
    assert judgement.outcome == "not_loaded", judgement
    assert "PermissionError" in judgement.first_failure.message


@pytest.mark.long
def test_a_stopped_process_that_forks_is_replaced(judge: Judge, monkeypatch: pytest.MonkeyPatch):
    assert judge.check(RIGHT).ok
    monkeypatch.setattr(fork_server, "REPLY_SECONDS", 0.5)
    assert judge.check(RIGHT).ok  # from now on it has half a second
    forker = nursery.shared().process
    assert forker is not None
    os.kill(forker.pid, signal.SIGSTOP)
    monkeypatch.undo()
    assert judge.check(RIGHT).ok
    assert forker._popen.returncode == -signal.SIGKILL


@pytest.mark.parametrize("before", ["os.kill(os.getpid(), signal.SIGSTOP)", "signal.pause()"], ids=["stopped", "waits"])
def test_what_hides_from_its_verdict_is_ended_too(judge: Judge, tmp_path: Path, before: str):
    note = tmp_path / "pid"
    hidden = f"import os, signal; open({str(note)!r}, 'w').write(str(os.getpid()) + '.'); {before}"
    text = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", {hidden!r}], {{}})
    os._exit(0)
while not os.path.exists({str(note)!r}) or not open({str(note)!r}).read().endswith("."): pass
"""
    assert judge.check(written(tmp_path, text)).ok
    assert gone(int(note.read_text()[:-1]))


def test_a_candidate_that_stops_itself_is_ended_at_its_limit(tmp_path: Path):
    note = tmp_path / "pid"
    text = (
        f"import os, signal\nopen({str(note)!r}, 'w').write(str(os.getpid()))\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with Judge(row_softmax, cases="first", seeds=1, seconds=1) as hasty:
        assert hasty.check(written(tmp_path, f"import os, signal\n{text}")).outcome == "timeout"
    assert gone(int(note.read_text()))


@pytest.mark.parametrize("right", [True, False])
def test_a_flood_of_output_is_counted_and_not_kept(judge: Judge, tmp_path: Path, right: bool):
    text = "import os\nfor _ in range(40): os.write(1, b'A' * (1 << 20))\n" + ("" if right else "raise OSError('no')\n")
    (verdict,) = judge.check(written(tmp_path, text)).verdicts[:1]
    assert verdict.outcome == ("ok" if right else "not_loaded")
    assert 40 << 20 <= verdict.printed_bytes < 42 << 20
    assert "it printed 40 MiB, of which the last is kept" in str(verdict)
    assert verdict.to_dict()["printed_bytes"] == verdict.printed_bytes
    (verdict,) = judge.check(written(tmp_path, "print('a little')\n")).verdicts[:1]
    assert verdict.ok
    assert verdict.printed_bytes == 0, "each candidate has its own count"


# -- the op is read once --------------------------------------------------------------------------------------------

OP = """
import torch
import workbench as wb

def doubled(x):
    return 2 * x

@wb.op
def {name}(x):
    return doubled(x)

{name}.case("small", x=wb.randn(32))
{name}.cuda(
    'extern "C" __global__ void f(float *out, const float *x) {{ out[threadIdx.x] = 2 * x[threadIdx.x]; }}',
    grid=1, block=32, name="f",
)
"""
TRIPLES = 'extern "C" __global__ void f(float *out, const float *x) { out[threadIdx.x] = 3 * x[threadIdx.x]; }\n'


@pytest.fixture
def op_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"op_{uuid.uuid4().hex[:8]}"
    path = tmp_path / f"{name}.py"
    path.write_text(OP.format(name=name))
    return path


def test_a_candidate_that_rewrites_the_op_is_told_and_changes_no_later_verdict(op_file: Path, tmp_path: Path):
    before = op_file.read_text()
    op = load_op(f"{op_file}:{op_file.stem}")
    rewrites = f"text = open({str(op_file)!r}).read()\nopen({str(op_file)!r}, 'w').write(text.replace('2 *', '3 *'))\n"
    candidate = tmp_path / "candidate.py"
    candidate.write_text(rewrites + f"def declare(op):\n    op.cuda({TRIPLES!r}, grid=1, block=32)\n")
    with Judge(op, seeds=1) as judge:
        first = judge.check(candidate)
        assert [one.outcome for one in first] == ["wrong_result", "op_changed"]
        assert op_file.name in first.verdicts[1].message
        assert judge._runner is not None
        os.kill(judge._runner.number, signal.SIGKILL)  # a new one must not read the file again
        wait_until(lambda: judge._runner is not None and judge._runner.gone)
        second = judge.check(TRIPLES)
        assert [one.outcome for one in second] == ["wrong_result"]
        assert judge.check().ok  # the op's own kernel is the one that was declared
    assert first.op_sha256 == second.op_sha256 == _sha256(before)
    assert first.to_dict()["op_file"] == str(op_file)
    assert f"SHA-256 {first.op_sha256}" in str(first)


def test_a_compilation_beside_the_op_is_not_taken_for_it(op_file: Path, tmp_path: Path):
    text = op_file.read_text()
    other = tmp_path / "other.py"
    other.write_text(text.replace("2 *", "3 *"))
    os.utime(other, ns=(op_file.stat().st_atime_ns, op_file.stat().st_mtime_ns))
    py_compile.compile(str(other), importlib.util.cache_from_source(str(op_file)), str(op_file))
    judgement = wb.check(load_op(f"{op_file}:{op_file.stem}"), seeds=1)
    assert judgement.ok, judgement
    assert judgement.op_sha256 == _sha256(text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- what a message quotes ------------------------------------------------------------------------------------------

INCLUDES = {
    "by its path": '#include "{path}"\n',
    "by a way out of the folder": '#include "../{folder}/{name}"\n',
    "by a macro": '#define NAME "{path}"\n#include NAME\n',
    "by a macro, in silence": 'struct A {{ int\n#define NAME "{path}"\n#include NAME\n; }}; A::nothing a;\n',
    "in two lines": 'struct A {{ int\n#incl\\\nude "{path}"\n; }}; typedef A::nothing a;\n',
    "with a comment": 'struct A {{ int\n/* " */ # /* */ include "{path}"\n; }}; typedef A::nothing a;\n',
    "by a link": '#include "link.h"\n',
    "inside a template": 'template <int\n#include "{path}"\n> struct T; T<1> t;\n',
}


@pytest.mark.parametrize("name", INCLUDES)
def test_a_message_has_no_text_of_other_files(judge: Judge, tmp_path: Path, name: str):
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("hunter2\n")
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "link.h").symlink_to(secret)
    path = folder / "candidate.cu"
    path.write_text(INCLUDES[name].format(path=secret, folder="elsewhere", name="secret") + RIGHT)
    judgement = judge.check(path)
    assert judgement.outcome == "not_compiled", judgement
    assert "hunter2" not in judgement.to_json()
    assert "text is not shown" in judgement.first_failure.message


def test_a_message_quotes_the_candidates_own_files(judge: Judge, tmp_path: Path):
    (tmp_path / "own.h").write_text("int misspelt = flaot;\n")
    path = tmp_path / "candidate.cu"
    path.write_text('#include "own.h"\n' + RIGHT)
    assert 'identifier "flaot" is undefined' in judge.check(path).first_failure.message


# -- the sandbox ----------------------------------------------------------------------------------------------------


def test_a_sandbox_has_no_network_no_other_process_and_only_its_own_files(tmp_path: Path):
    try:
        command((), 64)
    except NoSandbox as error:
        pytest.skip(str(error))
    note = tmp_path / "note"
    text = f"""
import os, socket
def tried(what, function):
    try: return f"{{what}}: {{function()}}"
    except OSError as error: return f"{{what}}: {{type(error).__name__}}"
said = [
    tried("network", lambda: socket.create_connection(("192.0.2.1", 9), 1)),
    tried("beside it", lambda: open({str(note)!r}, "w")),
    tried("root", lambda: open("/workbench-judge-note", "w")),
    tried("temporary", lambda: open("/tmp/note", "w").write("written")),
    tried("processes", lambda: sum(name.isdecimal() for name in os.listdir("/proc")) < 9),
    tried("parent", lambda: open(f"/proc/{{os.getppid()}}/mem", "rb")),
]
"""
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text + "def declare(op): raise ValueError(', '.join(said))\n")
    right = tmp_path / "candidate.cu"
    right.write_text(RIGHT)
    with Judge(row_softmax, cases="first", seeds=1, sandbox=True) as judge:
        refused = judge.check(candidate)
        assert refused.outcome == "not_loaded", refused
        assert "network: OSError, beside it: OSError, root: OSError, temporary: 7, processes: True, parent: " in (
            refused.first_failure.message
        )
        assert "parent: PermissionError" in refused.first_failure.message
        before = children_of(os.getpid())
        assert judge.check(right).ok
        assert children_of(os.getpid()) == before
    assert not note.exists()


LEAVES = """
import ctypes, os, tempfile
libc = ctypes.CDLL(None, use_errno=True)
places = ["/tmp", "/var/tmp", "/dev/shm", "/dev", tempfile.gettempdir(), os.path.dirname(tempfile.gettempdir())]
found = [place for place in places if os.path.exists(place + "/left")]
if libc.shmget(4711, 4096, 0) >= 0: found.append("shared memory")
written = []
for place in places:
    try: open(place + "/left", "w").close(); written.append(place)
    except OSError: pass
if libc.shmget(4711, 4096, 0o1600) >= 0: written.append("shared memory")
for place in ("/tmp", "/dev/shm"):
    if libc.umount2(place.encode(), 2) == 0: found.append("what lies below " + place)
said = f"found {found}, wrote {len(written)}, parent {os.getppid()}"
def declare(op): raise ValueError(said)
"""


def test_a_sandbox_serves_several_candidates_and_shows_none_what_another_left(tmp_path: Path):
    try:
        command((), 64)
    except NoSandbox as error:
        pytest.skip(str(error))
    (tmp_path / "first").mkdir()
    (tmp_path / "beside").mkdir()
    texts, servers = [], []
    with Judge(row_softmax, cases="first", seeds=1, sandbox=True) as judge:
        for name in ("first/a.py", "first/b.py", "beside/c.py"):
            (tmp_path / name).write_text(LEAVES)
            texts.append(judge.check(tmp_path / name).first_failure.message)
            latest = nursery._warm._latest
            servers.append(latest and latest[2].process and latest[2].process.pid)
    assert all("found [], wrote 6, parent" in one for one in texts), texts
    if serves_several():
        assert servers[0] == servers[1] != servers[2], "a sandbox without a candidate's file cannot serve it"


@pytest.mark.parametrize("program", [None, "#!/bin/sh\n[ $1 = --help ] || echo 'No permissions to create namespace'\n"])
def test_a_sandbox_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None):
    if program is not None:
        (tmp_path / "bwrap").write_text(program)
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere" if program is None else f"{tmp_path}:/bin:/usr/bin")
    expected = "no program bwrap" if program is None else "No permissions to create namespace"
    with pytest.raises(NoSandbox, match=expected):
        Judge(row_softmax, sandbox=True)
    op = f"{Path(__file__).with_name('judged_ops.py')}:row_softmax"
    done = CliRunner().invoke(main, ["check", op, "--sandbox"])
    assert (done.exit_code, expected in done.output) == (2, True)


def test_the_help_tells_a_judge_from_a_sandbox():
    text = " ".join(CliRunner().invoke(main, ["check", "--help"]).output.split())
    assert "Without --sandbox this is not a sandbox" in text
