"""Which address of lab-api is asked, and whether it is asked at all."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.operations.api_health import build_api_health
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.groups import MonitoringSettings

PUBLIC = "https://lab.example/lab/v1"


TOKENS = {"tokens": ({"name": "exchange", "sha256": "0" * 64},)}


@pytest.mark.parametrize(
    ("api", "monitoring", "own", "public"),
    [
        ({}, {}, None, None),
        ({"catalogue": "/srv/catalogue"}, {}, None, None),
        ({"public_url": PUBLIC}, {}, "http://127.0.0.1:8482/", f"{PUBLIC}/"),
        ({"public_url": PUBLIC}, {"public_api": False}, "http://127.0.0.1:8482/", None),
        ({"public_url": PUBLIC, "host": "0.0.0.0"}, {}, "http://127.0.0.1:8482/", f"{PUBLIC}/"),
        ({"public_url": PUBLIC, "host": "::", "port": 9}, {}, "http://[::1]:9/", f"{PUBLIC}/"),
        ({"public_url": PUBLIC, "host": "10.0.0.5"}, {}, "http://10.0.0.5:8482/", f"{PUBLIC}/"),
        ({"public_url": PUBLIC, "port": 0}, {}, None, None),
        ({"public_url": PUBLIC}, {"api_address": "http://10.0.0.6:81"}, "http://10.0.0.6:81/", f"{PUBLIC}/"),
        (TOKENS, {}, "http://127.0.0.1:8482/", None),
    ],
)
def test_own_and_public_address_follow_from_settings(
    api: dict[str, Any], monitoring: dict[str, Any], own: str | None, public: str | None
) -> None:
    health = build_api_health(ApiSettings(**api), MonitoringSettings(**monitoring), proxy=None)
    assert (health.own, health.public) == (own, public) if health else (own, public) == (None, None)
