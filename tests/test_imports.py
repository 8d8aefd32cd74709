"""Which module imports which, in functions too: what is about one kernel knows nothing of ops and of views."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from syntax import parsed, statements, within

CHECKOUT = Path(__file__).resolve().parents[1]
FRONT_DOOR = "workbench"
"""It offers everything, and no module asks it."""

Graph = Mapping[str, set[str]]


def read(root: Path) -> dict[str, str]:
    """The modules of a package by name, as text."""
    texts = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return texts


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def imported(text: str, known: Mapping[str, str], types: bool = False) -> Iterator[str]:
    """The known modules that a module imports, in its functions too; with ``types`` also what a type checker reads."""
    waiting: list[ast.AST] = [parsed(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and is_name(node.test, "TYPE_CHECKING") and not types:
            waiting += node.orelse
            continue
        waiting += within(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            if node.module == FRONT_DOOR:
                yield FRONT_DOOR
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if not alias.name.startswith("_core"):  # compiled: no text to read
                    yield module if module in known else node.module


def graph_of(texts: Mapping[str, str], types: bool = False) -> Graph:
    return {name: {*imported(text, texts, types)} for name, text in texts.items()}


def reached(graph: Graph, start: str) -> dict[str, str]:
    """Every module that ``start`` imports, itself or through others, with one that imports it."""
    found: dict[str, str] = {}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        for other in graph[module] - found.keys():
            found[other] = module
            waiting.append(other)
    return found


def circles(graph: Graph) -> list[list[str]]:
    """The modules that import each other, directly or through others, together."""
    ways = {name: reached(graph, name).keys() for name in graph}
    found = {frozenset(other for other in ways[name] if name in ways[other]) for name in graph if name in ways[name]}
    return sorted(map(sorted, found))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return read(CHECKOUT / "workbench")


@pytest.fixture(scope="module")
def graph(texts: dict[str, str]) -> Graph:
    return graph_of(texts)


@pytest.fixture(scope="module")
def typed(texts: dict[str, str]) -> Graph:
    """The graph with the imports that only a type checker reads."""
    return graph_of(texts, types=True)


@pytest.fixture(scope="module")
def page() -> str:
    return (CHECKOUT / "ARCHITECTURE.md").read_text()


def rooms(graph: Graph) -> dict[str, set[str]]:
    """Of each room those that its modules import, the front door left out."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        if name != FRONT_DOOR:
            room = name.split(".")[1]
            found.setdefault(room, set()).update({other.split(".")[1] for other in others - {FRONT_DOOR}} - {room})
    return found


def stated(page: str) -> tuple[set[str], dict[str, set[str]]]:
    """The ground, which all may import, and of each other room what it imports, as ARCHITECTURE.md says."""
    names = re.compile(r"`(\w+)`")
    ground = {*names.findall(page[page.index("is the ground:") :].split("\n\n")[0])}
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    return ground, {room: {*names.findall(others)} for room, others in rows}


def test_rooms_import_what_their_row_says(page, typed):
    ground, rows = stated(page)
    actual = rooms(typed)
    assert actual.keys() == ground | rows.keys()
    assert {room: others - ground for room, others in actual.items() if room in rows} == rows
    assert {room: others - ground for room, others in actual.items() if room in ground and others - ground} == {}


def test_a_room_stands_below_those_that_it_imports(page):
    _, rows = stated(page)
    order = list(rows)
    late = [
        f"{room} imports {other}" for room in rows for other in rows[room] if order.index(other) >= order.index(room)
    ]
    assert late == []


def floors(rows: Mapping[str, set[str]]) -> dict[str, int]:
    """The floor of each room: one above the highest that it imports, where the ground is floor 1."""
    found: dict[str, int] = {}
    for room, others in rows.items():
        found[room] = 1 + max((found[other] for other in others), default=1)
    return found


def test_the_house_has_few_rooms_and_floors(page):
    _, rows = stated(page)
    top = [path for path in (CHECKOUT / "workbench").iterdir() if not path.name.startswith("__pycache__")]
    folders = sorted(path.name for path in top if path.is_dir())
    modules = sorted(path.stem for path in top if path.suffix == ".py")
    height = max(floors(rows).values())
    print(f"{len(folders)} folders: {', '.join(folders)}")
    print(f"{len(modules)} modules: {', '.join(modules)}")
    print(f"{height} floors:", *(f"{floor} {room}" for room, floor in floors(rows).items()))
    assert len(folders) <= 16
    assert len(modules) <= 8
    assert height <= 10


def outsiders(texts: Mapping[str, str], room: str) -> list[str]:
    """The modules outside a room that import from it, in functions and for types too."""
    inside = re.compile(rf"{re.escape(room)}(\.|$)")
    return [
        name
        for name, text in texts.items()
        if not inside.match(name) and any(inside.match(other) for other in imported(text, texts, types=True))
    ]


def test_the_bench_knows_nothing_of_the_running_example(texts):
    assert outsiders(texts, "workbench.attention") == []


def offered(text: str) -> set[str]:
    """The public names of a module: those of ``__all__`` and its table, or those that it defines."""
    stated: set[str] = set()
    defined: set[str] = set()
    for node in parsed(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            defined |= names
            if names & {"__all__", "_LAZY"}:
                stated |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return stated or {name for name in defined if not name.startswith("_")}


def inner_names(texts: Mapping[str, str], room: str, pages: set[str]) -> list[str]:
    """The names that a room imports from modules of other rooms, except public ones of modules that have a page."""
    found = []
    for name, text in texts.items():
        if f"{name}.".startswith(f"{room}."):
            for node in statements(parsed(text)):
                if isinstance(node, ast.ImportFrom) and not f"{node.module}.".startswith(f"{room}."):
                    module = node.module or ""
                    for alias in node.names if module in texts else ():
                        full = f"{module}.{alias.name}"
                        if full not in pages and not (module in pages and alias.name in offered(texts[module])):
                            found.append(f"{name}: {full}")
    return found


def test_the_running_example_uses_public_names_alone(texts):
    contents = (CHECKOUT / "docs" / "contents.md").read_text()
    assert inner_names(texts, "workbench.attention", {*re.findall(r"^docs/api/(\S+)$", contents, re.MULTILINE)}) == []


def test_an_inner_name_is_found():
    texts = {
        "workbench.a": "from workbench.b import seen, hidden\ndef late():\n    from workbench.b.inner import x",
        "workbench.a.own": "from workbench.b import page\nfrom workbench.b.page import f, _g",
        "workbench.b": "_LAZY = {'seen': 'workbench.b.inner'}\n__all__ = [*_LAZY]",
        "workbench.b.inner": "x = 1",
        "workbench.b.page": "def f(): ...\ndef _g(): ...",
    }
    assert inner_names(texts, "workbench.a", {"workbench.b", "workbench.b.page"}) == [
        "workbench.a: workbench.b.hidden",
        "workbench.a: workbench.b.inner.x",
        "workbench.a.own: workbench.b.page._g",
    ]


def test_an_outsider_is_found():
    late = "if TYPE_CHECKING:\n    def f():\n        from workbench.room.a import x"
    texts = {"workbench.room": "", "workbench.room.a": "import workbench.room", "workbench.b": late}
    assert outsiders({**texts, "workbench.roomy": ""}, "workbench.room") == ["workbench.b"]


def test_no_modules_import_each_other(graph, typed):
    assert circles(graph) + circles(typed) == []


def test_nobody_inside_comes_in_by_the_front_door(typed):
    assert [name for name, others in typed.items() if FRONT_DOOR in others] == []


@pytest.mark.parametrize("above", ["ops", "judge", "ui", "tuning", "attention"])
def test_a_kernel_knows_nothing_of_what_uses_it(graph, above):
    found = reached(graph, "workbench.launch")
    names = [name for name in found if f"{name}.".startswith(f"workbench.{above}.")]
    assert [f"{name} <- {found[name]}" for name in names] == []


def test_planted_circles_are_found():
    texts = {
        "workbench": "import workbench.room.a",
        "workbench.room": "from workbench.room.a import x",
        "workbench.room.a": "from workbench.room import b, c",
        "workbench.room.b": "def late():\n    import workbench.outside",
        "workbench.room.c": "if TYPE_CHECKING:\n    from workbench.room.a import x\nimport workbench",
        "workbench.outside": "from workbench.room.b import y",
    }
    by_the_front_door = ["workbench", "workbench.room.a", "workbench.room.c"]
    assert circles(graph_of(texts)) == [by_the_front_door, ["workbench.outside", "workbench.room.b"]]
    texts["workbench.room.c"] = "def late():\n    from workbench.room import x"
    (circle,) = [circle for circle in circles(graph_of(texts)) if "workbench.room" in circle]
    assert circle == ["workbench.room", "workbench.room.a", "workbench.room.c"]
