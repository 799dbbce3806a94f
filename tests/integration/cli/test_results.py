"""The match desk and the mapping tables by command."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent import bootstrap
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey, ResourceId, report_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.records import Event, LineRecord, OrderRecord
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.domain.values import Coding
from lab_agent.mappings.loader import MappingCache
from lab_agent.ports.read_models import DOCUMENT_ORPHAN_ACTION
from lab_agent.settings.root import load_settings
from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness.clock import VirtualClock
from tests.harness.paths import CATALOGUE

NOW = datetime(2026, 3, 3, tzinfo=UTC)
ORDER = OrderKey("RORDER")


@pytest.fixture
def mapped(lab: Any) -> Any:
    """A laboratory with tables that know one code, and an order at the LIS."""
    folder = lab.folder / "mappings"
    folder.mkdir()
    (folder / "codes.csv").write_text("code,loinc\nHGB,718-7\n")
    lab.config.write_text(lab.config.read_text() + f'[results]\nmappings = "{folder}"\n')
    order = OrderRecord(
        key=ORDER, task_id=ResourceId("t"), state=OrderState.HANDED_OVER, seen_at=NOW, changed_at=NOW,
        patient_reference="patient/1",
    )  # fmt: skip
    line = LineRecord(
        key=LineKey("L1"), order=ORDER, task_id=ResourceId("lt"), procedure_request_id=ResourceId("pr"), item="001.001",
        state=LineState.ACCEPTED, changed_at=NOW,
    )  # fmt: skip
    lab.write(lambda uow: (uow.orders.add(order), uow.orders.add_line(line)))
    return lab


def arrive(lab: Any, name: str, code: str, order: str = ORDER) -> ReportKey:
    """A report comes in, and is matched as the daemon would."""
    value = ReportedObservation(code=Coding(code=code), value_string="x")
    report = LabReport(report_id=name, status=ReportStatus.FINAL, order=order, effective=NOW, issued=NOW, observations=(value,))

    class Once:
        async def run(self, work: Any) -> Any:
            return await asyncio.to_thread(lab.write, work)

    asyncio.run(StoreInbox(Once(), VirtualClock(NOW), "folder").accept(name, report))  # type: ignore[arg-type]
    settings = load_settings(lab.config)
    key = report_key("folder", name)
    lab.write(
        lambda uow: bootstrap.build_matcher(settings, MappingCache(settings.results.mappings), lambda: None).match(uow, key, NOW)
    )
    return key


def test_unmapped_code_found_mapped_and_released(cli: Any, mapped: Any) -> None:
    key = arrive(mapped, "one", "NEW")
    assert cli("results", "list").code == 0  # and what the arrival logged is out of the way
    assert [row["state"] for row in cli("results", "list", "--waiting", "--json").json()] == ["unmapped"]
    checked = cli("mappings", "check")
    assert checked.code == 1
    assert "NEW" in checked.out
    assert "add the missing rows" in cli("results", "show", key).out
    with (mapped.folder / "mappings" / "codes.csv").open("a") as table:
        table.write("NEW,6690-2\n")
    assert [row["state"] for row in cli("mappings", "release", "--preview", "--json").json()] == ["matched"]
    assert [row["state"] for row in cli("results", "list", "--waiting", "--json").json()] == ["unmapped"]
    assert [row["state"] for row in cli("mappings", "release", "--by", "ann", "--json").json()] == ["matched"]
    duties = mapped.write(lambda uow: uow.jobs.list_for_order(ORDER))
    assert [job.kind for job in duties] == [JobKind.DELIVER_REPORT]
    assert cli("mappings", "check").code == 0


def test_unmapped_catalogue_codes_listed(cli: Any, mapped: Any) -> None:
    """The catalogue that counts is the store's, wherever it came from; the folder of the settings may hold another."""
    assert cli("mappings", "check", "--json").json()["catalogue"] == []
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    lacking = cli("mappings", "check", "--json").json()["catalogue"]
    offered = {
        item.lab_id for each in load_catalogue(CATALOGUE).contracts.values() for item in each.items.values() if item.lab_id
    }
    assert set(lacking) <= offered
    assert lacking
    first = lacking[0]
    with (mapped.folder / "mappings" / "codes.csv").open("a") as table:
        table.write(f"{first},6690-2\n")
    assert cli("mappings", "check", "--json").json()["catalogue"] == lacking[1:]


def test_unmatched_report_matched_and_another_dismissed(cli: Any, mapped: Any) -> None:
    lost, other = arrive(mapped, "lost", "HGB", "RNOBODY"), arrive(mapped, "other", "HGB", "RNOBODY")
    assert cli("results", "release", lost, "--note", "go").code == 1
    assert cli("results", "match", lost, "RWRONG", "--note", "x").code == 1
    done = cli("results", "match", lost, ORDER, "--line", "L1", "--note", "on the form", "--by", "ann")
    assert (done.code, "is matched now" in done.out) == (0, True)
    gone = cli("results", "dismiss", other, "--note", "a test", "--by", "ann", "--json").json()
    assert gone["reason"] == "dismissed by ann: a test"
    again = cli("results", "dismiss", other, "--note", "twice")
    assert (again.code, "does not wait" in again.err) == (1, True)
    history = cli("results", "show", other, "--json").json()["history"]
    told = ("ann", f"result {other} dismissed (a test): it is dismissed now")
    assert [(each["by"], each["text"]) for each in history][1:] == [told]
    shown = cli("results", "show", other).out
    assert ("History" in shown, "a test" in shown) == (True, True)


def test_decision_without_reason_is_wrong_usage(cli: Any, mapped: Any) -> None:
    """What a reason may be is decided in one place; each command asks for one."""
    key = arrive(mapped, "lost", "HGB", "RNOBODY")
    decisions = [
        *(f"results dismiss {key} --note", f"results release {key} --note", f"results match {key} {ORDER} --note"),
        *("outbox dismiss 1 --note", "outbox done 1 --note", f"orders refuse {ORDER} --reason", "orders refuse-line L1 --reason"),
    ]
    for note in ("", "  ", "x" * 501):
        for decision in decisions if note.isspace() else decisions[:1]:
            done = cli(*decision.split(), note)
            assert (done.code, "Nothing was changed" in done.err) == (2, True), decision
    assert cli("results", "show", key, "--json").json()["state"] == "unmatched"


def test_invalid_mapping_tables_named_by_row(cli: Any, mapped: Any) -> None:
    (mapped.folder / "mappings" / "codes.csv").write_text("code,loinc\nHGB,718-8\n")
    checked = cli("mappings", "check")
    assert checked.code == 1
    assert "codes.csv row 2, column loinc" in checked.err


def test_orphaned_documents_listed_newest_first(cli: Any, mapped: Any) -> None:
    assert "No document was left" in cli("results", "orphans").out
    for day in (1, 2):
        event = Event(
            order=ORDER, report=ReportKey("P1"), at=NOW + timedelta(days=day), action=DOCUMENT_ORPHAN_ACTION, text=f"copy {day}"
        )
        mapped.write(lambda uow, event=event: uow.events.add(event))
    mapped.write(lambda uow: uow.events.add(Event(order=ORDER, at=NOW, action="delivered", text="another")))
    rows = cli("results", "orphans", "--json").json()
    assert [(row["order"], row["result"], row["what"]) for row in rows] == [(ORDER, "P1", "copy 2"), (ORDER, "P1", "copy 1")]
    assert "copy 2" in cli("results", "orphans", "--limit", "1").out


def test_upload_again_takes_an_order_or_a_time(mapped: Any, cli: Any) -> None:
    arrive(mapped, "a", "HGB")  # matched, and not delivered yet
    assert cli("results", "list").code == 0  # and what the arrival logged is out of the way
    for asked, is_taken in (
        ("", False),
        (f"{ORDER} --since 2026-03-01", False),
        ("--until 2026-03-01", False),
        (ORDER, True),
        ("--since 2026-03-01", True),
    ):
        done = cli("results", "upload-again", *asked.split(), "--note", "restored", "--json")
        assert (done.code == 0) is is_taken, asked
        assert not is_taken or done.json() == {"results": 0}
