"""Hugging Face models over a paged KV cache: an attention function and a `Cache` for transformers (extra ``hf``).

::

    import workbench.attention.models.hf as hf

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=hf.NAME)
    cache = hf.PagedCache(model.config, num_blocks=256)
    model.generate(**tokenizer(prompts, padding=True, return_tensors="pt"), past_key_values=cache)

Importing the module registers the attention function. Prompts may have unequal lengths. Columns that the attention mask
hides take no slot, but they count in a sliding window, as in transformers. The tokens of a prompt attend in plain
torch; each later token goes through `workbench.attention.ops.paged_attention`, so that
``PagedCache(..., variant="cuda_thread_group")`` selects its kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from workbench.attention import paged_attention
from workbench.attention.kvcache import PagedKVCache
from workbench.errors import ArgumentError

NAME = "workbench_paged"
"""Name of the attention function, for ``attn_implementation``."""

_LAYER_TYPES = ("full_attention", "sliding_attention")
_REMEDY = 'Use another attn_implementation ("sdpa", "eager") for this model.'


class PagedCache(Cache):
    """A cache for one batch of a decoder-only model, for ``generate(..., past_key_values=)``.

    Row i of the batch is sequence i of ``.paged``, a `PagedKVCache` that all layers share. Blocks behind a sliding
    window are freed if every layer has the same window. In a quantized cache, the tokens of a first prompt attend to
    each other's keys and values before quantization, and all later tokens to the quantized ones.

    Args:
        config: configuration of the model; of a multimodal model its text decoder is used.
        num_blocks: blocks of the pool; a batch needs at most ``ceil(tokens / block_size)`` for each row.
        block_size: tokens per block.
        dtype: element type of keys and values; default the model's.
        layout: order of the elements in a block, as in `PagedKVCache`.
        device: where the cache lives.
        kv_cache_dtype: "auto" or a quantized type, as in `PagedKVCache`.
        k_scale: scale of quantized keys, as in `PagedKVCache`.
        v_scale: scale of quantized values, as in `PagedKVCache`.
        variant: variant of `paged_attention`.

    Raises:
        ArgumentError: if the model has another kind of attention, or a size does not fit.
        OutOfBlocksError: while generating, if the pool is full; the tokens so far stay in the cache.
    """

    def __init__(
        self,
        config: Any,
        *,
        num_blocks: int,
        block_size: int = 16,
        dtype: torch.dtype | None = None,
        layout: str = "nhd",
        device: torch.device | str = "cpu",
        kv_cache_dtype: str = "auto",
        k_scale: Any = None,
        v_scale: Any = None,
        variant: str = "auto",
    ):
        config = config.get_text_config(decoder=True)
        windows = _windows(config)
        self.variant = variant
        self.paged = PagedKVCache(
            num_layers=len(windows),
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            dtype=dtype or getattr(config, "dtype", None) or torch.float32,
            layout=layout,
            device=device,
            sliding_window=windows[0] if len(set(windows)) == 1 else None,
            kv_cache_dtype=kv_cache_dtype,
            k_scale=k_scale,
            v_scale=v_scale,
        )
        self.step = _Step(self.paged)
        super().__init__(layers=[PagedLayer(self, index, window) for index, window in enumerate(windows)])

    def __repr__(self) -> str:
        return f"PagedCache({self.paged.memory()})"

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let row i continue from row ``beam_idx[i]``; they share blocks, which are copied when one of them writes."""
        self.paged.reorder({row: int(parent) for row, parent in enumerate(beam_idx)})
        self.step.shown = self.step.shown[beam_idx.cpu()]

    def reset(self) -> None:
        """Free every block, so that the cache can take another batch."""
        for row in range(self.step.num_rows):
            self.paged.free(row)
        self.step = _Step(self.paged)
        for layer in self.layers:
            layer.steps = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to remove tokens, as assisted generation would."""
        raise _refused("crop", f"{tokens_to_remove} tokens to remove", "a cache that only grows")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse to repeat rows; let ``generate`` repeat the prompts."""
        raise _refused("batch_repeat_interleave", repeats, "rows that keep their places")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Refuse to select rows, because rows stay until `reset`."""
        raise _refused("batch_select_indices", indices, "rows that keep their places")


class PagedLayer(CacheLayerMixin):
    """One layer of a `PagedCache`; the pool of the cache holds its tensors."""

    def __init__(self, cache: PagedCache, index: int, sliding_window: int | None):
        super().__init__()
        self.cache, self.index, self.sliding_window = cache, index, sliding_window
        self.is_sliding = sliding_window is not None
        self.is_initialized = True
        self.steps = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing, because the pool exists already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the new keys and values to the attention function, which knows the mask and writes them."""
        key_states.paged_layer = self
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Return the number of columns so far, padding included, which transformers takes as the length."""
        return self.cache.step.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of columns of the mask with ``query_length`` new ones, and 0, the first column."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """Return -1 for no limit, because the pool bounds the tokens of all rows together, not of one."""
        return -1

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        rule: ScoreRule,
    ) -> torch.Tensor:
        """Write the new tokens and return their attention, ``[num_rows, num_new, num_heads, head_size]``."""
        paged, step = self.cache.paged, self.cache.step
        if self.steps == step.number:  # the first layer of a forward pass makes room in all layers
            step.make_room(mask, num_rows=query.shape[0], num_new=query.shape[2])
        self.steps = step.number
        new_keys, new_values = (side.transpose(1, 2).flatten(0, 1) for side in (key, value))
        paged.write(self.index, new_keys.contiguous(), new_values.contiguous(), step.slots)
        if query.shape[2] > 1:
            return self._prompt(query, key, value, rule)
        key_cache, value_cache = paged.layers[self.index]
        newest = query[:, :, 0].contiguous()
        out = torch.empty_like(newest)
        for window, rows in step.rows_by_window(self.sliding_window):
            out[rows] = paged_attention(
                newest[rows],
                key_cache,
                value_cache,
                step.block_tables[rows],
                step.seq_lens[rows],
                **(paged.attention_options(self.index) | {"sliding_window": window}),
                variant=self.cache.variant,
                scale=rule.scale,
                soft_cap=rule.soft_cap,
                sinks=rule.sinks,
            )
        return out[:, None]

    def _prompt(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule) -> torch.Tensor:
        """Return the attention of several new tokens per row, to the row's cached tokens and to each other."""
        step = self.cache.step
        out = query.new_zeros(query.shape).transpose(1, 2).contiguous()
        for row, new in enumerate(step.real):
            keys, values = key[row, :, new], value[row, :, new]
            if step.had[row]:
                keys, values = (side.transpose(0, 1) for side in self.cache.paged.gather(self.index, row))
            columns = step.shown[row].nonzero()[:, 0]
            columns = columns[len(columns) - keys.shape[1] :]
            out[row, new] = causal(query[row, :, new], keys, values, columns, rule, window=self.sliding_window)
        return out


class _Step:
    """State of one forward pass, shared by all layers: the slots of the new tokens of every row.

    ``shown`` ``[num_rows, columns] bool`` is the attention mask so far: True for tokens, False for padding.
    """

    def __init__(self, paged: PagedKVCache):
        self._paged = paged
        self.number = self.num_rows = 0
        self.shown = torch.ones(0, 0, dtype=torch.bool)

    @property
    def columns(self) -> int:
        """Number of columns so far, padding included."""
        return self.shown.shape[1]

    def make_room(self, mask: torch.Tensor | None, *, num_rows: int, num_new: int) -> None:
        """Allocate slots for the new columns that the mask ``[num_rows, columns]`` shows (None: all), for all rows."""
        if self.number and num_rows != self.num_rows:
            raise ArgumentError(
                "past_key_values",
                f"{self.num_rows} rows for a batch of {num_rows}",
                "the batch size of the first call",
                "Call reset().",
            )
        shown = self._shown(mask, num_rows, num_new)
        real = shown[:, self.columns :]
        counts = real.sum(1).tolist()
        if self.number:
            had = self._paged.seq_lens(range(num_rows)).tolist()
            slots = self._paged.append_batch({row: count for row, count in enumerate(counts) if count}).slot_mapping
        else:
            had, slots = [0] * num_rows, self._allocate(counts)
        self.slots = torch.full((num_rows * num_new,), -1, dtype=torch.int64, device=self._paged.device)
        self.slots[real.flatten().to(self._paged.device)] = slots
        self.shown, self.real, self.had, self.num_rows = shown, real, had, num_rows
        self.block_tables = self._paged.block_tables(range(num_rows))
        self.seq_lens = self._paged.seq_lens(range(num_rows))
        self.number += 1

    def rows_by_window(self, columns: int | None) -> list[tuple[int | None, slice | list[int]]]:
        """Convert a window in columns to windows in tokens, each with the rows for which it is right.

        The two differ only where padding after a row's first token leaves a hole in the window.
        """
        if columns is None:
            return [(None, slice(None))]
        seen = self.shown[:, -columns:].sum(1).tolist()
        rows: dict[int, list[int]] = {}
        for row, (count, length) in enumerate(zip(seen, self.shown.sum(1).tolist(), strict=True)):
            rows.setdefault(columns if count == min(length, columns) else max(count, 1), []).append(row)
        if len(rows) == 1:
            return [(next(iter(rows)), slice(None))]
        return list(rows.items())

    def _shown(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> torch.Tensor:
        """Return the mask with the new columns; ArgumentError if it differs in the columns before."""
        columns = self.columns + num_new
        shown = torch.ones(num_rows, columns, dtype=torch.bool) if mask is None else mask.bool().cpu()
        if tuple(shown.shape) != (num_rows, columns):
            raise ArgumentError(
                "attention_mask", f"shape {tuple(shown.shape)}", f"({num_rows}, {columns})",
                "The mask has all columns: those in the cache, then the new ones.",
            )  # fmt: skip
        changed = shown[:, : self.columns] != self.shown if self.number else shown[:, :0]
        if changed.any():
            row, column = changed.nonzero()[0].tolist()
            raise ArgumentError(
                "attention_mask", f"{int(shown[row, column])} at [{row}, {column}]",
                f"{int(not shown[row, column])}, as when that column was computed",
                "The mask of columns in the cache cannot change, as padding has no slot: call reset() and start again.",
            )  # fmt: skip
        return shown

    def _allocate(self, counts: list[int]) -> torch.Tensor:
        slots = []
        try:
            for row, count in enumerate(counts):
                slots.append(self._paged.allocate(row, count).slot_mapping)
        except Exception:
            for row in range(len(slots)):
                self._paged.free(row)
            raise
        return torch.cat(slots)


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """Rule of the scores: factor, bound by tanh and attention sinks ``[num_heads]``, as in `paged_attention`.

    None as ``soft_cap`` is no bound, None as ``sinks`` no sinks.
    """

    scale: float
    soft_cap: float | None
    sinks: torch.Tensor | None


def causal(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    columns: torch.Tensor,
    rule: ScoreRule,
    *,
    window: int | None = None,
) -> torch.Tensor:
    """Compute the attention of the last ``num_new`` tokens of one sequence.

    The softmax is in float32, as in transformers' eager path.

    Args:
        query: queries ``[num_heads, num_new, head_size]``.
        key: keys ``[num_kv_heads, num_tokens, head_size]``; with a window, at least those inside it.
        value: values of the same shape.
        columns: column of the attention mask of each token, ``[num_tokens] int64``, rising.
        rule: rule of the scores.
        window: sliding window in columns, the newest included; None: no window.

    Returns:
        The attention, ``[num_new, num_heads, head_size]``.
    """
    group, num_new, num_tokens = query.shape[0] // key.shape[0], query.shape[1], key.shape[1]
    key, value = key.repeat_interleave(group, 0), value.repeat_interleave(group, 0)
    scores = (query @ key.transpose(1, 2)) * rule.scale
    if rule.soft_cap is not None:
        scores = rule.soft_cap * torch.tanh(scores / rule.soft_cap)
    age = columns[num_tokens - num_new :, None] - columns
    hidden = (age < 0) if window is None else (age < 0) | (age >= window)
    scores = scores.masked_fill(hidden.to(scores.device), -torch.inf).float()
    if rule.sinks is not None:
        scores = torch.cat([scores, rule.sinks[:, None, None].expand(-1, num_new, 1)], -1)
    weights = scores.softmax(-1)[..., :num_tokens]
    return (weights.to(query.dtype) @ value).transpose(0, 1)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention over a `PagedCache`, as transformers' attention interface requires.

    The mask is 2-D or None; see `padding_mask`. ``s_aux`` ``[num_heads]`` are the attention sinks of GPT-OSS: a score
    per head that enters the denominator of the softmax only.

    Raises:
        ArgumentError: if the model or the call needs a feature that is not supported; the error names it.
    """
    layer = getattr(key, "paged_layer", None)
    if layer is None:
        raise ArgumentError(
            "past_key_values",
            "none, or of another class",
            "a PagedCache",
            f"attn_implementation={NAME!r} keeps keys and values there.",
        )
    if others.get("position_bias") is not None:
        raise _refused("position_bias", f"a tensor in {type(module).__name__}", "attention without a position bias")
    if dropout:
        raise ArgumentError("dropout", dropout, "0", "Call model.eval(): attention has no backward pass.")
    if attention_mask is not None and attention_mask.dim() != 2:
        shape = tuple(attention_mask.shape)
        raise ArgumentError("attention_mask", f"shape {shape}", "[num_rows, columns], 1 for a token", _REMEDY)
    if sliding_window != layer.sliding_window:
        raise _refused(
            "sliding_window", f"{sliding_window} in layer {layer.index}", f"{layer.sliding_window}, as in its config"
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sinks = None if s_aux is None else s_aux.detach().float().reshape(-1)
    rule = ScoreRule(float(scale), softcap, sinks)
    with torch.no_grad():
        return layer.attend(query, key, value, attention_mask, rule), None


def padding_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *args: Any,
    attention_mask: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor | None:
    """Return the mask for `attention`: True for those of ``kv_length`` columns that are tokens; None if all are."""
    if attention_mask is None or (attention_mask.shape[1] >= kv_length and attention_mask.all()):
        return None
    return attention_mask[:, -kv_length:]


def _windows(config: Any) -> list[int | None]:
    """Return the sliding window of each layer in tokens, None for full attention; refuse other attention."""
    if getattr(config, "is_encoder_decoder", False):
        raise _refused("config", f"{config.model_type}, an encoder and a decoder", "a decoder-only model")
    for name in ("kv_lora_rank", "attention_chunk_size"):
        if getattr(config, name, None):
            raise _refused("config", f"{config.model_type} with {name}", "attention over plain keys and values")
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is None:
        return [window] * config.num_hidden_layers
    unknown = sorted(set(types) - set(_LAYER_TYPES))
    if unknown:
        raise _refused("config", f"{config.model_type} with layers of {', '.join(unknown)}", ", ".join(_LAYER_TYPES))
    return [window if kind == "sliding_attention" else None for kind in types]


def _refused(name: str, came: Any, allowed: str) -> ArgumentError:
    return ArgumentError(name, came, allowed, _REMEDY)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, padding_mask)
