"""State of one forward pass over a paged cache, shared by all layers of the model."""

from __future__ import annotations

import torch

from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models.hf.pool import LayerPool
from workbench.attention.models.hf.refusals import REMEDY
from workbench.errors import ArgumentError


class ForwardPass:
    """State of one forward pass, shared by all layers: the slots of the new tokens of every row.

    ``shown`` ``[num_rows, columns] bool`` is the attention mask so far: True for tokens, False for padding.
    """

    def __init__(self, paged: PagedKVCache | LayerPool):
        self._paged = paged
        self.start_over()

    def start_over(self) -> None:
        """Forget the rows; their blocks have been freed."""
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

    def columns_of(self, row: int) -> torch.Tensor:
        """Return the column of each token of a row, ``[num_tokens] int64``."""
        return self.shown[row].nonzero()[:, 0]

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
        if mask is not None and mask.dim() != 2:
            shape = tuple(mask.shape)
            raise ArgumentError("attention_mask", f"shape {shape}", "[num_rows, columns], 1 for a token", REMEDY)
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
