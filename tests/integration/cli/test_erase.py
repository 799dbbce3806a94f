"""`lab-agent erase`: who is found, what is shown, what goes; and the patient's name is in no output."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

import pytest

from lab_agent.lis.lab_messages import ReportedPatient
from lab_agent.lis.serialization import dump_reported_patient
from lab_agent.orders.patient_data import pack_identity
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent
from lab_agent.shared import exact_json
from lab_agent.shared.ids import OrderKey, ReportKey
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.shared.values import Identifier
from tests.integration.cli.conftest import make_order, make_received

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MINE, OLDER, OTHER, OPEN = OrderKey("RMINE0001"), OrderKey("ROLDER001"), OrderKey("ROTHER001"), OrderKey("ROPEN0001")
ANNA = ("Petrova Anna\n", "1961-04-12\n", "\n")
POLICY = "5512345678901234"
CANARIES = ("Petrova", "1961-04-12", "19610412", POLICY)


def identity(family: str, birth_date: str, policy: str) -> bytes:
    """As the vault keeps it: the resource as fetched, and what the laboratory system got."""
    patient = {
        "resourceType": "Patient",
        "id": "1",
        "name": [{"family": family, "given": ["Anna"]}],
        "birthDate": birth_date,
        "identifier": [{"system": "http://policies.example", "value": policy}],
    }
    fetched = exact_json.dumps({"resources": [["Patient", "1", patient]]})
    return pack_identity(fetched, exact_json.dumps({"family": family, "given": ["Anna"], "birth_date": birth_date}))


def add_order(uow: Any, key: OrderKey, sealed: bytes | None, reference: str, state: OrderState = OrderState.CLOSED) -> None:
    uow.orders.add(make_order(key, state=state, patient_reference=reference))
    if sealed is not None:
        uow.vault.save_identity(key, sealed, at=NOW)


@pytest.fixture
def filled(cli: Any, lab: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Anna's orders, one of them without identification by now, an open one; somebody else's; and messages about her."""

    def write(uow: Any) -> None:
        anna = identity("Petrova", "1961-04-12", POLICY)
        add_order(uow, MINE, anna, "Patient/1")
        add_order(uow, OLDER, None, "Patient/1")
        add_order(uow, OPEN, anna, "Patient/2", OrderState.HANDED_OVER)
        add_order(uow, OTHER, identity("Petrova", "1971-04-12", "5500000000000000"), "Patient/3")
        anna_by_name = {"family": "PETROVA", "given": ("Anna",), "birth_date": date(1961, 4, 12)}
        said = {
            "P1": ReportedPatient(identifiers=(Identifier(system="http://policies.example", value=POLICY),)),
            "P2": ReportedPatient(**anna_by_name),
            "P3": ReportedPatient(**{**anna_by_name, "birth_date": date(1971, 4, 12)}),
        }
        for key, named in said.items():
            uow.reports.add(make_received(key, state=ReportState.DISMISSED))
            uow.vault.save_reported_patient(ReportKey(key), dump_reported_patient(named), at=NOW)
        raws = {"a": "PID|1||7||Petrova^Anna||19610412", "b": f"PV1|{MINE}", "c": "PID|1||8||Petrova^Anna||19710412"}
        for name, raw in raws.items():
            record_refusal(uow, "folder", RefusedContent(message_id=name, raw=raw.encode("cp1251")), "unknown code", NOW)

    lab.write(write)
    (lab.folder / "results" / "done").mkdir()
    (lab.folder / "results" / "done" / "1.json").write_text(json.dumps({"order": MINE}))
    (lab.folder / "results" / "done" / "2.json").write_text(json.dumps({"order": OTHER}))
    capsys.readouterr()
    return lab


def test_dry_run_shows_and_changes_nothing(cli: Any, filled: Any) -> None:
    done = cli("erase", "--patient", "--json", stdin="".join(ANNA))
    found = done.json()["found"]
    assert [each["order"] for each in found["orders"]] == sorted([MINE, OLDER, OPEN])
    assert found["results"] == ["P2"]
    assert len(found["refused_messages"]) == 2
    assert [file.rpartition("/")[2] for file in found["files"]] == ["1.json"]
    assert filled.write(lambda uow: uow.vault.identity(MINE)) is not None
    (search,) = cli("audit", "list", "--json").json()
    assert (search["action"], search["details"]) == ("patient_searched", '{"orders":3,"refused_messages":2}')


def test_patient_is_erased_and_open_order_is_not(cli: Any, filled: Any) -> None:
    """The audit says it without the patient."""
    done = cli("erase", "--patient", "--yes", "--note", "request of Petrova", stdin="".join(ANNA))
    assert (done.code, "3 orders" in done.out, "2 orders" in done.out, "--include-open" in done.err) == (1, False, True, True)
    assert "Backups made before" in done.out
    kept = filled.write(lambda uow: [uow.vault.identity(key) is not None for key in (MINE, OPEN, OTHER)])
    assert kept == [False, True, True]
    listed = cli("audit", "list", "--json")
    actions = [each["action"] for each in listed.json()]
    assert (actions[0], {"order_erased", "refused_erased"} <= set(actions)) == ("patient_erased", True)
    assert cli("audit", "verify").code == 0
    with closing(sqlite3.connect(filled.folder / "lab.db")) as connection:
        stored = repr([connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("audit_records", "audit_notes")])
    assert [name for name in CANARIES if name in stored + listed.out + done.out + done.err] == []
    assert cli("erase", "--patient", "--yes", "--include-open", stdin="".join(ANNA)).code == 0
    assert filled.write(lambda uow: uow.vault.identity(OPEN)) is None


def test_patient_is_found_by_identifier_with_results_of_no_order(cli: Any, filled: Any) -> None:
    found = cli("erase", "--patient", "--json", stdin=f"\n\n{POLICY}\n").json()["found"]
    assert [each["order"] for each in found["orders"]] == sorted([MINE, OLDER, OPEN])
    assert found["results"] == ["P1"]
    done = cli("erase", "--patient", "--yes", "--include-open", stdin=f"\n\n{POLICY}\n")
    assert (done.code, "1 other results" in done.out) == (0, True)


def test_named_orders_and_messages_are_erased(cli: Any, filled: Any) -> None:
    (message,) = [each["message"] for each in cli("results", "refused", "list", "--json").json() if each["from"] == "folder"][:1]
    done = cli("erase", OTHER, "--refused", message, "--yes", "--json").json()
    assert (done["erased"]["orders"], done["erased"]["refused_messages"]) == (1, 1)
    assert filled.write(lambda uow: uow.vault.identity(OTHER)) is None
    assert filled.write(lambda uow: uow.vault.identity(MINE)) is not None


def test_too_little_no_date_or_unknown_is_an_error(cli: Any, filled: Any) -> None:
    for answers in ("Petrova\n\n\n", "\n1961-04-12\n\n", "Petrova\n12.04.1961\n\n"):
        done = cli("erase", "--patient", "--yes", stdin=answers)
        assert (done.code, "Nothing was changed" in done.err) == (2, True), answers
    assert cli("erase").code == 2
    assert cli("erase", "RUNKNOWN1", "--yes").code == 1
    assert cli("erase", "--refused", "nothing", "--yes").code == 2


def test_unreadable_identification_is_told(cli: Any, filled: Any) -> None:
    with closing(sqlite3.connect(filled.folder / "lab.db")) as connection, connection:
        connection.execute("UPDATE identities SET ciphertext = x'00' WHERE order_key = ?", (OTHER,))
    done = cli("erase", "--patient", stdin="".join(ANNA))
    assert "1 values could not be read" in done.err
