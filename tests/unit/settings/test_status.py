"""[status.oidc] and [status.proxy]: off by themselves, and complete where they are on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.settings.status import StatusSettings

OIDC = {"issuer": "https://id.example/", "client_id": "page", "public_url": "https://lab.example/"}


def test_ways_to_sign_in_are_read() -> None:
    oidc = StatusSettings.model_validate({"password": False, "oidc": OIDC})
    assert (oidc.password, oidc.oidc.is_on, oidc.proxy.is_on) == (False, True, False)
    assert (oidc.oidc.issuer, oidc.oidc.public_url) == ("https://id.example", "https://lab.example")
    by_proxy = {"header": "X-User", "trusted_addresses": ["10.0.0.5", "fd00::/8"]}
    proxy = StatusSettings.model_validate({"password": False, "proxy": by_proxy}).proxy
    assert [str(each) for each in proxy.trusted_networks] == ["10.0.0.5/32", "fd00::/8"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": False},
        {"oidc": {"issuer": "https://id.example"}},
        {"oidc": {**OIDC, "issuer": "http://id.example"}},
        {"oidc": {**OIDC, "public_url": "https://lab.example/status"}},
        {"oidc": {**OIDC, "public_url": "https://lab.example?x"}},
        {"oidc": {**OIDC, "scope": "profile"}},
        {"oidc": {**OIDC, "roles": {"staff": "owner"}}},
        {"proxy": {"header": "X-User"}},
        {"proxy": {"header": "X User", "trusted_addresses": ["10.0.0.5"]}},
        {"proxy": {"header": "X-User", "trusted_addresses": ["10.0.0.5/8"]}},
    ],
)
def test_incomplete_way_to_sign_in_is_rejected(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        StatusSettings.model_validate(wrong)
