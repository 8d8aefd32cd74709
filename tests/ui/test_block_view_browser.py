"""The live view in a real browser: JupyterLab, a kernel, and headless Chromium that clicks."""

from __future__ import annotations

import json

import pytest
from jupyter_lab import TOKEN, chromium_page, jupyter_lab

CELLS = (
    "from workbench.kvcache import BlockManager\n"
    "from workbench.ui.block_view import BlockView\n"
    "manager = BlockManager(6, 4, num_host_blocks=2)\n"
    "view = BlockView(manager)\n"
    "view.allocate(6)\n"
    "view",
    "print('tables', {seq: manager.block_table(seq) for seq in manager.sequences}, manager.num_tokens('B'))",
)


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab of its own, with a notebook of `CELLS`."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [
        {"cell_type": "code", "id": f"cell{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for i, text in enumerate(CELLS)
    ]
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "view.ipynb").write_text(json.dumps(notebook))
    with jupyter_lab(folder, tmp_path) as address:
        yield address


@pytest.fixture
def page():
    with chromium_page() as found:
        yield found


def test_clicks_reach_the_manager_and_its_answer_is_displayed(page, lab):
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    page.goto(f"{lab}/doc/tree/view.ipynb?token={TOKEN}&reset", wait_until="domcontentloaded")
    page.locator(".jp-Notebook").wait_for()
    expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first).to_be_attached()
    run(page, 0)

    view = page.locator(".bv-root")
    expect(view.locator("[data-seq=A] .bv-logical")).to_have_text(["0 → 0", "1 → 1"])
    expect(view.locator("[data-seq=B]")).to_have_count(0)

    view.locator("[data-seq=A] [data-action=fork]").click()
    expect(view.locator("[data-seq=B] .bv-logical")).to_have_text(["0 → 0", "1 → 1"])
    expect(view.locator("[data-block='1'] .bv-refs").first).to_have_text("A, B (2 refs)")

    # By keyboard: rows are drawn anew, and yet the button keeps the focus; JupyterLab takes no key for itself.
    append = view.locator("[data-seq=B] [data-action=append]")
    append.focus()
    page.keyboard.press("Enter")
    expect(view.locator(".bv-message")).to_contain_text("copy block 1 to block 2 (copy-on-write)")
    expect(view.locator("[data-seq=B] .bv-logical")).to_have_text(["0 → 0", "1 → 2"])
    expect(append).to_be_focused()
    page.keyboard.press("Space")
    expect(view.locator("[data-seq=B] .bv-length")).to_have_text("8 tokens")
    expect(append).to_be_focused()

    view.locator(".bv-tokens").fill("100")
    view.locator("[data-action=allocate]").click()
    expect(view.locator(".bv-message.bv-refused")).to_contain_text("25 device blocks needed; available: 3 free")

    view.locator("[data-seq=A] [data-action=swap_out]").click()
    expect(view.locator("[data-seq=A] .bv-length")).to_have_text("6 tokens, on the host")
    expect(view.locator("[data-seq=A] .bv-logical")).to_have_text(["0 → host 0", "1 → host 1"])
    expect(view.locator(".bv-message.bv-refused")).to_have_count(0)
    view.locator("[data-seq=A] [data-action=free]").focus()
    page.keyboard.press("Enter")
    expect(view.locator("[data-seq=A]")).to_have_count(0)
    expect(view.locator("[data-seq=B] [data-action=free]")).to_be_focused()

    run(page, 1)
    printed = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
    expect(printed).to_contain_text("tables {'B': [0, 2]} 8")


def run(page, number: int) -> None:
    """Run one cell of the notebook; again if the page was still loading and did not take the key."""
    cell = page.locator(".jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputArea-prompt")
    for _ in range(20):
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        for _ in range(30):
            if prompt.inner_text().strip() != "[ ]:":
                return
            page.wait_for_timeout(100)
    pytest.fail(f"cell {number} did not run")
