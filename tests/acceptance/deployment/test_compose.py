"""compose.yaml, checked without a container engine: its structure, its files, and the settings that it passes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lab_agent.settings.root import Settings
from lab_agent.settings.sources import read_environment
from lab_agent.settings.status import StatusSettings
from tests.harness.paths import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("upgrade", "agent", "api")


def known(name: str) -> bool:
    model: Any = Settings
    for part in name.split("."):
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return False
        model = fields[part].annotation
    return True


def secrets(service: str) -> dict[str, str]:
    """The secrets of a service, by the name of the file that it sees."""
    return {each["target"]: each["source"] for each in SERVICES[service]["secrets"]}


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_without_privileges_and_secrets_in_its_environment(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert any(each.split(":")[0] == "/tmp" for each in service["tmpfs"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert name == "database" or service["cap_drop"] == ["ALL"]
    assert "privileged" not in service
    for variable, value in service.get("environment", {}).items():
        assert variable.endswith("_FILE") or not re.search("PASSWORD|SECRET|KEY|TOKEN", variable), variable
        assert "@" not in str(value)


@pytest.mark.parametrize("name", OURS)
def test_state_and_secrets_are_files(name: str) -> None:
    """The image declares the state as a volume; without a name, each start would leave one behind."""
    service = SERVICES[name]
    mounts = [*service["tmpfs"], *(each.partition(":")[2] for each in service["volumes"])]
    assert any(each.split(":")[0] == "/var/lib/lab-agent" for each in mounts)
    assert "./conf:/etc/lab-agent:ro" in service["volumes"]
    assert service["environment"]["CREDENTIALS_DIRECTORY"] == "/run/secrets"
    for target, source in secrets(name).items():
        assert known(target), target
        assert COMPOSE["secrets"][source]["file"].startswith("./secrets/")
    assert {"store.url", "store.encryption_keys"} <= secrets(name).keys()
    assert ("exchange.oauth.client_secret" in secrets(name)) == (name == "agent"), "only the agent signs in"
    source = read_environment(service["environment"], Settings.model_fields.keys())
    assert source.problems == ()
    assert all(known(setting) for setting in source.origins)
    awaited = {"database": "service_healthy"} if name == "upgrade" else {"upgrade": "service_completed_successfully"}
    assert service["depends_on"] == {other: {"condition": state} for other, state in awaited.items()}


def test_only_proxy_is_published_to_others() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    port = StatusSettings().port
    assert published == {"agent": [f"127.0.0.1:{port}:{port}"], "proxy": ["80:80", "443:443"]}
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert (SERVICES["database"]["networks"], SERVICES["proxy"]["networks"]) == (["store"], ["front"])
    assert "reverse_proxy api:8482" in (ROOT / "config" / "container" / "Caddyfile").read_text()
