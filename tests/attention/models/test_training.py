"""The text that the model learns from, and the command that trains it."""

import json

import pytest
from click.testing import CliRunner

from workbench.attention.models.checkpoint import load
from workbench.attention.models.corpus import standard_library_text, unwrap
from workbench.cli import main

WRAPPED = """\
Docstrings are wrapped where their authors' editors wrapped them,
which says nothing about English. Lists stay lists:

- a short line
- another one

and a line of code, however long it may be, = stays where it is, as here:
    value = compute(something, something_else, and_a_third_thing)
    print(value)  # and so on
"""


def test_prose_is_joined_and_code_is_not():
    text = unwrap(WRAPPED)
    assert "wrapped them, which says nothing" in text
    assert "- a short line\n- another one\n" in text
    assert "third_thing)\n    print(value)  # and so on" in text


@pytest.mark.long
def test_nothing_held_out_is_trained_on():
    corpus = standard_library_text()
    training = {part.strip() for text in corpus.training.values() for part in text.split("\n\n") if len(part) > 60}
    held_out = [part.strip() for text in corpus.held_out.values() for part in text.split("\n\n") if len(part) > 60]
    assert len(training) > 3000
    assert len(held_out) > 100
    assert not training.intersection(held_out)
    assert corpus.sha256 != type(corpus)(corpus.training, {}).sha256


@pytest.mark.long
def test_the_command_writes_a_checkpoint_that_loads(tmp_path):
    result = CliRunner().invoke(main, ["train-gpt", "--out", str(tmp_path), "--steps", "2"])
    assert result.exit_code == 0, result.output
    model, tokenizer = load(tmp_path / "gpt.safetensors")
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["plan"]["steps"] == 2
    assert record["licence"].startswith("PSF")
    assert tokenizer.vocab_size == model.config.vocab_size == record["config"]["vocab_size"]
