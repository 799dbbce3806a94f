"""[status.oidc] and [status.proxy]: off by themselves, and complete where they are on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.settings.status import StatusSettings

OIDC = {"issuer": "https://id.example/", "client_id": "page", "public_url": "https://lab.example/"}


def test_other_ways_are_off_by_default():
    settings = StatusSettings()
    assert (settings.password, settings.oidc.is_on, settings.proxy.is_on) == (True, False, False)


def test_oidc_keeps_addresses_without_final_slash():
    settings = StatusSettings.model_validate({"oidc": OIDC})
    assert settings.oidc.is_on
    assert (settings.oidc.issuer, settings.oidc.public_url) == ("https://id.example", "https://lab.example")


def test_single_address_is_a_network():
    proxy = StatusSettings.model_validate({"proxy": {"header": "X-User", "trusted_addresses": ["10.0.0.5", "fd00::/8"]}}).proxy
    assert [str(each) for each in proxy.trusted_networks] == ["10.0.0.5/32", "fd00::/8"]


@pytest.mark.parametrize("other", [{"oidc": OIDC}, {"proxy": {"header": "X-User", "trusted_addresses": ["10.0.0.5"]}}])
def test_password_may_be_off_beside_another_way(other: dict[str, Any]):
    assert not StatusSettings.model_validate({"password": False, **other}).password


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
