"""The browser's half of the source view in headless Chromium, with a model that only remembers what it is told."""

from __future__ import annotations

import json

import pytest
from jupyter_lab import chromium_page
from view_kernels import line_of, transpose

from workbench import ui

TRAITS = ("fact", "selected_line", "selected_file", "state", "detail")
PAGE = """<html><body style="width:900px"><style>%(css)s</style><div id="view"></div><script type="module">
const data = %(data)s, listeners = {};
window.sent = [];
window.model = {
  get: (name) => data[name],
  set: (name, value) => { data[name] = value; (listeners["change:" + name] || []).forEach((tell) => tell()); },
  save_changes: () => window.sent.push({ fact: data.fact, line: data.selected_line, file: data.selected_file }),
  on: (event, tell) => { (listeners[event] = listeners[event] || []).push(tell); },
  off: (event, tell) => { listeners[event] = (listeners[event] || []).filter((one) => one !== tell); },
};
const url = URL.createObjectURL(new Blob([%(esm)s], { type: "text/javascript" }));
const module = await import(url);
window.done = module.default.render({ model: window.model, el: document.getElementById("view") });
window.left = () => Object.values(listeners).flat().length;
</script></body></html>"""

pytestmark = pytest.mark.browser


@pytest.fixture
def page():
    with chromium_page(width=1000, height=1000) as found:
        yield found


def test_the_gutter_and_the_selection_in_a_browser(page):
    from playwright.sync_api import expect

    trace = transpose("tiled")
    view = ui.source_view(trace)
    copy = line_of(trace, "// copy")

    def as_python_says() -> None:
        for name in TRAITS:
            page.evaluate("([name, value]) => window.model.set(name, value)", [name, getattr(view, name)])

    data = json.dumps({name: getattr(view, name) for name in TRAITS}).replace("</", "<\\/")
    page.set_content(PAGE % {"css": view._css, "data": data, "esm": json.dumps(str(view._esm))})
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
    assert (sent["line"], sent["file"]) == (copy, view.files[0])
    view.fact, view.selected_line = sent["fact"], sent["line"]
    as_python_says()
    expect(row).to_have_attribute("aria-selected", "true")
    expect(page.locator(".sv-ptx")).to_contain_text("32 requests, 1,024 wavefronts (ideal 32)")
    expect(page.locator(".sv-detail .sv-title")).to_contain_text(f"transposes.cu:{copy}")

    # The keyboard moves from line to line.
    page.locator(".sv-list").focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("window.sent.at(-1).line") == copy - 1
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("window.sent.at(-1).line") == copy + 1, "the kernel ends there"

    # What Python sets shows too, and a closed view listens no more.
    view.fact, view.selected_line = "bytes", 0
    as_python_says()
    expect(row).to_have_attribute("aria-selected", "false")
    expect(row.locator(".sv-value")).to_have_text(view.value(copy))
    page.evaluate("window.done()")
    assert page.evaluate("window.left()") == 0
