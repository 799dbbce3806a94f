"""Commands on users and encryption keys."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from lab_agent.crypto import Passwords, new_key
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.report_records import ReportRecord
from tests.integration.cli.conftest import KEY

PHRASE = "correct horse battery\n"


def test_users_are_added_changed_and_removed(cli, lab):
    assert "add one with" in cli("user", "list").out
    done = cli("user", "add", "anna", stdin="short\n")
    assert (done.code, "password" in done.err, "short\n" in done.out) == (1, True, False)
    assert cli("user", "add", "Anna", "--role", "admin", stdin=PHRASE).code == 0
    (user,) = cli("user", "list", "--json").json()
    assert (user["name"], user["role"], "hash" in json.dumps(user)) == ("anna", "admin", False)
    assert not lab.write(lambda uow: uow.users.get("anna")).must_change_password
    assert cli("user", "add", "anna", stdin=PHRASE).code == 1
    assert cli("user", "password", "anna", stdin="another horse battery\n").code == 0
    assert cli("user", "role", "Anna", "operator").code == 0
    assert cli("user", "list", "--json").json()[0]["role"] == "operator"
    hashed = lab.write(lambda uow: uow.users.get("anna")).password_hash
    assert Passwords().verify("another horse battery", hashed)
    assert cli("user", "remove", "anna").code == 0
    assert cli("user", "remove", "anna").code == 1


def test_unknown_user_has_no_password_role_or_right(cli, lab):
    assert cli("user", "password", "nobody", stdin=PHRASE).code == 1
    for words, code in (("role nobody admin", 1), ("role nobody emperor", 2), ("reveal nobody --on", 1), ("reveal nobody", 2)):
        assert cli("user", *words.split()).code == code, words


def test_right_to_reveal_given_and_taken(cli, lab):
    assert cli("user", "add", "anna", stdin=PHRASE).code == 0
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
