"""Kernels of several languages side by side, step by step.

A kernel of this project numbers its steps in comments ("1. Load ...", "2. Score ..."), with the same steps in the same
order in every language, so that the panes can be cut at the steps and aligned.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.errors import ArgumentError
from workbench.ops import registry
from workbench.ops.variant import TritonVariant, Variant

_STEP = re.compile(r"^\s*(?://|#)\s*(\d+)\.\s+(\w+)")
_STYLES = {
    "Token.Comment.Preproc": "color:var(--jp-mirror-editor-meta-color,#a2f)",
    "Token.Comment": "color:var(--jp-mirror-editor-comment-color,#408080);font-style:italic",
    "Token.Keyword": "color:var(--jp-mirror-editor-keyword-color,#008000);font-weight:bold",
    "Token.Literal.String": "color:var(--jp-mirror-editor-string-color,#ba2121)",
    "Token.Literal.Number": "color:var(--jp-mirror-editor-number-color,#080)",
    "Token.Name.Decorator": "color:var(--jp-mirror-editor-meta-color,#a2f)",
}
"""CSS of tokens by the beginning of their kind; the first match counts."""
_KERNEL = re.compile(r'^(extern "C" )?__global__', re.MULTILINE)


@dataclass(frozen=True)
class SideBySide:
    """Kernel sources cut into the same steps; ``steps`` has one text per variant for each step's title."""

    variants: tuple[str, ...]
    languages: tuple[str, ...]
    steps: dict[str, tuple[str, ...]]

    def __repr__(self) -> str:
        lines = [f"{len(self.steps)} steps: {', '.join(self.variants)} (lines of code in each)"]
        for title, texts in self.steps.items():
            lines.append(f"  {title:22}" + "".join(f"{len(text.splitlines()):>6}" for text in texts))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        pane = (
            '<td style="text-align:left;vertical-align:top;padding:0 0.6em;border-left:2px solid #999">'
            '<pre style="font:12px/1.35 monospace;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;'
            'margin:0;background:transparent">{}</pre></td>'
        ).format
        heads = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in self.variants)
        rows = "".join(
            f'<tr style="border-top:1px solid #999"><th colspan="{len(texts)}" style="text-align:left">'
            f"{html.escape(title)}</th></tr><tr>{''.join(map(pane, self._coloured(texts)))}</tr>"
            for title, texts in self.steps.items()
        )
        table = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div style="max-height:48em;overflow:auto"><table style="table-layout:fixed;width:100%">{table}</div>'

    def _coloured(self, texts: Sequence[str]) -> list[str]:
        return [coloured(text, language) for text, language in zip(texts, self.languages, strict=True)]


def side_by_side(op: str, variants: Sequence[str]) -> SideBySide:
    """Show the kernels of several variants of an op, aligned at their numbered steps.

    Raises:
        ArgumentError: if a variant has no kernel, or its number of steps differs from that of the first one.
    """
    found = [registry.get(op).variant(name) for name in variants]
    cut = [_steps(kernel_source(variant)) for variant in found]
    for variant, steps in zip(found, cut, strict=True):
        if len(steps) != len(cut[0]):
            raise ArgumentError(
                "variants",
                f"{variant.name} with the steps {[title for title, _ in steps]}",
                f"as many as {found[0].name}: {[title for title, _ in cut[0]]}",
                "Number the same steps in the comments of both kernels.",
            )
    rows = {}
    for number, row in enumerate(zip(*cut, strict=True)):
        names = " / ".join(dict.fromkeys(title for title, _ in row))
        rows[f"{number}. {names}" if number else names] = tuple(text for _, text in row)
    return SideBySide(tuple(variants), tuple(variant.language for variant in found), rows)


def coloured(text: str, language: str) -> str:
    """Return a source text as HTML in the code colours of JupyterLab's theme, or elsewhere of its light theme.

    Args:
        text: lines of a source.
        language: "cuda", or anything else for Python.
    """
    from pygments import lex
    from pygments.lexers import CudaLexer, PythonLexer

    out = []
    for token, piece in lex(text, CudaLexer(stripnl=False) if language == "cuda" else PythonLexer(stripnl=False)):
        style = next((style for kind, style in _STYLES.items() if str(token).startswith(kind)), "")
        escaped = html.escape(piece)
        out.append(f'<span style="{style}">{escaped}</span>' if style and piece.strip() else escaped)
    return "".join(out).removesuffix("\n")


def kernel_source(variant: Variant) -> str:
    """Return the text of a variant's kernel, without the preamble of its file.

    Raises:
        ArgumentError: for a torch variant, which has no kernel.
    """
    if isinstance(variant, TritonVariant):
        return inspect.getsource(variant.steps[0].function.fn)
    if variant.language == "cuda" and variant.source is not None:
        text = variant.source.read_text()
        start = _KERNEL.search(text)
        return text[start.start() if start else 0 :].rstrip() + "\n"
    raise ArgumentError("variant", variant.name, "a variant in CUDA C++ or Triton", "A torch variant has no kernel.")


def _steps(source: str) -> list[tuple[str, str]]:
    """Return (title, text) of the signature and of each numbered step."""
    steps: list[tuple[str, list[str]]] = [("Signature", [])]
    for line in source.splitlines():
        match = _STEP.match(line)
        if match:
            steps.append((match[2], []))
        steps[-1][1].append(line)
    return [(title, "\n".join(lines).strip("\n")) for title, lines in steps]
