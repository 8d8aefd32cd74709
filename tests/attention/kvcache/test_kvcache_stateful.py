"""Random lives of sequences, thousands of steps, against a model in plain dictionaries; see kv_model."""

import pytest

pytest.importorskip("hypothesis", reason='no Hypothesis: python -m pip install -e ".[test]"')

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kv_model import MOST_TOKENS, VOCABULARY, Model, make_cache, random_steps

from workbench.attention.kvcache import PagedKVCache

CONFIGURATIONS = {
    "prefixes": {"prefix_caching": True, "sliding_window": None},
    "prefixes, x": {"prefix_caching": True, "sliding_window": None, "layout": "x", "block_size": 3},
    "prefixes and window, hnd": {"prefix_caching": True, "sliding_window": 6, "layout": "hnd"},
    "window": {"prefix_caching": False, "sliding_window": 5},
    "blocks of one token": {"prefix_caching": True, "sliding_window": 1, "block_size": 1},
    "no swap space": {"prefix_caching": False, "sliding_window": None, "num_host_blocks": 0},
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_thousands_of_seeded_steps(name):
    configuration = CONFIGURATIONS[name]
    model = Model(make_cache(PagedKVCache, **configuration))
    random_steps(model, seed=1, steps=1500)
    # The walk went everywhere, or it would prove little.
    seen = model.outcomes
    assert min(seen[what] for what in ("allocate", "append", "fork", "reorder", "free")) > 20, seen
    assert seen["swap out: out of blocks"] > 5, seen
    if configuration.get("num_host_blocks") != 0:
        assert min(seen["swap out"], seen["swap in"]) > 5, seen
    if configuration["sliding_window"] is None:
        assert min(seen["append: out of blocks"], seen["allocate: out of blocks"]) > 5, seen
    if configuration["prefix_caching"]:
        assert min(seen["cached tokens"], model.manager.statistics().evictions) > 50, seen


TOKENS = st.lists(st.sampled_from(VOCABULARY), max_size=10)
CHOICE = st.integers(0, 63)


class Lives(RuleBasedStateMachine):
    """What the seeded walk does, with steps that hypothesis chooses and shrinks."""

    @initialize(name=st.sampled_from(list(CONFIGURATIONS)))
    def start(self, name):
        self.model = Model(make_cache(PagedKVCache, **{**CONFIGURATIONS[name], "num_blocks": 12}))
        self.named = 0

    def new_name(self):
        self.named += 1
        return self.named

    def running(self, choice):
        return self.model.running[choice % len(self.model.running)]

    def has_running(self):
        return bool(self.model.running)

    @precondition(lambda self: len(self.model.history) < 6)
    @rule(tokens=st.one_of(TOKENS, st.integers(0, 9)), salt=st.sampled_from((None, "tenant")))
    def allocate(self, tokens, salt):
        self.model.allocate(self.new_name(), tokens, salt)

    @precondition(has_running)
    @rule(
        appended=st.lists(st.tuples(CHOICE, st.one_of(TOKENS.filter(bool), st.integers(1, 5))), min_size=1, max_size=3)
    )
    def append(self, appended):
        batch = {self.running(choice): tokens for choice, tokens in appended}
        batch = {seq: tokens for seq, tokens in batch.items() if len(self.model.history[seq]) < MOST_TOKENS}
        self.model.append(batch)

    @precondition(lambda self: self.model.running and len(self.model.history) < 6)
    @rule(choice=CHOICE)
    def fork(self, choice):
        self.model.fork(self.running(choice), self.new_name())

    @precondition(has_running)
    @rule(beams=st.lists(st.tuples(CHOICE, CHOICE), min_size=1, max_size=4))
    def reorder(self, beams):
        self.model.reorder({self.running(child): self.running(parent) for child, parent in beams})

    @precondition(lambda self: self.model.history)
    @rule(choice=CHOICE)
    def free(self, choice):
        self.model.free(list(self.model.history)[choice % len(self.model.history)])

    @precondition(has_running)
    @rule(choices=st.lists(CHOICE, min_size=1, max_size=3))
    def swap_out(self, choices):
        self.model.swap_out(list({self.running(choice): None for choice in choices}))

    @precondition(lambda self: self.model.swapped)
    @rule(choices=st.lists(CHOICE, min_size=1, max_size=3))
    def swap_in(self, choices):
        swapped = sorted(self.model.swapped)
        self.model.swap_in(list({swapped[choice % len(swapped)]: None for choice in choices}))

    @invariant()
    def agree(self):
        if hasattr(self, "model"):
            self.model.check()


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=10,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
