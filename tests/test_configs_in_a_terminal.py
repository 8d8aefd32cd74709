"""Which configuration, model and cases the commands take in a terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.base.config_text import ConfigText
from workbench.cli import main
from workbench.errors import ArgumentError

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
        ("compare", "N=64", "for 2 variants; allowed: the configuration of one variant. Name it: one:N=64"),
        ("compare", "M=64", "one has N, MORE; two has N"),
        ("compare", "two:MORE=True", "config of two: got MORE; allowed: N"),
        ("compare", "one:N=63", "config N: got 63; allowed: 32, 64, 128"),
        ("compare", "three:N=64", "got 'three'"),
        ("compare", "one:64", "[VARIANT:]NAME=VALUE"),
        ("trace", "two:N=64", "config: got 'two'; allowed: one. Name one of these variants"),
        ("trace", "N", "[VARIANT:]NAME=VALUE"),
        ("occupancy", "N", "[VARIANT:]NAME=VALUE"),
        ("occupancy", "N=64", "for 2 variants; allowed: the configuration of one variant. Name it: one:N=64"),
        ("occupancy", "one:M=64", "config of one: got M; allowed: N, MORE"),
        ("compare-code", "three:N=64", "config: got 'three'; allowed: one, two"),
        ("bench --over n=64,128", "one:N=63", "config N: got 63; allowed: 32, 64, 128"),
    ],
)
def test_a_configuration_that_no_variant_has_is_refused(run, command, config, message):
    name, *words = command.split()
    done = run(name, *words, "--config", config, *(["--variant", "one"] if command == "trace" else []))
    assert (done.exit_code, message in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("occupancy", "--config", "one:N=64"), "negated/one N=64 MORE=False"),
        (("occupancy", "--config", "MORE=True"), "negated/one N=32 MORE=True"),
        (("occupancy", "--variant", "two", "--config", "N=96"), "negated/two N=96"),
        (("trace", "--config", "two:N=64"), "negated/two on small x float32[64], N=64"),
        (("compare-code", "--config", "one:N=64", "--config", "two:N=64"), "one N=64 MORE=False and negated/two N=64"),
        (("compare-code", "--variant", "two", "--config", "", "--config", "N=96"), "two N=32 and negated/two N=96"),
        (("compare-code", "--variant", "one", "--variant", "two", "--config", "N=64"), "two N=64"),
    ],
)
def test_a_configuration_names_its_variant_in_every_command(run, words, title):
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert title in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("text", "variant", "settings"),
    [
        ("N=64 MORE=True", None, {"N": "64", "MORE": "True"}),
        (" N=64,MORE=True, ", None, {"N": "64", "MORE": "True"}),
        ("one:N=64", "one", {"N": "64"}),
        ("one: N=64", "one", {"N": "64"}),
        ("SHAPE=(16, 16) N=1", None, {"SHAPE": "(16, 16)", "N": "1"}),
        ("T=std::int8_t N=1", None, {"T": "std::int8_t", "N": "1"}),
        ("CONDITION=a==b N=", None, {"CONDITION": "a==b", "N": ""}),
        ("", None, {}),
        *((text, None, None) for text in ("N", "N = 64", "=64", "64 N=1", "one:64", "N=1 two:N=2")),
    ],
)
def test_a_configuration_is_pairs_after_the_name_of_a_variant(text, variant, settings):
    if settings is not None:
        found = ConfigText.parse(text)
        assert (found.variant, found.settings) == (variant, settings)
        return
    with pytest.raises(ArgumentError, match=re.escape(f"config: got {text!r}; allowed: [VARIANT:]NAME=VALUE")):
        ConfigText.parse(text)


def test_macros_of_a_source_are_numbers_truth_values_and_texts():
    found = ConfigText.parse("N=0x40 FAST=True T=std::int8_t SHAPE=(1, 2) X=1.5f")
    assert found.macros() == {"N": 64, "FAST": True, "T": "std::int8_t", "SHAPE": "(1, 2)", "X": "1.5f"}
    with pytest.raises(ArgumentError, match="Leave out 'one'"):
        ConfigText.parse("one:N=1").macros()


def test_compare_and_trace_take_what_was_tuned(run):
    refused = run("trace", "--variant", "two", "--tuned")
    assert (refused.exit_code, "nothing recorded for small" in refused.output) == (2, True), refused.output
    assert re.search(r"workbench tune \S+\.py:\w+ --variant two records one\.", refused.output), refused.output
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
