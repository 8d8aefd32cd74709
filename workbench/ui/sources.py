"""Kernels of several languages side by side, step by step.

A kernel of this project names its steps in comments ("1. Load ...", "2. Score ..."), the same ones in the same order in
every language, so that the panes can be cut at the steps and lined up.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench import ops
from workbench.errors import ArgumentError
from workbench.ops.variant import TritonVariant, Variant

_STEP = re.compile(r"^\s*(?://|#)\s*(\d+)\.\s+(\w+)")
_KERNEL = re.compile(r'^(extern "C" )?__global__', re.MULTILINE)


@dataclass(frozen=True)
class SideBySide:
    """Kernel sources cut into the same steps: ``steps`` maps a step's title to one text per variant."""

    variants: tuple[str, ...]
    steps: dict[str, tuple[str, ...]]

    def __repr__(self) -> str:
        lines = [f"{len(self.steps)} steps: {', '.join(self.variants)} (lines of code in each)"]
        for title, texts in self.steps.items():
            lines.append(f"  {title:22}" + "".join(f"{len(text.splitlines()):>6}" for text in texts))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        pane = (
            '<td style="text-align:left;vertical-align:top;border-left:2px solid #999;max-width:470px">'
            '<pre style="font:10px/1.3 monospace;white-space:pre;overflow-x:auto;margin:0;background:transparent">'
            "{}</pre></td>"
        ).format
        head = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in self.variants)
        rows = "".join(
            '<tr style="border-top:1px solid #999"><th style="text-align:left;vertical-align:top">'
            f"{html.escape(title)}</th>{''.join(pane(html.escape(text)) for text in texts)}</tr>"
            for title, texts in self.steps.items()
        )
        return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def side_by_side(op: str, variants: Sequence[str]) -> SideBySide:
    """The kernels of several variants of an op, lined up at their numbered steps.

    Raises:
        ArgumentError: a variant without a kernel, or whose steps are not those of the first one.
    """
    found = [ops.get(op).variant(name) for name in variants]
    cut = [_steps(kernel_source(variant)) for variant in found]
    for variant, steps in zip(found, cut, strict=True):
        if len(steps) != len(cut[0]):
            raise ArgumentError(
                "variants",
                f"{variant.name} with the steps {[title for title, _ in steps]}",
                f"as many as {found[0].name}: {[title for title, _ in cut[0]]}",
                "Number the steps in the kernel's comments alike.",
            )
    rows = {}
    for number, row in enumerate(zip(*cut, strict=True)):
        names = " / ".join(dict.fromkeys(title for title, _ in row))
        rows[f"{number}. {names}" if number else names] = tuple(text for _, text in row)
    return SideBySide(tuple(variants), rows)


def kernel_source(variant: Variant) -> str:
    """The text of a variant's kernel alone, without its file's preamble.

    Raises:
        ArgumentError: a torch variant, which has none.
    """
    if isinstance(variant, TritonVariant):
        return inspect.getsource(variant.steps[0].function.fn)
    if variant.language == "cuda":
        text = variant.source.read_text()
        start = _KERNEL.search(text)
        return text[start.start() if start else 0 :].rstrip() + "\n"
    raise ArgumentError("variant", variant.name, "a variant in CUDA C++ or Triton", "A torch variant has no kernel.")


def _steps(source: str) -> list[tuple[str, str]]:
    """(title, text) of the signature and of each numbered step."""
    steps: list[tuple[str, list[str]]] = [("Signature", [])]
    for line in source.splitlines():
        match = _STEP.match(line)
        if match:
            steps.append((match[2], []))
        steps[-1][1].append(line)
    return [(title, "\n".join(lines).strip("\n")) for title, lines in steps]
