"""A cache's compressor: it makes entries out of windows of tokens, which come in chunks of any length."""

from __future__ import annotations

import torch

from workbench.attention.ops.pool_windows import pool_windows
from workbench.errors import ArgumentError


class Compressor:
    """State of the compressor of one sequence: the tokens that fill no window yet, and the window before them.

    Heavily compressed attention of DeepSeek-V4 pools each window of ``rate`` tokens (128) into an entry. Its compressed
    sparse attention has windows that *overlap*: a token has two vectors, one for the entry of its own window of 4
    tokens and one for the next entry, so that an entry is made of 8 vectors; the first has no window before it.
    A query at position p sees the entries before ``(p + 1) // rate``.

    Args:
        position_bias: what is added to the gates, ``[rate, head_size] float32``, or with ``overlapping`` ``[rate, 2 *
            head_size]``: for the next entry, then for the own one.
        overlapping: whether an entry also takes the window before.
        variant: variant of `pool_windows`.

    Raises:
        ArgumentError: a position bias of another shape.
    """

    def __init__(self, position_bias: torch.Tensor, *, overlapping: bool = False, variant: str = "auto"):
        if position_bias.dim() != 2 or 0 in position_bias.shape or (overlapping and position_bias.shape[1] % 2):
            allowed = "[rate, 2 * head_size]" if overlapping else "[rate, head_size]"
            raise ArgumentError("position_bias", f"shape {tuple(position_bias.shape)}", allowed, "Reshape it.")
        self.rate, self.width = position_bias.shape
        self.num_entries = 0
        self._overlapping, self._variant = overlapping, variant
        bias = position_bias.float()
        self._bias = torch.cat(bias.chunk(2, dim=1)).contiguous() if overlapping else bias.contiguous()
        self._waiting: tuple[torch.Tensor, torch.Tensor] | None = None
        self._before: tuple[torch.Tensor, torch.Tensor] | None = None

    def append(self, values: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """Add tokens; return the entries that they complete, ``[entries, head_size]``, perhaps none.

        Args:
            values: ``[tokens, head_size]``, or with ``overlapping`` ``[tokens, 2 * head_size]``.
            gates: as values, without the position bias.

        Raises:
            ArgumentError: rows of another size, or two numbers of tokens; the state stays as it was.
        """
        for name, rows in (("values", values), ("gates", gates)):
            if rows.dim() != 2 or rows.shape != (len(values), self.width):
                allowed = f"[{len(values)}, {self.width}]"
                raise ArgumentError(name, f"shape {tuple(rows.shape)}", allowed, "A row per token.")
        if self._waiting is not None:
            values, gates = (torch.cat(pair) for pair in zip(self._waiting, (values, gates), strict=True))
        windows, done = len(values) // self.rate, len(values) // self.rate * self.rate
        self._waiting = values[done:].clone(), gates[done:].clone()
        full = [rows[:done].unflatten(0, (windows, self.rate)) for rows in (values, gates)]
        if self._overlapping:
            full = self._with_the_window_before(full)
        self.num_entries += windows
        new_values, new_gates = (rows.contiguous() for rows in full)
        return pool_windows(new_values, new_gates, self._bias, variant=self._variant)

    def _with_the_window_before(self, full: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return windows of twice as many vectors, those of the window before first, and keep the last window's."""
        (next_values, own_values), (next_gates, own_gates) = (rows.chunk(2, dim=2) for rows in full)
        if self._before is None:
            nothing = own_values.new_zeros(1, self.rate, self.width // 2)
            self._before = nothing, torch.full_like(nothing, -torch.inf)
        firsts = [torch.cat(pair) for pair in zip(self._before, (next_values, next_gates), strict=True)]
        self._before = firsts[0][-1:].clone(), firsts[1][-1:].clone()
        return [torch.cat([first[:-1], own], dim=1) for first, own in zip(firsts, (own_values, own_gates), strict=True)]
