"""Rows both ways: an order is there whole or not at all, a bad result keeps its reason, another agent's claim holds."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, text, update

from lab_agent.lis.lab_messages import Accession, AccessionUpdate, LabReport, ReportedPatient
from lab_agent.lis.lab_order import AnswerStep, OrderAnswer, OrderPatient, PatientName
from lab_agent.lis.serialization import dump_message, load_order
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.sql.staging_tables import DIALECTS, StagingTables, create_statements
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import LisRejected, LisUnavailable, StoreUnreachableError
from lab_agent.shared.ids import LineKey
from lab_agent.shared.values import Coding, Identifier, PartialDate
from tests.harness.databases import create_staging_tables
from tests.harness.documents import PDF

REPORT = make_report(1, make_order(1))


@dataclass
class AdapterHarness:
    engine: Engine
    tables: StagingTables
    adapter: SqlAdapter
    inbox: MemoryInbox

    def run(self, *statements: Any) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement) if isinstance(statement, str) else statement)

    def put_parts(self, table: Any, number: int, *rows: dict[str, Any]) -> None:
        self.run(*(insert(table).values(result_id=number, position=place, **row) for place, row in enumerate(rows)))

    @property
    def reports(self) -> list[LabReport]:
        return [one for one in self.inbox.contents if isinstance(one, LabReport)]

    @property
    def report(self) -> LabReport:
        (report,) = self.reports
        return report

    def rows(self, table: Any) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(select(table)).mappings()]

    def put(self, *values: dict[str, Any], **head: Any) -> int:
        """A result with these values."""
        with self.engine.begin() as connection:
            (number,) = connection.execute(insert(self.tables.results).values(ready=1, **head)).inserted_primary_key or (0,)
        self.put_parts(self.tables.values, number, *values)
        return int(number)

    def fault(self, number: int) -> str | None:
        return next(row["fault"] for row in self.rows(self.tables.results) if row["id"] == number)  # type: ignore[no-any-return]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[AdapterHarness]:
    url = f"sqlite:///{tmp_path / 'lis.db'}"
    engine, tables = create_staging_tables(url)
    inbox = MemoryInbox()
    adapter = SqlAdapter(SqlSettings.model_validate({"url": url, "time_zone": "Europe/Moscow"}), "sql")
    await adapter.start(inbox)
    yield AdapterHarness(engine, tables, adapter, inbox)
    await adapter.stop()
    engine.dispose()


async def test_order_columns_are_readable(harness: AdapterHarness) -> None:
    order = next(order for order in map(make_order, range(50)) if len(order.lines) > 1 and not order.patient.anonymous)
    await harness.adapter.submit(order)
    (head,) = harness.rows(harness.tables.orders)
    assert load_order(head["document"].encode()) == order
    assert (head["ordered_at"], head["notifications"]) == (order.ordered_at.isoformat(), "sms=true, email=false")
    (patient,) = harness.rows(harness.tables.patients)
    assert (patient["family"], patient["birth_date"]) == (order.patient.family, order.patient.birth_date)
    assert [row["line_key"] for row in harness.rows(harness.tables.lines)] == [line.key for line in order.lines]
    assert {row["quantity"] for row in harness.rows(harness.tables.containers)} == {"1.50"}
    assert [row["answer"] for row in harness.rows(harness.tables.answers)] == [str(order.answers[0].values[0]).lower(), "0"]


@pytest.mark.parametrize("where", ["patients", "order_lines", "line_specimens", "answers"])
async def test_incomplete_order_is_rolled_back(harness: AdapterHarness, where: str) -> None:
    """An order that cannot be written whole is not written at all."""
    harness.run(f"create trigger stop before insert on lab_{where} begin select raise(abort, 'no'); end")
    with pytest.raises(LisRejected):
        await harness.adapter.submit(make_order(1))
    assert harness.rows(harness.tables.orders) == []
    assert await harness.adapter.was_received(make_order(1).key) is False


@pytest.mark.parametrize("length", [100, 101, 500])
async def test_long_ids_of_the_service_fit_their_columns(harness: AdapterHarness, length: int) -> None:
    order = make_order(1)
    named = {each.id: f"{number}" + "ж" * (length - 1) for number, each in enumerate(order.specimens)}
    specimens = tuple(replace(each, id=named[each.id]) for each in order.specimens)
    lines = tuple(replace(each, specimens=tuple(named[one] for one in each.specimens)) for each in order.lines)
    patient = replace(order.patient, service_identifier=Identifier(system="urn:patients", value="p" * length))
    await harness.adapter.submit(replace(order, specimens=specimens, lines=lines, patient=patient))
    written = {row["specimen_id"] for row in harness.rows(harness.tables.specimens)}
    assert (len(written), {len(each) for each in written}) == (len(named), {100})
    for table in (harness.tables.line_specimens, harness.tables.containers):
        assert {row["specimen_id"] for row in harness.rows(table)} <= written
    assert [len(row["patient_id"]) for row in harness.rows(harness.tables.patients)] == [min(length, 255)]


async def test_who_the_patient_is_and_further_numbers_are_in_columns(harness: AdapterHarness) -> None:
    order = make_order(1)
    patient = replace(
        order.patient,
        service_identifier=Identifier(system="https://exchange.example/fhir/Patient", value="42"),
        identifiers=(Identifier(system="urn:chart", value="7"),),
        other_names=(PatientName(use="maiden", family="Byron", given=("Ada",)), PatientName(text="Countess")),
    )
    tube = replace(order.specimens[0].containers[0], other_identifiers=(Identifier(value="R7"),))
    specimen = replace(order.specimens[0], containers=(tube,), collected_until=order.ordered_at)
    line = replace(order.lines[0], specimens=(specimen.id,), other_codes=(Coding(system="http://loinc.org", code="718-7"),))
    path = (AnswerStep(link_id="drug", repeat=2), AnswerStep(link_id="dose"))
    answers = (OrderAnswer(link_id="dose", path=path, values=(5,), units=("mg",)),)
    await harness.adapter.submit(replace(order, patient=patient, lines=(line,), specimens=(specimen,), answers=answers))
    tables = harness.tables
    (row,) = harness.rows(tables.patients)
    assert (row["patient_id"], row["patient_id_system"]) == ("42", "https://exchange.example/fhir/Patient")
    assert (row["identifiers"], row["other_names"]) == ("urn:chart|7", "Byron Ada (maiden)\nCountess")
    assert harness.rows(tables.lines)[0]["other_codes"] == "http://loinc.org|718-7"
    assert harness.rows(tables.specimens)[0]["collected_until"] == order.ordered_at.isoformat()
    assert harness.rows(tables.containers)[0]["other_identifiers"] == "|R7"
    assert harness.rows(tables.answers)[0]["path"] == "drug[2]/dose"
    assert harness.rows(tables.answers)[0]["answer_unit"] == "mg"


async def test_hostile_text_stored_as_data(harness: AdapterHarness) -> None:
    """A birth date without a day is in the document alone."""
    hostile = OrderPatient(
        family="O'Sample'); drop table lab_orders; --", given=("\n\t|^~\\&",), birth_date=PartialDate("1980-02")
    )
    order = replace(make_order(1), patient=hostile)
    await harness.adapter.submit(order)
    await harness.adapter.cancel(order.key, (LineKey("L'1"),), "'; delete from lab_orders; --")
    (patient,) = harness.rows(harness.tables.patients)
    assert (patient["family"], patient["given"], patient["birth_date"]) == (hostile.family, hostile.given[0], None)
    assert load_order(harness.rows(harness.tables.orders)[0]["document"].encode()) == order


MOMENT = "2024-05-17T08:30:00"
SENT: dict[str, Any] = {"report_id": "B1", "order_key": "R1", "status": "final", "effective_at": MOMENT, "issued_at": MOMENT}
DOCUMENT = dump_message(REPORT).decode()
NUMBERS = {"kind": "accession_update", "order_key": "R1"}


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        *(({"document": "{"}, "JSON"), ({"document": '{"kind": "report"}'}, "report_id"), ({"kind": "fax"}, "kind")),
        *(({"report_id": "B1"}, "names no order"), (SENT | {"status": "done"}, "status"), (NUMBERS, "gives no number")),
        ({"kind": "rejection", "order_key": "R1"}, "not_performed"),
        (NUMBERS | {"order_key": "R\t1", "accession": "7"}, "control character"),
        ({"document": '{"kind": "accession_update", "order": "R1", "order": "R2", "accession": "7"}'}, "order: duplicate key"),
    ],
)
async def test_invalid_row_keeps_reason_others_accepted(harness: AdapterHarness, bad: dict[str, Any], word: str) -> None:
    """Until it is mended, or for ever."""
    number, good = harness.put(**bad), harness.put(document=DOCUMENT)
    assert await harness.adapter.collect() == 1
    assert word in (harness.fault(number) or "")
    assert harness.fault(good) is None
    assert await harness.adapter.collect() == 0
    assert harness.inbox.contents == [REPORT]
    ((name, reason),) = harness.inbox.rejections.items()  # somebody here is told, too
    assert name.startswith(f"row-{number}:")
    assert reason == (harness.fault(number) or "").splitlines()[0]
    results, mended = harness.tables.results, {"document": dump_message(make_report(2, make_order(2))).decode(), "fault": None}
    harness.run(update(results).where(results.c.id == number).values(mended))
    assert await harness.adapter.collect() == 1


async def test_invalid_row_stays_while_store_unavailable(harness: AdapterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad row gets no fault until the agent's own store has taken note of it."""

    async def away(*_: object, raw: bytes) -> None:
        raise StoreUnreachableError

    number = harness.put(document="{")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryInbox, "reject", away)
        with pytest.raises(StoreUnreachableError):
            await harness.adapter.collect()
    assert harness.fault(number) is None
    assert await harness.adapter.collect() == 0
    assert harness.fault(number)
    assert [name.split(":")[0] for name in harness.inbox.rejections] == [f"row-{number}"]


async def test_unreadable_and_unready_rows_block_no_others(harness: AdapterHarness) -> None:
    """One that the driver cannot read, and one that is not ready; the padding of columns of a fixed width is no text."""
    number = harness.put(document="{}")
    harness.run(f"update lab_results set created_at = 'yesterday' where id = {number}")
    harness.run(insert(harness.tables.results).values(document=DOCUMENT))
    harness.put(kind="report", **SENT | {"report_id": "B1  ", "order_key": "RABC   "})
    with pytest.raises(LisUnavailable, match="1 results could not be taken"):
        await harness.adapter.collect()
    assert (harness.report.report_id, harness.report.order) == ("B1", "RABC")


async def test_partial_date_stays_as_precise_as_written(harness: AdapterHarness) -> None:
    written = ["2024", "2024-05", "2024-05-17"]
    for each in written:
        harness.put(**SENT | {"effective_at": each})
    assert await harness.adapter.collect() == 3
    assert [(one.effective, one.patient) for one in harness.reports] == [(PartialDate(each), None) for each in written]


async def test_value_types_keep_exact_digits(harness: AdapterHarness) -> None:
    harness.put(
        {"code": "1", "value": "1.20", "unit": "g/L", "low": "0.90", "range_text": "from 0.90"},
        {"code": "2", "value": "<5"},
        {"code": "3", "value": "negative", "flag": "N"},
        {"code": "4", "value_type": "text", "value": "5"},
        {"code": "5", "value_type": "code", "value": "POS", "code_system": "urn:ours"},
        {"code": "6", "value_type": "time", "value": "08:30:00"},
        **SENT | {"issued_at": "2024-05-17T09:00:00.123+05:00"},
    )
    assert await harness.adapter.collect() == 1
    assert harness.report.effective.isoformat() == "2024-05-17T08:30:00+03:00"
    one, two, three, four, five, six = harness.report.observations
    assert str(one.value_quantity and one.value_quantity.value) == "1.20"
    assert str(one.reference_ranges[0].low and one.reference_ranges[0].low.value) == "0.90"
    assert two.value_quantity
    assert (two.value_quantity.comparator, str(two.value_quantity.value)) == ("<", "5")
    assert (three.value_string, three.flags, four.value_string) == ("negative", ("N",), "5")
    assert five.value_codeable_concept
    assert (five.code.system, five.value_codeable_concept.coding[0].code) == ("urn:ours", "POS")
    assert str(six.value_time) == "08:30:00"


async def test_later_numbers_become_accession_update(harness: AdapterHarness) -> None:
    rows = ({"number": "A7-1", "line_key": "L1"}, {"number": "T9", "barcode": "0042"})
    harness.put_parts(harness.tables.accessions, harness.put(**NUMBERS, accession="A7"), *rows)
    assert await harness.adapter.collect() == 1
    numbers = (Accession(number="A7-1", line="L1"), Accession(number="T9", barcode="0042"))
    assert harness.inbox.contents == [AccessionUpdate(order="R1", accession="A7", accessions=numbers)]


async def test_other_agents_claim_holds_until_expiry(harness: AdapterHarness) -> None:
    number = harness.put(document=DOCUMENT)
    for year, taken in ((2999, 0), (2020, 1)):
        at = f"{year}-01-01 00:00:00.000000"
        harness.run(f"update lab_results set claimed_by = 'another', claimed_at = '{at}' where id = {number}")
        assert await harness.adapter.collect() == taken
    (row,) = harness.rows(harness.tables.results)
    assert row["processed_at"]
    assert row["claimed_by"] is None


@pytest.mark.parametrize(
    "url", ["sqlite:////nowhere/at/all.db", "nonsense", "fantasy://host/db", "postgresql+psycopg://u@127.0.0.1:9/x", "empty"]
)
async def test_missing_database_or_tables_are_temporary(url: str, tmp_path: Path) -> None:
    given = {"url": f"sqlite:///{tmp_path / 'empty.db'}" if url == "empty" else url}
    adapter = SqlAdapter(SqlSettings.model_validate(given), "sql")
    for call in (adapter.check(), adapter.submit(make_order(1)), adapter.was_received(make_order(1).key)):
        with pytest.raises(LisUnavailable, match="database of the LIS failed" if url == "empty" else None):
            await call
    await adapter.stop()


@pytest.mark.parametrize("dialect", [*DIALECTS, "mariadb"])
def test_ddl_compiles_in_every_dialect(dialect: str) -> None:
    said = create_statements(dialect, "x_", "staging" if dialect != "sqlite" else None)
    assert said.count("CREATE TABLE") == 13
    assert "x_orders" in said
    if dialect in {"mysql", "mariadb"}:
        assert "max_allowed_packet" in said.splitlines()[0]
        assert said.count("ENGINE=InnoDB") == said.count("CHARSET=utf8mb4") == 13
        assert not re.search(" TEXT| BLOB", said)


@pytest.mark.parametrize("kind", ["report", "rejection"])
async def test_patient_columns_say_whose_it_is(harness: AdapterHarness, kind: str) -> None:
    head = {"patient_birth_date": "1980-02-29", "patient_sex": "F", "patient_id": "12 ", "patient_id_system": "urn:p"}
    head |= {"patient_family": "Sample  ", "patient_given": "Anna Maria"}
    number = harness.put(kind=kind, **head, **(SENT if kind == "report" else {"order_key": "R1"}))
    harness.put_parts(harness.tables.not_performed, number, {"item": "1", "reason": "clotted"})
    assert await harness.adapter.collect() == 1
    (content,) = harness.inbox.contents
    assert not isinstance(content, AccessionUpdate)
    expected = (Identifier(system="urn:p", value="12"),)
    named = ReportedPatient(family="Sample", given=("Anna Maria",), birth_date=date(1980, 2, 29), gender="female")
    assert content.patient == replace(named, identifiers=expected)


async def test_rejected_row_is_read_again_under_its_id(harness: AdapterHarness) -> None:
    """And a document in Base64 is no text."""
    number = harness.put({"code": "718-7", "value": "<13.40", "unit": "g/dL"}, **SENT)
    zoned = SENT | {"effective_at": f"{MOMENT}Z", "issued_at": f"{MOMENT}Z"}
    other = harness.put({"code": "718-7", "value": b64encode(PDF).decode()}, **zoned)
    adapter = SqlAdapter(SqlSettings.model_validate({"url": str(harness.engine.url)}), "tables")
    await adapter.start(harness.inbox)
    assert await adapter.collect() == 0
    assert "is a document in Base64" in (harness.fault(other) or "")
    name, raw = next(iter(harness.inbox.raw.items()))
    refused = await adapter.parse_message(raw, name)
    assert refused.parts[0].content is None
    assert [(one.table, one.key, one.value) for one in refused.suggestions] == [("lis.tables", "time_zone", None)]
    await adapter.stop()
    harness.run(f"update lab_results set fault = null where id = {number}")
    parsed = await harness.adapter.parse_message(raw, name)
    assert await harness.adapter.collect() == 1
    assert {part.message_id: part.content for part in parsed.parts} == harness.inbox.messages
    places = {line.place: line.meaning for line in parsed.trace}
    assert places["observations[0]"] == "http://loinc.org|718-7 = quantity <13.40 g/dL"
