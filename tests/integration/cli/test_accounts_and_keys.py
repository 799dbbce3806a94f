"""Commands on users and encryption keys."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from lab_agent.crypto import Passwords, new_key
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.report_records import ReportRecord
from tests.integration.cli.conftest import KEY


def test_password_and_role_changed(cli, lab):
    assert cli("user", "add", "anna", stdin="correct horse battery\n").code == 0
    assert cli("user", "password", "anna", stdin="another horse battery\n").code == 0
    assert cli("user", "role", "Anna", "operator").code == 0
    (user,) = cli("user", "list", "--json").json()
    assert user["role"] == "operator"
    hashed = lab.write(lambda uow: uow.users.get("anna")).password_hash
    assert Passwords().verify("another horse battery", hashed)


def test_unknown_user_has_no_password_or_role(cli, lab):
    assert cli("user", "password", "nobody", stdin="correct horse battery\n").code == 1
    assert cli("user", "role", "nobody", "admin").code == 1
    assert cli("user", "role", "nobody", "emperor").code == 2


def test_right_to_reveal_given_and_taken(cli, lab):
    assert cli("user", "add", "anna", stdin="correct horse battery\n").code == 0
    assert cli("user", "list", "--json").json()[0]["may_reveal"] is False
    assert "no" in cli("user", "list").out.splitlines()[1].split()
    assert cli("user", "reveal", "Anna", "--on").code == 0
    assert cli("user", "list", "--json").json()[0]["may_reveal"] is True
    assert "yes" in cli("user", "list").out.splitlines()[1].split()
    assert cli("user", "reveal", "anna", "--off").code == 0
    assert cli("user", "list", "--json").json()[0]["may_reveal"] is False
    changes = cli("audit", "list", "--action", "user_reveal_changed", "--json").json()
    assert [(each["subject"], each["details"]) for each in changes] == [
        ("anna", '{"may_reveal":0}'),
        ("anna", '{"may_reveal":1}'),
    ]


def test_right_to_reveal_needs_user_and_choice(cli, lab):
    assert cli("user", "reveal", "nobody", "--on").code == 1
    assert cli("user", "reveal", "nobody").code == 2


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


def test_unreadable_value_keeps_old_key(cli, lab):
    lab.write(lambda uow: uow.vault.save_identity("R1", b"Ivanova", at=datetime.now(UTC)))
    with closing(sqlite3.connect(lab.folder / "lab.db")) as connection, connection:
        connection.execute("UPDATE identities SET ciphertext = x'00'")
    done = cli("db", "rotate-keys")
    assert done.code == 1
    assert "can be removed" not in done.out


def test_generated_password_is_shown_once_and_must_be_changed(cli, lab):
    made = cli("user", "add", "anna", "--generate", "--json").json()
    assert made["must_change_password"] is True
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert Passwords().verify(made["password"], stored.password_hash)
    assert cli("user", "password", "anna", stdin="correct horse battery\n").code == 0
    assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
    shown = cli("user", "password", "anna", "--generate").out
    stored = lab.write(lambda uow: uow.users.get("anna"))
    assert stored.must_change_password
    assert Passwords().verify(shown.split("password: ")[1].strip(), stored.password_hash)
    assert "password" not in cli("user", "list", "--json").json()[0].keys() - {"must_change_password"}


def test_typed_password_need_not_be_changed(cli, lab):
    assert cli("user", "add", "anna", stdin="correct horse battery\n").code == 0
    assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
