"""The debug adapter, asked by a client that is not ours (dap-python) for a CUDA and a Triton kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socketpair
from typing import Any

import dap
import pytest
from dap.base import ErrorResponse
from dap.events import StoppedEvent
from pydantic import ValidationError

from workbench.ui.dap.adapter import DebugAdapter
from workbench.ui.dap.protocol import Connection
from workbench.ui.debug_commands import opened_by

KERNEL = """
extern "C" __global__ void running_sum(float *out, const float *x, int cols) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int col = threadIdx.x; col < cols; col += 64) {
        float value = x[blockIdx.x * cols + col];
        sum += value * value;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
"""

OP = """
import torch
import triton
import triton.language as tl
import workbench as wb

print("declared")


@wb.op
def running_sum(x):
    return (x * x).sum(1)


@triton.jit
def kernel(out, x, cols: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(x + row * cols + tl.arange(0, cols))
    tl.store(out + row, tl.sum(values * values))


running_sum.case("small", x=wb.randn(3, 128))
running_sum.cuda(
    "running_sum.cu", grid="x.shape[0]", block=64, args=("out", "x", "x.shape[1]"), name="cuda"
)
running_sum.triton(kernel, grid="x.shape[0]", args=("out", "x"), tune={"cols": (128,)}, name="triton")
"""


# Numbers by the protocol; dap-python 0.5.0 takes strings.
StoppedEvent.model_fields["hitBreakpointIds"].annotation = list[int]  # type: ignore[assignment]
StoppedEvent.model_rebuild(force=True)


class Editor:
    """A client of the adapter: requests by name, and the responses and events that come."""

    def __init__(self, send: Callable[[bytes], object], receive: Callable[[], bytes]):
        self._client = dap.Client("workbench")
        self._send, self._receive = send, receive
        self.events: list[Any] = []
        self._replies: list[Any] = []
        self.reply()  # to initialize

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send a request and return its response."""
        found = self.answer(command, **arguments)
        assert not isinstance(found, ErrorResponse), found.message
        return found

    def answer(self, command: str, **arguments: Any) -> Any:
        """Send a request and return its response, also one that refuses."""
        self._client.send_request(command, arguments)
        return self.reply()

    def reply(self) -> Any:
        self._send(self._client.send())
        while not self._replies:
            self._take()
        return self._replies.pop(0)

    def event(self, name: str) -> Any:
        """Return the next event of a kind, and drop those before it."""
        while True:
            while self.events:
                if type(one := self.events.pop(0)).__name__ == name:
                    return one
            self._take()

    def _take(self) -> None:
        data: bytes | None = self._receive()
        assert data, "the adapter has hung up"
        while data is not None:
            try:
                for one in self._client.receive(data):
                    (self.events if type(one).__name__.endswith("Event") else self._replies).append(one)
                data = None
            except ValidationError as error:  # dap-python 0.5.0 looks for the head of a response in its body
                if {one["loc"][0] for one in error.errors()} != {"seq", "request_seq", "success", "command"}:
                    raise
                self._replies.append(None)
                data = b""

    def stopped_after(self, command: str, **arguments: Any) -> tuple[str, int, str]:
        """Send a request that moves; return why it stopped, the line, and the name of the thread."""
        self.ask(command, **arguments)
        stopped = self.event("StoppedEvent")
        (name,) = [one.name for one in self.ask("threads").threads if one.id == stopped.threadId]
        frames = self.ask("stackTrace", threadId=stopped.threadId).stackFrames
        self.frame = frames[0].id if frames else 0
        self.hit = stopped.hitBreakpointIds
        return stopped.reason, frames[0].line if frames else 0, name

    def value(self, expression: str) -> str:
        return self.ask("evaluate", expression=expression, frameId=self.frame, context="watch").result


@pytest.fixture(scope="module")
def op_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dap")
    (folder / "running_sum.cu").write_text(KERNEL)
    (folder / "dap_sums.py").write_text(OP)
    return folder / "dap_sums.py"


@pytest.fixture
def editor() -> Iterator[Editor]:
    ours, theirs = socketpair()
    with ours, theirs, theirs.makefile("rb") as incoming, theirs.makefile("wb") as outgoing:
        adapter = DebugAdapter(Connection(incoming, outgoing), opened_by())
        serving = threading.Thread(target=adapter.serve)
        serving.start()
        found = Editor(ours.sendall, lambda: ours.recv(65536))
        yield found
        found.ask("disconnect")
        serving.join()


def _line(text: str, source: str = KERNEL) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def test_break_condition_step_back_data_and_evaluate(editor: Editor, op_file: Path) -> None:
    source = {"path": str(op_file.parent / "running_sum.cu")}
    editor.ask("launch", program=f"{op_file}:running_sum", variant="cuda", stopOnEntry=True)
    editor.event("InitializedEvent")
    square, store = _line("sum += value"), _line("out[blockIdx.x]")
    answers = editor.ask("setBreakpoints", source=source, breakpoints=[
        {"line": square, "condition": "lane == 3 and value > -100 and block == 1"}, {"line": _line("__shared__")},
    ]).breakpoints  # fmt: skip
    assert [one.verified for one in answers] == [True, False]
    assert "lines with code" in answers[1].message
    assert editor.stopped_after("configurationDone")[0] == "entry"

    assert editor.stopped_after("continue", threadId=1) == ("breakpoint", square, "block (1, 0, 0), warp 0")
    assert editor.hit == [answers[0].id]
    x = editor.value("x[1, 3]")
    scopes = {one.name: one.variablesReference for one in editor.ask("scopes", frameId=editor.frame).scopes}
    variables = {one.name: one for one in editor.ask("variables", variablesReference=scopes["Variables"]).variables}
    lanes = editor.ask("variables", variablesReference=variables["value"].variablesReference).variables
    assert (lanes[3].name, float(lanes[3].value)) == ("lane 3", float(x))
    assert editor.value("sum") == "0 in all"
    arrays = {one.name: one for one in editor.ask("variables", variablesReference=scopes["Arrays"]).variables}
    assert arrays["x"].value.startswith("3 x 128, torch.float32")

    assert editor.stopped_after("next", threadId=1)[:2] == ("step", _line("for (int col"))
    assert editor.stopped_after("stepBack", threadId=1)[:2] == ("step", square)
    assert editor.ask("setBreakpoints", source=source, breakpoints=[]).breakpoints == []

    info = editor.ask("dataBreakpointInfo", name="out[2]")
    assert (info.dataId, info.accessTypes) == ("out[2]", ["read", "write", "readWrite"])
    data = [{"dataId": "out[2]", "accessType": "write"}]
    assert editor.ask("setDataBreakpoints", breakpoints=data).breakpoints[0].verified
    assert editor.stopped_after("continue", threadId=1) == ("data breakpoint", store, "block (2, 0, 0), warp 0")
    editor.ask("setDataBreakpoints", breakpoints=[])
    reason, _, name = editor.stopped_after("continue", threadId=1)
    assert (reason, name) == ("pause", "the launch has ended")
    assert editor.stopped_after("evaluate", expression="last_write out[0]", context="repl") == (
        "goto", store, "block (0, 0, 0), warp 0"
    )  # fmt: skip
    assert editor.stopped_after("reverseContinue", threadId=1)[:2] == ("step", _line("float *out"))
    editor.stopped_after("continue", threadId=1)
    editor.ask("continue", threadId=1)
    editor.event("TerminatedEvent")


def test_a_triton_kernel_stops_at_barriers_and_its_lines(editor: Editor, op_file: Path) -> None:
    editor.ask("launch", program=f"{op_file}:running_sum", variant="triton", stopOnEntry=False)
    line = _line("tl.store", OP)
    editor.ask("setBreakpoints", source={"path": str(op_file)}, breakpoints=[{"line": line, "hitCondition": "2"}])
    assert editor.stopped_after("configurationDone")[:2] == ("breakpoint", line)
    editor.ask("setExceptionBreakpoints", filters=["barrier", "nan"])
    editor.ask("setBreakpoints", source={"path": str(op_file)}, breakpoints=[])
    assert editor.stopped_after("reverseContinue", threadId=1)[0] == "exception"


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("threads", {}, "launch first"),
        ("launch", {}, "FILE.py:OP"),
        ("launch", {"program": "{op}", "variant": "triton", "config": {"FAST": 1}}, "FAST"),
        ("launch", {"program": "nowhere.py:op"}, "no file"),
        ("launch", {"program": "{op}", "variant": "fast"}, "cuda"),
        ("launch", {"program": "{op}", "variant": "cuda", "stop": "sum > 3"}, "Write it like one of these"),
        ("gotoTargets", {}, "no request that workbench answers"),
    ],
)
def test_requests_that_cannot_be_answered_say_why(editor: Editor, op_file: Path, command, arguments, message) -> None:
    if arguments.get("program") == "{op}":
        arguments = {**arguments, "program": f"{op_file}:running_sum"}
    assert message in editor.answer(command, **arguments).message


def test_over_stdin_with_a_program_that_prints(op_file: Path) -> None:
    command = [sys.executable, "-m", "workbench.cli", "debug", "--dap", f"{op_file}:running_sum"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(data: bytes) -> None:
            process.stdin.write(data)
            process.stdin.flush()

        editor = Editor(send, lambda: process.stdout.read1(65536))
        editor.ask("launch", variant="cuda")
        assert editor.event("OutputEvent").output == "declared"
        editor.ask("disconnect")
        process.stdin.close()
        assert process.wait(60) == 0
