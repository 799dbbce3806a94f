"""Hints."""

import pytest

from lab_agent.errors import did_you_mean


@pytest.mark.parametrize(
    ("given", "hint"), [("efective", "did you mean 'effective'?"), ("001.0011", "did you mean '001.001'?"), ("tls", ""), ("", "")]
)
def test_did_you_mean_names_the_closest_known_name(given: str, hint: str) -> None:
    assert did_you_mean(given, {"effective", "issued", "001.001", "lis"}) == hint
