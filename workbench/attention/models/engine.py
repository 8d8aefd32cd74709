"""Continuous batching: requests join and leave the batch at every step, as the blocks of one paged cache allow.

A step gives every running request one token (the newest request is preempted where blocks run out), brings back what
was swapped out, and admits waiting requests, first come, first served. The oldest request can take every other one's
blocks, and a request that could not run alone is refused when it is added: so every accepted request comes to an end.

Preempted requests are swapped to the host, or freed and later computed again, prompt and tokens, in one pass (the two
ways of Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, 4.5).

A request gets the tokens that it would get alone, up to rounding: how many rows a matrix product has decides in which
order its sums are rounded, so that logits differ in the last bits with the size of the batch. Where two tokens are
that close, greedy choices may differ; nothing else of the batch takes part. (The same holds for serving systems.)
Over a quantized cache, alone means with ``read_back`` (`PagedCache`): a prompt too sees its past as the cache keeps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workbench.attention.kvcache import MemoryUse, OutOfBlocksError, PagedKVCache
from workbench.attention.kvcache.errors import check_count
from workbench.attention.models.caches import PagedCache, Step, joined
from workbench.attention.models.generation import STOP, advance, check_prompt
from workbench.attention.models.gpt import GPT
from workbench.attention.models.sampling import GREEDY, Sampler, Sampling, pick_each
from workbench.errors import ArgumentError, UnknownNameError, WorkbenchError

PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True)
class Result:
    """How a request ended.

    Attributes:
        tokens: what was generated, the stop token left out.
        reason: "length", "stop", "cancelled" or "error".
        error: for "error", what was raised.
        preemptions: how often it had to give its blocks back on the way.
    """

    tokens: list[int]
    reason: str
    error: BaseException | None = None
    preemptions: int = 0


@dataclass(frozen=True)
class EngineStep:
    """What one step did and how things stand after it.

    Attributes:
        number: of the step, from 0.
        tokens: the new token of each request that got one.
        finished: the results of the requests that ended in this step or were cancelled since the last.
        preempted: the requests that were preempted in this step.
        running, waiting, swapped: how many requests are where.
        memory: of the cache while the step was computed, before what has ended was freed.
    """

    number: int
    tokens: dict[str, int]
    finished: dict[str, Result]
    preempted: list[str]
    running: int
    waiting: int
    swapped: int
    memory: MemoryUse


@dataclass(eq=False)
class _Request:
    """One that has not ended."""

    name: str
    prompt: list[int]
    max_new_tokens: int
    sampler: Sampler
    stop: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    preemptions: int = 0


class Engine:
    """Serves requests from one paged cache, which nothing else may use meanwhile.

    Args:
        model: on the cache's device.
        cache: its pool is the engine's memory; with prefix caching, requests share equal beginnings.
        max_num_seqs: requests that run at a time, at most.
        preemption: "recompute" or "swap" (into the cache's host blocks; recomputed where those run out too).

    Attributes:
        results: of the requests that have ended, by name; take out what you have read.
    """

    def __init__(self, model: GPT, cache: PagedKVCache, *, max_num_seqs: int = 16, preemption: str = "recompute"):
        if preemption not in PREEMPTIONS:
            raise UnknownNameError("preemption", repr(preemption), ", ".join(PREEMPTIONS), "See Engine.")
        if preemption == "swap" and not cache.manager.num_host_blocks:
            raise ArgumentError(
                "preemption", "'swap' with no host blocks", "a cache with some", "Make it with num_host_blocks=."
            )
        self.model, self.preemption = model, preemption
        self.max_num_seqs = check_count("max_num_seqs", max_num_seqs, 1, "Requests that run at a time.")
        self.results: dict[str, Result] = {}
        # What is computed again must come out as it was: from a quantized cache, through what the cache keeps.
        self._cache = PagedCache(cache, read_back=cache.kv_cache_dtype != "auto")
        self._manager = cache.manager
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []  # the oldest first, as are the others
        self._swapped: deque[_Request] = deque()
        self._added = self._steps = 0
        self._finished: dict[str, Result] = {}
        self._preempted: list[str] = []
        self._tokens: dict[str, int] = {}
        self._ended: list[tuple[_Request, str, BaseException | None]] = []  # in this step; they hold their blocks yet

    # -- requests -----------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        stop: Sequence[int] = STOP,
    ) -> str:
        """Accept a request; returns its name. One of no new tokens has ended at once, with an empty result.

        Raises:
            ArgumentError: a prompt that is empty, has unknown ids, is too long for the model or, with the tokens to
                come, for the pool; the engine is as before.
        """
        prompt = check_prompt(self.model, prompt, max_new_tokens)
        longest = len(prompt) + max(max_new_tokens - 1, 0)  # the last token is never written
        room = self._manager.num_blocks * self._manager.block_size
        if longest > room:
            raise ArgumentError(
                "prompt", f"{len(prompt)} tokens, {max_new_tokens} to come", f"{room} slots: the whole pool",
                "Shorten it, ask for fewer tokens, or give the cache more blocks.",
            )  # fmt: skip
        request = _Request(f"r{self._added}", prompt, max_new_tokens, Sampler(sampling), frozenset(stop))
        self._added += 1
        if max_new_tokens == 0:
            self._end(request, "length")
        else:
            self._waiting.append(request)
        return request.name

    def cancel(self, name: str) -> bool:
        """End a request now, with the tokens that it has; False if it had ended already.

        Raises:
            UnknownNameError: there was never such a request.
        """
        for queue in (self._waiting, self._running, self._swapped):
            for request in queue:
                if request.name == name:
                    queue.remove(request)
                    self._end(request, "cancelled")
                    return True
        if not (name.startswith("r") and name[1:].isdecimal() and int(name[1:]) < self._added):
            raise UnknownNameError("name", repr(name), "what add() returned", f"{self._added} requests were added.")
        return False

    @property
    def idle(self) -> bool:
        """Whether every request has ended."""
        return not (self._waiting or self._running or self._swapped)

    # -- steps --------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[EngineStep]:
        """Step until every request has ended; more may be added and cancelled meanwhile."""
        while not self.idle:
            yield self.step()

    def step(self) -> EngineStep:
        """Give every running request a token, then bring back and admit what fits.

        An exception while computing ends the requests of that computation with it; the others go on. What is no
        ``Exception``, as Ctrl-C, is raised too.
        """
        self._preempted, self._tokens = [], {}
        try:
            self._decode()
            self._resume()
            while self._admit():
                pass  # what has ended with its first token left a place
            memory = self._cache.memory()
        finally:
            while self._ended:
                self._end(*self._ended.pop())
        finished, self._finished = self._finished, {}
        counts = len(self._running), len(self._waiting), len(self._swapped)
        self._steps += 1
        return EngineStep(self._steps - 1, self._tokens, finished, self._preempted, *counts, memory)

    def _decode(self) -> None:
        step = None
        while self._running and step is None:
            try:
                step = self._cache.extend({request.name: request.tokens[-1:] for request in self._running})
            except OutOfBlocksError:
                self._preempt(self._running.pop())
        if step:
            self._compute(self._running.copy(), step)

    def _preempt(self, request: _Request) -> None:
        request.preemptions += 1
        self._preempted.append(request.name)
        if self.preemption == "swap":
            try:
                self._cache.kv.swap_out(request.name)
                self._swapped.appendleft(request)
                return
            except OutOfBlocksError:  # of the host
                pass
        self._cache.free(request.name)
        self._waiting.appendleft(request)

    def _resume(self) -> None:
        while self._swapped and len(self._running) < self.max_num_seqs:
            request = self._swapped[0]
            blocks = len(self._manager.block_table(request.name))
            if self._running and blocks + 1 > self._manager.num_free_blocks:
                return  # it would have to leave again for its next token
            try:
                self._cache.kv.swap_in(request.name)
            except OutOfBlocksError:
                return
            self._running.append(self._swapped.popleft())

    def _admit(self) -> bool:
        """Begin the waiting requests that fit, all in one pass of the model; whether there were any."""
        begun: list[tuple[_Request, Step]] = []
        while self._waiting and not self._swapped and len(self._running) < self.max_num_seqs:
            request = self._waiting[0]
            tokens = request.prompt + request.tokens
            more = request.max_new_tokens - len(request.tokens) > 1
            if self._running and -(-(len(tokens) + more) // self._manager.block_size) > self._manager.num_free_blocks:
                break
            try:
                step = self._cache.begin(request.name, tokens)
            except OutOfBlocksError:
                break
            self._waiting.popleft()
            self._running.append(request)
            begun.append((request, step))
        if begun:
            self._compute([request for request, _ in begun], joined([step for _, step in begun]))
        return bool(begun)

    def _compute(self, requests: list[_Request], step: Step) -> None:
        """Run the model for a step and give each request its token."""
        try:
            rows = advance(self.model, step)
        except BaseException as error:
            for request in requests:
                self._leave(request, "error", error)
            if not isinstance(error, Exception):
                raise
            return
        for request, token in zip(requests, pick_each([one.sampler for one in requests], rows), strict=True):
            self._give(request, token)

    def _give(self, request: _Request, token: int | WorkbenchError) -> None:
        if isinstance(token, WorkbenchError):
            self._leave(request, "error", token)
            return
        if token in request.stop:
            self._leave(request, "stop")
            return
        request.tokens.append(token)
        self._tokens[request.name] = token
        if len(request.tokens) == request.max_new_tokens:
            self._leave(request, "length")

    def _leave(self, request: _Request, reason: str, error: BaseException | None = None) -> None:
        self._running.remove(request)
        self._ended.append((request, reason, error))

    def _end(self, request: _Request, reason: str, error: BaseException | None = None) -> None:
        if request.name in self._manager:
            self._cache.free(request.name)
        result = Result(request.tokens, reason, error, request.preemptions)
        self.results[request.name] = self._finished[request.name] = result
