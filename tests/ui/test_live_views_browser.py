"""The live views in a real browser: JupyterLab, a kernel, and headless Chromium that clicks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jupyter_lab import IN_THE_WAY, chromium_page, jupyter_lab, open_lab, open_notebook
from view_page import show_view

BLOCKS = (
    "from workbench.attention.kvcache import BlockManager\n"
    "from workbench.attention.ui.cache.block_view import BlockView\n"
    "manager = BlockManager(6, 4, num_host_blocks=2)\n"
    "view = BlockView(manager)\n"
    "view.allocate(6)\n"
    "view",
    "print('tables', {seq: manager.block_table(seq) for seq in manager.sequences}, manager.num_tokens('B'))",
)
TUNING = (
    # A slow kernel without a clock: half of the configurations wait until the gate is opened.
    f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1] / 'tuning')!r})\n"
    "import threading\nimport toy\ngate = threading.Event()\n"
    "def behaviour(config):\n"
    "    if config['STEPS'] == 14 and config['PAGE'] == 8:\n"
    "        assert gate.wait(120)\n"
    "    toy.fail_by_value(config)\n"
    "variant = toy.steps_variant((1, 2, 3, 13, 14, 15, 16), pages=(8, 16), behaviour=behaviour)\n"
    "live = toy.tune_steps(variant, background=True)\n"
    "live.widget()",
    "print('the kernel answers;', live.phase)",
    "gate.set()\nrun = live.result(60)\nprint(len(run.trials), 'kept', run.outcomes, live.phase)",
)
CUDA = (
    "%%cuda kernels\n// twice each\n__global__ void twice(float *x) { x[threadIdx.x] *= 2; }",
    "twice = lambda x: x // 2  # no comment of C++",
)


NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab of its own, with a notebook for each view."""
    tmp_path = tmp_path_factory.mktemp("lab")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for name, texts in (("blocks", BLOCKS), ("tuning", TUNING), ("cuda", CUDA)):
        blank = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        cells = [blank | {"id": f"cell{i}", "source": text} for i, text in enumerate(texts)]
        notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook))
    (folder / "00_start.ipynb").write_text((NOTEBOOKS / "00_start.ipynb").read_text())
    with jupyter_lab(folder, tmp_path, WORKBENCH_HOME=str(tmp_path / "home of its own")) as address:
        yield address


@pytest.fixture
def page():
    with chromium_page() as found:
        yield found


@pytest.mark.long
def test_clicks_reach_the_manager_and_its_answer_is_displayed(page, lab):
    from playwright.sync_api import expect

    open_notebook(page, lab, "blocks")
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


def test_a_tuning_run_is_watched_and_stopped_while_the_kernel_answers(page, lab):
    from playwright.sync_api import expect

    open_notebook(page, lab, "tuning")
    run(page, 0)
    view = page.locator(".tv-root")
    # 1 8 and 1 16, 2 8 ..., 13 16 have ended, 14 8 waits.
    expect(view.locator(".tv-headline")).to_contain_text("9 of 14 attempts")
    expect(view.locator(".tv-headline")).to_contain_text("left")
    expect(view.locator(".tv-best")).to_contain_text("STEPS=1 PAGE=8")
    expect(view.locator(".tv-point")).to_have_count(9)
    expect(view.locator(".tv-legend .tv-entry")).to_have_text(
        ["6 ok", "2 compile error", "1 crash", "best so far"], use_inner_text=True
    )
    expect(view.locator(".tv-cell[data-outcome=ok]")).to_have_count(6)
    expect(view.locator(".tv-cell[data-outcome=untried]")).to_have_count(5)

    run(page, 1)
    printed = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
    expect(printed).to_contain_text("the kernel answers; running")

    # By keyboard: JupyterLab takes no arrow key for itself.
    view.locator(".tv-scatter").focus()
    page.keyboard.press("End")
    expect(view.locator(".tv-detail")).to_contain_text("9. steps STEPS=13 PAGE=16: compile_error: planted")
    page.keyboard.press("Home")
    expect(view.locator(".tv-detail")).to_contain_text("1. steps")
    view.locator("[data-name=x]").select_option("PAGE")
    expect(view.locator(".tv-corner")).to_have_text("STEPS ↓  PAGE →")

    view.locator(".tv-stop").click()
    expect(view.locator(".tv-headline")).to_contain_text("stopping after the present attempt")
    expect(view.locator(".tv-stop")).to_be_disabled()
    run(page, 2)
    printed = page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    expect(printed).to_contain_text("10 kept")
    expect(printed).to_contain_text("stopped")
    expect(view.locator(".tv-headline")).to_contain_text("everything finished is kept")
    expect(view.locator(".tv-stop")).to_be_hidden()
    expect(view.locator(".tv-point")).to_have_count(10)


@pytest.mark.long
def test_cells_of_cuda_have_the_colours_of_cpp(page, lab):
    from playwright.sync_api import expect

    open_notebook(page, lab, "cuda")
    cuda, python = (page.locator(".jp-CodeCell .cm-content").nth(number) for number in range(2))
    expect(cuda.get_by_text("// twice each", exact=True)).to_have_css("font-style", "italic")
    expect(python.get_by_text("lambda", exact=True)).to_have_css("font-weight", "700")
    expect(python.get_by_text("# no comment of C++", exact=True)).to_have_css("font-style", "italic")

    # As it is typed, and back.
    python.click()
    page.keyboard.press("Control+Home")
    page.keyboard.type("%%cuda\n")
    expect(python.get_by_text("// 2  # no comment of C++", exact=True)).to_have_css("font-style", "italic")
    page.keyboard.press("Backspace")
    page.keyboard.type("x")
    expect(python.get_by_text("# no comment of C++", exact=True)).to_have_css("font-style", "italic")


def test_the_launcher_opens_the_start_page(page, lab):
    from playwright.sync_api import expect

    open_lab(page, lab)
    page.locator(".jp-LauncherCard[title='Open 00_start.ipynb']").click()
    expect(page.locator(".jp-Notebook .jp-MarkdownCell h1").first).to_contain_text("Start: a kernel")
    first = page.locator(".jp-Notebook .jp-CodeCell").first
    expect(first.locator(".cm-content")).to_contain_text("@wb.op")  # it begins with the kernel, not with plumbing


def run(page, number: int) -> None:
    """Run one cell of the notebook; again if the page was still loading and did not take the key."""
    cell = page.locator(".jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputArea-prompt")
    for _ in range(20):
        assert page.locator(IN_THE_WAY).all_inner_texts() == []
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        for _ in range(30):
            if prompt.inner_text().strip() != "[ ]:":
                return
            page.wait_for_timeout(100)
    pytest.fail(f"cell {number} did not run")


def test_parallel_coordinates_have_a_line_for_each_configuration_with_a_time(page, fresh_home):
    from playwright.sync_api import expect

    from workbench.tuning import tune
    from workbench.tuning.recorded.sweep import shipped
    from workbench.tuning.result.view import TuningView

    name = next(name for name in shipped() if name.startswith("paged_attention"))
    view = TuningView(tune("paged_attention", device=f"replay:{name}", strategy="random", budget=30))
    show_view(page, view)
    lines, best = page.locator(".tv-line"), page.locator(".tv-line-best")
    expect(lines).to_have_count(30)
    fastest = min(view.points, key=lambda point: point[1])
    expect(best).to_have_attribute("data-number", str(fastest[0]))
    assert len(best.get_attribute("points").split()) == 1 + sum(
        len(values) > 1 for values in view.variants[view.variant].values()
    ), "a place on each axis, and one on that of the times"
    best.dispatch_event("click")
    expect(page.locator(".tv-line-chosen")).to_have_attribute("data-number", str(fastest[0]))
    page.evaluate(
        "model.set('points', model.get('points').map(([n, t, o, v], i) => i ? [n, null, 'crash', v] : [n, t, o, v]))"
    )
    expect(page.locator(".tv-lines")).to_be_hidden()
