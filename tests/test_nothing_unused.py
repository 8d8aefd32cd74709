"""Nothing in the package is there for its own test alone: each function, class, method and constant has a user.

A user is the package itself, a notebook, the README or a script beside the package. A name counts as used wherever it
is read, whatever it belongs to, so that this finds too little rather than too much.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "workbench"
WORD = re.compile(r"[A-Za-z_]\w*")

CALLED_BY_OTHERS = {
    "Python": ("__", "visit_", "_fields_", "seekable", "readinto"),
    "IPython": ("_repr_", "_ipython_", "_render_", "load_ipython_extension"),
    "anywidget": ("_esm", "_css"),
    "click": ("format_epilog",),
    "torch": ("forward", "_should_skip_dynamo"),
    "Triton": (
        "assemble_tensormap_to_arg", "clear_cache", "get_active_torch_device", "get_current_device",
        "get_current_stream", "get_device_interface", "get_empty_cache_for_benchmark", "is_active",
        "map_python_to_cpp_type", "set_current_device",
    ),
    "Inductor": ("get_compute_capability", "raise_if_triton_unavailable", "supports_target"),
    "transformers": ("get_mask_sizes", "get_max_length", "lazy_initialization", "reorder_cache"),
    "Kernel Tuner": ("get_device_info", "get_environment"),
    "pytest": ("pytest_",),
}  # fmt: skip
"""Beginnings of names."""

OFFERED = {
    "unfolded": "of a trace: documented at the widget that shows it",
    "SCHEMA_FILE": "of a verdict's JSON, for who reads it",
    "global_bytes_distinct": "of a launch's report, for who reads it",
    "global_bytes_moved": "of a launch's report, for who reads it",
    "library_op": "of an op, for who checks it with torch.library.opcheck",
    "ticket": "it makes each task another one by being there",
    "PAGE": "the page of instructions, which a test compares with the code",
    "loop_counts": "budgets of our kernels, which tests hold",
    "alu_clocks": "budgets of our kernels, which tests hold",
    "expected_bytes": "of a phase in a recorded pipeline, for who reads it",
}
REGISTERED = re.compile(r"command|register|validate|observe")
"""Of decorators that give a function to somebody."""


def _defined(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not any(REGISTERED.search(ast.unparse(decorator)) for decorator in node.decorator_list):
                yield node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, node.lineno


def _read(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are read, attributes, keywords of calls and the words of strings, but of docstrings and __all__."""
    skipped = set[int]()
    for node in nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                skipped.add(id(statement.value))
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                skipped.update(map(id, ast.walk(statement)))
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.MatchClass):
            yield from node.kwd_attrs
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield from WORD.findall(node.value)


def test_every_name_of_the_package_is_used_outside_the_tests():
    trees = {path: [*ast.walk(ast.parse(path.read_text()))] for path in sorted(PACKAGE.rglob("*.py"))}
    used = {name for nodes in trees.values() for name in _read(nodes)}
    called = sum(CALLED_BY_OTHERS.values(), ())
    for path in [
        *PACKAGE.rglob("*.js"),
        *PACKAGE.rglob("*.cpp"),
        *(CHECKOUT / ".ci").iterdir(),
        *(CHECKOUT / "benchmarks").glob("*.py"),
        CHECKOUT / "README.md",
    ]:
        used.update(WORD.findall(path.read_text()))
    for path in (CHECKOUT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            used.update(WORD.findall("".join(cell["source"])))
    unused = [
        f"{path.relative_to(CHECKOUT)}:{line} {name}"
        for path, nodes in trees.items()
        for name, line in _defined(nodes)
        if name not in used and name not in OFFERED and not name.startswith(called)
    ]
    assert not unused, "\n".join(["used by nothing but tests:", *unused])
