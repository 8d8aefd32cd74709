"""The writer, driven through its traits and its button as the browser drives it."""

import pytest

pytest.importorskip("ipywidgets", reason='no widgets: python -m pip install -e ".[lab]"')

from workbench.attention.models import generate, load_gpt
from workbench.attention.models.caches import CACHES
from workbench.attention.ui.writer_view import WriterView
from workbench.errors import ArgumentError


@pytest.fixture(scope="module")
def gpt():
    return load_gpt()


@pytest.fixture
def view(gpt):
    return WriterView(*gpt, "Return a list of", max_new_tokens=12)


def test_it_writes_what_the_model_generates(gpt, view):
    model, tokenizer = gpt
    prompt = tokenizer.encode("Return a list of")
    assert view.write() == view.text
    assert view.tokens == prompt + generate(model, prompt, max_new_tokens=12)
    assert view.text == tokenizer.decode(view.tokens)
    assert not view.running
    assert view.message == ""


def test_tokens_appear_one_by_one_beside_their_blocks(view):
    seen = []

    def look(change):
        sequences = view.blocks.state["sequences"]
        seen.append((len(change.new), sequences[0]["num_tokens"] if sequences else 0))

    view.observe(look, "tokens")
    view.write()
    lengths = [length for length, _ in seen]
    assert lengths == list(range(lengths[0], lengths[0] + len(lengths)))
    # The newest token is not in the cache yet: its keys are computed when the one after it is asked for.
    assert all(cached == length - 1 for length, cached in seen[1:])
    table = view.blocks.state["sequences"][0]["blocks"]
    assert len(table) == -(-(len(view.tokens) - 1) // view.block_size)
    assert not view.blocks.controls
    view.blocks._handle_custom_msg({"action": "free", "arguments": ["text"]}, [])  # no button, and no such message
    assert view.message == ""


@pytest.mark.parametrize("kind", CACHES[:3])
def test_the_reader_chooses_the_cache(view, kind):
    view._cache.value = kind  # as the menu sets it
    assert view.cache == kind
    view.write()
    assert {"none": "nothing kept", "contiguous": "one row", "paged": "blocks of 8 tokens"}[kind] in view.facts
    assert (view.blocks is not None) == (kind == "paged")
    assert kind in repr(view)


def test_the_button_starts_and_stops(view):
    view.max_new_tokens = 200
    view.observe(lambda change: len(change.new) > 8 and view._stopping.set(), "tokens")
    view._button.click()
    view._thread.join(60)
    assert not view.running
    assert 8 < len(view.tokens) < 30
    assert view._button.description == "write"


def test_what_is_refused_is_said(view):
    view.prompt = ""
    view.write()
    assert "no tokens" in view.message
    view.prompt, view.max_new_tokens = "Return" * 400, 200
    view.write()
    assert "512 in all" in view.message
    assert not view.running
    with pytest.raises(ArgumentError, match="paged"):
        view.cache = "fast"


def test_the_page_without_javascript(view):
    view.prompt = "<b>"
    view.write()
    data, _ = view._repr_mimebundle_()
    assert "&lt;b&gt;" in data["text/html"]
    assert data["text/plain"] == repr(view)
