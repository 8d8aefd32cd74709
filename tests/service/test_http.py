"""The service over HTTP: tokens, submissions, polls, streams, cancelling, health, metrics, real verdicts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import fake
from fastapi.testclient import TestClient
from served_candidates import CANDIDATES

from workbench.driver.torch_device.library import installed_torch
from workbench.errors import ArgumentError
from workbench.service import JudgingOptions, Problems, Service, ServiceOptions
from workbench.service.app import application
from workbench.service.clients import Clients
from workbench.service.stages import STAGES

CLIENTS = """
[trainer]
token = "a-token-of-the-trainer"
priority = 3

[small]
token = "a-token-of-the-small-one"
queued = 1
"""
TRAINER = {"Authorization": "Bearer a-token-of-the-trainer"}
SMALL = {"Authorization": "Bearer a-token-of-the-small-one"}


@pytest.fixture(scope="module")
def problems() -> Problems:
    return Problems([f"{Path(__file__).parent}/served_ops.py:twice", "puzzle:guard"])


def clients(folder: Path) -> Clients:
    (folder / "clients.toml").write_text(CLIENTS)
    return Clients.read(folder / "clients.toml")


@pytest.fixture(scope="module")
def faked(problems: Problems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server whose judge obeys the candidates."""
    folder = tmp_path_factory.mktemp("faked")
    service = Service(folder / "state", problems, ServiceOptions(workers=2), judge=fake)
    with TestClient(application(service, clients(folder))) as made:
        yield made


def submitted(server: TestClient, text: str, headers: dict = TRAINER, **more) -> dict:
    answer = server.post("/submissions", json={"problem": "twice", "text": text} | more, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()


def waited(server: TestClient, ticket: dict, headers: dict = TRAINER) -> dict:
    return server.get(f"/tickets/{ticket['ticket']}?wait=60", headers=headers).json()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}])
@pytest.mark.parametrize("path", ["/problems", "/metrics", "/tickets/x", "/tickets/x/events"])
def test_a_token_is_needed(faked, path, headers):
    answer = faked.get(path, headers=headers)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_problems_are_listed_without_what_they_judge_by(faked):
    listed = {one["id"]: one for one in faked.get("/problems", headers=TRAINER).json()}
    assert listed["twice"] == {"id": "twice", "kind": "op", "languages": ["python", "cuda"], "statement": ""}
    assert "out" in listed["puzzle/guard"]["statement"]


def test_states_and_the_stages_of_a_judgement_under_way_are_streamed(faked, tmp_path):
    gates = [tmp_path / "first", tmp_path / "second"]
    ticket = submitted(faked, f"stage parses\nwait {gates[0]}\nstage imports\nwait {gates[1]}\noutcome race")
    path = f"/tickets/{ticket['ticket']}"
    lines = []
    with faked.stream("GET", f"{path}/events", headers=TRAINER) as answer:
        for gate, stages in zip(gates, (["parses"], ["parses", "imports"]), strict=True):
            while [one["name"] for one in faked.get(path, headers=TRAINER).json()["stages"]] != stages:
                time.sleep(0.01)
            gate.touch()
        lines += [line for line in answer.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names in (["queued", "running", "stages", "stages", "done"], ["running", "stages", "stages", "done"])
    seen = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [[stage["seconds"] for stage in one["stages"]] for one in seen[-3:-1]] == [[0.5], [0.5, 0.5]]
    last = json.loads(lines[-1].removeprefix("data: "))
    assert (last["outcome"], last["ok"]) == ("race", False)


def test_a_poll_waits_no_longer_than_asked_and_a_cancelled_ticket_stays_cancelled(faked):
    ticket = submitted(faked, "sleep 3600")
    began = time.monotonic()
    assert faked.get(f"/tickets/{ticket['ticket']}?wait=0.2", headers=TRAINER).json()["ok"] is None
    assert time.monotonic() - began < 30
    assert faked.delete(f"/tickets/{ticket['ticket']}", headers=TRAINER).json()["state"] == "cancelled"
    assert waited(faked, ticket)["state"] == "cancelled"


def test_refusals_have_statuses_and_messages(faked):
    held = submitted(faked, "sleep 3600\n# small", SMALL)
    body = {"problem": "twice", "text": "outcome ok"}
    refused = faked.post("/submissions", json=body, headers=SMALL)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
    assert "small has 1 unfinished" in refused.json()["detail"]
    assert faked.get(f"/tickets/{held['ticket']}", headers=TRAINER).status_code == 404
    assert faked.post("/submissions", json=body | {"problem": "none"}, headers=TRAINER).status_code == 404
    assert faked.post("/submissions", json=body | {"language": "rust"}, headers=TRAINER).status_code == 422
    for priority in (4, -(1 << 70)):
        assert faked.post("/submissions", json=body | {"priority": priority}, headers=TRAINER).status_code == 422
    for name in ("text", "variant"):
        lone = json.dumps(body | {name: "\ud800"})
        assert faked.post("/submissions", content=lone, headers=TRAINER).status_code == 422
    faked.delete(f"/tickets/{held['ticket']}", headers=SMALL)


def test_health_metrics_and_openapi(faked):
    assert faked.get("/health").json()["ok"] is True
    waited(faked, submitted(faked, "outcome barrier"))
    assert submitted(faked, "outcome barrier")["state"] == "done"
    text = faked.get("/metrics", headers=TRAINER).text
    for line in (
        'workbench_submissions_total{kind="known"} 1.0',
        'workbench_verdicts_total{outcome="barrier"} 1.0',
        "workbench_judgements_waiting 0.0",
    ):
        assert line in text
    assert "/submissions" in faked.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    "text", ["", "trainer = 1", '[trainer]\ntoken = "short"', '[a]\ntoken = "long-enough-for-one"\nquota = 3', "[["]
)
def test_a_wrong_table_of_clients_is_refused(tmp_path, text):
    (tmp_path / "clients.toml").write_text(text)
    with pytest.raises(ArgumentError, match="clients"):
        Clients.read(tmp_path / "clients.toml")


@pytest.mark.parametrize("all_kinds", [False, pytest.param(True, marks=pytest.mark.long)])
def test_real_candidates_get_their_outcomes_and_the_same_verdict_again(problems, tmp_path, all_kinds):
    """Those that reach a limit take seconds each; without them one server judges, else two, which have to agree."""
    given = [one for one in CANDIDATES if all_kinds or one[1] not in ("timeout", "memory")]
    options = ServiceOptions(JudgingOptions(seconds=2, memory_mib=1024))
    verdicts = []
    for state in ("first", "second") if all_kinds else ("first",):
        (tmp_path / state).mkdir()
        (tmp_path / state / "secret").write_bytes(b"the same for both servers, so: the same seeds")
        service = Service(tmp_path / state, problems, options)
        with TestClient(application(service, clients(tmp_path))) as server:
            tickets = [submitted(server, text, language=language) for language, _, text in given]
            found = [waited(server, one) for one in tickets]
            again = [submitted(server, text, language=language) for language, _, text in given]
            assert [one["judgement"] for one in again] == [one["judgement"] for one in found]
            assert {one["state"] for one in again} == {"done"}
        verdicts.append([without_times(one) for one in found])
    assert [one["outcome"] for one in found] == [outcome for _, outcome, _ in given]
    assert verdicts[0] == verdicts[-1]
    for one in found:
        assert [stage["name"] for stage in one["stages"]] == list(STAGES)
        assert "seed" not in (one["message"] or "").replace("a seed", "")
        assert not re.search(r"/served/|served_ops|tests/service", json.dumps(one))
    rewards = {outcome: one["reward"] for (_, outcome, _), one in zip(given, found, strict=True)}
    assert rewards["ok"] == 1
    assert rewards["not_parsed"] == rewards["no_kernel"] == 0
    order = ("not_compiled", "out_of_bounds", "wrong_result", "wrong_elsewhere", "ok")
    assert sorted(order, key=rewards.__getitem__) == list(order)


PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(61, 250)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value) * 2, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)
        return y
"""
KERNELBENCH = {
    "ok": SOLUTION,
    "wrong_result": SOLUTION.replace("* 2,", "* 3,"),
    "no_kernel": SOLUTION.replace("        scale[", "        return torch.relu(x) * 2\n        scale["),
}


@pytest.mark.long
@pytest.mark.skipif(
    (installed := installed_torch()) is None or installed.problem is not None, reason="takes torch's build for CUDA 13"
)
def test_solutions_in_kernelbenchs_format(tmp_path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "scale.py").write_text(PROBLEM)
    service = Service(tmp_path / "state", Problems([str(tmp_path)]))
    with TestClient(application(service, clients(tmp_path))) as server:
        tickets = [submitted(server, text, problem="level1/scale") for text in KERNELBENCH.values()]
        found = [waited(server, one) for one in tickets]
        while any(one["state"] != "done" for one in found):
            found = [waited(server, one) for one in tickets]
    assert [one["outcome"] for one in found] == list(KERNELBENCH)
    right, wrong, nothing = found
    assert "times as fast" in right["stages"][-1]["message"]
    assert 0.9 < right["reward"] <= 1
    assert nothing["reward"] == 0 < wrong["reward"] < 0.5


def without_times(body: dict) -> dict:
    """A ticket without its id and without seconds; what the time limit stopped says how busy the machine was."""
    text = json.dumps({name: body[name] for name in ("outcome", "reward", "stages", "judgement")})
    loaded = json.loads(text, object_hook=_timeless)
    if body["outcome"] != "timeout":
        return loaded
    return {"outcome": loaded["outcome"], "reward": loaded["reward"]}


def _timeless(one: dict) -> dict:
    return one | {name: 0 for name in ("seconds", "stage_seconds") if name in one}
