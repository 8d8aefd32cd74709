"""Tuned configurations of one variant, for an exported file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from workbench.ops import tuned
from workbench.ops.export.layout import INDENT, fitted, literal
from workbench.ops.tuned import TunedEntry, TunedTable


@dataclass(frozen=True)
class Winner:
    """An entry of a tuned table with the GPU that it holds for."""

    gpu: str
    arch: str
    entry: TunedEntry
    stale: bool

    @property
    def note(self) -> str:
        """Text of a comment on how the configuration was chosen."""
        entry = self.entry
        text = f"Case {entry.case}: {entry.basis} {entry.seconds * 1e6:.2f} µs"
        if entry.default_seconds is not None:
            text += f", untuned {entry.default_seconds * 1e6:.2f} µs"
        if entry.sample:
            text += f" ({entry.sample})"
        return text + (", of an older source of the kernel" if self.stale else "")


def winners(op: Any, variant: Any) -> list[Winner]:
    """Return the tuned entries of a variant: measured before predicted, of its present source before older, by GPU."""
    found = []
    for table, entry in tuned.entries_of(op.name):
        if entry.variant == variant.name and set(entry.config) == set(variant.space):
            gpu = _gpu(table, entry)
            found.append(Winner(gpu, table.arch, entry, entry.source_hash != variant.source_hash))
    return sorted(found, key=lambda one: (one.entry.basis != "measured", one.stale, one.gpu, one.entry.key))


def fastest(op: Any) -> str | None:
    """Return the kernel variant that won most tuning runs, or most measured ones if any; None if nothing is tuned."""
    best: dict[tuple, TunedEntry] = {}
    names = {one.name for one in op.variants if one.compiles}
    for table, entry in tuned.entries_of(op.name):
        if entry.variant in names:
            key = (entry.basis == "measured", table.device, str(sorted(entry.problem.items(), key=str)))
            if key not in best or entry.seconds < best[key].seconds:
                best[key] = entry
    measured = any(key[0] for key in best)
    wins = Counter(entry.variant for key, entry in sorted(best.items()) if key[0] == measured)
    return wins.most_common(1)[0][0] if wins else None


def _gpu(table: TunedTable, entry: TunedEntry) -> str:
    """Return torch's name of the GPU that an entry was measured on.

    A table's description has the name before the architecture. A predicted entry gets a label that no GPU has as a
    name, so that it holds for the architecture alone.
    """
    if entry.basis != "measured":
        return f"{table.description} (predicted)"
    name = table.description.partition(f" ({table.arch})")[0]
    return name if tuned.slug(name) == table.device else table.device


def table_text(found: list[Winner], parameters: tuple[str, ...]) -> str:
    """Return the definition of CONFIGURATIONS, one entry a line, with how it was chosen in a comment above."""
    lines = ["CONFIGURATIONS = ["]
    for one in found:
        row = one.gpu, one.arch, *_problem(one.entry.problem, parameters), dict(one.entry.config)
        lines += [f"{INDENT}# {one.note}", f"{INDENT}Tuned{literal(row)},"]
    return fitted("\n".join([*lines, "]"]))


def _problem(record: Mapping[str, Any], parameters: tuple[str, ...]) -> tuple[tuple, tuple]:
    """Return the result of `parts.described` for the arguments of a table's entry."""
    same, sizes = [], []
    for name in parameters:
        if f"{name}.dtype" in record:
            shape = [record[f"{name}.shape[{i}]"] for i in range(len(record)) if f"{name}.shape[{i}]" in record]
            strides = record.get(f"{name}.stride")
            same += [getattr(torch, record[f"{name}.dtype"]), len(shape), None if strides is None else tuple(strides)]
            sizes += shape
        elif name in record:
            value = record[name]
            (sizes if isinstance(value, int) and not isinstance(value, bool) else same).append(value)
    return tuple(same), tuple(sizes)


def summary(found: list[Winner]) -> list[str]:
    """Return a line for each GPU: how its configurations were chosen, when, and with which versions."""
    grouped: dict[tuple, list[Winner]] = {}
    for one in found:
        grouped.setdefault((one.gpu, one.entry.basis), []).append(one)
    lines = []
    for (gpu, basis), group in grouped.items():
        days = sorted({one.entry.recorded for one in group if one.entry.recorded})
        when = f", {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else ""
        versions = group[-1].entry.versions
        listed = ", ".join(f"{name} {versions[name]}" for name in sorted(versions) if name in _TOLD)
        how = "times measured" if basis == "measured" else "times predicted from a simulation, not measured"
        lines.append(f"{gpu}: {how}{when}" + (f" ({listed})" if listed else ""))
    return lines


_TOLD = ("torch", "triton", "nvidia-cuda-nvrtc", "workbench", "driver", "cuda")
