"""Formulas as MathML, which browsers draw themselves: no script, and nothing to fetch."""

from __future__ import annotations

from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator


OTHER_SPELLINGS = ((r"\dots", r"\ldots"), (r"\Big", ""), (r"\big", ""))
"""What the translator lacks, as what it has; brackets stretch by themselves."""


def _formula(node: nodes.Element, *, as_block: bool) -> str:
    tex = node.astext()
    for theirs, ours in OTHER_SPELLINGS:
        tex = tex.replace(theirs, ours)
    try:
        return tex2mathml(tex, as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in: %s", error, tex, location=node)
        return escape(tex)


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_formula(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_formula(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
