"""The steps of docs/container.md without a container engine: settings of `init`, secrets as files, and what each service gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab_agent.store.crypto import new_key
from tests.acceptance.deployment.test_compose import SERVICES, secrets
from tests.acceptance.deployment.test_dockerfile import environment_variables
from tests.acceptance.deployment.test_wheel import INIT
from tests.harness import forked_programs

GRANT = "--grant client_credentials --client-secret of-the-file"


def lab_agent(words: str, folder: Path, service: str, *, code: int = 0) -> str:
    """Runs a command with the variables of the image and of a service, and with the secrets of that service alone."""
    given = folder / f"run-{service}"
    given.mkdir(exist_ok=True)
    for target in secrets(service):
        (given / target).write_text((folder / "secrets" / target).read_text())
    ours = {name: value for name, value in environment_variables().items() if name.startswith("LAB_AGENT_")}
    ours |= {name: value for name, value in SERVICES[service]["environment"].items() if name.startswith("LAB_AGENT_")}
    ours |= {"LAB_AGENT_CONFIG": str(folder / "conf" / "lab-agent.toml"), "CREDENTIALS_DIRECTORY": str(given)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    done = forked_programs.run("lab_agent.cli", *words.split(), cwd=folder / "state", env=inherited | ours)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder with `conf`, `secrets` and `state` as the page makes them."""
    for name in ("conf", "secrets", "state"):
        (tmp_path / name).mkdir()
    file = tmp_path / "conf" / "lab-agent.toml"
    values = {"store.url": "sqlite:///of-the-secret.db", "store.encryption_keys": new_key(), "exchange.oauth.client_secret": "s3"}
    for name, value in values.items():
        (tmp_path / "secrets" / name).write_text(f"{value}\n")
    without_password = INIT.replace("--grant password", GRANT).replace("--username login --password secret", "")
    lab_agent(f"{without_password} --output {file}", tmp_path, "agent")
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("encryption_keys", "client_secret"))]
    assert len(kept) == len(lines) - 2
    file.write_text("".join(kept))
    return tmp_path


@pytest.mark.slow
def test_each_service_has_the_secrets_that_it_needs(prepared: Path) -> None:
    """Tables are beside the settings, and the state is apart."""
    assert {path.name for path in (prepared / "conf").iterdir()} == {"lab-agent.toml", "catalogue", "mappings"}
    assert {path.name for path in (prepared / "state").iterdir()} == {"lis"}
    lab_agent("db upgrade", prepared, "upgrade")
    assert (prepared / "state" / "of-the-secret.db").is_file(), "the secret wins over the file"
    assert "WRONG" not in lab_agent("check --offline", prepared, "agent")
    assert "exchange.oauth.client_secret" in lab_agent("check --offline", prepared, "upgrade", code=2)
