"""Figures become small vector pictures, in the colours of the page around them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from workbench.ui.figures import figure_html, image, show_as_vectors, svg_of
from workbench.ui.line_plots import LineAxes, marked_lines
from workbench.ui.plots import grouped_bars, new_axes


def test_a_figure_is_a_small_svg_that_turns_with_the_theme_and_is_the_same_again():
    def drawn():
        axes = LineAxes("tokens", "µs", '<two> & "three" 50 %')
        return marked_lines([1, 2, 3], {"a": [1, 2, 3], "b": [3, 2, 1]}, axes).figure

    svg = svg_of(drawn())
    assert svg == svg_of(drawn())
    assert plt.get_fignums() == []
    root = ElementTree.fromstring(svg)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"tokens", "µs", '<two> & "three" 50 %', "a", "b"} <= texts, "text as text"
    assert "prefers-color-scheme:dark" in svg
    used = set(re.findall(r"url\(#(\w+)\)|href=\"#(\w+)\"", svg))
    assert {name for pair in used for name in pair if name} == {one.get("id") for one in root.iter() if one.get("id")}
    assert len(svg) < 12_000
    shown = image(svg, "<label>")
    assert 'alt="&lt;label&gt;"' in shown
    assert not set("#") & set(shown.split(",", 1)[1]), "it would end the address"


def test_dots_of_a_hatch_are_short():
    svg = svg_of(grouped_bars(["x"], {"a": [1], "b": [2], "c": [3]}, ylabel="n").figure)
    assert "stroke-linecap:round" in svg
    assert len(svg) < 16_000


def test_what_has_thousands_of_marks_is_a_bitmap_in_the_picture():
    ax = new_axes(6, 3)
    ax.scatter(range(4000), range(4000))
    svg = svg_of(ax.figure)
    assert "<image" in svg
    assert "tokens" not in svg
    assert len(svg) < 60_000
    ax = new_axes(3, 3)
    ax.imshow([[0, 1], [2, 3]], cmap="cividis")
    assert "image{filter" in svg_of(ax.figure), "dark stays low in both themes"


def test_notebooks_show_figures_as_html_also_after_pyplot_has_registered_its_own(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    show_as_vectors()
    formats = shell.display_formatter.formatters
    assert plt.Figure not in formats["text/html"].type_printers, "nothing outside notebooks"
    shell.kernel = SimpleNamespace()
    show_as_vectors()
    show_as_vectors()
    formats["image/png"].for_type(plt.Figure, lambda figure: b"png")
    formats["text/html"].pop(plt.Figure)
    shell.events.trigger("post_execute")
    ax = new_axes(3, 2)
    ax.set_title("a title")
    data, _ = shell.display_formatter.format(ax.figure)
    assert set(data) == {"text/plain", "text/html"}
    assert 'alt="a title"' in data["text/html"]
    assert "color-scheme:dark" in data["text/html"]
    assert figure_html(new_axes(3, 2).figure, "said").count('alt="said"') == 1
