"""The tuning view's pictures in headless Chromium, in a light and a dark theme."""

from __future__ import annotations

import os

import pytest
from jupyter_lab import chromium_page
from view_page import show_view

import workbench as wb

SWEEP = "paged_attention-cuda_thread_group-llama-3-8b-sim-a100-sxm-80gb"
THEMES = {"light": ("#ffffff", "#222222"), "dark": ("#111111", "#e0e0e0")}  # background, text
LUMINANCE = """node => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = getComputedStyle(node).stroke;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}"""

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.mark.parametrize("theme", THEMES)
def test_parallel_coordinates_stand_out_from_the_theme_the_faster_the_more(theme, fresh_home):
    view = wb.tune("paged_attention", device=f"replay:{SWEEP}", strategy="random", budget=40).widget()
    background, text = THEMES[theme]
    with chromium_page(width=900, height=1200) as page:
        show_view(page, view)
        page.add_style_tag(
            content=f":root {{ --jp-layout-color1: {background}; --jp-ui-font-color1: {text}; }}"
            f" body {{ background: {background}; }}"
        )
        assert (
            page.locator(".tv-lines").evaluate("node => getComputedStyle(node).backgroundColor") == "rgba(0, 0, 0, 0)"
        )
        lines = page.locator(".tv-line:not(.tv-line-best)").all()  # the slowest first
        behind = int(background[1:3], 16) / 255
        apart = [abs(line.evaluate(LUMINANCE) - behind) for line in (lines[0], lines[-1])]
        assert 0.1 < apart[0] < apart[1]
        assert apart[1] > 0.5
        assert page.evaluate("document.documentElement.scrollWidth") <= 930, "the page and its margins"


def test_more_lines_than_can_be_told_apart_become_a_table_of_quantiles(fresh_home):
    run = wb.tune("paged_attention", device=f"replay:{SWEEP}", strategy="random", budget=250)
    with chromium_page(width=900, height=1200) as page:
        show_view(page, run.widget())
        assert page.locator(".tv-line").count() == 0
        rows = [row.split("\t") for row in page.locator(".tv-lines table").inner_text().splitlines()]
        assert rows[0][-4:] == ["best", "quarter", "median", "three quarters"]
        of_width = [row for row in rows[1:] if row[-6] in "1248"]
        assert sum(int(row[-5]) for row in rows[1:]) % 250 == 0
        assert min(float(row[-4]) for row in of_width) == float(f"{run.best.seconds * 1e6:.3g}")
        for row in rows[1:]:
            times = list(map(float, row[-4:]))
            assert times == sorted(times)
        if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/quantiles.png")
