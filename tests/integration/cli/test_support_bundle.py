"""The support bundle: what is in it, and by canaries that no patient and no secret is."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab_agent.cli.support_bundle import find_secrets
from lab_agent.queue.job_records import ServiceMessage
from lab_agent.settings.root import load_settings
from lab_agent.shared.ids import OrderKey, ReportKey
from tests.harness.notifications import LIS_DOWN, make_alert
from tests.integration.cli.conftest import KEY, Cli, LaboratoryFolder, make_order, make_received

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
NAME, BIRTH_DATE = "CanaryIvanova", "1971-02-03"
TOKEN_HASH = hashlib.sha256(b"canary").hexdigest()
SIGNING_SECRET = "whsec_" + base64.b64encode(b"canary-signing-secret-of-length").decode()
SECRETS = (
    *("hunter2", KEY, TOKEN_HASH, "canary-lis-password", "canary-lis-token", "canary-mail-password", "canary-hook-path"),
    *(SIGNING_SECRET, "canary-client-secret", "$argon2id$canary"),
)
MORE_SETTINGS = f"""
[[api.tokens]]
name = "clinic"
sha256 = "{TOKEN_HASH}"
[[api.basic]]
name = "clinic"
password_hash = "$argon2id$canary"
[lis.other]
adapter = "sql"
url = "postgresql://lis:canary-lis-password@127.0.0.1/lis"
api_token = "canary-lis-token"
[notify.webhook.chat]
url = "https://hooks.example/canary-hook-path"
secret = "{SIGNING_SECRET}"
[notify.email.it]
host = "127.0.0.1"
user = "agent"
password = "canary-mail-password"
sender = "agent@lab.example"
recipients = ["it@lab.example"]
"""


def store_patient(uow: Any) -> None:
    """Everything that is stored of a person, and an alert that may be told."""
    uow.orders.add(make_order("R1"))
    uow.vault.save_identity(OrderKey("R1"), f"{NAME} {BIRTH_DATE}".encode(), at=NOW)
    uow.vault.save_service_message(1, OrderKey("R1"), ServiceMessage(at=NOW, text=f"{NAME} is unknown"))
    uow.reports.add(make_received("P1"))
    uow.vault.save_reported_patient(ReportKey("P1"), f"{NAME} {BIRTH_DATE}".encode(), at=NOW)
    uow.alerts.open(make_alert(LIS_DOWN, "folder", detail="the folder is gone"))


@pytest.fixture
def canaries(lab: LaboratoryFolder) -> LaboratoryFolder:
    text = lab.config.read_text().replace('password = "hunter2"', 'password = "hunter2"\nclient_secret = "canary-client-secret"')
    lab.config.write_text(text.replace("[lis.folder]", '[lis]\ndefault = "folder"\n[lis.folder]') + MORE_SETTINGS)
    lab.write(store_patient)
    return lab


def members(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {each.name.removeprefix("lab-agent-support/"): archive.extractfile(each) for each in archive.getmembers()}
        return {name: content.read().decode() for name, content in found.items() if content is not None}


def make_bundle(cli: Cli, lab: LaboratoryFolder) -> dict[str, str]:
    log = lab.folder / "agent.log"
    log.write_text(
        f"Traceback: {NAME} was born on {BIRTH_DATE}\n"
        '{"event": "order held", "action": "order_held", "order": "R1"}\n'
        "2026-03-01T09:00:00Z [warning  ] call failed    action=call_failed token=canary-lis-token\n"
    )
    done = cli("support-bundle", "--to", "bundle.tar.gz", "--log", str(log))
    assert done.code == 0, done.err
    return members(lab.folder / "bundle.tar.gz")


def test_bundle_has_no_canary_and_says_how_it_is(cli: Cli, canaries: LaboratoryFolder) -> None:
    assert set(find_secrets(load_settings(canaries.config))) >= set(SECRETS) - {"canary-hook-path"}
    found = make_bundle(cli, canaries)
    assert [(name, each) for name, text in found.items() for each in (NAME, BIRTH_DATE, *SECRETS) if each in text] == []
    assert json.loads(found["settings.json"])["exchange"]["laboratory"] == "our-guid"
    assert "typer" in json.loads(found["versions.json"])["packages"]
    assert json.loads(found["schema.json"])["problem"] is None
    assert json.loads(found["status.json"])["numbers"]["orders"] == {"seen": 1}
    store = json.loads(found["store.json"])
    assert store["counts"]["reports"] == {"received": 1}
    assert [each["condition"] for each in store["alerts"]] == [LIS_DOWN.value]
    said, *lines = found["log.txt"].splitlines()
    assert said.endswith("1 lines of another form were left out")
    assert [line.partition("action")[0] for line in lines] == [
        '{"event": "order held", "',
        "2026-03-01T09:00:00Z [warning  ] call failed    ",
    ]


@pytest.mark.slow
def test_file_is_private_and_never_overwritten_nor_needs_a_database(cli: Cli, canaries: LaboratoryFolder) -> None:
    make_bundle(cli, canaries)
    file = canaries.folder / "bundle.tar.gz"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cli("support-bundle", "--to", "bundle.tar.gz").code == 2
    (canaries.folder / "lab.db").unlink()
    file.unlink()
    assert json.loads(make_bundle(cli, canaries)["schema.json"])["problem"]
