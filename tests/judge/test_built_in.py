"""The judge and the workbench's own ops: a verdict for each variant; wrong sources, and only those, are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from example_ops import OPS
from sampling import long_if

import workbench as wb
from workbench.cli import main
from workbench.judge import OUTCOMES

NVFP4 = {
    "paged_attention": OPS["paged_attention"].case("small", kv_cache_dtype="nvfp4"),
    "reshape_and_cache": "nvfp4",
    "gather_cache": "nvfp4",
}


@pytest.mark.parametrize("op", [long_if(name != "copy_blocks", OPS[name], id=name) for name in OPS])
def test_every_variant_has_a_verdict(op):
    judgement = wb.check(op, seeds=1)
    judged, others = [one.variant for one in judgement], [one.name for one in op.variants if one.needs]
    assert judged == [variant.name for variant in op.variants if not variant.needs]
    assert all(one.ok and one.max_error <= one.bound and len(one.seeds) == 1 for one in judgement), judgement
    assert [note.split()[0] for note in judgement.notes] == others
    for one in others:
        assert wb.check(op, variants=one, cases=NVFP4[op.name], seeds=1).ok


def test_a_variant_is_left_out_of_a_case_that_it_does_not_read(monkeypatch):
    op = OPS["copy_blocks"]
    able = op.variant("cuda_vectors")
    unable = replace(able, name="of_small_pages", needs=("small pages",))
    monkeypatch.setattr(op, "variants", (able, unable))
    judgement = wb.check(op, cases=["small"], seeds=1, elsewhere=False)
    assert (judgement.outcome, [one.variant for one in judgement]) == ("ok", ["cuda_vectors"])
    (note,) = judgement.to_dict()["notes"]
    assert note.startswith("of_small_pages does not read small and was left out: it needs small pages")
    assert note in str(judgement)
    for left, named in ((op.variants, "of_small_pages"), ((unable,), None)):
        monkeypatch.setattr(op, "variants", left)
        assert wb.check(op, cases=["small"], variants=named, seeds=1).outcome == "unsupported"


@pytest.mark.long
def test_a_case_is_judged_in_a_layout_that_the_variant_reads():
    case = OPS["paged_attention"].case("small", num_seqs=1, context=40)
    judgement = wb.check("paged_attention", variants=["cuda_partitioned", "cuda_grouped_mma"], cases=case, seeds=[7])
    assert [(one.case, one.outcome, one.seeds) for one in judgement] == [
        ("small", "ok", (7,)),
        ("small nhd", "ok", (7,)),
    ]


@pytest.mark.long
def test_partitions_and_their_workspace():
    case = OPS["paged_attention"].case("small", seq_lens=(300, 200))
    config = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}
    question = {"variants": "cuda_partitioned", "cases": case, "config": config, "seeds": 1}
    assert wb.check("paged_attention", **question).ok
    source = OPS["paged_attention"].variant("cuda_partitioned").source.read_text()
    combined = "first + warp, last, gridDim.z"
    assert source.count(combined) == 1
    beyond = source.replace(combined, "first + warp, min(last + 1, (int)gridDim.z), gridDim.z")
    refused = wb.check("paged_attention", beyond, **question).first_failure
    assert refused.outcome == "uninitialised"
    assert "partial_stats" in refused.message


def test_configurations_one_and_all():
    op = OPS["copy_blocks"]
    config = {"NUM_THREADS": 32, "VEC_BYTES": 4, "VECS_PER_THREAD": 1}
    assert [one.config for one in wb.check(op, variants="cuda_vectors", config=config, seeds=1)] == [config]
    refused = wb.check(op, variants="cuda_vectors", config=config | {"NUM_THREADS": 33}, seeds=1)
    assert refused.outcome == "unsupported"
    assert "NUM_THREADS % 32 == 0" in refused.first_failure.message


PAGES, ROWS = "copy_blocks cuda_vectors", "contiguous_attention cuda_register_softmax"
BODY = "  const int seq_len = seq_lens[seq];\n"
OUT = "out[(seq * num_heads + first_head) * HEAD_SIZE]"
IN_CACHE = "((SCALAR*)kv_cache)[cache_rows[seq] * row_stride + kv_head * (long long)max_seqlen * HEAD_SIZE"
WRONG = {
    "another place": (PAGES, "load(from + offset)", "load(from)", "wrong_result"),
    "nothing": (PAGES, "if (offset < page_bytes) store", "if (offset < 0) store", "unwritten"),
    "half": (ROWS, BODY, BODY + "  if (seq) return;\n", "unwritten"),
    "far away": (PAGES, "destination * target", "(destination << 40) * target", "out_of_bounds"),
    "one page": (PAGES, "destination = pairs[2 * (long long)blockIdx.x + 1]", "destination = pairs[1]", "race"),
    "its output": (ROWS, BODY, f"{BODY}  if (!threadIdx.x && to_float({OUT}) == 7.f) return;\n", "uninitialised"),
    "its cache": (ROWS, BODY, f"{BODY}  if (!threadIdx.x) {IN_CACHE} + seq_len * HEAD_SIZE] = 0;\n", "changed_input"),
    "no barrier": (ROWS, "  __syncthreads();\n", "", "race"),
    "no C++": (PAGES, "#include", "include", "not_compiled"),
    "another name": (PAGES, "\ncopy_blocks_vectors(", "\ncopy_blocks_faster(", "not_loaded"),
    "a parameter": (PAGES, "page_bytes", "bytes_of_a_page", "not_loaded"),
    "a hang": (PAGES, "  // 3.", "  while (page_bytes) __threadfence();\n  // 3.", "barrier"),
}


@pytest.mark.parametrize("name", [long_if(name != "its cache", name) for name in WRONG])
def test_wrong_sources_are_refused(name: str):
    place, old, new, outcome = WRONG[name]
    op, variant = place.split()
    source = OPS[op].variant(variant).source.read_text()
    assert old in source
    judgement = wb.check(op, source.replace(old, new), variants=variant, seeds=1, seconds=3)
    assert [one.outcome for one in judgement] == [outcome], judgement
    assert judgement.first_failure.message


CANDIDATE = """
from pathlib import Path

from workbench.ops.steps import CudaStep
from workbench.ops.variant import CudaVariant
from workbench.toolchain.source import read_source

UNIT = read_source(r'''
extern "C" __global__ void one_thread(char *targets, const char *sources, const long long *places,
                                      const long long *pairs, int steps, int bytes) {
    const char *from = sources + 16 * (places[blockIdx.y] + pairs[2 * blockIdx.x] * steps);
    char *to = targets + 16 * (places[blockIdx.y] + pairs[2 * blockIdx.x + 1] * steps);
    for (int i = FIRST; i < bytes; i++) to[i] = from[i];
}
''')


def declare(op):
    op.add(CudaVariant(
        op="copy_blocks", name="one_thread", idea="", source=Path(UNIT.name), text=UNIT, layouts=("any",),
        dtypes=("any",),
        steps=(CudaStep(
            kernel="one_thread",
            grid=lambda config, problem: (problem.num_pairs, problem.num_caches),
            block=lambda config, problem: (1,),
            arguments={
                "targets": lambda config, problem, tensors: tensors.target_memory.base,
                "sources": lambda config, problem, tensors: tensors.source_memory.base,
                "places": lambda config, problem, tensors: tensors.source_memory.places,
                "steps": lambda config, problem, tensors: tensors.source_memory.page_steps,
                "bytes": lambda config, problem, tensors: problem.page_bytes,
            },
        ),),
    ))
"""


@pytest.mark.parametrize(("first", "outcome"), [("0", "ok"), long_if(True, "1", "wrong_result")])
def test_a_file_declares_variants_of_a_described_op(tmp_path, first: str, outcome: str):
    path = tmp_path / "candidate.py"
    path.write_text(CANDIDATE.replace("FIRST", first))
    (verdict,) = wb.check("copy_blocks", path, seeds=1)
    assert (verdict.variant, verdict.outcome) == ("one_thread", outcome), verdict
    path.write_text("def declare(op): ...")
    assert wb.check("copy_blocks", path).outcome == "no_kernel"


def test_the_command(tmp_path):
    source = OPS["swap_blocks"].variant("cuda_vectors").source.read_text()
    path = tmp_path / "candidate.cu"
    path.write_text(source)
    asked = ["check", "swap_blocks", "--seeds", "1", "--json"]
    assert CliRunner().invoke(main, [*asked, "--variant", "torch"]).exit_code == 0
    assert CliRunner().invoke(main, [*asked, "--candidate", str(path)]).exit_code == 0
    path.write_text(source.replace("load(from + offset)", "load(from)"))
    done = CliRunner().invoke(main, [*asked, "--candidate", str(path)])
    assert done.exit_code == OUTCOMES["wrong_result"][0]
    assert json.loads(done.output)["outcome"] == "wrong_result"
