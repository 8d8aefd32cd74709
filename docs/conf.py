"""The documentation site: the repository's own pages and notebooks where they lie, and the public names.

``python -m sphinx -W --keep-going -c docs . build/docs``: the source folder is the checkout, so that links between its
pages hold on the site as they do in it. Nothing is executed and nothing is fetched.
"""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import click
from docutils import nodes
from sphinx.application import Sphinx

from workbench import __version__
from workbench.cli import main

OFFLINE = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
MATHJAX = OFFLINE / "static" / "mathjax" / "tex-svg-full.js"
"""One file with its fonts and extensions. Without it Sphinx has browsers fetch one."""

project = "Kernel workbench"
version = release = __version__
copyright = "the authors; Apache-2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "rooms",
]

root_doc = "README"
include_patterns = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/[A-Z]*.md",
    "docs/cli.rst",
    "docs/api/*.rst",
    "notebooks/*.ipynb",
    "notebooks/puzzles/*.ipynb",
    "workbench/driver/*.md",
    "workbench/ptx/*.md",
]
exclude_patterns = [".*", "build", "tests", "**/.ipynb_checkpoints"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]  # its picture instead
nb_ipywidgets_js = {}

smartquotes = False  # they make one dash of the two before an option, and quotes that no shell knows
default_role = "py:obj"
add_module_names = False
maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "special-members": "__call__, __getitem__, __iter__"}

html_theme = "furo"
pygments_dark_style = "github-dark"  # the default underlines the names of modules, as if they were links
html_title = f"{project} {release}"
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["index.html"]
html_static_path = [str(MATHJAX), "site.css"]
html_css_files = ["site.css"]
html_theme_options = {
    "dark_css_variables": {  # the package's views take their colours from JupyterLab, and without it a light page's
        "jp-mirror-editor-comment-color": "#7fb5b5",
        "jp-mirror-editor-keyword-color": "#4caf50",
        "jp-mirror-editor-meta-color": "#c792ea",
        "jp-mirror-editor-number-color": "#66bb6a",
        "jp-mirror-editor-string-color": "#ff8a80",
    }
}
mathjax_path = MATHJAX.name
mathjax3_config = {"tex": {"packages": {"[+]": ["textmacros"]}}}  # for an underscore in text


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the table of contents to the first page, which is the README as it stands."""
    if docname == root_doc:
        contents = Path(__file__).parent / "contents.md"
        app.env.note_dependency(str(contents))
        source[0] += "\n\n" + contents.read_text()


def add_epilog(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Add the text that a command writes below its options, such as the exit statuses of `workbench check`."""
    formatter = context.make_formatter()
    context.command.format_epilog(context, formatter)
    if formatter.buffer:
        lines += [".. code-block:: text", "", *("    " + line for line in formatter.getvalue().splitlines()), ""]


def colour_cuda_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Mark cells of ``%%cuda`` as C++, as JupyterLab shows them."""
    for block in doctree.findall(nodes.literal_block):
        if block.astext().startswith("%%cuda"):
            block["language"] = "c++"


def register_commands(group: click.Group) -> None:
    """Register the commands and options that a group adds when it looks a command up; sphinx-click looks none up."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        group.add_command(command, name)
        if isinstance(command, click.Group):
            register_commands(command)


def setup(app: Sphinx) -> None:
    """Connect the events; Sphinx calls it."""
    register_commands(main)
    app.connect("doctree-read", colour_cuda_cells)
    app.connect("source-read", add_contents)
    app.connect("sphinx-click-process-epilog", add_epilog)
