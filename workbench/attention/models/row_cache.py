"""A model's cache of quantized rows, rotated before they are stored or not, for studies of what a format costs.

Everything is read back from the rows, a token's own key and value too, and attention is plain torch. With ``rotate``
keys and queries are multiplied by the same Hadamard matrix (`workbench.attention.rotate_heads`), which keeps their
products; rotated values are turned back in the output, one head for each query instead of one for each token:

    q . k = (q H) . (k H)             sum_t p_t v_t = (sum_t p_t (v_t H)) H

The keys' rotation comes after that of positions, so that it cannot be a part of the projection's weights. That of
values could: H belongs to both sides of a linear map.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import torch

from workbench.attention import rotate_heads
from workbench.attention.cache_formats.token_rows import row_codec
from workbench.attention.kvcache import MemoryUse
from workbench.attention.models.caches import ForwardStep, NoCache, step_of
from workbench.attention.models.gpt import GPT
from workbench.attention.models.paged_steps import causal
from workbench.errors import ArgumentError

ROTATIONS = ("", "k", "kv")
"""Tensors that are rotated before they are stored: none, keys, keys and values."""


class RowCache(NoCache):
    """A cache whose sequences are rows of bytes, `workbench.attention.cache_formats.token_rows`.

    Args:
        model: the model whose sizes it has.
        codec: name of the rows' format.
        rotate: one of `ROTATIONS`.
    """

    def __init__(self, model: GPT, codec: str, rotate: str = ""):
        super().__init__(model.device)
        if rotate not in ROTATIONS:
            raise ArgumentError("rotate", repr(rotate), ", ".join(map(repr, ROTATIONS)), "Rotate keys first.")
        self.codec, self.rotate = row_codec(codec), rotate
        c = model.config
        shape = 0, 2, c.num_kv_heads, self.codec.row_bytes(c.head_size)
        self._nothing = [torch.empty(shape, dtype=torch.uint8, device=self.device)] * c.num_layers
        self._rows: dict[Hashable, list[torch.Tensor]] = {}
        """Keys and values of each sequence and layer, ``[num_tokens, 2, num_kv_heads, row] uint8``."""

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``; a new name begins a sequence."""
        super().reorder(parents)
        self._rows |= {child: list(self._rows.get(parent, self._nothing)) for child, parent in parents.items()}

    def free(self, seq: Hashable) -> None:
        """End a sequence."""
        super().free(seq)
        self._rows.pop(seq, None)

    def memory(self) -> MemoryUse:
        """Return the bytes of all rows."""
        used = sum(layer.numel() for layers in self._rows.values() for layer in layers)
        return MemoryUse(used, used, used)

    def _step(self, seqs: Collection[Hashable]) -> ForwardStep:
        """Return the step that computes the tokens without rows."""
        held = [self._rows.setdefault(seq, list(self._nothing)) for seq in seqs]
        starts = [len(layers[0]) for layers in held]
        parts = [(self._tokens[seq][start:], start) for seq, start in zip(seqs, starts, strict=True)]
        lengths = [len(tokens) for tokens, _ in parts]

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            if self.rotate:
                query, key = rotate_heads(query.contiguous()), rotate_heads(key.contiguous())
            if self.rotate == "kv":
                value = rotate_heads(value.contiguous())
            new = self.codec.pack(torch.stack([key, value], 1)).split(lengths)
            outs = []
            for layers, own, rows in zip(held, query.split(lengths), new, strict=True):
                layers[layer] = torch.cat([layers[layer], rows])
                read = self.codec.unpack(layers[layer]).to(query.dtype)
                outs.append(causal(own, read[:, 0], read[:, 1]))
            out = torch.cat(outs)
            return rotate_heads(out.contiguous()) if self.rotate == "kv" else out

        return step_of(parts, attend, self.device)
