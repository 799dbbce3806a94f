"""How much of a long test runs."""

from __future__ import annotations

import pytest

from tests.harness import proof


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1000), (0.05, 50), (0.0001, 3)])
def test_share_of_a_long_test(monkeypatch, share, expected):
    monkeypatch.setattr(proof, "SHARE", share)
    assert proof.share_of(1000, at_least=3) == expected
