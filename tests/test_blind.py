"""The statements of the GPU modules that no test executes are few, and each has its reason (simulated_gpu/blind.py)."""

from __future__ import annotations

import pytest
from simulated_gpu import blind


def test_the_list_names_statements_that_exist_with_a_reason_each():
    listed = blind.listed()
    assert len(listed) <= blind.MOST
    texts = {str(path.relative_to(blind.CHECKOUT)): set(blind.statements(path).values()) for path in blind.modules()}
    assert len(texts) > 20
    for (module, statement), reason in listed.items():
        assert statement in texts[module], f"{module} has no statement {statement!r}"
        assert len(reason.split()) > 2, f"{module}: {statement} has no reason"


@pytest.mark.long
def test_the_list_is_true():
    assert blind.main() == 0
