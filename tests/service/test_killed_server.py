"""Mixed candidates through a server that is killed in the middle: every verdict is there, equal to one by one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from running import Running
from served_candidates import CANDIDATES

from workbench.service.client import ServiceClient

FOLDER = Path(__file__).parent
COUNT = 100
"""Candidates; 1,024 took 605 s on two cores shared with six other processes, without the judging one by one."""

OPTIONS = ("--seconds", "2", "--memory", "1024")


def candidate(number: int) -> tuple[str, str, str]:
    """Return language, outcome and text of a candidate that no other number has; every kind comes in turn."""
    language, outcome, text = CANDIDATES[number % len(CANDIDATES)]
    mark = "//" if language == "cuda" else "#"
    return language, outcome, f"{mark} number {number}\n{text}"


def started(state: Path) -> Running:
    words = [sys.executable, "-m", "workbench.cli", "serve", f"{FOLDER}/served_ops.py:twice", *OPTIONS]
    return Running(words, state)


def submitted(client: ServiceClient) -> list[str]:
    tickets = []
    for number in range(COUNT):
        language, _, text = candidate(number)
        tickets.append(client.submit("twice", text, language)["ticket"])
    return tickets


def told(body: dict) -> object:
    """What has to be equal: all but ids and seconds, and what the load of the machine made a timeout say."""
    if body["outcome"] == "timeout":
        return body["outcome"], body["reward"]
    kept = {name: body[name] for name in ("outcome", "message", "reward", "stages", "judgement")}
    return json.loads(json.dumps(kept), object_hook=_timeless)


def _timeless(one: dict) -> dict:
    return one | {name: 0 for name in ("seconds", "stage_seconds") if name in one}


@pytest.mark.long
def test_a_killed_server_loses_no_verdict(tmp_path):
    state = tmp_path / "state"
    server = started(state)
    began = time.monotonic()
    tickets = submitted(server.client)
    while server.client.wait(tickets[COUNT // 3], 0)["state"] != "done":
        time.sleep(0.05)
    server.kill()
    server = started(state)
    found = [server.client.wait(one) for one in tickets]
    print(f"{COUNT} candidates in {time.monotonic() - began:.0f} s, the server killed once")
    again = submitted(server.client)
    assert {server.client.wait(one, 0)["state"] for one in again} == {"done"}
    server.kill()
    assert [one["outcome"] for one in found] == [candidate(number)[1] for number in range(COUNT)]
    # One by one: another server with the same secret, each candidate when the one before is judged.
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "secret").write_bytes((state / "secret").read_bytes())
    server = started(alone)
    for number, one in enumerate(found):
        language, _, text = candidate(number)
        assert told(server.client.judge("twice", text, language)) == told(one)
    server.kill()
