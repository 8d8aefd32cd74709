"""Latency of the service's queue with 50 clients: requests of submissions and polls, with a judge that takes no time.

``python -m benchmarks.service`` starts ``workbench serve``'s application with a judging function that answers at once,
so that what is measured is HTTP, the queue and the store. It prints percentiles and fails if a request is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn

from workbench.errors import WorkbenchError
from workbench.judge import Judgement, Verdict
from workbench.service import Client, Problems, Service, ServiceOptions
from workbench.service.app import application
from workbench.service.client import ServiceClient, ServiceError
from workbench.service.clients import Clients
from workbench.service.judging import Work, record

CLIENTS = 50
SUBMISSIONS = 20
"""Submissions of each client, one after the other."""

_TOKEN = "a-token-of-the-benchmark"


def at_once(work: Work) -> dict[str, Any]:
    """Return a verdict without judging."""
    return record("ok", "", (), Judgement("guard", "candidate.cu", (Verdict("guard", "kernel", "case", {}, "ok"),)))


def serve(folder: Path, port: int) -> None:
    """Serve, in a process of its own, until it is ended."""
    service = Service(folder, Problems(["puzzle:guard"]), ServiceOptions(), judge=at_once)
    clients = Clients((Client("bench", _TOKEN, queued=CLIENTS * SUBMISSIONS),))
    uvicorn.run(application(service, clients), port=port, log_level="warning")


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    from benchmarks.service import serve as target  # that of __main__ no worker can import

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(target=target, args=(folder, port))
    server.start()
    url = f"http://127.0.0.1:{port}"
    while True:
        with contextlib.suppress(ServiceError):
            ServiceClient(url, _TOKEN).problems()
            break
        time.sleep(0.1)
    yield url
    server.terminate()
    server.join()


def _timed(times: list[float], function: Callable[..., Any], *arguments: Any) -> Any:
    began = time.perf_counter()
    found = function(*arguments)
    times.append(time.perf_counter() - began)
    return found


def measure(clients: int, submissions: int) -> dict[str, list[float]]:
    """Return the seconds of each request, and from submission to verdict. Raises WorkbenchError if one is lost."""
    times: dict[str, list[float]] = {"submit": [], "submit, known": [], "poll": [], "to the verdict": []}

    def run(number: int) -> int:
        client, done = ServiceClient(url, _TOKEN), 0
        for at in range(submissions):
            text = f"// client {number}, candidate {at}\n"
            began = time.perf_counter()
            ticket = _timed(times["submit"], client.submit, "puzzle/guard", text, "cuda")["ticket"]
            done += client.wait(ticket)["outcome"] == "ok"
            times["to the verdict"].append(time.perf_counter() - began)
            _timed(times["poll"], client.wait, ticket, 0.0)
            _timed(times["submit, known"], client.submit, "puzzle/guard", text, "cuda")
        return done

    with tempfile.TemporaryDirectory() as name, _served(Path(name)) as url, ThreadPoolExecutor(clients) as pool:
        ServiceClient(url, _TOKEN).judge("puzzle/guard", "// it starts the workers", "cuda")
        done = sum(pool.map(run, range(clients)))
    if done != clients * submissions:
        raise WorkbenchError(f"{clients * submissions - done} of {clients * submissions} submissions were lost")
    return times


def main() -> None:
    """Print milliseconds: median, 90th and 99th percentile."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--submissions", type=int, default=SUBMISSIONS)
    given = parser.parse_args()
    began = time.perf_counter()
    times = measure(given.clients, given.submissions)
    count = len(times["submit"])
    print(f"{given.clients} clients, {count:,} submissions in {time.perf_counter() - began:.1f} s, none lost")
    print(f"{'ms':16} {'p50':>8} {'p90':>8} {'p99':>8}")
    for name, one in times.items():
        cuts = statistics.quantiles(one, n=100)
        print(f"{name:16} {cuts[49] * 1e3:8.1f} {cuts[89] * 1e3:8.1f} {cuts[98] * 1e3:8.1f}")


if __name__ == "__main__":
    main()
