"""A client of ``workbench serve``. It needs the standard library alone: a copy of this file works anywhere.

As a program it judges a file, prints the verdict as JSON and writes the reward::

    python client.py PROBLEM CANDIDATE.py --reward reward.txt

The server's address is in ``WORKBENCH_SERVICE_URL``, the token in ``WORKBENCH_SERVICE_TOKEN``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

URL = "http://127.0.0.1:8765"
"""Address of a server with its defaults."""

_POLL_SECONDS = 30
_ANSWER_SECONDS = 60


class ServiceError(Exception):
    """A request that the server refused, with its status and message; status 0 if there was no answer."""

    def __init__(self, status: int, message: str):
        self.status = status
        super().__init__(message)


class ServiceClient:
    """A client of one server. ``url`` and ``token`` have the environment's values by default.

    Every method raises ServiceError; an answer is the JSON that the server's ``/docs`` describe.
    """

    def __init__(self, url: str | None = None, token: str | None = None):
        self.url = (url or os.environ.get("WORKBENCH_SERVICE_URL") or URL).rstrip("/")
        self._token = token if token is not None else os.environ.get("WORKBENCH_SERVICE_TOKEN", "")

    def judge(self, problem: str, text: str, language: str = "python", **more: Any) -> dict[str, Any]:
        """Submit a candidate and wait for its verdict; ``more`` is as for `submit`."""
        return self.wait(self.submit(problem, text, language, **more)["ticket"])

    def judged(self, problem: str, text: str, language: str = "python") -> dict[str, Any]:
        """Return the verdict on a candidate, with a reward. Raises ServiceError if it could not be judged."""
        found = self.judge(problem, text, language)
        if found["reward"] is None:
            raise ServiceError(0, f"{problem} could not be judged: {found['message'] or found['state']}")
        return found

    def submit(
        self, problem: str, text: str, language: str = "python", *, variant: str = "", priority: int = 0
    ) -> dict[str, Any]:
        """Submit a candidate, as often as the client's limit asks for; return its ticket."""
        body = {"problem": problem, "text": text, "language": language, "variant": variant, "priority": priority}
        while True:
            try:
                return self._ask("POST", "/submissions", body)
            except ServiceError as error:
                if error.status != 429:
                    raise
                time.sleep(1)

    def wait(self, ticket: str, seconds: float | None = None) -> dict[str, Any]:
        """Return a ticket once it is finished, or after so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _POLL_SECONDS if until is None else max(0.0, min(_POLL_SECONDS, until - time.monotonic()))
            found = self._ask("GET", f"/tickets/{ticket}?wait={left:.3f}")
            if found["state"] in ("done", "cancelled") or (until is not None and time.monotonic() >= until):
                return found

    def events(self, ticket: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a ticket until it is finished: a name and the ticket.

        The name is the new state, or ``"stages"`` when stages of a judgement under way have ended.
        """
        name = ""
        with self._opened("GET", f"/tickets/{ticket}/events") as answer:
            for line in answer:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)

    def cancel(self, ticket: str) -> dict[str, Any]:
        """Cancel a ticket."""
        return self._ask("DELETE", f"/tickets/{ticket}")

    def problems(self) -> list[dict[str, Any]]:
        """Return the problems: id, kind, languages and statement of each."""
        found: list[dict[str, Any]] = self._ask("GET", "/problems")
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        with self._opened(method, path, body) as answer:
            return json.load(answer)

    @contextlib.contextmanager
    def _opened(self, method: str, path: str, body: Any = None) -> Iterator[Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            told = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):
                told = json.loads(told)["detail"]
            raise ServiceError(error.code, f"{method} {path}: {error.code}: {told}") from error
        except OSError as error:
            raise ServiceError(0, f"{self.url} does not answer: {error}") from error


def main() -> None:
    """Judge a file; the exit status is 0 for every verdict, 2 if there is none."""
    parser = argparse.ArgumentParser(description="Judge a candidate by a server of the kernel workbench.")
    parser.add_argument("problem")
    parser.add_argument("candidate", type=Path, help=".cu for CUDA C++, else Python")
    parser.add_argument("--reward", type=Path, help="file to write the reward to")
    given = parser.parse_args()
    # A candidate that is missing is one that is empty but for its comment: it has no kernel.
    text = given.candidate.read_text() if given.candidate.is_file() else "# no candidate\n"
    language = "cuda" if given.candidate.suffix == ".cu" else "python"
    try:
        found = ServiceClient().judged(given.problem, text, language)
    except ServiceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(json.dumps(found, indent=2))
    if given.reward is not None:
        given.reward.write_text(f"{found['reward']}\n")


if __name__ == "__main__":
    main()
