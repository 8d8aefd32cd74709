"""Pages of results in headless Chromium, in both themes and without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_lab import chromium_page
from view_kernels import transpose

import workbench as wb

pytestmark = pytest.mark.browser

BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 27, 27)"}
_CONTRAST = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const body = parse(getComputedStyle(document.body).backgroundColor);
    const light = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;
    const texts = [...document.querySelectorAll("h1, dt, dd, th, td, p, pre, caption, .sv-title, .sv-code")];
    return Math.min(...texts.map((node) => Math.abs(light(parse(getComputedStyle(node).color)) - light(body))));
}"""


def test_a_page_is_readable_in_both_themes_and_its_source_answers_clicks(tmp_path: Path):
    from playwright.sync_api import expect

    before, now = transpose("naive"), transpose("tiled")
    found = wb.diff(before, now, fail_if="warp_instructions > 1")
    file = found.save_html(tmp_path / "page.html", now, before)
    refused: list[str] = []
    with chromium_page(refused) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content(file.read_text())
        for theme, background in BACKGROUNDS.items():
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
            assert page.evaluate(_CONTRAST) > 0.3
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        expect(page.locator(".source-view .sv-root")).to_have_count(2)
        second = page.locator(".source-view").nth(1)
        expect(second.locator(".sv-title").first).to_contain_text("naive")
        line = next(one.line for one in before.lines if one.global_requests)
        second.locator(f".sv-row[data-line='{line}']").click()
        expect(second.locator(".sv-ptx td").first).to_be_visible()
        expect(page.locator(".source-view").first.locator(".sv-ptx")).to_have_count(0)
        second.get_by_role("radio", name="bytes moved").click()
        expect(second.get_by_role("radio", name="bytes moved")).to_be_checked()
    assert (errors, refused) == ([], [])
