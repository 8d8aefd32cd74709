"""A taskset of ``verifiers``: a task for each problem of a server, rewarded by its verdict.

``verifiers`` imports a taskset by the name of a module, so make one, ``kernels.py``::

    from workbench.service.adapters.verifiers_taskset import KernelTaskset

    __all__ = ["KernelTaskset"]

and run ``vf-eval kernels``. The server's address and token are in ``WORKBENCH_SERVICE_URL`` and
``WORKBENCH_SERVICE_TOKEN``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf

from workbench.service.adapters.answers import candidate_of, prompt_of
from workbench.service.client import ServiceClient

__all__ = ["KernelTaskset"]


class KernelTaskConfig(vf.TaskConfig):
    """The server's address; empty: that of ``WORKBENCH_SERVICE_URL``."""

    url: str = ""


class KernelConfig(vf.TasksetConfig):
    """The choice of problems: those whose ids begin with ``prefix``."""

    task: KernelTaskConfig = KernelTaskConfig()
    prefix: str = ""


class KernelData(vf.TaskData):
    """The id of a problem; what it is judged by stays on the server."""

    problem: str


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):
    """A kernel to write; the reward is the server's, the metrics are the scores of the stages."""

    @vf.reward(weight=1.0)
    async def verdict(self, trace: vf.Trace) -> float:
        """Judge the last reply; return the server's reward. Raises ServiceError if nobody could judge it."""
        found = await asyncio.to_thread(self._judge, trace.last_reply)
        trace.info["verdict"] = {name: found[name] for name in ("ticket", "outcome", "message")}
        trace.record_metrics(
            {f"stage_{one['name']}": one["score"] for one in found["stages"] if one["score"] is not None}
        )
        return found["reward"]

    def _judge(self, reply: str) -> dict[str, Any]:
        return ServiceClient(self.config.url or None).judged(self.data.problem, *candidate_of(reply))


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """The problems of a server."""

    def load(self) -> Iterable[KernelTask]:
        """Yield a task for each problem."""
        for one in ServiceClient(self.config.task.url or None).problems():
            if one["id"].startswith(self.config.prefix):
                data = KernelData(id=one["id"], name=one["id"], problem=one["id"], prompt=prompt_of(one))
                yield KernelTask(data, self.config.task)
