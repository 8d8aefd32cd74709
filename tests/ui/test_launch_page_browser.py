"""The page of ``workbench run --trace`` in headless Chromium, which has no network."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_lab import chromium_page
from view_kernels import transpose

from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.programs.launch_page import write_page

pytestmark = pytest.mark.browser


@pytest.fixture
def page():
    with chromium_page(width=1000, height=1000) as found:
        yield found


def test_a_row_opens_its_launch_and_a_line_its_details(page, tmp_path: Path):
    from playwright.sync_api import expect

    launches = Launches()
    for name in ("naive", "tiled", "naive"):
        trace = transpose(name)
        launches.add(trace.kernel, trace.report, device_model())
    file = tmp_path / "page.html"
    write_page(launches, file, title="a </script> program")
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(file.read_text())
    rows = page.locator(".launches tbody tr")
    expect(rows).to_have_count(3)
    expect(page.locator("h1")).to_have_text("a </script> program")
    expect(page.locator(".sv-title").first).to_contain_text("naive")
    expect(rows.nth(2)).to_contain_text("as 1")
    rows.nth(1).click()
    expect(page.locator(".sv-title").first).to_contain_text("tiled")
    line = next(one.line for one in launches[1].trace.lines if one.global_requests)
    page.locator(f".sv-row[data-line='{line}']").click()
    expect(page.locator(".sv-ptx td").first).to_be_visible()
    page.emulate_media(color_scheme="dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(27, 27, 27)"
    assert errors == []
