"""Every variant of every op on every named case that it reads: right, and without a finding.

Those of paged_attention are beside its grid.
"""

import example_ops
import pytest

OPS = [op for op in example_ops.OPS.values() if op.name != "paged_attention"]
RUNS = [
    pytest.param(variant, case, id=f"{variant}-{name}")
    for op in OPS
    for variant in op.variants
    for name, case in op.cases.items()
    if variant.able(variant.machine_problem(case))
]


@pytest.mark.parametrize(("variant", "case"), RUNS)
@pytest.mark.sampled(6)
def test_every_case(variant, case, judge):
    problem = variant.machine_problem(case)
    verdict = judge(variant, variant.default_config(problem), case, checks=True, arch=problem.arch)
    assert verdict.ok, verdict
