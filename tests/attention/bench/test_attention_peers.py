"""The peers on a CPU, with doubles in the place of what needs a GPU: every way of theirs reads the right pages."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import flashinfer_double
import pytest
import torch
import xformers_double
from flashinfer_double import attention

from workbench.attention.bench.paged_attention import Cell
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.bench.paged_attention.peers import (
    PEERS,
    FlashInfer,
    FlexAttention,
    TorchSdpa,
    Xformers,
    flex_attention,
)

SMALL = Cell(8, 2, num_seqs=3, context=128, head_size=64)


def flex_double(
    query,
    key,
    value,
    score_mod=None,
    block_mask=None,
    scale=None,
    enable_gqa=False,
    return_lse=False,
    kernel_options=None,
    *,
    return_aux=None,
):
    """FlexAttention's signature; reads what its decode kernel reads of a block mask: counts, lists and block size."""
    assert enable_gqa or query.shape[1] == key.shape[1]
    page, options = block_mask.BLOCK_SIZE[1], kernel_options or {}
    assert page % options.get("BLOCK_N", page) == 0
    counts, lists = block_mask.kv_num_blocks[:, 0, 0], block_mask.kv_indices[:, 0, 0]
    pages = [cache[0].transpose(0, 1).unflatten(0, (-1, page)) for cache in (key, value)]
    out = attention(query[:, :, 0], *pages, lists, counts * page, query.shape[-1] ** -0.5)
    return out.to(query.dtype)[:, :, None]


@pytest.fixture
def doubles(monkeypatch):
    flashinfer_double.install(monkeypatch, flashinfer_double.VERSIONS[0])
    xformers_double.install(monkeypatch)
    monkeypatch.setattr(flex_attention, "compiled", lambda: flex_double)


def outcomes(peer, inputs, given=None):
    """Whether each way that the cell is not refused to is right, by its label."""
    assert not peer.missing
    found = {}
    for way in peer.ways(inputs.cell):
        if not way.refuses(inputs.cell, "sm_90"):
            prepared = way.prepare(given or inputs, None)
            prepared.run()
            found[way.label] = inputs.check(prepared.result).ok
    return found


@pytest.mark.parametrize("heads", [(8, 2), (4, 4)])
@pytest.mark.parametrize("page", [1, 16, 32, 64])
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_way_is_right(doubles, peer, page, heads):
    cell = dataclasses.replace(SMALL, num_heads=heads[0], num_kv_heads=heads[1], block_size=page)
    found = outcomes(peer, Inputs.draw(cell, "cpu"))
    assert all(found.values()), found
    least = {"flashinfer": 8 if page > 1 else 6, "flex_attention": 4 * (page > 1), "xformers": 3 * (page > 1)}
    assert len(found) >= least.get(peer.name, 1), found


@pytest.mark.parametrize("version", flashinfer_double.VERSIONS)
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_flashinfers_scales_cost_no_kernel(monkeypatch, version, cache):
    flashinfer_double.install(monkeypatch, version)
    inputs = Inputs.draw(dataclasses.replace(SMALL, cache=cache), "cpu")
    found = outcomes(FlashInfer(), inputs)
    assert all(found.values()), found
    assert ("wrapper fa3 NHD" in found) == (cache == "bf16")
    assert flashinfer_double.extra_kernels == []


@pytest.mark.parametrize("peer", [FlashInfer(), FlexAttention(), Xformers()], ids=lambda peer: peer.name)
@pytest.mark.parametrize("mistake", ["tables", "caches", "keys' scale", "values' scale"])
def test_what_a_peer_would_be_told_wrongly_shows(doubles, peer, mistake):
    cell = dataclasses.replace(SMALL, cache="fp8" if "scale" in mistake else "bf16")
    inputs = Inputs.draw(cell, "cpu")
    changes = {
        "tables": {"block_tables": inputs.block_tables.roll(1, 1)[:, [0, *range(2, cell.pages), 0]]},
        "caches": {"key_cache": inputs.value_cache, "value_cache": inputs.key_cache},
        "keys' scale": {"k_scale": inputs.v_scale},
        "values' scale": {"v_scale": inputs.k_scale},
    }[mistake]
    given = dataclasses.replace(inputs, _made={}, **changes)
    found = outcomes(peer, inputs, given)
    assert not any(found.values()), found
    assert found or "scale" in mistake


def test_a_page_in_the_other_layout_shows(doubles, monkeypatch):
    inputs = Inputs.draw(dataclasses.replace(SMALL, block_size=16, num_heads=64, num_kv_heads=16), "cpu")
    given = dataclasses.replace(inputs, _made={"hnd": inputs.caches("nhd")})
    found = outcomes(FlashInfer(), inputs, given)
    assert {label: right for label, right in found.items() if label.endswith("HND")} == dict.fromkeys(
        ("trtllm_batch_decode HND", "wrapper fa2 HND", "wrapper cuda cores HND", "wrapper fa3 HND"), False
    )
    assert all(right for label, right in found.items() if label.endswith("NHD"))


def test_peers_say_what_they_cannot_do():
    names = [peer.name for peer in PEERS]
    assert len(set(names)) == len(names)
    for peer in PEERS:
        assert not peer.ways(SMALL)[0].refuses(SMALL, "sm_90"), peer.name
        assert all(way.refuses(Cell(cache="int8"), "sm_90") for way in peer.ways(SMALL)), peer.name
        labels = [way.label for way in peer.ways(SMALL)]
        assert len(set(labels)) == len(labels)
        assert peer.about


@pytest.mark.parametrize(
    ("peer", "label", "cell", "arch", "reason"),
    [
        (FlexAttention(), "as torch chooses", Cell(24, 8), "sm_90", "power of two"),
        (FlexAttention(), "as torch chooses", Cell(32, 8, 64, 32768), "sm_90", "32-bit"),
        (FlexAttention(), "as torch chooses", Cell(32, 8, 64, 16384 - 1024), "sm_90", ""),
        (FlexAttention(), "as torch chooses", Cell(block_size=1), "sm_90", "one page"),
        (Xformers(), "", Cell(block_size=1), "sm_90", "one page"),
        (FlashInfer(), "trtllm_batch_decode NHD", Cell(block_size=1), "sm_90", "16, 32, 64 or 128"),
        (FlashInfer(), "trtllm_batch_decode NHD", Cell(), "sm_80", "capability"),
        (FlashInfer(), "trtllm_batch_decode NHD", Cell(), "sm_120", ""),
        (FlashInfer(), "trtllm_batch_decode NHD", Cell(head_size=72), "sm_90", "head_size"),
        (FlashInfer(), "wrapper cuda cores NHD", Cell(40, 8), "sm_90", "groups"),
        (FlashInfer(), "wrapper fa3 NHD", Cell(), "sm_80", "capability 9"),
        (FlashInfer(), "wrapper fa2 NHD", Cell(40, 8, block_size=1), "sm_80", ""),
    ],
)
def test_a_way_says_what_it_cannot_do(peer, label, cell, arch, reason):
    way = next(way for way in peer.ways(cell) if way.label == label or not label)
    said = way.refuses(cell, arch)
    assert bool(said) == bool(reason)
    assert reason in said


def test_ways_that_differ_in_the_layout_of_pages_share_their_code():
    codes = {way.label: way.code(SMALL) for way in FlashInfer().ways(SMALL)}
    assert len(set(codes.values())) == 4
    for label, code in codes.items():
        assert code == codes[label.replace("HND", "NHD")]
    longer = dataclasses.replace(SMALL, context=256)
    assert [way.code(longer) for way in FlashInfer().ways(longer)] == list(codes.values())
    for peer in (FlexAttention(), Xformers()):
        codes = {way.code(cell) for cell in (SMALL, longer) for way in peer.ways(cell)}
        assert len(codes) == len(peer.ways(SMALL)) + len(peer.ways(longer)), "their sizes are constants"


def test_sequences_are_split_into_as_many_parts_as_fill_a_gpu():
    few, many = (
        [way.label for way in peer.ways(Cell(num_seqs=count)) if "512" in str(way) or "part" in way.label]
        for count in (1, 64)
        for peer in [Xformers()]
    )
    assert "tile 16, 64 parts, 2 warps, 3 stages" in few
    assert "tile 16, 1 parts, 2 warps, 3 stages" in many
    assert few[0] == many[0] == "tile 16, its own parts, 2 warps, 1 stages"


def test_what_is_installed_and_cannot_be_imported_says_so(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert FlashInfer().missing == "flashinfer-python cannot be imported"
    assert Xformers().missing == "xformers cannot be imported"
    assert FlexAttention().missing == "this torch has none"


def test_flex_attention_is_compiled_for_every_shape(monkeypatch):
    config, asked = SimpleNamespace(), []
    monkeypatch.setitem(sys.modules, "torch._dynamo", SimpleNamespace(config=config))  # the real one takes seconds
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append((function.__name__, options)))
    flex_attention.compiled.__wrapped__()
    assert asked == [("flex_attention", {"dynamic": False, "fullgraph": True})]
    assert config.fail_on_recompile_limit_hit
    assert config.recompile_limit >= 4 * 768


@pytest.mark.parametrize("gathers", [True, False])
def test_torch_over_gathered_pages_reads_them_when_it_should(gathers):
    inputs = Inputs.draw(SMALL, "cpu")
    prepared = TorchSdpa(gathers).prepare(inputs, None)
    if gathers:  # what was gathered before must not be what is found
        for copy in inputs.caches("gathered"):
            copy.fill_(torch.nan)
    prepared.run()
    check = inputs.check(prepared.result)
    assert check.ok, check
