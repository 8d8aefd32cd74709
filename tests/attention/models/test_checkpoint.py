"""A checkpoint comes back as it was saved, or not at all."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.attention.models import CheckpointError, load_gpt
from workbench.attention.models.checkpoint import FORMAT, save
from workbench.attention.models.tokenizer import Tokenizer

TOKENIZER = Tokenizer([(97 + i, 98) for i in range(43)])


@pytest.fixture
def saved(tiny, tmp_path):
    path = tmp_path / "tiny.safetensors"
    save(path, tiny, TOKENIZER)
    return path


def rewrite(path, change, **metadata):
    """Change the tensors of a checkpoint, and say again what it is."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=about | metadata)


def test_no_first_values_are_drawn(saved, monkeypatch):
    def drawn(*_):
        pytest.fail("the weights are those of the file")

    monkeypatch.setattr(torch.nn.init, "_no_grad_normal_", drawn)
    load_gpt(saved)


def test_weights_and_tokenizer_come_back(tiny, saved):
    model, tokenizer = load_gpt(saved)
    assert tokenizer.merges == TOKENIZER.merges
    assert model.config == tiny.config
    assert model.dtype == torch.float32
    for name, weight in tiny.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.half().float()), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("blocks.1.qkv.weight"), r"blocks\.1\.qkv\.weight: missing, not \(128, 32\)"),
        (lambda t: t.update({"norm.weight": torch.ones(33)}), r"norm\.weight: \(33,\), not \(32,\)"),
        (lambda t: t.update({"extra": torch.ones(1)}), "extra: not a weight of this model"),
        (lambda t: t["norm.weight"].fill_(float("nan")), "norm.weight: not finite"),
        (lambda t: t.update({"norm.weight": torch.ones(32, dtype=torch.int32)}), "norm.weight: not finite numbers"),
        (lambda t: t.pop("tokenizer.merges"), "tokenizer.merges"),
        (lambda t: t.update({"tokenizer.merges": torch.tensor([[97, 98]])}), "258 token ids for a model of 300"),
        (lambda t: t.update({"tokenizer.merges": torch.tensor([[97, 900]])}), "merges"),
    ],
)
def test_a_damaged_checkpoint_is_refused(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(CheckpointError, match=message):
        load_gpt(saved)


def test_another_format_is_refused(saved, tmp_path):
    rewrite(saved, lambda tensors: None, format="llama")
    with pytest.raises(CheckpointError, match=rf"format 'llama'; allowed: '{FORMAT}'"):
        load_gpt(saved)
    with pytest.raises(CheckpointError, match="not readable"):
        load_gpt(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("config", ["{}", '{"num_heads": 3}', '{"wheels": 4}', '{"num_layers": 0}'])
def test_sizes_that_do_not_fit_are_refused(saved, config):
    about = json.loads(config)
    rewrite(saved, lambda tensors: None, config=json.dumps(about))
    with pytest.raises(CheckpointError):
        load_gpt(saved)


def test_a_pickle_is_not_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="not readable"):
        load_gpt(path)
    torch.save({"weights": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="not readable"):
        load_gpt(path)
    assert not (tmp_path / "sprung").exists()
