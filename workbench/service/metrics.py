"""Metrics of a server in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from workbench.service.service import Service
from workbench.service.tickets import Ticket

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


class Metrics:
    """Counts and times of one service, and its load when it is asked."""

    def __init__(self, service: Service):
        self._service = service
        self._registry = CollectorRegistry()
        submitted, verdicts = "Submissions that were accepted.", "Tickets that got a verdict."
        self._submitted = Counter("workbench_submissions", submitted, ["kind"], registry=self._registry)
        self._refused = Counter("workbench_refusals", "Requests refused.", ["status"], registry=self._registry)
        self._verdicts = Counter("workbench_verdicts", verdicts, ["outcome"], registry=self._registry)
        self._seconds = Histogram(
            "workbench_ticket_seconds", "From submission to verdict.", buckets=_SECONDS, registry=self._registry
        )
        self._registry.register(self)

    def submitted(self, ticket: Ticket) -> None:
        """Count a submission, by whether the store had its verdict."""
        self._submitted.labels("known" if ticket.is_finished else "new").inc()

    def refused(self, status: int) -> None:
        """Count a request that was refused."""
        self._refused.labels(str(status)).inc()

    def finished(self, submitted: float, found: Mapping[str, Any]) -> None:
        """Count a verdict on a ticket that was submitted at a time, in seconds since the epoch."""
        self._verdicts.labels(found["outcome"]).inc()
        self._seconds.observe(max(0.0, time.time() - submitted))

    def collect(self) -> Iterator[Metric]:
        """Yield the load of the service, for the registry."""
        waiting, running = self._service.load
        yield GaugeMetricFamily("workbench_judgements_waiting", "Judgements that wait for a worker.", waiting)
        yield GaugeMetricFamily("workbench_judgements_running", "Judgements that workers have.", running)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)
