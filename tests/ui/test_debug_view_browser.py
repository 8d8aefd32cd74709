"""The debugger's view in headless Chromium: live with a session, and a recorded page without Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jupyter_lab import chromium_page
from view_page import show_view

from workbench import ui

sys.path.append(str(Path(__file__).parents[1] / "launch" / "debug"))
from sessions import line_of, softmax

pytestmark = [pytest.mark.browser, pytest.mark.long]
_CONTRAST = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;
    const body = light(parse(getComputedStyle(document.body).backgroundColor));
    const texts = [...document.querySelectorAll(".dv-title, .dv-where, .dv-code, .dv-button, .dv-table td, .dv-hint")];
    return Math.min(...texts.filter((node) => !node.closest(".dv-here"))
      .map((node) => Math.abs(light(parse(getComputedStyle(node).color)) - body)));
}"""


@pytest.fixture
def page():
    with chromium_page(width=1150, height=1500) as found:
        yield found


def test_clicks_and_keys_move_a_live_session(page):
    from playwright.sync_api import expect

    session = softmax()
    view = ui.debug_view(session)
    show_view(page, view)
    here = page.locator(".dv-here")

    def answer() -> None:
        """Let Python carry out the browser's last order, and show what it answers."""
        view.command = page.evaluate("window.sent.at(-1).command")
        for name in ("furthest", "state", "message"):
            page.evaluate("([name, value]) => window.model.set(name, value)", [name, getattr(view, name)])

    expect(here).to_have_attribute("data-line", "2")
    page.locator("[data-action=step]").click()
    answer()
    expect(here).to_have_attribute("data-line", str(session.where.line))
    expect(here.locator(".dv-at")).to_have_text("w 0")
    page.locator(".dv-root").focus()
    page.keyboard.press("e")
    answer()
    expect(page.locator(".dv-where")).to_contain_text("ended after 2,240 instructions")
    page.locator("td[title='y[3, 5]']").click()
    expect(page.locator("[data-action=last_write]")).to_contain_text("last write of y[3, 5]")
    page.locator(".dv-root").focus()
    page.keyboard.press("w")
    answer()
    assert session.where.block == (3, 0, 0)
    expect(here).to_have_attribute("data-line", str(line_of("/ total;")))

    # A variable's lanes, a stop by a click on its line, and an error.
    expect(page.locator("th[data-target=total]")).to_be_visible()
    line = line_of("sum += expf")
    page.locator(f".dv-line[data-line='{line}']").click()
    answer()
    expect(page.locator(".dv-stop")).to_have_attribute("data-line", str(line))
    page.locator("[data-action=go_back]").click()
    answer()
    expect(here).to_have_attribute("data-line", str(line))
    page.locator(".dv-text").fill("1 if lane == 3")
    page.keyboard.press("Enter")
    answer()
    expect(page.locator(".dv-error")).to_contain_text("The compiler kept no instruction of line 1")
    page.evaluate("window.done()")
    assert page.evaluate("window.left()") == 0
    session.close()


def test_a_saved_page_steps_without_python_in_both_themes(page, tmp_path: Path):
    from playwright.sync_api import expect

    session = softmax()
    recording = ui.debug_recording(session, steps=80)
    session.close()
    file = recording.save_html(tmp_path / "page.html")
    assert file.stat().st_size < 400_000
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(file.read_text())
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(_CONTRAST) > 0.3
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.locator(".dv-root").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".dv-time")).to_have_value("5")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".dv-time")).to_have_value("4")
    page.keyboard.press("e")
    element = page.locator("td[title='y[0, 5]']")
    expect(element).not_to_have_text("0")
    element.click()
    page.locator("[data-action=last_write]").click()
    expect(page.locator(".dv-here")).to_have_attribute("data-line", str(line_of("/ total;")))
    expect(element).to_have_text("0")
    page.locator("[data-action=step]").click()
    expect(page.locator("td.dv-changed[title='y[0, 5]']")).to_be_visible()
    page.locator(".dv-text").fill(str(line_of("sum += expf")))
    page.locator("[data-action=go_back]").click()
    expect(page.locator(".dv-here")).to_have_attribute("data-line", str(line_of("sum += expf")))
    assert not errors
