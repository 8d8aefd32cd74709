"""An environment of OpenEnv: an episode is a problem, an action a candidate.

Serve it beside ``workbench serve``, whose address and token are in ``WORKBENCH_SERVICE_URL`` and
``WORKBENCH_SERVICE_TOKEN``::

    uvicorn workbench.service.adapters.openenv_environment:app --factory --port 8000
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from workbench.errors import ArgumentError, UnknownNameError
from workbench.service.adapters.answers import prompt_of
from workbench.service.client import ServiceClient

_SESSIONS = 64


class KernelAction(Action):
    """A candidate: its source, in "python" or "cuda"."""

    text: str
    language: str = "python"


class KernelObservation(Observation):
    """The prompt of a problem, and after a step what was found."""

    problem: str
    prompt: str
    outcome: str = ""
    message: str = ""
    stages: list[dict[str, Any]] = Field(default_factory=list)


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):
    """A problem of the server, with so many attempts; an episode ends with a candidate that passes, or the last one."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, client: ServiceClient | None = None):
        super().__init__()
        self._client = client or ServiceClient()
        self._problem: dict[str, Any] = {}
        self._attempts = 1
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        problem: str = "",
        attempts: int = 1,
        **more: Any,
    ) -> KernelObservation:
        """Begin an episode with the problem of that id, or with one that the seed draws."""
        known = {one["id"]: one for one in self._client.problems()}
        if problem and problem not in known:
            raise UnknownNameError("problem", repr(problem), ", ".join(known), "The server has others.")
        if attempts < 1:
            raise ArgumentError("attempts", attempts, "1 or more", "An episode has as many steps.")
        self._problem = known[problem or random.Random(seed).choice(sorted(known))]
        self._attempts = attempts
        self._state = State(episode_id=episode_id or uuid.uuid4().hex)
        return self._observation()

    def step(self, action: KernelAction, timeout_s: float | None = None, **more: Any) -> KernelObservation:
        """Judge a candidate; the reward is the server's."""
        if not self._problem:
            raise ArgumentError("step", "no episode", "a step after reset", "Call reset first.")
        found = self._client.judged(self._problem["id"], action.text, action.language)
        self._state.step_count += 1
        done = found["ok"] or self._state.step_count >= self._attempts
        given = {name: found[name] for name in ("outcome", "message", "stages", "reward")}
        return self._observation(done=done, **given)

    @property
    def state(self) -> State:
        """Episode and number of steps."""
        return self._state

    def _observation(self, **more: Any) -> KernelObservation:
        return KernelObservation(problem=self._problem["id"], prompt=prompt_of(self._problem), **more)


def app() -> FastAPI:
    """Return OpenEnv's HTTP application of this environment."""
    return create_fastapi_app(
        KernelEnvironment, KernelAction, KernelObservation, max_concurrent_envs=_SESSIONS, env_name="kernels"
    )
