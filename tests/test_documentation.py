"""The documentation site, built without a network: every public name, notebook and command, and no broken link."""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from every_command import every_command

CHECKOUT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("**/[0-9]*.ipynb"))
NEEDED = ("sphinx", "myst_nb", "furo", "sphinx_click", "sphinx-mathjax-offline")

OFFLINE = """
import sys

def refuse(event, arguments):
    if event in ("socket.getaddrinfo", "socket.connect"):
        raise OSError(f"no network: {event}")

sys.addaudithook(refuse)
from sphinx.cmd.build import main

sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Page(HTMLParser):
    """What a page refers to, and what in it can be referred to."""

    text: str
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if "href" in values:
            (self.links if tag == "a" else self.loaded).append(values["href"])
        if "src" in values:
            self.loaded.append(values["src"])
        if values.get("http-equiv") == "refresh":
            self.links.append(values["content"].partition("url=")[2])


def faults(site: Path) -> Iterator[str]:
    """Links to what is not there, and what a browser would load from elsewhere."""

    @functools.cache
    def page(path: Path) -> Page:
        return Page(path.read_text())

    for path in sorted(site.rglob("*.html")):
        for link in [*page(path).links, *page(path).loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page(path).loaded and parts.scheme != "data":
                    yield f"{path.relative_to(site)} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{path.relative_to(site)}: no file {link}"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).anchors:
                yield f"{path.relative_to(site)}: no place {link}"
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(r"""(?:url\(|@import )["']?((?:https?:)?//[^"')]+)""", path.read_text()):
            yield f"{path.relative_to(site)} loads {address}"


def test_planted_faults_of_a_site_are_found(tmp_path):
    (tmp_path / "good.html").write_text(
        '<p id="here"></p><a href="https://elsewhere.org"></a><img src="data:image/png,">'
    )
    (tmp_path / "bad.html").write_text(
        '<a href="good.html#here"></a><a href="good.html#there"></a><a href="gone.html"></a><a href="#nowhere"></a>'
        '<script src="//cdn.org/a.js"></script><link rel="stylesheet" href="https://cdn.org/a.css">'
    )
    (tmp_path / "bad.css").write_text("@import 'https://cdn.org/b.css'; p { background: url(good.png) }")
    assert list(faults(tmp_path)) == [
        "bad.html: no place good.html#there",
        "bad.html: no file gone.html",
        "bad.html: no place #nowhere",
        "bad.html loads //cdn.org/a.js",
        "bad.html loads https://cdn.org/a.css",
        "bad.css loads https://cdn.org/b.css",
    ]


def pages() -> set[str]:
    """Return the pages that the site is built from, by docs/conf.py, without their suffixes."""
    settings = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse((CHECKOUT / "docs/conf.py").read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("include_patterns", "root_doc")
    }
    found = {path for pattern in settings["include_patterns"] for path in CHECKOUT.glob(pattern)}
    return {str(path.relative_to(CHECKOUT).with_suffix("")) for path in found} - {settings["root_doc"]}


def test_the_contents_list_every_page():
    """The contents stand beside each page, so that any page is two clicks from any other."""
    listed = [
        line
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", (CHECKOUT / "docs/contents.md").read_text(), re.M | re.S)
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    known = pages()
    assert len(known) > 60
    assert {page for page in known if not any(fnmatch.fnmatchcase(page, entry) for entry in listed)} == set()
    assert [entry for entry in listed if not fnmatch.filter(known, entry)] == []
    # A pattern of Sphinx's stays within one folder, other than one of fnmatch.
    assert {entry for entry in listed if "*" in entry} == {"notebooks/*", "notebooks/puzzles/*"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as CONTRIBUTING.md has it built, a warning being an error, and every connection refused."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -c constraints.txt -e '.[lab,docs]'")
    (options,) = re.findall(r"^python -m sphinx (.*) build/docs\b", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.M)
    assert "-W" in options.split()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", OFFLINE, *options.split(), "-q", str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def offered(module: str) -> set[str]:
    """The public names of a module: ``__all__``, or the classes and functions that it defines."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None)
    if names is not None:
        return set(names)
    tree = ast.parse(Path(found.__file__).read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in defined if not name.startswith("_")}


def page_of(site: Path, notebook: Path) -> str:
    return (site / notebook.relative_to(CHECKOUT).with_suffix(".html")).read_text()


@pytest.mark.long
def test_cells_of_cuda_are_coloured_as_cpp(site):
    notebooks = [path for path in NOTEBOOKS if '"%%cuda' in path.read_text()]
    assert notebooks
    for path in notebooks:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        expected = sum("".join(cell["source"]).startswith("%%cuda") for cell in cells)
        assert page_of(site, path).count('class="highlight-c++') >= expected > 0


@pytest.mark.long
def test_every_public_name_has_an_entry(site):
    rooms = {
        path.parent.name for path in (CHECKOUT / "workbench").glob("*/__init__.py") if "\n__all__" in path.read_text()
    }
    rooms |= {"launch.devices", "errors", "analysis.device_models", "comparison.compare", "puzzles"}
    rooms |= {"ops.declared", "ops.tensors", "analysis.prediction", "tuning.bench", "tuning.measuring", "base.packages"}
    missing = [
        f"{module}.{name}"
        for module in ["workbench", *(f"workbench.{room}" for room in sorted(rooms))]
        for name in sorted(offered(module))
        if f"{module}.{name}" not in Page((site / f"docs/api/{module}.html").read_text()).anchors
    ]
    assert missing == []


@pytest.mark.long
def test_every_notebook_has_a_page_with_its_pictures(site):
    assert len(NOTEBOOKS) >= 16
    for path in NOTEBOOKS:
        page = page_of(site, path)
        outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
        assert page.count("<img ") >= sum(
            "<img class" in "".join(output.get("data", {}).get("text/html", "")) for output in outputs
        ), path.name


@pytest.mark.long
def test_every_command_is_there(site):
    from workbench.cli import main

    page = re.sub(r"<[^>]+>", "", (site / "docs/cli.html").read_text())

    names = ["workbench", *(f"workbench {name}" for name, _ in every_command(main))]
    assert {"workbench bench kvcache", "workbench train-gpt"} <= set(names)  # of an installed package
    assert [name for name in names if not re.search(rf"^{name}(?! \w)", page, re.M)] == []
    assert page.count("--quiet") >= len(names) - 1


@pytest.mark.long
def test_no_link_is_broken_and_nothing_is_loaded_from_elsewhere(site):
    assert list(faults(site)) == []
