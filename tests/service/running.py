"""A server in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from workbench.service.client import ServiceClient, ServiceError

FOLDER = Path(__file__).parent
START_SECONDS = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Running:
    """A server that answers, until it is killed."""

    def __init__(self, command: list[str], state: Path):
        port = free_port()
        words = [*command, "--port", str(port), "--state", str(state)]
        self._log = (state.parent / f"server-{port}.log").open("w+")
        self._process = subprocess.Popen(words, stdout=self._log, stderr=subprocess.STDOUT, cwd=FOLDER)
        self.url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                ServiceClient(self.url, "none").problems()
            except ServiceError as error:
                if error.status == 401:
                    break
            if self._process.poll() is not None or time.monotonic() > until:
                self._log.seek(0)
                raise RuntimeError(f"no server: {self._log.read()}")
            time.sleep(0.1)
        self.token = (state / "token").read_text().strip()

    @property
    def client(self) -> ServiceClient:
        return ServiceClient(self.url, self.token)

    def kill(self) -> None:
        """Kill the server, and nothing else: its workers have to end by themselves."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
