"""Adapters, each by its framework's own code: six candidates get the rewards that the service gives them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
import warm
from fastapi import FastAPI
from running import Running, free_port
from served_candidates import CUDA, PYTHON

from workbench.service.adapters.answers import candidate_of, prompt_of
from workbench.service.client import ServiceClient, ServiceError

FOLDER = Path(__file__).parent
HARBOR = os.environ.get("HARBOR_PYTHON", sys.executable)
"""A Python that has Harbor, which needs 3.12 and may be another one than this."""

OF_HARBOR = {"PYTHONPATH": ""}
"""Packages of this Python are not for that one."""

SIX = {
    "a right one in Triton": ("python", PYTHON["ok"]),
    "a right one in CUDA C++": ("cuda", CUDA["ok"]),
    "a wrong one": ("cuda", CUDA["wrong_result"]),
    "one that is wrong elsewhere": ("cuda", CUDA["wrong_elsewhere"]),
    "one that does not compile": ("cuda", CUDA["not_compiled"]),
    "one without a kernel": ("python", PYTHON["no_kernel"]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("served") / "state"
    words = [*warm.python(), "-m", "workbench.cli", "serve", f"{FOLDER}/served_ops.py:twice", "puzzle:guard"]
    made = Running(words, state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_SERVICE_URL", made.url)
        patch.setenv("WORKBENCH_SERVICE_TOKEN", made.token)
        yield made
    made.kill()


@pytest.fixture(scope="module")
def rewards(server: Running) -> dict[str, float]:
    """The service's own rewards: 1 for the right ones, 0 for none, and something between."""
    found = {name: server.client.judged("twice", text, language)["reward"] for name, (language, text) in SIX.items()}
    right, right_too, wrong, elsewhere, broken, nothing = found.values()
    assert right == right_too == 1
    assert 0 == nothing == broken < wrong < elsewhere < 1
    return found


def answered(language: str, text: str) -> str:
    return f"Here it is:\n\n```\nnot this\n```\n\n```{language}\n{text}\n```\nDone."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("def declare(op): ...", ("def declare(op): ...", "python")),
        (answered("cpp", "__global__"), ("__global__\n", "cuda")),
        (answered("python", "import triton"), ("import triton\n", "python")),
        ("```\nextern __global__ void f() {}\n```", ("extern __global__ void f() {}\n", "cuda")),
    ],
)
def test_the_last_block_of_an_answer_is_the_candidate(answer, expected):
    assert candidate_of(answer) == expected


def test_a_prompt_has_the_statement_and_the_languages():
    told = prompt_of({"id": "p", "statement": "Double it.\n", "languages": ["python", "cuda"]})
    assert (
        told == "Double it.\n\nAnswer with one fenced code block in Python (Triton) or CUDA C++. The last block counts."
    )


def test_the_client_reports_refusals_and_a_server_that_is_not_there(server):
    for client, status in ((ServiceClient(server.url, "no"), 401), (ServiceClient("http://127.0.0.1:9", "no"), 0)):
        with pytest.raises(ServiceError) as refused:
            client.problems()
        assert refused.value.status == status
    with pytest.raises(ServiceError, match=r"404: problem: got 'none'"):
        server.client.submit("none", "x")


@contextlib.contextmanager
def answering(app: FastAPI) -> Iterator[int]:
    """Serve an application from a thread; yield its port."""
    port = free_port()
    serving = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    while not serving.started:
        time.sleep(0.01)
    yield port
    serving.should_exit = True
    thread.join()


def test_openenv(server, rewards):
    pytest.importorskip("openenv")
    from openenv.core.generic_client import GenericEnvClient

    from workbench.service.adapters.openenv_environment import app

    with answering(app()) as port, GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as env:
        for name, (language, text) in SIX.items():
            began = env.reset(problem="twice")
            assert "Answer with one fenced code block" in began.observation["prompt"]
            found = env.step({"text": text, "language": language})
            assert (found.reward, found.done) == (rewards[name], True)
        env.reset(problem="twice", attempts=2)
        assert env.step({"text": CUDA["wrong_result"], "language": "cuda"}).done is False
        assert env.step({"text": CUDA["ok"], "language": "cuda"}).done is True
        assert env.state()["step_count"] == 2


def test_verifiers(server, rewards, tmp_path, monkeypatch):
    pytest.importorskip("verifiers.v1")
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    model, answers = FastAPI(), iter([answered(*one) for one in SIX.values()])

    @model.post("/v1/chat/completions")
    async def complete(body: dict) -> dict:
        assert "Answer with one fenced code block" in body["messages"][-1]["content"]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": next(answers)}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("NO_KEY", "none")
    with answering(model) as port:
        config = EvalConfig(
            env={
                "taskset": {"id": "kernels_taskset", "prefix": "twice"},
                "agent": {"harness": {"id": "one_turn_harness"}, "runtime": {"type": "subprocess"}},
            },
            client={"base_url": f"http://127.0.0.1:{port}/v1", "api_key_var": "NO_KEY"},
            num_rollouts=len(SIX),
            push=False,
            rich=None,
            output_dir=tmp_path,
        )
        traces = [trace for episode in asyncio.run(run_eval(config)) for trace in episode.traces]
    assert [trace.errors for trace in traces] == [[]] * len(SIX)
    assert sorted(trace.reward for trace in traces) == sorted(rewards.values())
    for trace in traces:
        assert trace.metrics.get("stage_right") == (trace.reward > 0.5)
        assert trace.info["verdict"]["outcome"] != "ok" or trace.reward == 1


def has_harbor() -> bool:
    tried = subprocess.run([HARBOR, "-c", "import harbor.trial.trial"], capture_output=True, env=os.environ | OF_HARBOR)
    return tried.returncode == 0


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="takes bubblewrap, for containers")
def test_harbor(server, rewards, tmp_path):
    if not has_harbor():
        pytest.skip("set HARBOR_PYTHON to a Python that has harbor")
    from workbench.service.adapters.harbor_task import write_task

    (problem,) = (one for one in server.client.problems() if one["id"] == "twice")
    for at, (language, text) in enumerate(SIX.values()):
        task = write_task(tmp_path / str(at), problem)
        (task / "solution").mkdir()
        suffix = {"python": "py", "cuda": "cu"}[language]
        (task / "solution" / f"candidate.{suffix}").write_text(text)
        (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\ncp /solution/candidate.{suffix} /app/\n")
    command = [HARBOR, str(FOLDER / "harbor_trials.py"), str(tmp_path), *(f"{at}/twice" for at in range(len(SIX)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | OF_HARBOR)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [float(line) for line in done.stdout.splitlines() if line.startswith(("0", "1"))]
    assert found == list(rewards.values())
