"""The common part of every op's function: choose a variant, its configuration, and the device that runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.op import Op
from workbench.ops.variant import MACHINE_ARCHS, Variant

if TYPE_CHECKING:
    from workbench.launch.devices import Device


def choose(
    op: Op, problem: Any, variant: str, config: Mapping[str, Any] | None, *, device: str
) -> tuple[Variant, dict[str, Any]]:
    """Return the variant and configuration that an op runs for a problem.

    Args:
        op: the op.
        problem: the sizes, dtypes, layout and features of the call, in the op's own class.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one, or the torch variant if no kernel supports
            the problem), "tuned" (the winner in the tuned table, on a CPU the simulator's), or a name.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        device: name of the device whose tuned table is read; see `table_of`.

    Raises:
        UnknownNameError: no such variant.
        ArgumentError: the variant lacks a feature, layout or dtype of the problem; names the variants that have it.
        ConfigurationError: the configuration breaks a rule, which is named.
    """
    from workbench.ops.tuned import lookup

    if variant in ("auto", "tuned"):
        able = _able(op, problem)
        if config is not None:
            raise ArgumentError("config", dict(config), f"None with variant={variant!r}", f"Name a variant: {able}.")
        found = None if variant == "auto" and device == "sim" else lookup(op, None, problem, device)
        if found is not None:
            return op.variant(found.variant), dict(found.config)
        if variant == "auto":  # a CPU, or a GPU and a problem that only the torch variant can run
            first = next(one for one in op.variants if not one.compiles)
            return first, first.default_config(problem)
        for one in op.variants:
            one.check_tensors(problem)
        raise ArgumentError(
            "variant", "'tuned', but no kernel supports this problem", able, "Name one of them as variant=."
        )
    check_name(op, variant)
    chosen = op.variant(variant)
    check_supported(op, chosen, problem)
    if config is None:
        found = lookup(op, variant, problem, device)
        config = chosen.default_config(problem) if found is None else found.config
    chosen.check(config, problem)
    return chosen, dict(config)


def check_name(op: Op, variant: str) -> None:
    """Raise UnknownNameError for a variant that the op does not have."""
    allowed = ("auto", "tuned", *(one.name for one in op.variants))
    if variant not in allowed:
        raise UnknownNameError("variant", repr(variant), ", ".join(allowed), f"See workbench.variants({op.name!r}).")


def check_supported(op: Op, variant: Variant, problem: Any) -> None:
    """Raise ArgumentError for a variant that lacks a feature, layout or dtype of the problem.

    The error names the variants that have it, or the tensor whose memory layout the variant does not support.
    """
    variant.check_tensors(problem)
    lacking = "; ".join(str(rule) for rule in variant.unsupported(problem))
    if lacking:
        what = f"{variant.name!r}, which lacks {lacking}"
        raise ArgumentError("variant", what, _able(op, problem), "Name one of them as variant=.")


def _able(op: Op, problem: Any) -> str:
    return ", ".join(one.name for one in op.variants if not one.unsupported(problem)) or "none"


def run(
    op: Op,
    problem: Any,
    tensors: Any,
    like: torch.Tensor,
    variant: str,
    config: Mapping[str, Any] | None,
    *,
    nothing: bool = False,
) -> None:
    """Choose as `choose` does and run where ``like`` is. Where there is nothing to do no rule of a launch need hold."""
    if nothing:
        check_name(op, variant)
        return
    named = next((one for one in op.variants if one.name == variant), None)
    if named is not None and not like.is_cuda:
        problem = replace(problem, arch=named.machine_arch(problem))
    chosen, chosen_config = choose(op, problem, variant, config, device=table_of(like))
    chosen.run(chosen_config, problem, tensors, device_of(chosen, like, problem.arch))


def device_of(variant: Variant, tensor: torch.Tensor, arch: str = MACHINE_ARCHS[0]) -> Device | None:
    """Return the device that a variant runs on for this tensor, or None for a torch variant.

    It is the tensor's GPU, or for host memory the simulator, which then compiles for ``arch``.
    """
    if not variant.compiles:
        return None
    from workbench.launch import devices

    return devices.get("cuda") if tensor.is_cuda else devices.simulator(arch)


def table_of(tensor: torch.Tensor) -> str:
    """Return the name of the tuned table for the tensor's GPU; "sim" for host memory."""
    from workbench.ops.tuned import slug

    return slug(torch.cuda.get_device_name(tensor.device)) if tensor.is_cuda else "sim"


def arch_of(tensor: torch.Tensor) -> str:
    """Return the architecture of the tensor's GPU; the simulator's for host memory."""
    if not tensor.is_cuda:
        return MACHINE_ARCHS[0]
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return f"sm_{major}{minor}"


def multiprocessors_of(tensor: torch.Tensor) -> int | None:
    """Return the number of multiprocessors of the tensor's GPU; None for host memory."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else None
