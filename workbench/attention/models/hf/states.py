"""Layers of linear attention over the paged cache: a state and the last inputs of a convolution for each sequence.

A new token goes through `conv_step` and `gated_delta_step`, which read and write states in their pages. A prompt goes
through the module of transformers row by row, without its padding, from the row's state and back to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention import conv_step, gated_delta_step
from workbench.attention.models.hf.layers import CacheLayer
from workbench.attention.models.hf.pool import LayerPool


@dataclass(frozen=True)
class DeltaInputs:
    """Inputs of one step of a module, for every row.

    Attributes:
        mixed: inputs of the convolution ``[num_rows, channels]``: queries, keys, values.
        decay: logarithms ``[num_rows, value_heads]`` or ``[num_rows, value_heads, key_size]``.
        beta: ``[num_rows, value_heads]``.
        gate: gate of the module's norm, ``[num_rows, value_heads, value_size]``.
    """

    mixed: torch.Tensor
    decay: torch.Tensor
    beta: torch.Tensor
    gate: torch.Tensor


class StateLayer(CacheLayer):
    """A state of the gated delta rule and the inputs of its convolution, one of each for a sequence."""

    paged: LayerPool

    def advance(
        self, module: torch.nn.Module, hidden: torch.Tensor, forward: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        """Return the output of the module, ``[num_rows, num_new, hidden_size]``, and move the states on.

        Args:
            module: the model's linear attention.
            hidden: ``[num_rows, num_new, hidden_size]``.
            forward: the module's own forward, for prompts.
        """
        step, (states, inputs) = self.step, self.paged.layers[self.index]
        pages = self.paged.state_pages(range(len(hidden)))
        new = step.real.any(1).tolist()
        if hidden.shape[1] == 1:
            read = [page if had and some else -1 for page, had, some in zip(pages, step.had, new, strict=True)]
            write = [page if some else -1 for page, some in zip(pages, new, strict=True)]
            slots = [torch.tensor(one, dtype=torch.int32, device=hidden.device) for one in (read, write)]
            return self._step(module, hidden[:, 0], states, inputs, slots)[:, None]
        out = torch.zeros_like(hidden)
        for row, page in enumerate(pages):
            if not new[row]:
                continue
            past = _RowStates(states[page], inputs[page]) if step.had[row] else _RowStates()
            real = step.real[row]
            out[row, real] = forward(hidden[row : row + 1, real], cache_params=past)[0]
            states[page], inputs[page] = past.kept()
        return out

    def _step(
        self,
        module: torch.nn.Module,
        hidden: torch.Tensor,
        states: torch.Tensor,
        inputs: torch.Tensor,
        slots: list[torch.Tensor],
    ) -> torch.Tensor:
        read = INPUTS[type(module).__name__](module, hidden)
        weight = module.conv1d.weight.squeeze(1).T.contiguous()
        mixed = conv_step(read.mixed.contiguous(), weight, inputs, *slots, variant=self.variants["conv_step"])
        key_heads = (mixed.shape[1] - read.gate[0].numel()) // 2 // states.shape[2]
        sizes = [key_heads * states.shape[2]] * 2 + [read.gate[0].numel()]
        query, key, value = (
            part.unflatten(1, shape).contiguous()
            for part, shape in zip(
                mixed.split(sizes, 1), [(key_heads, -1), (key_heads, -1), tuple(read.gate.shape[1:])], strict=True
            )
        )
        gates = (read.decay.float().contiguous(), read.beta.float().contiguous())
        out = gated_delta_step(query, key, value, *gates, states, *slots, variant=self.variants["gated_delta_step"])
        norm, project = (module.norm, module.out_proj) if hasattr(module, "norm") else (module.o_norm, module.o_proj)
        normed = norm(out.flatten(0, 1), read.gate.reshape(-1, read.gate.shape[-1]))
        return project(normed.view(len(hidden), -1))


class _RowStates:
    """Cache of one row for a module of transformers, which reads and replaces its states."""

    def __init__(self, state: torch.Tensor | None = None, inputs: torch.Tensor | None = None):
        self.state = None if state is None else state[None].clone()
        self.inputs = None if inputs is None else inputs.T[None].clone()

    def kept(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.state is not None, "the module has replaced it"
        assert self.inputs is not None, "the module has replaced it"
        return self.state[0], self.inputs[0].T

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.inputs

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.state

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(self, new: torch.Tensor, layer_idx: int, *, conv_kernel_size: int) -> torch.Tensor:
        kept = conv_kernel_size - 1
        before = new.new_zeros(*new.shape[:2], kept) if self.inputs is None else self.inputs
        both = torch.cat([before, new], -1)
        self.inputs = both[..., -kept:].clone()
        return both

    def update_recurrent_state(self, state: torch.Tensor, layer_idx: int) -> torch.Tensor:
        self.state = state
        return state


def _qwen3_next(module: Any, hidden: torch.Tensor) -> DeltaInputs:
    hidden = hidden[:, None]
    parts = module.fix_query_key_value_ordering(module.in_proj_qkvz(hidden), module.in_proj_ba(hidden))
    query, key, value, gate, beta, decay = (part[:, 0] for part in parts)
    mixed = torch.cat([part.flatten(1) for part in (query, key, value)], -1)
    decay = -module.A_log.float().exp() * torch.nn.functional.softplus(decay.float() + module.dt_bias)
    return DeltaInputs(mixed, decay, beta.sigmoid(), gate)


def _kimi_linear(module: Any, hidden: torch.Tensor) -> DeltaInputs:
    heads = (module.num_heads, module.head_dim)
    return DeltaInputs(
        mixed=torch.cat([module.q_proj(hidden), module.k_proj(hidden), module.v_proj(hidden)], -1),
        decay=module.forget_gate(hidden[:, None])[:, 0],
        beta=module.b_proj(hidden).sigmoid(),
        gate=module.g_b_proj(module.g_a_proj(hidden)).unflatten(-1, heads),
    )


INPUTS: dict[str, Callable[[Any, torch.Tensor], DeltaInputs]] = {
    "Qwen3NextGatedDeltaNet": _qwen3_next,
    "KimiLinearDeltaAttention": _kimi_linear,
}
"""Inputs of a step by the name of the module's class."""
