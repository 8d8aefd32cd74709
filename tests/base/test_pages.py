"""Pages of results: self-contained, escaped, with what ran at their head; the same by command and from Python."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.base.pages import Page, Section, json_script
from workbench.base.tables import Table, Tabular
from workbench.cli import main

OP = """
import workbench as wb

@wb.op
def tripled(x):
    return 3 * x

tripled.case("a<b", x=wb.randn(64))
tripled.cuda('''extern "C" __global__ void f(float *out, const float *x) {
    for (int i = threadIdx.x; i < 64; i += N) out[i] = 3 * x[i];  // </script><!--title-->
}''', tune={"N": (32, 64)}, grid=1, block="N")
"""
COMMANDS = {
    "compare": ("compare OP", ["variants", "the PTX machine", "warp instructions", "data:image/svg+xml"]),
    "trace": ("trace OP", ["configuration", "N=32", "sectors per request", "source-view", "nvrtc"]),
    "tune": ("tune OP", ["trials", "winner: f", "data:image/svg+xml", "error/<wbr>bound"]),
    "check": ("check OP --seeds 1", ["SHA-256", "seeds", "✓ ok"]),
}


class Loaded(HTMLParser):
    """Tags of a page, addresses that it would load, and the text of its JSON."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "script" and ("type", "application/json") in attrs:
            self.data.append("")

    def handle_data(self, data: str) -> None:
        if self.data and not self.data[-1]:
            self.data[-1] = data


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_writes_a_page(kind: str, tmp_path: Path, fresh_home: Path, monkeypatch):
    if "data:image/svg+xml" in COMMANDS[kind][1]:
        pytest.importorskip("matplotlib", reason='python -m pip install -e ".[lab]"')
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tripled_ops", raising=False)
    (tmp_path / "tripled_ops.py").write_text(OP)
    page = tmp_path / "page.html"
    words = COMMANDS[kind][0].replace("OP", f"{tmp_path}/tripled_ops.py:tripled").split()
    done = CliRunner().invoke(main, [*words, "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    expected = [
        *COMMANDS[kind][1],
        "prefers-color-scheme: dark",
        "a&lt;b",
        f"workbench {wb.__version__}, python",
        "UTC",
    ]
    assert [one for one in expected if one not in text] == []
    loaded = Loaded(text)
    assert all(address.startswith("data:") for address in loaded.addresses), loaded.addresses
    assert loaded.tags.count("h1") == 1
    assert "link" not in loaded.tags
    if kind == "trace":
        (view,) = map(json.loads, loaded.data)
        assert any("</script><!--title-->" in row["text"] for row in view["state"]["rows"])
        assert view["details"]


class _Result(Tabular):
    def __init__(self, title: str):
        self._title = title

    def tables(self) -> list[Table]:
        return [Table(("a",), [("<b>1</b>",)], "r", title=self._title), Table((), (), "", title="words")]

    def __str__(self) -> str:
        return self._title

    def about(self) -> dict[str, str]:
        return {"op": "<o>", "nothing": ""}


def test_several_results_share_a_page(tmp_path: Path):
    path = _Result("first & title").save_html(tmp_path / "page.html", _Result("second"), _Result("third"))
    text = path.read_text()
    assert text.count("first &amp; title</") == 2, "in the title and the h1, and not above its table"
    assert [text.count(f"<h2>{name}</h2>") for name in ("first", "second", "third")] == [0, 1, 1]
    assert text.count("<dd>&lt;o&gt;</dd>") == 3
    assert "nothing" not in text
    assert text.count("&lt;b&gt;1&lt;/b&gt;") == 3


def test_styles_and_scripts_are_included_once_and_texts_are_not_templates():
    section = Section("<p><!--title--></p>", ("p { color: red }",), ("const a = 1;",))
    text = Page("a <title>", [section, section]).html()
    assert [text.count(part) for part in ("color: red", "const a = 1", "<p><!--title--></p>")] == [1, 1, 2]
    assert "a &lt;title&gt;" in text
    assert "</" not in json_script("</script>").removesuffix("</script>")


def test_pages_need_no_extra(tmp_path: Path, fresh_home: Path, monkeypatch):
    for name in ("anywidget", "matplotlib", "matplotlib.pyplot", "pandas", "ipywidgets"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("workbench.ui.")]:
        monkeypatch.delitem(sys.modules, name)
    compared = wb.compare("copy_blocks", variants="cuda_vectors", device="sim").save_html(tmp_path / "compared.html")
    assert "data:image/svg+xml" not in compared.read_text()
    traced = wb.trace("copy_blocks", variant="cuda_vectors").save_html(tmp_path / "traced.html")
    assert json.loads(Loaded(traced.read_text()).data[0])["details"]
