"""The browser's half of the source view in headless Chromium, with a model that only remembers what it is told."""

from __future__ import annotations

import pytest
from jupyter_lab import chromium_page
from view_kernels import line_of, transpose
from view_page import show_view

from workbench import ui

TRAITS = ("fact", "selected_line", "selected_file", "state", "detail", "stage", "code")
pytestmark = pytest.mark.browser


@pytest.fixture
def page():
    with chromium_page(width=1000, height=1000) as found:
        yield found


def tell(page, view) -> None:
    """Let the browser's model have what Python says."""
    for name in TRAITS:
        page.evaluate("([name, value]) => window.model.set(name, value)", [name, getattr(view, name)])


def test_the_gutter_and_the_selection_in_a_browser(page):
    from playwright.sync_api import expect

    trace = transpose("tiled")
    view = ui.source_view(trace)
    copy = line_of(trace, "// copy")

    show_view(page, view)
    row = page.locator(f".sv-row[data-line='{copy}']")
    expect(row.locator(".sv-value")).to_have_text(view.value(copy))
    expect(row.locator(".sv-comment")).to_have_text("// copy")
    expect(page.locator(".sv-detail .sv-hint")).to_contain_text("Select a line")

    # Another fact: the values are in the browser already, Python hears of it.
    page.locator(".sv-button[data-fact=wavefronts]").click()
    expect(row.locator(".sv-value")).to_have_text("4,096 / 128")
    expect(page.locator(".sv-button[data-fact=wavefronts]")).to_have_attribute("aria-checked", "true")
    assert page.evaluate("window.sent.at(-1).fact") == "wavefronts"
    store = page.locator(f".sv-row[data-line='{line_of(trace, 'tile[j][threadIdx.x] =')}']")
    widths = [one.locator(".sv-fill").evaluate("node => node.getBoundingClientRect().width") for one in (row, store)]
    assert widths[0] > 40
    assert widths[1] == 0

    # A click goes to Python, whose answer is shown.
    row.click()
    sent = page.evaluate("window.sent.at(-1)")
    assert (sent["selected_line"], sent["selected_file"]) == (copy, view.files[0])
    view.fact, view.selected_line = sent["fact"], sent["selected_line"]
    tell(page, view)
    expect(row).to_have_attribute("aria-selected", "true")
    expect(page.locator(".sv-ptx")).to_contain_text("32 requests, 1,024 wavefronts (ideal 32)")
    expect(page.locator(".sv-detail .sv-title")).to_contain_text(f"transposes.cu:{copy}")

    # The keyboard moves from line to line.
    page.locator(".sv-list").focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("window.sent.at(-1).selected_line") == copy - 1
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("window.sent.at(-1).selected_line") == copy + 1, "the kernel ends there"

    # What Python sets shows too, and a closed view listens no more.
    view.fact, view.selected_line = "bytes", 0
    tell(page, view)
    expect(row).to_have_attribute("aria-selected", "false")
    expect(row.locator(".sv-value")).to_have_text(view.value(copy))
    page.evaluate("window.done()")
    assert page.evaluate("window.left()") == 0


@pytest.mark.long
def test_source_and_machine_code_lead_to_each_other_in_a_browser(page):
    from playwright.sync_api import expect

    trace = transpose("tiled")
    view = ui.source_view(trace)
    copy = line_of(trace, "// copy")

    show_view(page, view)
    expect(page.locator(".sv-made")).to_be_hidden()
    page.locator(".sv-button[data-stage=sass]").click()
    view.stage = page.evaluate("window.sent.at(-1).stage")
    tell(page, view)
    assert view.stage == "sass"
    load = page.locator(f".sv-code-row[data-line='{copy}']").filter(has_text="LDS").first
    load.click()
    sent = page.evaluate("window.sent.at(-1)")
    assert (sent["selected_line"], sent["selected_file"]) == (copy, view.files[0])
    view.selected_line = copy
    tell(page, view)
    row = page.locator(f".sv-row[data-line='{copy}']")
    expect(row).to_have_attribute("aria-selected", "true")
    expect(load).to_have_class("sv-code-row sv-chosen")
    colours = [one.evaluate("node => node.style.getPropertyValue('--sv-colour')") for one in (row, load)]
    assert colours[0] == colours[1] != ""

    # From the source to the code: the first of its rows comes into sight.
    tile = line_of(trace, "tile[j][threadIdx.x] =")
    page.locator(f".sv-row[data-line='{tile}']").click()
    view.selected_line = page.evaluate("window.sent.at(-1).selected_line")
    tell(page, view)
    expect(page.locator(".sv-chosen").first).to_be_in_viewport()
    page.locator(".sv-button[data-stage=sass]").click()
    assert page.evaluate("window.sent.at(-1).stage") == ""
