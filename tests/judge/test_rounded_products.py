"""A wrong product of float32 names TF32 and its line; one that is wrong for another reason does not."""

from __future__ import annotations

from rounded_products import product

import workbench as wb

WORDS = "float32 is multiplied in TF32 at rounded_products.py:12"


def test_a_product_in_tf32_is_named():
    compared = {trial.variant: (trial.outcome, trial.message) for trial in wb.compare(product).trials}
    judged = {verdict.variant: (verdict.outcome, verdict.message) for verdict in wb.check(product, seeds=1)}
    for found in (compared, judged):
        assert {name: outcome for name, (outcome, _) in found.items() if name != "torch"} == {
            "rounded": "wrong_result", "exact": "ok", "doubled": "wrong_result",
        }  # fmt: skip
        assert [name for name, (_, message) in found.items() if WORDS in message] == ["rounded"]
