"""HTTP of the service, by FastAPI: submit, poll or stream, cancel; health, metrics, OpenAPI at ``/docs``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

from workbench.base.versions import __version__
from workbench.errors import ArgumentError, UnknownNameError
from workbench.service.clients import Client, Clients
from workbench.service.metrics import CONTENT_TYPE, Metrics
from workbench.service.rewards import ServiceResult
from workbench.service.service import LimitReached, Service, Submission
from workbench.service.stages import VerdictStage
from workbench.service.tickets import DONE, Ticket
from workbench.service.watching import Watching

LONGEST_WAIT = 60.0
"""Longest wait of one poll, in seconds."""

LOWEST_PRIORITY = -(1 << 31)
"""The store has priorities in 64 bits."""

RETRY_SECONDS = 5
"""Seconds after which a client that reached its limit is asked to try again."""

_log = logging.getLogger("workbench.service")


class SubmissionBody(BaseModel):
    """A candidate."""

    problem: str = Field(description="Id of a problem.")
    text: str = Field(description="The candidate's source.")
    language: str = Field("python", description='"python" (Triton, load_inline, declare(op)) or "cuda".')
    variant: str = Field("", description="For CUDA C++: the op's own variant whose source it replaces.")
    priority: int = Field(
        0, ge=LOWEST_PRIORITY, description="Higher ones are judged first; the client's table bounds it."
    )


class StageBody(BaseModel):
    """One stage: how it ended, the part that passed (0 to 1), its seconds and its message."""

    name: str
    status: str
    score: float | None
    seconds: float | None
    message: str


class TicketBody(BaseModel):
    """A ticket; with state "running" the stages that have ended, with "done" what was found."""

    ticket: str
    problem: str
    state: str
    submitted: float
    started: float | None = None
    finished: float | None = None
    ok: bool | None = None
    outcome: str | None = None
    message: str | None = None
    reward: float | None = None
    stages: list[StageBody] = []
    judgement: dict[str, Any] | None = Field(default=None, description="As `workbench check --json` prints it.")


class ProblemBody(BaseModel):
    """A problem, without anything that it judges by."""

    id: str
    kind: str
    languages: list[str]
    statement: str


@dataclass
class _Served:
    """The service of one application, with its clients, watchers and metrics."""

    service: Service
    clients: Clients
    watching: Watching = field(default_factory=Watching)
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.service)
        self.service.heard = self.heard

    def heard(self, ticket: Ticket, found: Any) -> None:
        """Tell whoever waits for a ticket, and count its verdict, if there is one now."""
        if found is not None:
            self.metrics.finished(ticket.submitted, found)
        self.watching.changed(ticket.id)


def application(service: Service, clients: Clients) -> FastAPI:
    """Return the HTTP application of a service, which is closed with it.

    Every path but ``/health`` and the documentation (``/docs``) needs a client's token.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(title="Kernel workbench: the judge as a service", version=__version__, lifespan=lifespan)
    app.state.served = _Served(service, clients)
    app.include_router(_router)
    for kind in _STATUSES:
        app.add_exception_handler(kind, _refuse)
    return app


def _served(request: Request) -> _Served:
    found: _Served = request.app.state.served
    return found


def _client(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
) -> Client:
    found = _served(request).clients.of(given.credentials) if given is not None else None
    if found is None:
        _served(request).metrics.refused(401)
        told = "a client's token is needed: Authorization: Bearer ..."
        raise HTTPException(401, told, {"WWW-Authenticate": "Bearer"})
    return found


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    """Answer with the message of an error that the service raises on purpose."""
    status = next(code for kind, code in _STATUSES.items() if isinstance(error, kind))
    _served(request).metrics.refused(status)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 429 else None
    return JSONResponse({"detail": str(error)}, status, headers)


_STATUSES: Mapping[type[Exception], int] = {UnknownNameError: 404, ArgumentError: 422, LimitReached: 429}
_router = APIRouter()
_Shared = Annotated[_Served, Depends(_served)]
_Known = Annotated[Client, Depends(_client)]


@_router.post("/submissions", status_code=202)
async def submit(given: SubmissionBody, served: _Shared, known: _Known) -> TicketBody:
    """Queue a candidate. A ticket of one that was judged before is done at once."""
    ticket = served.service.submit(known, Submission(**given.model_dump()))
    served.metrics.submitted(ticket)
    return _body(served.service, ticket)


@_router.get("/tickets/{name}")
async def poll(
    name: str, served: _Shared, known: _Known, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0
) -> TicketBody:
    """Return a ticket; with ``wait`` as soon as it is finished, or after so many seconds."""
    with served.watching.of(name) as event:
        ticket = served.service.ticket(known, name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not ticket.is_finished:
                    await event.wait()
                    event.clear()
                    ticket = served.service.ticket(known, name)
    return _body(served.service, ticket)


@_router.get("/tickets/{name}/events", response_class=EventSourceResponse)
async def stream(name: str, served: _Shared, known: _Known) -> AsyncIterator[ServerSentEvent]:
    """Stream a ticket's states as server-sent events, named by the state.

    While it is judged, an event ``stages`` follows whenever stages have ended; the event ``done`` has all of them.
    """
    state = ""
    stages: Sequence[VerdictStage] = ()
    with served.watching.of(name) as event:
        while True:
            ticket = served.service.ticket(known, name)
            ended = served.service.stages_so_far(ticket)
            if ticket.state != state or ended != stages:
                kind = "stages" if ticket.state == state else ticket.state
                state, stages = ticket.state, ended
                yield ServerSentEvent(event=kind, data=_body(served.service, ticket))
            if ticket.is_finished:
                return
            await event.wait()
            event.clear()


@_router.delete("/tickets/{name}")
async def cancel(name: str, served: _Shared, known: _Known) -> TicketBody:
    """Cancel a ticket; a finished one stays as it is."""
    return _body(served.service, await asyncio.to_thread(served.service.cancel, known, name))


@_router.get("/problems")
async def problems(served: _Shared, known: _Known) -> list[ProblemBody]:
    """List the problems, with their statements and nothing that they judge by."""
    return [
        ProblemBody(id=one.id, kind=one.kind, languages=list(one.languages), statement=one.statement)
        for one in served.service.problems.values()
    ]


@_router.get("/health")
async def health(served: _Shared) -> JSONResponse:
    """Return 200 while the service judges, 503 with the reason when it does not."""
    waiting, running = served.service.load
    failure = served.service.failure
    told = {"ok": not failure, "waiting": waiting, "running": running, "failure": failure}
    return JSONResponse(told, 503 if failure else 200)


@_router.get("/metrics")
async def measured(served: _Shared, known: _Known) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(served.metrics.text(), media_type=CONTENT_TYPE)


def _body(service: Service, ticket: Ticket) -> TicketBody:
    body = TicketBody(
        ticket=ticket.id, problem=ticket.problem, state=ticket.state, submitted=ticket.submitted,
        started=ticket.started, finished=ticket.finished,
    )  # fmt: skip
    if ticket.state != DONE:
        body.stages = [StageBody(**one.to_dict()) for one in service.stages_so_far(ticket)]
        return body
    result = service.result(ticket)
    assert result is not None
    body.ok, body.outcome, body.message = result.ok, result.outcome, result.message
    body.stages = [StageBody(**one.to_dict()) for one in result.stages]
    body.judgement = None if result.judgement is None else result.judgement.to_dict()
    body.reward = _reward(service, result)
    return body


def _reward(service: Service, result: ServiceResult) -> float | None:
    """Return the reward; None for a result that says nothing about the candidate, or if its function fails."""
    if result.outcome in ("not_judged", "op_changed"):
        return None
    try:
        return float(service.options.reward(result))
    except Exception:
        _log.exception("the reward function failed for %s", result.outcome)
        return None
