"""Continuous batching: requests join and leave the batch at every step, as the blocks of one paged cache allow.

A step gives every running request one token, resumes swapped-out requests, and admits waiting ones, first come, first
served; one pass of the model computes the new tokens and the prompts beside them. When blocks run out, the newest
request is preempted. The oldest request can take the blocks of all others, and a request that could not run alone is
refused when it is added, so every accepted request ends.

Preempted requests are swapped to the host, or freed and later computed again, prompt and tokens, in one pass (the two
ways of Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, 4.5).

A request gets the tokens that it would get alone, up to rounding. The number of rows of a matrix product determines the
order of its sums, so logits differ in the last bits with the size of the batch, and greedy choices may differ between
two tokens that are this close. Nothing else of the batch has an influence. (This holds for serving systems too.)
With a quantized cache, "alone" means with ``read_back`` (`PagedCache`): a prompt, too, reads its past from the cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workbench.attention.kvcache import MemoryUse, OutOfBlocksError, PagedKVCache
from workbench.attention.kvcache.errors import check_count
from workbench.attention.models.caches import ForwardStep, PagedCache
from workbench.attention.models.generation import STOP, advance, check_prompt
from workbench.attention.models.gpt import GPT
from workbench.attention.models.sampling import GREEDY, Sampler, Sampling, pick_each
from workbench.errors import ArgumentError, UnknownNameError, WorkbenchError

PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True)
class Result:
    """Outcome of a request.

    Attributes:
        tokens: generated tokens, without the stop token.
        reason: why it ended: "length", "stop", "cancelled" or "error".
        error: the exception, if the reason is "error".
        preemptions: number of times that the request was preempted.
    """

    tokens: list[int]
    reason: str
    error: BaseException | None = None
    preemptions: int = 0


@dataclass(frozen=True)
class EngineStep:
    """Outcome of one step, and the state of the engine after it.

    Attributes:
        number: number of the step, from 0.
        tokens: the new token of each request that got one.
        finished: results of the requests that ended in this step or were cancelled since the last one.
        preempted: names of the requests that were preempted in this step.
        running: number of running requests after the step.
        waiting: number of waiting requests after the step.
        swapped: number of swapped-out requests after the step.
        memory: memory use of the cache during the step, before the blocks of ended requests were freed.
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
    """A request that has not ended."""

    name: str
    prompt: list[int]
    max_new_tokens: int
    sampler: Sampler
    stop: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    preemptions: int = 0


class Engine:
    """A server of requests from one paged cache, which nothing else may use meanwhile.

    Args:
        model: the model, on the cache's device.
        cache: the cache whose blocks the engine uses; with prefix caching, requests share equal prefixes.
        max_num_seqs: largest number of requests that run at the same time.
        preemption: "recompute", or "swap" to the cache's host blocks (recomputed when those run out too).

    Attributes:
        results: results of the requests that have ended, by name; remove those that you have read.
    """

    def __init__(self, model: GPT, cache: PagedKVCache, *, max_num_seqs: int = 16, preemption: str = "recompute"):
        if preemption not in PREEMPTIONS:
            raise UnknownNameError("preemption", repr(preemption), ", ".join(PREEMPTIONS), "See Engine.")
        if preemption == "swap" and not cache.manager.num_host_blocks:
            raise ArgumentError(
                "preemption",
                "'swap' with no host blocks",
                "a cache with host blocks",
                "Make the cache with num_host_blocks=.",
            )
        self.model, self.preemption = model, preemption
        self.max_num_seqs = check_count("max_num_seqs", max_num_seqs, 1, "Requests that run at a time.")
        self.results: dict[str, Result] = {}
        # A recomputed request must give the same tokens, so with a quantized cache its prompt reads from the cache too.
        self._cache = PagedCache(cache, read_back=cache.kv_cache_dtype != "auto")
        self._manager = cache.manager
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []  # the oldest first, as are the others
        self._swapped: deque[_Request] = deque()
        self._added = self._steps = 0
        self._finished: dict[str, Result] = {}
        self._preempted: list[str] = []
        self._tokens: dict[str, int] = {}
        self._ended: list[tuple[_Request, str, BaseException | None]] = []  # in this step; blocks not freed yet

    # -- requests -----------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        stop: Sequence[int] = STOP,
    ) -> str:
        """Add a request and return its name; a request for no new tokens ends at once, with an empty result.

        Raises:
            ArgumentError: if the prompt is empty or has unknown ids, or if it is, with the tokens to come, too long for
                the model or the pool; the engine is unchanged.
        """
        prompt = check_prompt(self.model, prompt, max_new_tokens)
        longest = len(prompt) + max(max_new_tokens - 1, 0)  # the last token is never written
        room = self._manager.num_blocks * self._manager.block_size
        if longest > room:
            raise ArgumentError(
                "prompt", f"{len(prompt)} tokens and {max_new_tokens} new ones", f"at most {room}, the whole pool",
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
        """End a request now, with the tokens that it has; return False if it had ended already.

        Raises:
            UnknownNameError: if no request ever had this name.
        """
        for queue in (self._waiting, self._running, self._swapped):
            for request in queue:
                if request.name == name:
                    queue.remove(request)
                    self._end(request, "cancelled")
                    return True
        if not (name.startswith("r") and name[1:].isdecimal() and int(name[1:]) < self._added):
            raise UnknownNameError(
                "name", repr(name), "a name that add() returned", f"{self._added} requests were added."
            )
        return False

    @property
    def idle(self) -> bool:
        """True if every request has ended."""
        return not (self._waiting or self._running or self._swapped)

    # -- steps --------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[EngineStep]:
        """Step until every request has ended; requests may be added and cancelled meanwhile."""
        while not self.idle:
            yield self.step()

    def step(self) -> EngineStep:
        """Give every running request a token, then resume and admit the requests that fit.

        An exception in a computation ends the requests of that computation with it; the others continue. One that is
        not an ``Exception``, such as KeyboardInterrupt, is also raised.
        """
        self._preempted, self._tokens = [], {}
        try:
            requests, steps = self._extend()
            self._resume()
            self._admit(requests, steps)
            while requests:
                self._compute(requests, self._cache.joined(steps))
                requests, steps = [], []
                self._resume()
                self._admit(requests, steps)  # a request that ended has left a place for another
            memory = self._cache.memory()
        finally:
            while self._ended:
                self._end(*self._ended.pop())
        finished, self._finished = self._finished, {}
        counts = len(self._running), len(self._waiting), len(self._swapped)
        self._steps += 1
        return EngineStep(self._steps - 1, self._tokens, finished, self._preempted, *counts, memory)

    def _extend(self) -> tuple[list[_Request], list[ForwardStep]]:
        """Make room for a token of every running request; return the requests and the step that computes them."""
        while self._running:
            try:
                step = self._cache.extend({request.name: request.tokens[-1:] for request in self._running})
            except OutOfBlocksError:
                self._preempt(self._running.pop())
            else:
                return self._running.copy(), [step]
        return [], []

    def _preempt(self, request: _Request) -> None:
        request.preemptions += 1
        self._preempted.append(request.name)
        if self.preemption == "swap":
            try:
                self._cache.kv.swap_out(request.name)
                self._swapped.appendleft(request)
                return
            except OutOfBlocksError:  # no free host block: recompute instead
                pass
        self._cache.free(request.name)
        self._waiting.appendleft(request)

    def _resume(self) -> None:
        while self._swapped and len(self._running) < self.max_num_seqs:
            request = self._swapped[0]
            blocks = len(self._manager.block_table(request.name))
            if self._running and blocks + 1 > self._manager.num_free_blocks:
                return  # its next token would preempt it again
            try:
                self._cache.kv.swap_in(request.name)
            except OutOfBlocksError:
                return
            self._running.append(self._swapped.popleft())

    def _admit(self, requests: list[_Request], steps: list[ForwardStep]) -> None:
        """Begin the waiting requests that fit, and add them with their steps to those of the next pass."""
        while self._waiting and not self._swapped and len(self._running) < self.max_num_seqs:
            request = self._waiting[0]
            tokens = request.prompt + request.tokens
            more = request.max_new_tokens - len(request.tokens) > 1
            if self._running and -(-(len(tokens) + more) // self._manager.block_size) > self._manager.num_free_blocks:
                return
            try:
                steps.append(self._cache.begin(request.name, tokens))
            except OutOfBlocksError:
                return
            requests.append(request)
            self._running.append(self._waiting.popleft())

    def _compute(self, requests: list[_Request], step: ForwardStep) -> None:
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
