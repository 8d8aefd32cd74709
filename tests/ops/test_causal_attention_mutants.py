"""Wrong forms of the decode step are caught by the comparison that the right ones pass."""

import importlib
import importlib.util
import itertools
from pathlib import Path

import pytest
import torch
from mutation import Mutant

from workbench.attention.ops.paged_attention.reference import attend

LENGTHS = torch.tensor([1, 37, 16, 33])
HEADS = ((4, 4), (8, 2), (6, 1))
FORMS = {"attend_to_blocks": "torch_blockwise", "decode_step": "decode"}
MUTANTS = {
    "attend_to_blocks": (
        Mutant("values not zeroed", "masked_fill(unused, 0.0)", "clone()"),
        Mutant("masked close to zero", "token > position, -torch.inf", "token > position, -1e4"),
        Mutant("one unused slot too many", "token >= length", "token > length"),
        Mutant("newest token left out", "token > position", "token >= position"),
        Mutant("output not rescaled", "out = out * rescale", "out = out"),
        Mutant("total not rescaled", "total = total * rescale", "total = total"),
        Mutant("maximum not subtracted", "torch.exp(scores - safe)", "torch.exp(scores)"),
        Mutant("sums in 16 bits", "torch.promote_types(query.dtype, torch.float32)", "query.dtype"),
        Mutant("not divided", "(out / total)", "out"),
        Mutant("scale missing", "key.transpose(-1, -2) * scale", "key.transpose(-1, -2)"),
    ),
    "decode_step": (
        Mutant("values not zeroed", "value_cache.masked_fill(~valid[..., None], 0.0)", "value_cache"),
        Mutant("masked close to zero", "-torch.inf", "-1e4"),
        Mutant("one unused slot too many", "< seq_lens", "<= seq_lens"),
        Mutant("newest token left out", "< seq_lens[:, None]", "< seq_lens[:, None] - 1"),
        Mutant("heads interleaved", "query.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_size)",
               "query.view(num_seqs, -1, num_kv_heads, head_size).transpose(1, 2)"),
        Mutant("scale missing", "key_cache.transpose(-1, -2) * scale", "key_cache.transpose(-1, -2)"),
    ),
}  # fmt: skip


def load(form, mutant, folder):
    """The form, from its module's text after the mutation (or before: None)."""
    text = Path(importlib.util.find_spec(f"workbench.attention.ops.causal_attention.{FORMS[form]}").origin).read_text()
    path = folder / f"{form}.py"
    path.write_text(mutant.apply(text) if mutant else text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, form)


def decode(function, form, query, key, value):
    if form == "decode_step":
        return function(query, key, value, LENGTHS)
    into_blocks = importlib.import_module("workbench.attention.ops.causal_attention.torch_blockwise").into_blocks
    group = query.shape[1] // key.shape[1]
    blocks = [into_blocks(side.repeat_interleave(group, 1), 16) for side in (key, value)]
    return function(query[:, :, None], *blocks, LENGTHS[:, None])[:, :, 0]


def inputs(heads, dtype, large):
    """Random ones, or such that every score is -1e6; NaN in every unused slot."""
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
    """Every way to share heads, in float64 and float16, and scores of -1e6 where the dtype reaches so far."""
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
def test_the_right_form_passes(form, tmp_path):
    assert is_right(load(form, None, tmp_path), form)


@pytest.mark.parametrize(
    ("form", "mutant"),
    [(form, mutant) for form in FORMS for mutant in MUTANTS[form]],
    ids=lambda value: getattr(value, "name", value),
)
def test_mutant_is_caught(form, mutant, tmp_path):
    assert not is_right(load(form, mutant, tmp_path), form)
