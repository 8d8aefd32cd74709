"""The notebooks as a reader meets them: JupyterLab in a real browser, every cell run from top to bottom.

In every run the one with the most widgets; the others with ``-m long`` (nbval runs all of them anyway).

``WORKBENCH_SCREENSHOTS=FOLDER`` keeps a picture of each, to be looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jupyter_lab import IN_THE_WAY, chromium_page, jupyter_lab, open_lab, wait_for_kernel
from sampling import long_if

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("**/[0-9]*.ipynb"))
IN_EVERY_RUN = ("05_inside_the_kernel",)
SECONDS = 150
"""How long a notebook may take on a busy machine."""

# What a notebook holds when it has run: errors, and cells that did not run.
STATE = """() => {
    const cells = jupyterapp.shell.currentWidget.content.widgets.map(widget => widget.model);
    const code = cells.filter(model => model.type === "code" && model.sharedModel.getSource().trim());
    const errors = [];
    for (const { outputs } of code) {
        for (let at = 0; at < outputs.length; at++) {
            if (outputs.get(at).type === "error") errors.push(outputs.get(at).toJSON());
        }
    }
    return {
        cells: code.length,
        left: code.filter(model => !model.executionCount).length,
        errors: errors.map(error => `${error.ename}: ${error.evalue}`),
    };
}"""

OPEN = "async path => { await jupyterapp.commands.execute('docmanager:open', { path, factory: 'Notebook' }); }"
CLOSE = """async () => {
    await jupyterapp.serviceManager.sessions.shutdownAll();
    jupyterapp.shell.currentWidget.dispose();
}"""

# Outputs whose content reaches beyond their box.
TOO_WIDE = """() => [...document.querySelectorAll(".jp-OutputArea-output")]
    .filter(output => output.scrollWidth > output.clientWidth + 1)
    .map(output => `${output.scrollWidth} px in ${output.clientWidth}: ${output.innerText.slice(0, 80)}`)"""

pytestmark = pytest.mark.browser


# Before the tests that share a browser: Playwright runs once in a process at a time.
@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_outputs_fit_a_page_of_900_pixels(notebook, theme, tmp_path):
    export = [sys.executable, "-m", "nbconvert", "--to", "html", "--template", "lab", "--theme", theme]
    subprocess.run([*export, "--output-dir", tmp_path, "--output", "page", notebook], check=True, capture_output=True)
    with chromium_page(width=900, height=1000) as page:
        page.set_content((tmp_path / "page.html").read_text())
        assert page.locator(".jp-OutputArea-output").count() > 3
        assert page.evaluate(TOO_WIDE) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 900


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab over a copy of the notebooks, without their outputs' help: they are cleared there."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(FOLDER, folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    with jupyter_lab(folder / "notebooks", folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser(lab):
    """JupyterLab's page, and the addresses of other hosts that it was refused."""
    requests = []
    with chromium_page(requests, width=1440, height=1600) as page:
        open_lab(page, lab)
        yield page, requests


@pytest.mark.long
@pytest.mark.parametrize("notebook", [long_if(path.stem not in IN_EVERY_RUN, path, id=path.stem) for path in NOTEBOOKS])
def test_every_cell_runs(browser, notebook):
    page, requests = browser
    failures = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.evaluate(OPEN, notebook.relative_to(FOLDER).as_posix())
    wait_for_kernel(page)
    page.evaluate("() => void jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.evaluate("() => void jupyterapp.commands.execute('notebook:run-all-cells')")
    state = when_run(page)
    assert state["errors"] == []
    assert state["cells"] > 5
    assert state["left"] == 0

    widgets = page.locator(".jp-OutputArea-output:has-text('Error displaying widget')")
    assert widgets.count() == 0
    assert failures == [], "errors of scripts in the page"
    assert page.locator(IN_THE_WAY).all_inner_texts() == [], "nothing in the reader's way"
    assert requests == [], "nothing is fetched from another host"
    if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
        keep_pictures(page, Path(folder), notebook.stem)
    page.evaluate(CLOSE)


def when_run(page) -> dict:
    """`STATE` once every cell has run, or one has failed."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        page.wait_for_timeout(500)
        state = page.evaluate(STATE)
        if state["errors"] or not state["left"]:
            break
    return state


def keep_pictures(page, folder: Path, name: str) -> None:
    """One picture per screen of the notebook."""
    folder.mkdir(parents=True, exist_ok=True)
    scroller = page.locator(".jp-WindowedPanel-outer").first
    scroller.evaluate("node => node.scrollTo(0, 0)")
    for number in range(40):
        page.wait_for_timeout(400)
        page.screenshot(path=folder / f"{name}-{number:02}.png")
        if not scroller.evaluate(
            "node => { const at = node.scrollTop; node.scrollBy(0, 1400); return node.scrollTop > at; }"
        ):
            return
