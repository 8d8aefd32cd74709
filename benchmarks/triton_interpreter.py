"""Our own Triton kernel under ``TRITON_INTERPRET=1``, as a peer of ``benchmarks.sim``.

Run as ``python -m benchmarks.triton_interpreter VARIANT CASE.json CONFIG.json`` with ``TRITON_INTERPRET=1``;
prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time

from workbench import ops
from workbench.ops.variant import TritonVariant


def main(variant_name: str, case_json: str, config_json: str) -> None:
    """Time one run of a variant, and print the seconds and the check as JSON."""
    op = ops.get("paged_attention")
    variant, config = op.variant(variant_name), json.loads(config_json)
    assert isinstance(variant, TritonVariant)
    case = op.restore_case(json.loads(case_json))
    problem = case.problem(config)
    tensors = case.inputs(problem)
    start = time.perf_counter()
    variant.jit(config, problem, tensors)
    seconds = time.perf_counter() - start
    check = case.check(tensors.out)
    print(json.dumps({"seconds": seconds, "max_error": check.max_error, "ok": check.ok}))


if __name__ == "__main__":
    main(*sys.argv[1:])
