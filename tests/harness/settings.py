"""Settings of an agent that works with the sandbox in one process."""

from __future__ import annotations

from typing import Any

from lab_agent.settings.root import Settings
from lab_sandbox.config import LABORATORY_GUID, TokenSettings
from tests.harness.orders import BASE

SERVICE_TOKENS = TokenSettings(allow_basic=True)
"""For the sandbox that these settings belong to: no request for a token comes between those that a test makes fail."""


def make_settings(**groups: Any) -> Settings:
    """Settings with these groups, and everything else that is required."""
    given = {
        "exchange": {
            "base_url": BASE,
            "allow_plain_http": True,
            "lab_codes_url": "http://codes.lab.example",
            "second_labels_system": "http://codes.lab.example/second-labels",
            "laboratory": LABORATORY_GUID,
            "oauth": {
                "grant": "basic",
                "auth_url": BASE,
                "client_id": "lab-agent",
                "username": "laboratory",
                "password": "demo-laboratory-password",
            },
            "contracts": {"C-100": {}, "C-200": {}},
        },
        "store": {"encryption_keys": ["none"]},
    }
    return Settings.model_validate({**given, **groups})
