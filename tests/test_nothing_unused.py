"""Nothing in the package is there for its own test alone: vulture finds a user of each name outside the tests.

A user is the package itself, a benchmark, a notebook, the README, a page of docs or a script beside the package. A name
counts as used wherever it is read, whatever it belongs to, so that this finds too little rather than too much.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

vulture = pytest.importorskip("vulture", reason='no vulture: python -m pip install -e ".[test]"')

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "workbench"
WORD = re.compile(r"[A-Za-z_]\w*")

CALLED_BY_OTHERS = {
    "Python": ("__*", "visit_*", "_fields_", "seekable", "readinto", "_check_*"),
    "IPython": ("_repr_*", "_ipython_*", "_render_*", "load_ipython_extension"),
    "anywidget": ("_esm", "_css"),
    "click": ("format_epilog", "nargs"),
    "torch": ("forward", "_should_skip_dynamo"),
    "Triton": (
        "assemble_tensormap_to_arg", "clear_cache", "get_active_torch_device", "get_current_device",
        "get_current_stream", "get_device_interface", "get_empty_cache_for_benchmark", "is_active",
        "map_python_to_cpp_type", "set_current_device",
    ),
    "Inductor": ("get_compute_capability", "raise_if_triton_unavailable", "supports_target"),
    "transformers": (
        "batch_repeat_interleave", "batch_select_indices", "crop", "get_conv_state", "get_mask_sizes", "get_max_length",
        "get_recurrent_state", "is_recording_past", "is_sliding", "lazy_initialization", "reorder_cache",
        "update_conv_state", "update_indexer", "update_recurrent_state",
    ),
    "Kernel Tuner": ("get_device_info", "get_environment"),
    "pytest": ("pytest_*",),
    "OpenEnv": ("SUPPORTS_CONCURRENT_SESSIONS",),
}  # fmt: skip
"""Names, or patterns of names, by who calls them."""

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
    "used_host_blocks": "of the block manager's statistics, for who reads them",
    "device_description": "of a stored trial's identity, for who reads the store",
    "check_strides": "written into exported files",
    "has_blocks": "written into exported files",
    "torch_stream": "written into exported files",
    "expected_bytes": "of a phase in a recorded pipeline, for who reads it",
}
REGISTERED = ["*command*", "*register*", "*validate*", "*observe*"]
"""Decorators that give a function to somebody."""


def users() -> str:
    """Return the text of what uses the package and is not Python: scripts, sources in other languages, pages."""
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")]
    files = [*PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.cpp"), *(CHECKOUT / ".ci").iterdir(), *pages]
    notebooks = (json.loads(path.read_text()) for path in (CHECKOUT / "notebooks").rglob("*.ipynb"))
    cells = ["".join(cell["source"]) for notebook in notebooks for cell in notebook["cells"]]
    return "\n".join([path.read_text() for path in files] + cells + [(CHECKOUT / "pyproject.toml").read_text()])


@pytest.fixture(scope="module")
def package() -> vulture.Vulture:
    """Return a vulture that has read the package and the names that others use."""
    names = [*OFFERED, *(name for names in CALLED_BY_OTHERS.values() for name in names)]
    found = vulture.Vulture(ignore_names=names, ignore_decorators=REGISTERED)
    for path in (*sorted(PACKAGE.rglob("*.py")), *sorted((CHECKOUT / "benchmarks").glob("*.py"))):
        text = path.read_text()
        found.scan(text, filename=path)
        strings = re.findall(r"""["'](\w+)["']""", text)  # getattr, tables of lazily loaded names
        found.used_names.update(strings)
    found.used_names.update(WORD.findall(users()))
    return found


def unused(found: vulture.Vulture) -> list[str]:
    kinds = ("function", "class", "method", "property", "variable")
    kept = (item for item in found.get_unused_code(min_confidence=60) if item.typ in kinds and item.confidence == 60)
    return [f"{item.filename.relative_to(CHECKOUT)}:{item.first_lineno} {item.name}" for item in kept]


def test_every_name_of_the_package_is_used_outside_the_tests(package):
    assert unused(package) == []
    package.scan("def nobody_calls_this():\n    pass\n", filename=PACKAGE / "extra.py")
    assert unused(package) == ["workbench/extra.py:1 nobody_calls_this"], "what is unused is found"
