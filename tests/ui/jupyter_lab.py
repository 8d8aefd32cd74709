"""A JupyterLab of a test's own, and a page of headless Chromium that reaches nothing but this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
TOKEN = "a-test"
IN_THE_WAY = ".jp-Dialog, .Toastify__toast"
_CONNECTED = """() => {
    const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
    return session?.isReady && session.session?.kernel?.connectionStatus === "connected";
}"""
_OWN = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "HOME")


# Without the grammar of addresses that jsonschema would compile for seconds.
_START = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyterlab.labapp import main; main()"


@contextlib.contextmanager
def jupyter_lab(folder: Path, scratch: Path, **environment: str) -> Iterator[str]:
    """The address of a JupyterLab over ``folder``, as somebody new to it has it: without settings of their own.

    Its files go to ``scratch``; ``environment`` is added to that of its kernels.
    """
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install 'kernel-workbench[lab]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {name: str(scratch / name.lower()) for name in _OWN} | environment
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    options += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}"]
    options += ["--LabApp.expose_app_in_browser=True"]
    log = scratch / "lab.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *options],
            cwd=folder, env=os.environ | own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api", timeout=5):
                break
            if process.poll() is not None:
                pytest.fail(f"JupyterLab ended with {process.returncode}:\n{log.read_text()[-3000:]}")
            time.sleep(0.25)
        else:
            pytest.fail(f"JupyterLab did not answer:\n{log.read_text()[-3000:]}")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)  # ends its kernels too
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def chromium_page(refused: list[str] | None = None, **viewport: int) -> Iterator:
    """A page; requests to other hosts fail, and their addresses are added to ``refused``."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}: apt-get install chromium")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

    def answer(route) -> None:
        if "//127.0.0.1" in route.request.url:
            route.continue_()
            return
        if refused is not None:
            refused.append(route.request.url)
        route.abort()

    api.expect.set_options(timeout=60_000)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=options, timeout=60_000)
        page = browser.new_page(viewport={"width": 1200, "height": 1400} | viewport)
        page.route("**/*", answer)
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def open_notebook(page, lab: str, name: str) -> None:
    """Show a notebook of ``jupyter_lab`` and wait until its kernel is connected and no dialog covers it.

    On a busy machine JupyterLab's page can give up on its server or its kernel and say so in a dialog. It is then
    opened again, as its reader would; the third time the test fails with the dialog's words.
    """
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    for _ in range(3):
        said = ["its kernel did not connect"]
        page.goto(f"{lab}/doc/tree/{name}.ipynb?token={TOKEN}&reset", wait_until="domcontentloaded")
        page.locator(".jp-Notebook").wait_for()
        with contextlib.suppress(PlaywrightTimeout):
            wait_for_kernel(page)
            said = []
        said += page.locator(IN_THE_WAY).all_inner_texts()
        if not said:
            return
    pytest.fail(f"{name}.ipynb did not open: {said}")


def open_lab(page, lab: str) -> None:
    """Show ``jupyter_lab`` itself, with its file browser and no notebook."""
    page.goto(f"{lab}/lab?token={TOKEN}&reset", wait_until="domcontentloaded")
    page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)")


def wait_for_kernel(page) -> None:
    """Until the notebook that is shown is connected to its kernel."""
    page.wait_for_function(_CONNECTED)
