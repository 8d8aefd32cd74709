"""Every command's ``--json`` prints a document that `workbench.base.documents` describes, field by field."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from sampling import long_if

from workbench.base.documents import COMPARED, KINDS, document, schema
from workbench.cli import main
from workbench.errors import UnknownNameError

OP = """
import torch
import workbench as wb

@wb.op
def quadrupled(x):
    return 4 * x

quadrupled.case("small", x=wb.randn("n"), n=64)
quadrupled.cuda(
    '''extern "C" __global__ void f(float *out, const float *x, int n) {
        for (int i = threadIdx.x; i < n; i += N) out[i] = 4 * x[i];
    }''',
    tune={"N": (32, 64)}, grid=1, block="N", args={"n": "x.numel()"},
)
"""
MEASURED = "batch,seqlen,heads,head_size,causal,measured_us\n1,128,2,64,1,30.5\n"
SWEEP = "contiguous_attention-cuda_register_softmax-llama-3-8b-sim-a100-sxm-80gb"
FIGURES = dict.fromkeys(COMPARED.split(), 1.0)
ROW = {
    "variant": "f",
    "language": "cuda",
    "arch": "sm_80",
    "outcome": "ok",
    "message": "",
    "configuration_is": "default",
    "config": {},
    "sample": None,
    "remarks": [],
    "exact": None,
    "exact_difference": [],
}
ROW |= FIGURES | {"compiler": None, "time_is": None, "predicted_for": None}
SAVED = document(
    "compare", op="o", case="c", device="sim", machine="", written="", versions={}, all_correct=True, variants=[ROW]
)
COMMANDS = {
    "doctor": "doctor",
    "compare": "compare OP",
    "check": "check OP --seeds 1",
    "trace": "trace OP",
    "diff": "diff FOLDER/saved.json FOLDER/saved.json",
    "tune": "tune OP --budget 2",
    "occupancy": "occupancy OP",
    "prove": "prove OP",
    "compare-code": "compare-code OP --config N=32 --config N=64",
    "bench-attention": "bench attention --minutes 0.001 --out FOLDER/bench.json",
    "bench-op": "bench OP",
    "bench-over": "bench OP --over n=32,64",
    "bench-kvcache": "bench kvcache --rounds 1",
    "bench-flash-attention": "bench flash-attention FOLDER/measured.csv",
    "bench-tune": f"bench tune --sweep {SWEEP} --seeds 1 --budget 9 --skip-peers",
    "bench-predict": f"bench predict --sweep {SWEEP}",
    "bench-generate": "bench generate --new-tokens 3 --skip-peers",
    "bench-perplexity": "bench perplexity --windows 2",
}
SLOW = ("doctor", "bench-tune", "bench-attention", "bench-kvcache")
"""Kinds whose commands take seconds."""
ELSEWHERE = ("bench-measured",)
"""Takes published search spaces."""


def strict(part: Any) -> Any:
    """A schema that allows no field which it does not describe."""
    if isinstance(part, dict):
        made = {name: strict(one) for name, one in part.items()}
        return made | {"additionalProperties": False} if "properties" in made else made
    return [strict(one) for one in part] if isinstance(part, list) else part


def validate(found: dict, kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason='python -m pip install -e ".[test]"')
    jsonschema.validate(found, strict(schema(kind)))


@pytest.mark.parametrize("kind", [long_if(kind in SLOW, kind) for kind in COMMANDS])
def test_what_a_command_prints_is_described(kind: str, tmp_path: Path, fresh_home: Path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "quadrupled_ops", raising=False)
    (tmp_path / "quadrupled_ops.py").write_text(OP)
    (tmp_path / "saved.json").write_text(SAVED)
    (tmp_path / "measured.csv").write_text(MEASURED)
    words = COMMANDS[kind].replace("OP", f"{tmp_path}/quadrupled_ops.py:quadrupled").replace("FOLDER", str(tmp_path))
    done = CliRunner().invoke(main, [*words.split(), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["schema"] == f"workbench-{kind}/1"
    validate(found, kind)


def with_json(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if any("--json" in option.opts for option in command.params):
            yield (*words, name)
        if isinstance(command, click.Group):
            yield from with_json(command, (*words, name))


def test_every_command_with_json_is_among_them():
    known = [tuple(word for word in one.split()) for one in COMMANDS.values()]
    for words in with_json(main):
        assert any(one[: len(words)] == words for one in known), f"{' '.join(words)} --json is described nowhere"
    assert set(COMMANDS) | set(ELSEWHERE) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_and_refuses_another_document(kind: str):
    jsonschema = pytest.importorskip("jsonschema", reason='python -m pip install -e ".[test]"')
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    with pytest.raises(jsonschema.ValidationError):
        validate({"schema": "workbench-other/1", "workbench": "1"}, kind)
    assert json.loads(CliRunner().invoke(main, ["schema", kind]).output) == schema(kind)


def test_the_kinds_are_listed():
    listed = CliRunner().invoke(main, ["schema"]).output
    assert all(f"{kind} " in listed and command in listed for kind, (command, _) in KINDS.items())


def test_another_kind_is_refused():
    with pytest.raises(UnknownNameError, match=r"'bench'.*compare"):
        schema("bench")
    with pytest.raises(KeyError):
        document("bench")
    assert CliRunner().invoke(main, ["schema", "bench"]).exit_code == 2
