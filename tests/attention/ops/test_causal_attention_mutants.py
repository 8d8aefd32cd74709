"""Wrong forms of the decode step are caught by the comparison that the right ones pass."""

import importlib
import itertools

import pytest
import torch
from mutants.python import OPERATORS, executed_lines, loaded, mutants

from workbench.attention.ops.paged_attention.reference import attend

LENGTHS = torch.tensor([1, 37, 16, 33])
HEADS = ((4, 4), (8, 2), (6, 1))
FORMS = {"attend_to_blocks": "torch_blockwise", "decode_step": "decode"}
MODULES = {form: f"workbench.attention.ops.causal_attention.{name}" for form, name in FORMS.items()}


def decode(function, form, query, key, value):
    if form == "decode_step":
        return function(query, key, value, LENGTHS)
    into_blocks = importlib.import_module("workbench.attention.ops.causal_attention.torch_blockwise").into_blocks
    group = query.shape[1] // key.shape[1]
    blocks = [into_blocks(side.repeat_interleave(group, 1), 16) for side in (key, value)]
    return function(query[:, :, None], *blocks, LENGTHS[:, None])[:, :, 0]


def inputs(heads, dtype, large):
    """Return random inputs, or such that every score is -1e6; NaN in every unused slot."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in ((len(LENGTHS), heads[0], 64), *2 * [(len(LENGTHS), heads[1], 37, 64)])
    )
    if large:
        query, key = torch.full_like(query, -353.5), torch.full_like(key, 353.5)
    for seq, length in enumerate(LENGTHS):
        key[seq, :, length:] = value[seq, :, length:] = torch.nan
    return query, key, value


def is_right(function, form):
    """Try every way to share heads, in float64 and float16, and scores of -1e6 where the dtype reaches so far."""
    for heads, (dtype, large) in itertools.product(
        HEADS, ((torch.float64, False), (torch.float64, True), (torch.float16, False))
    ):
        query, key, value = inputs(heads, dtype, large)
        out = decode(function, form, query, key, value)
        for seq, length in enumerate(LENGTHS):
            tokens = [side[seq, :, :length].transpose(0, 1) for side in (key, value)]
            exact, same = (attend(query[seq], *tokens, scale=1 / 8, dtype=d) for d in (torch.float64, dtype))
            bound = 1e-12 if dtype == torch.float64 else 2 * (same.double() - exact).abs().max() + 1e-5
            if not (out[seq].double() - exact).abs().max() <= bound:  # NaN is wrong too
                return False
    return True


@pytest.mark.parametrize("form", FORMS)
def test_most_mutants_are_caught(form):
    module = MODULES[form]
    right = getattr(loaded([module], {}), form)
    with executed_lines(module) as lines:
        assert is_right(right, form)
    drawn = (itertools.islice(mutants(operator, module, lines[module]), 4) for operator in OPERATORS)
    made = list(itertools.chain.from_iterable(drawn))
    survivors = [str(mutant) for mutant in made if survives(mutant, form)]
    # 76% are caught: the log-sum-exp, which nobody asks for here, and default arguments stay.
    assert len(survivors) <= len(made) / 2, "\n".join(survivors)


def survives(mutant, form):
    """Return True if the comparison notices nothing."""
    try:
        return is_right(getattr(loaded([mutant.module], {mutant.module: mutant.code}), form), form)
    except Exception:  # a crash
        return False
