"""Which configuration, model and cases ``compare``, ``trace`` and ``tune`` take in a terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import main

OP = """
import workbench as wb

@wb.op
def negated(x):
    return -x

negated.case("small", x=wb.randn("n"), n=64)
negated.case("large", x=wb.randn("n"), n=4096)
SOURCE = '''extern "C" __global__ void negate(float *out, const float *x, int n)
{ for (int i = threadIdx.x; i < n; i += N) out[i] = -x[i]; }'''
options = {"grid": 1, "block": "N", "args": {"n": "x.numel()"}}
negated.cuda(SOURCE, name="one", tune={"N": (32, 64, 128), "MORE": (False, True)}, macros={"UNUSED": "MORE"}, **options)
negated.cuda(SOURCE, name="two", tune={"N": (32, 64)}, **options)
"""


@pytest.fixture
def run(tmp_path: Path, fresh_home: Path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "negated_ops", raising=False)
    (tmp_path / "negated_ops.py").write_text(OP)
    return lambda name, *words: CliRunner().invoke(main, [name, f"{tmp_path}/negated_ops.py:negated", *words])


def compared(done) -> dict:
    assert done.exit_code == 0, done.output
    return {row["variant"]: row for row in json.loads(done.stdout)["variants"]}


@pytest.mark.parametrize(
    ("words", "one", "two"),
    [
        ((), {"N": 32, "MORE": False}, {"N": 32}),
        (("--config", "one:N=64", "--config", "two:N=64"), {"N": 64, "MORE": False}, {"N": 64}),
        (("--config", "N=128 MORE=True"), {"N": 128, "MORE": True}, {"N": 32}),
        (("--config", "MORE=True,N=64"), {"N": 64, "MORE": True}, {"N": 32}),
    ],
)
def test_compare_takes_configurations_as_tables_print_them(run, words, one, two):
    rows = compared(run("compare", "--device", "sim", "--json", *words))
    assert (rows["one"]["config"], rows["two"]["config"]) == (one, two)
    assert rows["one"]["configuration_is"] == ("given" if words else "default")


@pytest.mark.parametrize(
    ("command", "config", "message"),
    [
        ("compare", "N=64", "for 2 variants; allowed: that of one variant. Name it: one:N=64"),
        ("compare", "M=64", "one has N, MORE; two has N"),
        ("compare", "two:MORE=True", "config of two: got MORE; allowed: N"),
        ("compare", "one:N=63", "config N: got 63; allowed: 32, 64, 128"),
        ("compare", "three:N=64", "got 'three'"),
        ("compare", "one:64", "[VARIANT:]NAME=VALUE"),
        ("trace", "two:N=64", "allowed: one of one"),
    ],
)
def test_a_configuration_that_no_variant_has_is_refused(run, command, config, message):
    done = run(command, "--config", config, *(["--variant", "one"] if command == "trace" else []))
    assert (done.exit_code, message in " ".join(done.output.split())) == (2, True), done.output


def test_compare_and_trace_take_what_was_tuned(run):
    refused = run("trace", "--variant", "two", "--tuned")
    assert (refused.exit_code, "nothing recorded for small" in refused.output) == (2, True), refused.output
    assert run("tune", "--device", "sim", "--variant", "two", "--case", "small").exit_code == 0
    rows = compared(run("compare", "--device", "sim", "--json", "--tuned"))
    assert {name: row["configuration_is"] for name, row in rows.items()} == {
        "torch": "", "one": "default", "two": "tuned, exact",
    }  # fmt: skip
    assert rows["two"]["config"] == {"N": 64}, "64 threads for 64 elements, where the default has 32"
    table = run("compare", "--device", "sim", "--tuned").output
    assert "configuration is" in table
    assert "tuned, exact" in table
    traced = run("trace", "--variant", "two", "--tuned")
    assert "negated/two on small x float32[64], N=64" in traced.output
    default = run("trace", "--variant", "two", "--config", "N=32")
    assert "negated/two on small x float32[64], N=32" in default.output


@pytest.mark.parametrize("command", ["compare", "trace", "tune"])
def test_a_model_is_predicted_for(run, command):
    asked = ("--variant", "two", *(() if command == "trace" else ("--device", "sim")))
    done = run(command, *asked, "--model", "h100-sxm")
    assert done.exit_code == 0, done.output
    words = {"compare": "on h100-sxm", "trace": "µs on H100-SXM5", "tune": "predicted for H100-SXM5"}
    assert words[command] in " ".join(done.output.split())
    assert "A100" not in done.output.replace("a100", "A100")
    unknown = run(command, *asked, "--model", "h1000")
    assert (unknown.exit_code, "h1000" in unknown.output) == (2, True)


@pytest.mark.parametrize("command", ["compare", "trace"])
def test_several_cases_are_one_after_the_other(run, command):
    words = ("--variant", "two", "--case", "large", "--case", "small", "--config", "N=64")
    text = run(command, *words)
    assert text.exit_code == 0, text.output
    assert text.output.index("large x float32[4096]") < text.output.index("small x float32[64]")
    lines = run(command, *words, "--json").stdout.splitlines()
    assert len(lines) == 2
    for line, case in zip(lines, ("large", "small"), strict=True):
        found = json.loads(line)
        assert case in (found["case"] if command == "compare" else found["title"])
        assert "N=64" in found["title"] if command == "trace" else found["variants"][0]["config"] == {"N": 64}
