"""The groups of settings: what is normalised, what is refused, and what comes as a credential."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.settings.notify import EmailSettings, NotifySettings, WebhookSettings
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


MAIL = {"host": "mail.example", "sender": "a@lab.example", "recipients": ["b@lab.example"]}
HOOK = {"url": "https://chat.example/hook"}


@pytest.mark.parametrize(
    ("model", "right", "wrong"),
    [
        (EmailSettings, MAIL, {"security": "none"}),
        (EmailSettings, MAIL, {"user": "x"}),
        (EmailSettings, MAIL, {"sender": "a@lab.example\r\nBcc: c@evil.example"}),
        (EmailSettings, MAIL, {"recipients": ["Name <a@lab.example>"]}),
        (EmailSettings, MAIL, {"host": "mail.example\r\nX"}),
        (WebhookSettings, HOOK, {"url": "http://chat.example/hook"}),
        (WebhookSettings, HOOK, {"url": "https://user:password@chat.example/hook"}),
        (WebhookSettings, HOOK, {"secret": "short"}),
        (WebhookSettings, HOOK, {"secret": "whsec_no base64!"}),
        (NotifySettings, {"email": {"it": MAIL}}, {"email": {"It Department": MAIL}}),
    ],
)
def test_channel_settings_that_are_refused(model, right, wrong):
    model.model_validate(right)
    with pytest.raises(ValidationError) as caught:
        model.model_validate(right | wrong)
    assert "user:password" not in str(caught.value)


def test_ports_follow_the_encryption():
    def port(**fields):
        return EmailSettings.model_validate(MAIL | fields).real_port

    assert (port(), port(security="tls"), port(port=2525)) == (587, 465, 2525)
    assert port(security="none", host="localhost") == 25
