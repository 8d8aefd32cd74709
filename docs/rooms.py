"""The directive ``room``: a module's docstring and its public names, each documented under its name there.

The names are those of ``__all__``, or without one those that the module defines. A name that the package itself offers
(``wb.tune``) is documented on the package's page, a name that another room defines on that room's; other pages refer to
it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx.util.parsing import nested_parse_to_nodes

PAGES = "docs/api/"
LONGEST_VALUE = 100


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module, in its own order."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names: list[str] = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def docstring_of_constant(module: str, name: str) -> list[str]:
    """Return the lines of the string below a constant's assignment, in the module or where that imports it from."""
    analyzer = ModuleAnalyzer.for_module(module)
    found = analyzer.find_attr_docs().get(("", name))
    if found is not None:
        return found
    for node in ast.walk(ast.parse(analyzer.code)):
        if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
            return docstring_of_constant(node.module, name)
    return []


class Room(SphinxDirective):
    """``.. room:: workbench.tuning`` is the whole of a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the title, the module and its names, as autodoc writes them."""
        module = importlib.import_module(self.arguments[0])
        title = module.__name__
        lines = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:", ""]
        lines += [f".. py:currentmodule:: {title}", ""]
        for name in public_names(module):
            lines += [*self.entry(module, name), ""]
        page = nested_parse_to_nodes(
            self.state, StringList(lines, title), offset=self.content_offset, allow_section_headings=True
        )
        known = self.env.domains.python_domain.objects
        for name in public_names(module):
            if self.home(module, name) is not None:  # what is looked for under its short name is found at home
                known[f"{title}.{name}"] = known[f"{title}.{name}"]._replace(aliased=True)
        return page

    def entry(self, module: ModuleType, name: str) -> Iterator[str]:
        """Yield the lines that document one name; autodoc does so if it has a docstring of its own."""
        value = getattr(module, name)
        is_class = inspect.isclass(value)
        is_callable = is_class or inspect.isroutine(value)
        kind = "data" if not is_callable else "function" if not is_class else "class"
        if is_class and issubclass(value, BaseException):
            kind = "exception"
        home = self.home(module, name)
        if home is not None:
            yield from (f".. py:{kind}:: {name}", "", f"   `{home}.{name}`")
        elif is_callable:
            yield f".. auto{kind}:: {module.__name__}::{name}"
        else:
            yield f".. py:data:: {name}"
            if isinstance(value, str | tuple) and len(repr(value)) <= LONGEST_VALUE:
                yield f"   :value: {value!r}"
            yield ""
            yield from ("   " + line for line in docstring_of_constant(module.__name__, name))

    def home(self, module: ModuleType, name: str) -> str | None:
        """Return the other room whose page documents a name, or None."""
        value = getattr(module, name)
        inner = getattr(value, "__module__", None) or module.__name__
        for other in ("workbench", "workbench.attention", inner, inner.rpartition(".")[0]):
            if other == module.__name__:
                return None
            if PAGES + other in self.env.found_docs and getattr(importlib.import_module(other), name, None) is value:
                return other
        return None


def find_anywhere(app: Sphinx, env: BuildEnvironment, node: nodes.Element, shown: nodes.Node) -> nodes.Node | None:
    """Resolve a docstring's single backticks to the name of another room, if only one room has it."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    target = re.sub(r"^wb\.", "workbench.", node["reftarget"])
    found = [match for match in domain.find_obj(env, None, None, target, None, 1) if not match[1].aliased]
    if len(found) != 1:
        return None
    name, entry = found[0]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown, name)


def keep_first_line(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Put an empty comment first, as Napoleon takes text before a colon there for a property's type."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive and connect the events; Sphinx calls it."""
    app.add_directive("room", Room)
    app.connect("missing-reference", find_anywhere)
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
