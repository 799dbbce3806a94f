"""`lab-agent audit …`, and what commands on users, keys and data leave in it."""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.audit_origin import find_origin
from lab_agent.crypto import Passwords, new_key
from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.report_records import ReportRecord
from tests.harness.paths import CATALOGUE
from tests.integration.cli.conftest import KEY

PASSWORD = "correct horse battery\n"


@pytest.fixture
def used(cli: Any, lab: Any) -> Any:
    """A laboratory where somebody has worked."""
    assert cli("user", "add", "anna", "--role", "operator", stdin=PASSWORD).code == 0
    assert cli("user", "role", "anna", "admin").code == 0
    assert cli("api-token", "create", "clinic").code == 0
    return lab


def actions(cli: Any, *options: str) -> list[str]:
    return [each["action"] for each in cli("audit", "list", "--json", *options).json()]


def test_commands_are_recorded_with_user_and_host(cli: Any, used: Any) -> None:
    found = cli("audit", "list", "--json").json()
    assert [each["action"] for each in found] == ["api_token_created", "user_role_changed", "user_added"]
    assert {(each["actor"], each["origin"], each["channel"]) for each in found} == {
        (find_origin().person, find_origin().user, "command")
    }
    assert (found[1]["subject"], found[1]["details"]) == ("anna", '{"role":"admin"}')


def test_person_is_who_signed_in(cli: Any, lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says it, and the environment where it does not: in the unit of `lab-agentctl`."""
    uid, user = lab.folder / "loginuid", pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr("lab_agent.audit_origin._LOGIN_UID", uid)
    for signed_in, sudo_user, person in (
        (None, "anna", "anna"),
        ("4294967295", "anna", "anna"),
        ("0", "anna", "root"),
        ("0", "", "root"),
    ):
        if signed_in is not None:
            uid.write_text(signed_in)
        monkeypatch.setenv("SUDO_USER", sudo_user)
        assert cli("api-token", "create", "clinic").code == 0
        found, *_ = cli("audit", "list", "--json").json()
        assert found["actor"] == person
        assert found["origin"].partition("@")[0] == (user if person == user else f"{person}/{user}")


RECORDED = {
    "user_added": "user add bob",
    "user_password_changed": "user password anna",
    "user_role_changed": "user role anna viewer",
    "user_reveal_changed": "user reveal anna --on",
    "user_removed": "user remove anna",
    "api_token_created": "api-token create other",
    "api_token_revoked": "api-token revoke clinic",
    "keys_rotated": "db rotate-keys",
    "database_compacted": "db compact --yes",
    "backup_made": "backup --folder backups",
    "catalogue_exported": "catalogue export tables",
    "support_bundle_written": "support-bundle --to bundle.tar.gz",
    "audit_exported": "audit export",
    "audit_notes_shown": "audit list --notes",
}


@pytest.mark.slow
def test_commands_record_the_person_that_by_names(cli: Any, used: Any) -> None:
    for action, words in RECORDED.items():
        cli(*words.split(), "--by", "carla", stdin=PASSWORD)
        (found,) = cli("audit", "list", "--action", action, "--actor", "carla", "--json").json()
        assert found["origin"] == find_origin().user, action


@pytest.mark.slow
def test_notices_and_restores_are_of_the_person(cli: Any, used: Any) -> None:
    assert cli("catalogue", "import", str(CATALOGUE), "--yes", "--by", "carla").code == 0
    item = "001.001"
    for command in (["stop", item, "--until", "12h"], ["delay", item, "--hours", "2", "--until", "12h"], ["clear", item]):
        done = cli("eta", *command, "--by", "carla")
        assert done.code == 0, done.err
    assert cli("backup", "--folder", "backups").code == 0
    (made,) = (used.folder / "backups").iterdir()
    assert cli("user", "remove", "anna").code == 0
    assert cli("restore", str(made), "--yes", "--by", "carla").code == 0
    found = actions(cli, "--actor", "carla")
    assert found == ["backup_restored", "notices_lifted", "notice_announced", "notice_announced", "catalogue_activated"]
    assert cli("audit", "verify").code == 0
    assert '"audit_known_to":9' in cli("audit", "list", "--json").json()[0]["details"]


def test_audit_is_filtered_and_verifies(cli: Any, used: Any) -> None:
    assert actions(cli, "--subject", "anna") == ["user_role_changed", "user_added"]
    assert actions(cli, "--action", "user_added") == ["user_added"]
    assert actions(cli, "--actor", "nobody") == actions(cli, "--since", "2099-01-01") == []
    assert len(actions(cli, "--until", "2099-01-01T00:00:00", "--limit", "2")) == 2
    done = cli("audit", "verify", "--json").json()
    assert (done["broken"], done["records"], done["is_marked"]) == (None, 3, True)
    assert cli("audit", "verify").code == 0


def test_broken_audit_says_first_broken_record(cli: Any, used: Any) -> None:
    """Which faults are found is tested beside the store."""
    with closing(sqlite3.connect(used.folder / "lab.db")) as connection, connection:
        connection.execute("DROP TRIGGER IF EXISTS audit_records_no_update")
        connection.execute("UPDATE audit_records SET subject = 'eve' WHERE number = 2")
    done = cli("audit", "verify")
    assert (done.code, "(record 2)" in done.err) == (1, True)


def test_export_has_hashes_in_both_forms(cli: Any, used: Any, tmp_path: Any) -> None:
    assert cli("audit", "export", "--to", "audit.jsonl").code == 0
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert ([each["number"] for each in rows], rows[-1]["action"]) == ([1, 2, 3, 4], "audit_exported")
    assert all(len(each["hash"]) == 64 for each in rows)
    table = list(csv.DictReader(io.StringIO(cli("audit", "export", "--format", "csv").out)))
    assert [each["hash"] for each in table][:4] == [each["hash"] for each in rows]
    assert cli("audit", "export", "--to", "audit.jsonl").code == 2


def test_looks_at_results_and_notes_are_recorded(cli: Any, lab: Any) -> None:
    assert cli("audit", "verify", "--json").json()["records"] == 0
    now = datetime.now(UTC)
    report = ReportRecord(key="P1", source="lis", message="m", received_at=now, changed_at=now, body=b"{}")
    lab.write(lambda uow: uow.reports.add(report))
    assert cli("results", "show", "P1").code == 0
    assert cli("results", "show", "P2").code == 1
    (look,) = cli("audit", "list", "--json").json()
    assert (look["action"], look["subject"]) == ("result_shown", "P1")
    entry = AuditEntry(at=now, action=AuditAction.ORDER_REJECTED, subject="R1", by="anna", note="why", order=OrderKey("R1"))
    lab.write(lambda uow: uow.audit.add(entry))
    assert "why" not in cli("audit", "list", "--json").out
    noted, _ = cli("audit", "list", "--notes", "--json").json()
    assert (noted["action"], noted["note"]) == ("order_rejected", "why")
    assert actions(cli)[0] == "audit_notes_shown"


def test_users_are_added_changed_and_removed(cli, lab):
    assert "add one with" in cli("user", "list").out
    done = cli("user", "add", "anna", stdin="short\n")
    assert (done.code, "password" in done.err, "short\n" in done.out) == (1, True, False)
    assert cli("user", "add", "Anna", "--role", "admin", stdin=PASSWORD).code == 0
    (user,) = cli("user", "list", "--json").json()
    assert (user["name"], user["role"], "hash" in json.dumps(user)) == ("anna", "admin", False)
    assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
    assert cli("user", "add", "anna", stdin=PASSWORD).code == 1
    assert cli("user", "password", "anna", stdin="another horse battery\n").code == 0
    assert cli("user", "role", "Anna", "operator").code == 0
    assert cli("user", "list", "--json").json()[0]["role"] == "operator"
    hashed = lab.write(lambda uow: uow.users.get("anna")).password_hash
    assert Passwords().verify("another horse battery", hashed)
    assert cli("user", "remove", "anna").code == 0
    assert cli("user", "remove", "anna").code == 1


def test_unknown_user_has_no_password_role_or_right(cli, lab):
    assert cli("user", "password", "nobody", stdin=PASSWORD).code == 1
    for words, code in (("role nobody admin", 1), ("role nobody emperor", 2), ("reveal nobody --on", 1), ("reveal nobody", 2)):
        assert cli("user", *words.split()).code == code, words


def test_right_to_reveal_given_and_taken(cli, lab):
    assert cli("user", "add", "anna", stdin=PASSWORD).code == 0
    for option, may, shown in ((None, False, "no"), ("--on", True, "yes"), ("--off", False, "no")):
        assert option is None or cli("user", "reveal", "Anna", option).code == 0
        assert cli("user", "list", "--json").json()[0]["may_reveal"] is may
        assert shown in cli("user", "list").out.splitlines()[1].split()
    changes = cli("audit", "list", "--action", "user_reveal_changed", "--json").json()
    assert [each["details"] for each in changes] == ['{"may_reveal":0}', '{"may_reveal":1}']
    assert {each["subject"] for each in changes} == {"anna"}


def save_report_with_patient(uow, patient: bytes) -> None:
    now = datetime.now(UTC)
    uow.reports.add(ReportRecord(key="P1", source="lis", message="m", received_at=now, changed_at=now, body=b"{}"))
    uow.vault.save_reported_patient("P1", patient, at=now)


def test_keys_rotated_and_old_key_removed(cli, lab):
    lab.write(lambda uow: uow.vault.save_identity("R1", b"Ivanova", at=datetime.now(UTC)))
    lab.write(
        lambda uow: uow.vault.save_service_message(1, "R1", ServiceMessage(at=datetime.now(UTC), text="Ivanova is unknown"))
    )
    lab.write(lambda uow: save_report_with_patient(uow, b"Ivanova"))
    new = new_key()
    settings = lab.config.read_text()
    lab.config.write_text(settings.replace(f'["{KEY}"]', f'["{new}", "{KEY}"]'))
    assert "3 stored values need one" in cli("check", "--offline").out
    done = cli("db", "rotate-keys")
    assert done.code == 0
    assert "newest key: 3." in done.out
    assert "can be removed" in done.out
    assert "no stored value needs one" in cli("check", "--offline").out
    assert cli("db", "rotate-keys", "--json").json()["reencrypted"] == 0
    lab.config.write_text(settings.replace(f'["{KEY}"]', f'["{new}"]'))
    assert cli("user", "list").code == 0
    lab.config.write_text(settings)
    refused = cli("user", "remove", "nobody")
    assert refused.code == 1
    assert "another encryption key" in refused.err


@pytest.mark.slow
def test_generated_password_is_shown_once_and_must_be_changed(cli, lab):
    made = cli("user", "add", "anna", "--generate", "--json").json()
    assert made["must_change_password"] is True
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert Passwords().verify(made["password"], stored.password_hash)
    assert cli("user", "password", "anna", stdin=PASSWORD).code == 0
    assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
    shown = cli("user", "password", "anna", "--generate").out
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert stored.must_change_password
    assert Passwords().verify(shown.split("password: ")[1].strip(), stored.password_hash)
    assert "password" not in cli("user", "list", "--json").json()[0].keys() - {"must_change_password"}
