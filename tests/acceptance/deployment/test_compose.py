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
    """Whether a credential names a setting."""
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


def test_programs_start_after_schema_is_upgraded_and_tell_of_their_health() -> None:
    """Agent and API have the health check of the image; the API's asks its own port."""
    assert SERVICES["upgrade"]["command"] == ["db", "upgrade"]
    assert SERVICES["upgrade"]["restart"] == "no"
    assert SERVICES["upgrade"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    for name in ("agent", "api"):
        assert SERVICES[name]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
    assert {"database", "proxy"} <= {name for name in SERVICES if "healthcheck" in SERVICES[name]}
    assert SERVICES["api"]["environment"]["HEALTH_URL"] == "http://127.0.0.1:8482/healthz"
    assert "HEALTH_URL" not in SERVICES["agent"]["environment"]
    assert SERVICES["agent"]["environment"]["LAB_AGENT_MONITORING__API_ADDRESS"] == "http://api:8482"


def test_only_proxy_is_published_to_others() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    port = StatusSettings().port
    assert published == {"agent": [f"127.0.0.1:{port}:{port}"], "proxy": ["80:80", "443:443"]}
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert (SERVICES["database"]["networks"], SERVICES["proxy"]["networks"]) == (["store"], ["front"])
    text = (ROOT / "config" / "container" / "Caddyfile").read_text()
    assert "reverse_proxy api:8482" in text
    assert "{$API_DOMAIN} {" in text
    assert text.count("{") == text.count("}")
    assert SERVICES["proxy"]["healthcheck"]["test"][-1].rstrip("/") in text
    assert "./config/container/Caddyfile:/etc/caddy/Caddyfile:ro" in SERVICES["proxy"]["volumes"]


def test_names_that_are_used_are_declared() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        volumes = [volume.split(":")[0] for volume in service["volumes"] if not volume.startswith("./")]
        assert set(volumes) <= COMPOSE["volumes"].keys()
        named = {secret if isinstance(secret, str) else secret["source"] for secret in service.get("secrets", [])}
        assert named <= COMPOSE["secrets"].keys()
