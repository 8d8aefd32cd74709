"""Interactive view of a model that writes text, with a choice of cache and the cache's blocks beside the text."""

from __future__ import annotations

import html
import threading
from typing import Any

import ipywidgets
import traitlets

from workbench.attention.models.caches import CACHES, ContiguousCache, ModelCache, PagedCache, make_cache
from workbench.attention.models.generation import stream
from workbench.attention.models.gpt import GPT
from workbench.attention.models.sampling import GREEDY, Sampling
from workbench.attention.models.tokenizer import Tokenizer
from workbench.attention.ui.cache.block_state import count_of
from workbench.attention.ui.cache.block_view import BlockView
from workbench.errors import ArgumentError, WorkbenchError

_SEQ = "text"
_TINTS = ("#d6e8f5", "#fbe8c8")


class WriterView(ipywidgets.VBox):
    """A widget that continues a prompt over the chosen cache, token by token; put it last in a notebook cell.

    In the text, the tokens of one block have the same tint, and those of the prompt are bold. Beside it, a paged cache
    shows its block table and its blocks, a contiguous one the filled part of its row. The final state of the cache
    stays visible until the next text. The button writes in a thread of its own; `write` writes in the caller's.

    Args:
        model: the model, as `load_gpt` returns it.
        tokenizer: the model's tokenizer.
        prompt: text to continue.
        cache: one of `CACHES`.
        max_new_tokens: largest number of new tokens.
        block_size: tokens per block.
        sampling: how tokens are chosen.

    Raises:
        ArgumentError: if the cache is unknown.
    """

    prompt = traitlets.Unicode(help="Text to continue; may be set.")
    cache = traitlets.Unicode("paged", help="Kind of cache, one of CACHES; may be set.")
    max_new_tokens = traitlets.Int(40, help="Largest number of new tokens; may be set.")
    text = traitlets.Unicode(read_only=True, help="Prompt and continuation so far.")
    tokens = traitlets.List(traitlets.Int(), read_only=True, help="Token ids of the text so far.")
    facts = traitlets.Unicode(read_only=True, help="Contents of the cache, in one line.")
    message = traitlets.Unicode(read_only=True, help="Error message of the last text; empty if there was none.")
    running = traitlets.Bool(False, read_only=True, help="True while it is writing.")

    def __init__(
        self,
        model: GPT,
        tokenizer: Tokenizer,
        prompt: str = "The with statement",
        *,
        cache: str = "paged",
        max_new_tokens: int = 40,
        block_size: int = 8,
        sampling: Sampling = GREEDY,
    ):
        self.model, self.tokenizer, self.block_size, self.sampling = model, tokenizer, block_size, sampling
        self.blocks: BlockView | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._prompt = ipywidgets.Text(description="prompt", layout={"width": "36em"})
        self._cache = ipywidgets.Dropdown(options=CACHES, description="cache")
        self._count = ipywidgets.IntSlider(description="tokens", min=1, max=200)
        self._button = ipywidgets.Button(description="write", button_style="primary")
        self._text, self._facts = ipywidgets.HTML(layout={"width": "50%"}), ipywidgets.HTML()
        self._side = ipywidgets.VBox([self._facts], layout={"width": "50%"})
        controls = ipywidgets.HBox([self._prompt, self._cache, self._count, self._button], layout={"flex_flow": "wrap"})
        super().__init__([controls, ipywidgets.HBox([self._text, self._side])])
        traitlets.link((self, "prompt"), (self._prompt, "value"))
        traitlets.link((self, "cache"), (self._cache, "value"))
        traitlets.link((self, "max_new_tokens"), (self._count, "value"))
        self.prompt, self.cache, self.max_new_tokens = prompt, cache, max_new_tokens
        self._button.on_click(lambda _: self.stop() if self.running else self.start())

    def start(self) -> None:
        """Write in a thread of its own; do nothing if it is writing already."""
        if not self.running:
            self.set_trait("running", True)
            self._thread = threading.Thread(target=self.write, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the text after the current token, and wait for that."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def write(self) -> str:
        """Write the continuation and return it with the prompt; ``message`` has the error, if there is one."""
        self._stopping.clear()
        self.set_trait("running", True)
        self.set_trait("message", "")
        self._button.description = "stop"
        try:
            tokens = self.tokenizer.encode(self.prompt)
            cache = make_cache(
                self.cache, self.model, num_tokens=len(tokens) + self.max_new_tokens, block_size=self.block_size
            )
            self._show_cache(cache)
            self._show(tokens, len(tokens), cache)
            written = stream(
                self.model, tokens, max_new_tokens=self.max_new_tokens, cache=cache, sampling=self.sampling, seq=_SEQ
            )
            for number, token in enumerate(written, len(tokens) + 1):
                self._show([*self.tokens, token], len(tokens), cache)
                if self._stopping.is_set() or number == len(tokens) + self.max_new_tokens:
                    break  # before the generator frees the sequence, so that the last state stays visible
            written.close()
        except WorkbenchError as error:
            self.set_trait("message", str(error))
            self._facts.value = f"<b>{html.escape(str(error))}</b>"
        finally:
            self._button.description = "write"
            self.set_trait("running", False)
        return self.text

    def __repr__(self) -> str:
        return f"<writer over cache {self.cache!r}: {count_of(len(self.tokens), 'token')}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        shown = f"{self._text.value}<p>{html.escape(self.facts)}</p>"
        return data | {"text/plain": repr(self), "text/html": shown}, metadata

    # -- internal steps -----------------------------------------------------------------------------------------

    @traitlets.validate("cache")
    def _check_cache(self, proposal: traitlets.Bunch) -> str:
        if proposal.value not in CACHES:
            raise ArgumentError(
                "cache", repr(proposal.value), ", ".join(CACHES), "See workbench.attention.models.caches."
            )
        return proposal.value

    def _show_cache(self, cache: ModelCache) -> None:
        self.blocks = BlockView(cache.kv.manager, controls=False) if isinstance(cache, PagedCache) else None
        self._side.children = [self._facts] if self.blocks is None else [self._facts, self.blocks]

    def _show(self, tokens: list[int], num_prompt: int, cache: ModelCache) -> None:
        if self.blocks is not None:
            self.blocks.refresh()
        self.set_trait("tokens", tokens)
        self.set_trait("text", self.tokenizer.decode(tokens))
        self.set_trait("facts", self._describe(cache, len(tokens)))
        self._facts.value = html.escape(self.facts)
        spans = []
        for start in range(0, len(tokens), self.block_size):
            stop, tint = min(start + self.block_size, len(tokens)), _TINTS[start // self.block_size % 2]
            parts = (tokens[start : min(stop, num_prompt)], tokens[max(start, num_prompt) : stop])
            old, new = (html.escape(self.tokenizer.decode(part)) for part in parts)
            spans.append(f'<span style="background:{tint};color:black"><b>{old}</b>{new}</span>')
        self._text.value = f'<div style="white-space:pre-wrap;line-height:1.7">{"".join(spans)}</div>'

    def _describe(self, cache: ModelCache, num_tokens: int) -> str:
        use = cache.memory()
        if isinstance(cache, ContiguousCache):
            return (
                f"one row of {cache.kv.max_seqlen} tokens: "
                f"{use.used_bytes:,} of {use.reserved_bytes:,} bytes hold tokens"
            )
        if isinstance(cache, PagedCache):
            held = count_of(use.reserved_bytes * cache.kv.manager.num_blocks // use.pool_bytes, "block")
            return f"{held} of {self.block_size} tokens: {use.used_bytes:,} of {use.reserved_bytes:,} bytes hold tokens"
        return f"nothing kept: the next token computes all {num_tokens} again"
