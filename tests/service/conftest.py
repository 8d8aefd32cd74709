"""Servers for the tests of the service."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for needed in ("fastapi", "prometheus_client", "uvicorn"):
    pytest.importorskip(needed, reason='python -m pip install -e ".[serve]"')

from running import Running  # noqa: E402

FOLDER = Path(__file__).parent


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start ``workbench serve`` with these words; its state is in ``tmp_path``."""
    made: list[Running] = []

    def start(*words: str, state: Path = tmp_path / "state") -> Running:
        made.append(Running([sys.executable, "-m", "workbench.cli", "serve", *words], state))
        return made[-1]

    yield start
    for one in made:
        one.kill()
