"""`lab-agent audit …`, and what commands on users, keys and data leave in it."""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.queue.job_records import ServiceMessage
from lab_agent.shared.ids import OrderKey
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.crypto import Passwords, new_key
from tests.harness.paths import CATALOGUE
from tests.integration.cli.conftest import KEY, make_received

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
    monkeypatch.setattr("lab_agent.store.audit_origin._LOGIN_UID", uid)
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
    "catalogue_activated": f"catalogue import {CATALOGUE} --yes",
    "notice_announced": "eta stop 001.001 --until 12h",
    "notices_lifted": "eta clear 001.001",
    "backup_restored": "restore backup.db --yes",
}


@pytest.mark.slow
def test_commands_record_the_person_that_by_names(cli: Any, used: Any) -> None:
    for action, words in RECORDED.items():
        for made in (used.folder / "backups").glob("*.db"):
            shutil.copy(made, used.folder / "backup.db")
        cli(*words.split(), "--by", "carla", stdin=PASSWORD)
        (found, *_) = cli("audit", "list", "--action", action, "--actor", "carla", "--json").json()
        assert found["origin"] == find_origin().user, action
    assert '"audit_known_to":' in found["details"], "the restored database knows of what came after the backup"
    assert cli("audit", "verify").code == 0


def test_audit_is_filtered_and_verifies(cli: Any, used: Any) -> None:
    assert actions(cli, "--subject", "anna", "--until", "2099-01-01T00:00:00", "--limit", "1") == ["user_role_changed"]
    assert actions(cli, "--actor", "nobody") == actions(cli, "--since", "2099-01-01") == []
    done = cli("audit", "verify", "--json").json()
    assert (done["broken"], done["records"], done["is_marked"]) == (None, 3, True)


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
    lab.write(lambda uow: uow.reports.add(make_received("P1")))
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
    done = cli("user", "add", "anna", stdin="short\n")
    assert (done.code, "password" in done.err, "short\n" in done.out) == (1, True, False)
    assert cli("user", "add", "Anna", "--role", "admin", stdin=PASSWORD).code == 0
    (user,) = cli("user", "list", "--json").json()
    assert (user["name"], user["role"], "hash" in json.dumps(user)) == ("anna", "admin", False)
    assert cli("user", "add", "anna", stdin=PASSWORD).code == 1
    assert cli("user", "password", "anna", stdin="another horse battery\n").code == 0
    assert cli("user", "role", "Anna", "operator").code == 0
    for option, may in ((None, False), ("--on", True), ("--off", False)):
        assert option is None or cli("user", "reveal", "Anna", option).code == 0
        (user,) = cli("user", "list", "--json").json()
        assert (user["role"], user["may_reveal"]) == ("operator", may)
    changes = cli("audit", "list", "--action", "user_reveal_changed", "--json").json()
    assert [(each["subject"], each["details"]) for each in changes] == [
        ("anna", '{"may_reveal":0}'),
        ("anna", '{"may_reveal":1}'),
    ]
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert Passwords().verify("another horse battery", stored.password_hash)
    assert cli("user", "remove", "anna").code == 0
    for words in ("remove anna", "password anna", "role anna admin", "reveal anna --on"):
        assert cli("user", *words.split(), stdin=PASSWORD).code == 1, words


def test_keys_rotated_and_old_key_removed(cli, lab):
    def fill(uow):
        now = datetime.now(UTC)
        uow.vault.save_identity("R1", b"Ivanova", at=now)
        uow.vault.save_service_message(1, "R1", ServiceMessage(at=now, text="Ivanova is unknown"))
        uow.reports.add(make_received("P1"))
        uow.vault.save_reported_patient("P1", b"Ivanova", at=now)

    lab.write(fill)
    new = new_key()
    settings = lab.config.read_text()
    lab.config.write_text(settings.replace(f'["{KEY}"]', f'["{new}", "{KEY}"]'))
    assert "3 stored values need one" in cli("check", "--offline").out
    done = cli("db", "rotate-keys")
    assert (done.code, "newest key: 3." in done.out, "can be removed" in done.out) == (0, True, True)
    assert "no stored value needs one" in cli("check", "--offline").out
    assert cli("db", "rotate-keys", "--json").json()["reencrypted"] == 0
    lab.config.write_text(settings.replace(f'["{KEY}"]', f'["{new}"]'))
    assert cli("user", "list").code == 0
    lab.config.write_text(settings)
    refused = cli("user", "remove", "nobody")
    assert (refused.code, "another encryption key" in refused.err) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["add", "password"])
def test_generated_password_is_shown_once_and_must_be_changed(cli, lab, command):
    if command == "password":
        assert cli("user", "add", "anna", stdin=PASSWORD).code == 0
        assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
    shown = cli("user", command, "anna", "--generate").out
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert stored.must_change_password
    assert Passwords().verify(shown.split("password: ")[1].strip(), stored.password_hash)
    assert "password" not in cli("user", "list", "--json").json()[0].keys() - {"must_change_password"}
