"""What comes from a candidate's process is either exactly a description, or refused."""

from __future__ import annotations

import json

import pytest

from workbench.judge.answers import failed, plain, plain_config
from workbench.judge.description import Description, InvalidDescription

LAUNCH = {
    "program": 0,
    "entry": "f",
    "label": "f",
    "grid": [1],
    "block": [32, 2],
    "shared_bytes": 0,
    "scratch_bytes": 512,
    "arguments": [["tensor", "out"], ["number", 2.5], ["bytes", "00ff"], ["null", None]],
}
MAP = {
    "tensor": "x", "element": "f16", "sizes": [64, 8], "strides": [128], "box": [64, 8], "steps": [1, 1],
    "swizzle": 128, "fill": "zero", "atom": 16,
}  # fmt: skip
GOOD = {
    "programs": ["ptx"],
    "launches": [LAUNCH],
    "workspace": [{"name": "room", "dtype": "float32", "shape": [2, 3], "fill": 0.0}],
    "constants": {"n": ["number", 4]},
    "text": "",
    "macros": {"N": 4},
}


def test_a_description_is_read_as_it_was_written():
    found = Description.of(json.loads(json.dumps(GOOD)))
    assert [one.value for one in found.launches[0].arguments] == ["out", 2.5, b"\0\xff", None]
    assert found.launches[0].block == (32, 2)
    assert found.workspace[0].shape == (2, 3)
    assert found.passed() == ["out"]
    assert found.launches[0].scratch_bytes == 512


def test_tensor_maps_and_constants_are_read():
    table = {"name": "places", "dtype": "int16", "shape": [2], "fill": ["00010002"]}
    kept = {"name": "sums", "dtype": "float32", "shape": [4], "fill": None}
    launch = LAUNCH | {"arguments": [["map", MAP], ["tensor", "places"]]}
    found = Description.of(json.loads(json.dumps(GOOD | {"launches": [launch], "workspace": [table, kept]})))
    assert found.passed() == ["x", "places"]
    assert [one.fill for one in found.workspace] == [b"\0\1\0\2", None]
    assert (found.launches[0].arguments[0].value.box, found.launches[0].arguments[0].value.swizzle) == ((64, 8), 128)


@pytest.mark.parametrize(
    "change",
    [
        {"programs": "ptx"},
        {"programs": [3]},
        {"programs": []},
        {"launches": []},
        {"launches": [LAUNCH] * 65},
        {"launches": [3]},
        {"launches": None},
        {"workspace": [{"name": "room", "dtype": "object", "shape": [2], "fill": 0}]},
        {"workspace": [{"name": "room", "dtype": "float32", "shape": [-2], "fill": 0}]},
        {"workspace": [{"name": "room", "dtype": "float32", "shape": [2], "fill": "0"}]},
        {"workspace": [{"name": "room", "dtype": "float32", "shape": [2], "fill": ["00"]}]},
        {"workspace": [{"name": "room", "dtype": "uint8", "shape": [1], "fill": ["xy"]}]},
        {"workspace": [{"name": "room", "dtype": "uint8", "shape": [1], "fill": [0]}]},
        {"constants": []},
        {"constants": {"n": 4}},
        {"text": 3},
        {"macros": 3},
        *(
            {"launches": [LAUNCH | part]}
            for part in (
                {"program": 1},
                {"program": True},
                {"entry": None},
                {"grid": [1.5]},
                {"grid": [-1]},
                {"block": [True]},
                {"shared_bytes": "0"},
                {"arguments": [3]},
                {"arguments": [["tensor"]]},
                {"arguments": [["object", "x"]]},
                {"arguments": [[[], "x"]]},
                {"arguments": [["number", "x"]]},
                {"arguments": [["bytes", "xy"]]},
                {"arguments": [["map", "x"]]},
                {"arguments": [["map", MAP | {"box": [-1, 8]}]]},
                {"arguments": [["map", MAP | {"tensor": None}]]},
            )
        ),
    ],
    ids=str,
)
def test_everything_else_is_refused(change: dict):
    with pytest.raises(InvalidDescription):
        Description.of(GOOD | change)


@pytest.mark.parametrize("scratch", [-1, (1 << 16) + 1, 1.5, True, None])
def test_scratch_memory_is_bounded(scratch: object):
    with pytest.raises(InvalidDescription, match="scratch_bytes"):
        Description.of(GOOD | {"launches": [LAUNCH | {"scratch_bytes": scratch}]})


@pytest.mark.parametrize("given", ["ok", "fine", [], {}, None, 3])
def test_a_failure_without_a_name_is_invalid(given: object):
    assert failed({"failed": given, "message": 3})["outcome"] == "invalid"


def test_texts_cannot_control_a_terminal_and_have_an_end():
    assert plain("a\x1b[2Jb\nc\ud800") == "a?[2Jb\nc?"
    assert len(plain("a" * 10_000)) < 5_000
    assert plain_config({"a": float("nan"), "b": [1], "c\r": 2, "d": "\x07"}) == {"c?": 2, "d": "?"}
