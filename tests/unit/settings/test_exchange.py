from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.settings.exchange import ExchangeSettings, OAuthSettings

BASIC = {"grant": "basic", "username": "u", "password": "p"}


def settings(**changes: Any) -> ExchangeSettings:
    given = {"base_url": "https://a.example/api", "lab_codes_url": "https://codes.example/", "laboratory": "g", "oauth": BASIC}
    return ExchangeSettings.model_validate({**given, **changes})


def test_addresses_are_normalised_but_the_callback() -> None:
    assert (settings().base_url, settings().lab_codes_url) == ("https://a.example/api/", "https://codes.example")
    assert settings(base_url="https://a.example").base_url == "https://a.example/"
    given = {"auth_url": "https://a.example/", "client_id": "c", "redirect_uri": "https://lab.example/cb/"}
    found = OAuthSettings.model_validate({"grant": "authorization_code", **given})
    assert (found.redirect_uri, found.auth_url) == ("https://lab.example/cb/", "https://a.example")


@pytest.mark.parametrize(
    ("grant", "needed"),
    [
        ("password", "needs auth_url, client_id, username; set them too"),
        ("authorization_code", "needs auth_url, client_id, redirect_uri; set them too"),
        ("client_credentials", "needs auth_url, client_id; set them too"),
        ("basic", "needs username; set it too"),
        (None, "Field required"),
    ],
)
def test_grant_lists_required_settings(grant: str | None, needed: str) -> None:
    with pytest.raises(ValidationError, match=needed):
        OAuthSettings.model_validate({"grant": grant} if grant else {"username": "u", "password": "p"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base_url": "a.example"}, "not an http or https address"),
        ({"base_url": "https://u:p@a.example"}, "without a user name"),
        ({"base_url": "http://a.example/"}, "base_url would send tokens unencrypted; use https"),
        ({"oauth": {**BASIC, "auth_url": "http://a.example"}}, "oauth.auth_url would send"),
        ({"timeout": 5}, "must not be longer than timeout"),
        ({"paths": {"read": "fhir/{resource}"}}, "read must contain {id}"),
        ({"paths": {"read": "fhir/{id}/{other}"}}, "unknown placeholder {other}"),
        ({"paths": {"read": "fhir/{id"}}, "braces"),
    ],
)
def test_invalid_setting_reported_with_hint(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**changes)
    assert expected in str(caught.value)


def test_plain_http_limited_to_loopback_unless_allowed() -> None:
    assert settings(base_url="http://127.0.0.1:8480").base_url == "http://127.0.0.1:8480/"
    assert settings(base_url="http://sandbox:8480", allow_plain_http=True).base_url == "http://sandbox:8480/"


def test_values_of_another_form_are_refused() -> None:
    for valid in (
        *({"laboratory": "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"}, {"laboratory": "LAB_1.a"}),
        *({"second_labels_system": "urn:oid:1.2.3"}, {"contracts": {"12/2024 (A)": {"counterparty": "guid-1"}}}),
    ):
        assert settings(**valid)
    for wrong in (
        *({"laboratory": ""}, {"laboratory": "our guid"}, {"laboratory": "guid/1"}, {"laboratory": "-guid"}),
        *({"second_labels_system": "second"}, {"second_labels_system": "http://codes example"}),
        *({"contracts": {" ": {}}}, {"contracts": {"<contract": {}}}, {"contracts": {"code>": {}}}),
        *({"contracts": {"C-1": {"counterparty": "<guid>"}}}, {"base_url": "https://a.example/<api>"}),
    ):
        with pytest.raises(ValidationError):
            settings(**wrong)
