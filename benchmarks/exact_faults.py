"""Planted faults: how many exact comparison tells from the right kernel, and how many the tolerance refuses.

    python -m benchmarks.exact_faults --ptx 46

The faults are changes in the CUDA C++ and Triton sources of paged attention, in the small programs of
``tests/analysis``, and single slips in PTX by ``tests/mutants``, at random places of the kernels of several ops. A slip
counts as a fault if the error of its results is more than ten times the right kernel's, and the machine runs it to its
end. Each is compared on three draws of the inputs as `workbench check --exact` does, whether the tolerance passes it
or not.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from workbench import ops
from workbench.analysis.exact import ExactAnswer, RingTensor, Side, compared, elements, raw
from workbench.errors import KernelFault, KernelTimeout, UnsupportedInstructionError
from workbench.launch.sim import Simulator, machine_kernel
from workbench.ops.declared.contract import TOLERANCE
from workbench.ops.exact_runs import reference_side
from workbench.ops.variant import TorchVariant
from workbench.ptx import PtxSyntaxError
from workbench.toolchain import compile_cuda_module

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT / "tests"), str(CHECKOUT / "tests" / "analysis")]

import test_exact_programs as programs  # noqa: E402
from mutants.ptx import Mutants, Setting, judge_of, judge_of_bits  # noqa: E402

Results = Mapping[str, torch.Tensor]
_CLEAR = 10.0
"""Error, as a multiple of the right kernel's, from which a slip in PTX counts as a fault."""


class Changed(Simulator):
    """A simulator that launches other PTX in the place of ``original``, on elements or on floats, and keeps kernels."""

    def __init__(self, original: str = "", changed: str = "", exact: bool = False):
        super().__init__()
        self.original, self.changed, self.exact = original, changed, exact
        self.kernels: list[Any] = []

    def launch(self, kernel: Any, *launch: Any, **named: Any) -> Any:
        """Run the kernel, or its substitute."""
        if kernel.ptx == self.original:
            kernel = replace(kernel, ptx=self.changed)
        self.kernels.append(kernel)
        return super().launch(kernel, *launch, exact=self.exact, instruction_limit=20_000_000, **named)


class Subject:
    """A kernel of some op on small inputs, and its reference in torch."""

    name: str

    def run(self, seed: int, device: Changed) -> Results:
        """Return the outputs for the inputs of a seed."""
        raise NotImplementedError

    def wanted(self, seed: int) -> tuple[Results, set[str]]:
        """Return the reference's elements, and the operators that it computes with."""
        raise NotImplementedError

    def error(self, results: Results) -> tuple[float, bool]:
        """Return the largest error of the first seed's results, and whether the tolerance passes them."""
        raise NotImplementedError

    @property
    def setting(self) -> Setting:
        """Setting of the mutants of its PTX."""
        raise NotImplementedError

    def answer(self, original: str = "", changed: str = "") -> ExactAnswer:
        """Return the answer of exact comparison."""

        def wanted(seed: int, _: Results, side: Side) -> Results:
            results, used = self.wanted(seed)
            side.operators |= used
            return results

        def launched(seed: int, _: Results, side: Side) -> Results:
            device = Changed(original, changed, exact=True)
            found = self.run(seed, device)
            side.take_kernels([machine_kernel(kernel) for kernel in device.kernels])
            return {name: elements(found[name]) for name in reference.draw(seed)}

        reference = Side(wanted)
        return compared(reference, Side(launched))


@dataclass(frozen=True)
class Program(Subject):
    """One of the small programs in float32 of the tests."""

    name: str
    text: str = programs.SOURCE

    def run(self, seed: int, device: Changed) -> Results:
        """Return the output for the inputs of a seed."""
        given = programs.inputs(self.name, seed)
        kernel = compile_cuda_module(self.text, arch="sm_80").kernels[self.name]
        return {"out": programs.launched_on(device, self.name, given, kernel)}

    def wanted(self, seed: int) -> tuple[Results, set[str]]:
        """Return the reference's elements, and the operators that it computes with."""
        used: set[str] = set()
        given = (RingTensor.of(one, used) for one in programs.inputs(self.name, seed))
        return {"out": raw(programs.REFERENCES[self.name.partition("_")[0]](*given))}, used

    def error(self, results: Results) -> tuple[float, bool]:
        """Return the largest error of the first seed's results, and whether the tolerance of float32 passes them."""
        given = (one.double() for one in programs.inputs(self.name, 0))
        wanted = programs.REFERENCES[self.name.partition("_")[0]](*given)
        error = (results["out"].double() - wanted).abs().nan_to_num(float("inf"))
        bound = TOLERANCE["float32"] * (wanted.abs() + wanted.square().mean().sqrt())
        return float(error.max()), bool((error <= bound).all())

    @property
    def setting(self) -> Setting:
        """Setting of the mutants of its PTX."""

        def compute(device: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
            kernel = compile_cuda_module(self.text, arch="sm_80").kernels[self.name]
            out = programs.launched_on(device, self.name, programs.inputs(self.name, 0), kernel, **options)
            return out, out

        return Setting(self.name, "float32", (judge_of_bits(compute),))


@dataclass(frozen=True)
class OpKernel(Subject):
    """A variant of a built-in op in one configuration on one case."""

    variant: Any
    config: Mapping[str, Any]
    case: Any

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the op and the variant."""
        return f"{self.variant.op}/{self.variant.name}"

    def run(self, seed: int, device: Changed) -> Results:
        """Return the outputs for the inputs of a seed."""
        case = self.case.override(seed=seed)
        problem = case.problem(self.config)
        tensors = case.inputs(problem)
        self.variant.run(self.config, problem, tensors, device)
        return {**tensors.named(), "checked": tensors.out}

    def wanted(self, seed: int) -> tuple[Results, set[str]]:
        """Return the reference's elements, and the operators that it computes with."""
        return _formula(self.variant.op, self.case, tuple(sorted(self.config.items())), seed)

    def error(self, results: Results) -> tuple[float, bool]:
        """Return the largest error of the first seed's results as a part of its bound, and whether the case passes."""
        check = self.case.override(seed=0).check(results["checked"])
        return check.max_error / check.bound, check.ok

    @property
    def setting(self) -> Setting:
        """Setting of the mutants of its PTX."""
        return Setting(self.name, "", (judge_of(self.variant, self.config, self.case, again=True),))


@functools.cache
def _formula(op: str, case: Any, config: tuple, seed: int) -> tuple[Results, set[str]]:
    formula = next(one for one in ops.get(op).variants if isinstance(one, TorchVariant))
    other = case.override(seed=seed)
    side = reference_side(lambda _: other, formula, dict(config))
    return side.draw(0), side.operators


# ---- faults in sources

THREAD_GROUP = {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 4, "V_VEC_SIZE": 8, "NUM_THREADS": 128}
PARTITIONED = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}
PAGED = {
    "cuda_thread_group": (THREAD_GROUP, "x"),
    "cuda_partitioned": (PARTITIONED, "x"),
    "triton_online_softmax": ({"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "num_warps": 2, "num_stages": 2}, "x"),
    "cuda_grouped_mma": ({**PARTITIONED, "TILE_TOKENS": 16, "NUM_STAGES": 3}, "nhd"),
}
_SCALED = {"kv_cache_dtype": "fp8_e4m3", "scales": "tensor"}
_LAST = "scaled_query[HEAD_SIZE - 1] * to_float(keys[(HEAD_SIZE - 1) / X * (BLOCK_SIZE * X) + safe_slot * X"
SOURCES: Mapping[str, list[tuple[str, str, str]]] = {
    "cuda_thread_group": [
        ("last token left out", "const int seq_len = seq_lens[seq];", "const int seq_len = max(seq_lens[seq] - 1, 1);"),
        ("a short log2 e", "LOG2_E = 1.4426950408889634f", "LOG2_E = 1.4426f"),
        ("no scale", "const float factor = scale * LOG2_E", "const float factor = LOG2_E"),
        ("mask one off", "score = token < seq_len ?", "score = token <= seq_len ?"),
        ("wrong KV head", "kv_head = head / (num_heads / num_kv_heads)", "kv_head = head % num_kv_heads"),
        (
            "last value left out", "const int count = seq_len - page * BLOCK_SIZE;",
            "const int count = seq_len - page * BLOCK_SIZE - (seq_len > 1);",
        ),
        (
            "a value twice", "    accumulate_page(rows, logits + page * BLOCK_SIZE, values, lane, count);",
            "    accumulate_page(rows, logits + page * BLOCK_SIZE, values, lane, count + 0);\n"
            "    if (page == 5) accumulate_page(rows, logits + page * BLOCK_SIZE, values, lane, 1);",
        ),
        (
            "maximum of the own warp", "i < NUM_WARPS; ++i) max_score = fmaxf(max_score, warp_max[i]);",
            "i < 0; ++i) max_score = fmaxf(max_score, warp_max[i]);",
        ),
        (
            "an element too heavy", "score = sum_over_lanes<1, THREAD_GROUP_SIZE>(score);",
            f"score += group_lane == 0 ? {_LAST} + (HEAD_SIZE - 1) % X]) * 0.03125f : 0.f;"
            " score = sum_over_lanes<1, THREAD_GROUP_SIZE>(score);",
        ),
        (
            "a warp's sum left out", "i < NUM_WARPS; ++i) total += warp_sum[i];",
            "i < NUM_WARPS - (num_pages > 9); ++i) total += warp_sum[i];",
        ),
    ],
    "cuda_thread_group, e4m3": [
        ("no scale of keys", "scale * LOG2_E * key_scales.common()", "scale * LOG2_E"),
        ("no scale of values", "value_scales.common() / total", "1.f / total"),
        (
            "scores 1.0001 times", "const float factor = scale * LOG2_E * key_scales.common();",
            "const float factor = scale * LOG2_E * key_scales.common() * 1.0001f;",
        ),
    ],
    "cuda_partitioned": [
        ("partitions not rescaled", "const float weight = exp2f(stat[r][j].x - new_max);", "const float weight = 1.f;"),
        ("warps not rescaled", "const float rescale = exp2f(max[w * apart] - all.max);", "const float rescale = 1.f;"),
        (
            "last partition left out", "if (at >= PIECES || partition >= end) continue;",
            "if (at >= PIECES || partition >= end - (end > 2)) continue;",
        ),
        (
            "a token of two partitions", "min(((int)blockIdx.z + 1) * PARTITION_SIZE, seq_len);",
            "min(((int)blockIdx.z + 1) * PARTITION_SIZE + 1, seq_len);",
        ),
        ("sum not rescaled", "sum = sum * rescale + weight;", "sum = sum + weight;"),
        ("values not rescaled", "rows[i] = rows[i] * rescale + dot(w, v);", "rows[i] = rows[i] + dot(w, v);"),
    ],
    "triton_online_softmax": [
        ("values not rescaled", "acc = acc * rescale +", "acc = acc +"),
        ("mask one off", "valid = token < seq_len", "valid = token <= seq_len"),
        (
            "the page of the tile's first token", "block = tl.load(table + first // BLOCK_SIZE",
            "block = tl.load(table + start // BLOCK_SIZE + 0 * first",
        ),
    ],
    "cuda_grouped_mma": [
        ("mask one off", "8 * n + e % 2 >= end - first) score", "8 * n + e % 2 > end - first) score"),
        ("sum not rescaled", "      sum[q] *= rescale;", "      sum[q] *= 1.f;"),
    ],
}  # fmt: skip


def paged(name: str, variant: Any = None) -> OpKernel:
    """Return a variant of paged attention on sequences of four lengths."""
    plain, _, scaled = name.partition(", ")
    config, layout = PAGED[plain]
    if scaled:
        config = {**config, "VEC_SIZE": 8, "NUM_THREADS": 64}
    features = _SCALED if scaled else {}
    case = ops.get("paged_attention").case(
        "small", seq_lens=(1, 17, 150, 300), num_heads=4, num_kv_heads=2, head_size=32, dtype="float16",
        layout=layout, **features,
    )  # fmt: skip
    return OpKernel(variant or ops.variant("paged_attention", plain), config, case)


def with_change(variant: Any, right: str, wrong: str, folder: Path) -> Any:
    """Return a variant whose source, or a header that it includes, has ``wrong`` in the place of ``right``."""
    source = Path(variant.source)
    text = source.read_text()
    if source.suffix == ".py":
        return _changed_module(source, text, right, wrong, folder)
    headers = [] if right in text else [one for one in source.parent.glob("common/*.cuh") if right in one.read_text()]
    for header in headers:
        inlined = header.read_text().replace("#pragma once", "")
        text = text.replace(f'#include "common/{header.name}"', inlined)
    if right not in text:
        raise ValueError(f"{variant}: its source has no {right!r}")
    return variant.with_source(text.replace(right, wrong))


def _changed_module(source: Path, text: str, right: str, wrong: str, folder: Path) -> Any:
    if right not in text:
        raise ValueError(f"{source}: it has no {right!r}")
    name = f"changed_{len(list(folder.iterdir()))}"
    path = folder / f"{name}.py"
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VARIANT


def in_sources(folder: Path) -> Iterator[tuple[str, Subject]]:
    """Yield the faults in sources, each with what it is called."""
    for name, faults in SOURCES.items():
        for words, right, wrong in faults:
            variant = ops.variant("paged_attention", name.partition(",")[0])
            yield f"{name}: {words}", paged(name, with_change(variant, right, wrong, folder))
    for name, changes in programs.FAULTS.items():
        for right, wrong in changes:
            begin = 0 if right.startswith("1.44") else programs.SOURCE.index(f"void {name}(")
            text = programs.SOURCE[:begin] + programs.SOURCE[begin:].replace(right, wrong, 1)
            yield f"{name}: {wrong.splitlines()[0]}", Program(name, text)


# ---- faults in PTX


def subjects() -> list[Subject]:
    """Return the right kernels in whose PTX slips are made."""
    causal, contiguous = ops.get("causal_attention"), ops.get("contiguous_attention")
    cases = {
        causal: causal.case("gqa", num_heads=2, num_kv_heads=1, head_size=32, num_tokens=33, dtype="float16"),
        contiguous: next(iter(contiguous.cases.values())),
    }
    found: list[Subject] = []
    for op, name in (
        (causal, "cuda_mma"), (contiguous, "cuda_register_softmax"), (contiguous, "triton_online_softmax")
    ):  # fmt: skip
        variant = op.variant(name)
        found.append(OpKernel(variant, variant.default_config(cases[op].problem()), cases[op]))
    return [*found, *(paged(name) for name in SOURCES), *(Program(name) for name in programs.SAME)]


def in_ptx(count: int, seed: int) -> Iterator[tuple[str, Subject, str, str]]:
    """Yield slips in PTX that are faults, in turns of the kernels: words, the right kernel, its PTX and the changed."""
    draws = [slips(subject, random.Random(f"{subject.name} {seed}")) for subject in subjects()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*draws))
    yield from itertools.islice(filter(None, turns), count)


def slips(subject: Subject, rng: random.Random) -> Iterator[tuple[str, Subject, str, str]]:
    """Yield slips in a kernel's PTX that are faults: words, the right kernel, its PTX and the changed."""
    mutants = Mutants(subject.setting)
    kinds = ["multiplication", "arithmetic", "operand", "shuffle", "comparison", "load"]
    drawn = [mutants.drawn(kind, rng) for kind in kinds]
    right, _ = subject.error(subject.run(0, Changed()))
    for mutant in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*drawn))):
        try:
            error, _ = subject.error(subject.run(0, Changed(mutant.original, mutant.changed)))
        except (KernelFault, KernelTimeout, UnsupportedInstructionError, PtxSyntaxError):
            continue
        if error > _CLEAR * right or error != error:
            yield f"{subject.name}: {mutant}", subject, mutant.original, mutant.changed


# ---- the table


def outcome(subject: Subject, original: str = "", changed: str = "") -> tuple[str, bool]:
    """Return what exact comparison says of a fault, "told", "not told" or why not, and whether the tolerance passes."""
    found = subject.answer(original, changed)
    try:
        _, passes = subject.error(subject.run(0, Changed(original, changed)))
    except (KernelFault, KernelTimeout):
        passes = False
    return {False: "told", True: "not told", None: str(found)}[found.same], passes


def main() -> None:
    """Print each fault that is not told apart or that the tolerance passes, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptx", type=int, default=46, help="number of faults in PTX")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        ways: Iterator[tuple[str, Callable[[], tuple[str, bool]]]] = itertools.chain(
            ((words, functools.partial(outcome, subject)) for words, subject in in_sources(Path(folder))),
            ((words, functools.partial(outcome, *one)) for words, *one in in_ptx(options.ptx, options.seed)),
        )
        for words, look in ways:
            said, passes = look()
            counts.update(["faults", *(["told"] if said == "told" else []), *(["passes"] if passes else [])])
            if said != "told" or passes:
                print(f"{said}{', passes the tolerance' if passes else ''}: {words}", flush=True)
    refused = counts["faults"] - counts["passes"]
    print(f"{counts['faults']} faults: exact comparison tells {counts['told']}, the tolerance refuses {refused}")


if __name__ == "__main__":
    main()
