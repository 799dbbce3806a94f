"""Which address of lab-api is asked, and whether it is asked at all."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.api_health import build_api_health
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.monitoring import MonitoringSettings

PUBLIC = "https://lab.example/lab/v1"


@pytest.mark.parametrize(
    ("api", "monitoring", "own"),
    [
        ({}, {}, None),
        ({"catalogue": "/srv/catalogue"}, {}, None),
        ({"public_url": PUBLIC}, {}, "http://127.0.0.1:8482/"),
        ({"public_url": PUBLIC, "host": "0.0.0.0"}, {}, "http://127.0.0.1:8482/"),
        ({"public_url": PUBLIC, "host": "::", "port": 9}, {}, "http://[::1]:9/"),
        ({"public_url": PUBLIC, "host": "10.0.0.5"}, {}, "http://10.0.0.5:8482/"),
        ({"public_url": PUBLIC, "port": 0}, {}, None),
        ({"public_url": PUBLIC}, {"api_address": "http://10.0.0.6:81"}, "http://10.0.0.6:81/"),
        ({"tokens": ({"name": "exchange", "sha256": "0" * 64},)}, {}, "http://127.0.0.1:8482/"),
    ],
)
def test_own_address_follows_from_settings(api: dict[str, Any], monitoring: dict[str, Any], own: str | None) -> None:
    health = build_api_health(ApiSettings(**api), MonitoringSettings(**monitoring), proxy=None)
    assert (None if health is None else health.own) == own


@pytest.mark.parametrize(
    ("api", "monitoring", "public"),
    [
        ({"public_url": PUBLIC}, {}, f"{PUBLIC}/"),
        ({"public_url": PUBLIC}, {"public_api": False}, None),
        ({"tokens": ({"name": "exchange", "sha256": "0" * 64},)}, {}, None),
    ],
)
def test_public_address_asked_only_where_wanted(api: dict[str, Any], monitoring: dict[str, Any], public: str | None) -> None:
    health = build_api_health(ApiSettings(**api), MonitoringSettings(**monitoring), proxy=None)
    assert health is not None
    assert health.public == public
