"""Exact comparison of right kernels: every variant of every built-in op in every case, which must never differ.

    python -m benchmarks.exact_grid --configs 2

Each variant runs in its untuned configuration and is compared with the op's formula in torch. Paged attention has
further cases: its features, and caches of eight and four bits. Then other legal configurations are compared with the
untuned one on the first case, where no reference is needed.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from workbench import ops
from workbench.analysis.exact import ExactAnswer, compared
from workbench.errors import ConfigurationError
from workbench.ops import registry
from workbench.ops.exact_runs import drawn, reference_side, side_of
from workbench.ops.selection import fitted
from workbench.ops.variant import TorchVariant

_ALL = {"sinks": True, "sliding_window": 20, "alibi": True}
_FEATURES: tuple[dict[str, Any], ...] = (
    {"sinks": True}, {"sliding_window": 20}, {"alibi": True}, _ALL, {"soft_cap": 30.0},
    *({"kv_cache_dtype": kind, "scales": scales} for kind in ("fp8_e4m3", "fp8_e5m2", "int8")
      for scales in ("tensor", "head", "token")),
    {"kv_cache_dtype": "fp8_e4m3", **_ALL}, {"kv_cache_dtype": "nvfp4"},
)  # fmt: skip


def cases_of(op: Any) -> list[Any]:
    """Return the cases of an op, and further ones of paged attention."""
    cases = list(op.cases.values())
    if op.name == "paged_attention":
        small = {"seq_lens": (1, 15, 33), "num_heads": 4, "num_kv_heads": 2, "head_size": 64, "dtype": "float16"}
        cases += [cases[0].override(name="features", **small, **features) for features in _FEATURES]
    return cases


def beside_the_formula(op: Any) -> Iterator[tuple[str, ExactAnswer]]:
    """Yield the answer for each variant in each case that it takes."""
    formula = next(one for one in op.variants if isinstance(one, TorchVariant))
    for given in cases_of(op):
        for variant in (one for one in op.variants if not isinstance(one, TorchVariant)):
            case = fitted(variant, given)
            problem = variant.machine_problem(case)
            if not _able(variant, problem):
                continue
            config = variant.default_config(problem)
            reference = reference_side(lambda number, case=case: drawn(case, number), formula, config)
            yield f"{variant} on {case.label}", compared(reference, side_of(variant, config, case), seconds=5)


def beside_the_untuned(op: Any, count: int) -> Iterator[tuple[str, ExactAnswer]]:
    """Yield the answer for some configurations of each variant on the op's first case."""
    for variant in (one for one in op.variants if not isinstance(one, TorchVariant)):
        case = fitted(variant, next(iter(op.cases.values())))
        problem = variant.machine_problem(case)
        if not _able(variant, problem):
            continue
        usual = variant.default_config(problem)
        others = [one for one in variant.configurations(problem) if one != usual]
        for config in random.Random(0).sample(others, min(count, len(others))):
            words = " ".join(f"{name}={value}" for name, value in config.items())
            answer = compared(side_of(variant, usual, case), side_of(variant, config, case), seconds=5)
            yield f"{variant} {words} beside the untuned one", answer


def _able(variant: Any, problem: Any) -> bool:
    try:
        return variant.able(problem)
    except ConfigurationError:  # not one configuration is legal
        return False


def main() -> None:
    """Print each answer that is not "the same computation", and the counts by op."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", default=sorted(registry.offered()))
    parser.add_argument("--configs", type=int, default=2, help="further configurations of each variant")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for op in map(ops.get, options.ops):
        for kind, answers in (
            ("formula", beside_the_formula(op)), ("configurations", beside_the_untuned(op, options.configs))
        ):  # fmt: skip
            for words, answer in answers:
                said = {True: "the same", False: "differs", None: "no answer"}[answer.same]
                counts[f"{op.name}, {kind}", said] += 1
                if not answer.same:
                    print("\n    ".join([f"{words}: {answer}", *answer.difference]), flush=True)
        for (name, said), count in counts.items():
            if name.startswith(f"{op.name},"):
                print(f"{name}: {said} {count}", flush=True)
    total = Counter[str]()
    for (_, said), count in counts.items():
        total[said] += count
    print(", ".join(f"{said} {count}" for said, count in total.items()))


if __name__ == "__main__":
    main()
