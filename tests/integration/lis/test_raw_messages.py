"""A raw message read by `parse_message`: as `collect` or the endpoint reads it, under the same id, and nothing is touched.

Each adapter first receives its messages from outside; what it rejected comes back with the bytes, and those are read again.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, text

from lab_agent.domain.lab_messages import LabMessage, LabReport
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.folder.raw_results import accepted_id
from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.sql.staging_tables import create_statements, make_tables
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.ports.lis import MapSuggestion, ParsedMessage, RawMessageParser
from lab_agent.serialization import dump_message
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis, signed_headers
from tests.harness.documents import PDF
from tests.harness.programs import free_port

REPORT = make_report(1, make_order(1))
NO_ZONE = {
    "report_id": "B1",
    "order": "R1",
    "status": "final",
    "effective": "2024-05-17T08:30:00",
    "issued": "2024-05-17T08:30:00",
    "observations": [
        {"code": {"system": "urn:ours", "code": "HB"}, "value_quantity": {"value": 13.40, "unit": "g/dL"}},
        {"code": {"system": "urn:ours", "code": "CULT"}, "value_string": "negative"},
    ],
}
COLUMNS = {"report_id": "Report", "barcode": "Tube", "effective": "Taken", "code": "Code", "value": "Value", "unit": "Unit"}
HEAD = "Report;Tube;Taken;Code;Value;Unit;Analyser"
GOOD = "B1;42;2024-05-17T08:30:00+03:00;718-7;13.40;g/dL;XN"
BAD = "B2;43;yesterday;718-7;140;g/L;XN"


@dataclass
class RawInbox(MemoryInbox):
    """Keeps the bytes of what was rejected."""

    raw: dict[str, bytes | None] = field(default_factory=dict)

    async def reject(self, message_id: str, reason: str, *, raw: bytes | None = None) -> None:
        await MemoryInbox.reject(self, message_id, reason)
        self.raw[message_id] = raw


@pytest.fixture
def inbox() -> RawInbox:
    return RawInbox()


def folder_settings(tmp_path: Path, **more: Any) -> FolderSettings:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir(exist_ok=True)
    given = {"orders": tmp_path / "orders", "results": tmp_path / "results", "settle": 0, "document_wait": 0}
    return FolderSettings.model_validate({**given, "csv": {"columns": COLUMNS}, **more})


@pytest.fixture
async def folder(tmp_path: Path, inbox: RawInbox) -> AsyncIterator[FolderAdapter]:
    adapter = FolderAdapter(folder_settings(tmp_path), "files")
    await adapter.start(inbox)
    yield adapter
    await adapter.stop()


def contents(parsed: ParsedMessage) -> dict[str, LabMessage | None]:
    return {part.message_id: part.content for part in parsed.parts}


def suggested(parsed: ParsedMessage) -> set[tuple[str, str, str | None]]:
    return {(one.table, one.key, one.value) for one in parsed.suggestions}


def listing(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))


def test_built_in_adapters_parse_raw_messages() -> None:
    for adapter in (FolderAdapter, HttpAdapter, SqlAdapter):
        assert issubclass(adapter, RawMessageParser)


async def test_folder_reads_rejected_csv_as_it_came(folder: FolderAdapter, inbox: RawInbox, tmp_path: Path) -> None:
    """The good report has the id that it was stored under, so that a replay does not store it again."""
    (tmp_path / "results" / "day.csv").write_text("\n".join((HEAD, GOOD, BAD, "")))
    assert await folder.collect() == 1
    before = listing(tmp_path)
    ((name, raw),) = inbox.raw.items()
    assert raw is not None
    parsed = await folder.parse_message(raw, name)
    good, bad = parsed.parts
    assert {good.message_id: good.content} == inbox.messages
    assert (good.place, bad.place, bad.content) == ("rows 2", "rows 3", None)
    assert "effective" in (bad.problem or "")
    assert listing(tmp_path) == before


DATA = b64encode(PDF).decode()


@pytest.mark.parametrize("name", ["day.csv", "b1.json"])
@pytest.mark.parametrize("value", [DATA, DATA[:200], f"data:application/pdf;base64,{DATA}"])
async def test_folder_refuses_document_as_text(
    folder: FolderAdapter, inbox: RawInbox, tmp_path: Path, name: str, value: str
) -> None:
    moment = "2024-05-17T08:30:00+03:00"
    observation = {"code": {"code": "CULT"}, "value_string": value}
    tree = {**NO_ZONE, "effective": moment, "issued": moment, "observations": [observation]}
    row = f'{HEAD}\nB1;42;{moment};718-7;"{value}";;XN\n'
    (tmp_path / "results" / name).write_text(json.dumps(tree) if name.endswith("json") else row)
    assert await folder.collect() == 0
    assert not inbox.messages
    (reason,) = (tmp_path / "results" / "failed").glob(f"*{name}*.reason.txt")
    assert "observations[0].value_string: is a document in Base64" in reason.read_text()


async def test_folder_trace_shows_every_column_and_row(folder: FolderAdapter) -> None:
    parsed = await folder.parse_message("\n".join((HEAD, GOOD, "")).encode(), "day.csv")
    lines = {line.place: (line.text, line.skipped) for line in parsed.trace}
    assert lines["column 4"] == ("Code", False)
    assert lines["column 7"] == ("Analyser", True)
    assert lines["row 2"] == (GOOD, False)
    assert parsed.trace[-1].meaning == "http://loinc.org|718-7 = quantity 13.40 g/dL"


async def test_folder_reads_rejected_json_with_its_document(folder: FolderAdapter, inbox: RawInbox, tmp_path: Path) -> None:
    """Once the setting is mended, the same bytes become the report, with the document that was moved along."""
    tree = {**NO_ZONE, "documents": [{"file": "b1.pdf"}]}
    (tmp_path / "results" / "b1.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "results" / "b1.json").write_text(json.dumps(tree))
    assert await folder.collect() == 0
    ((name, raw),) = inbox.raw.items()
    assert raw is not None
    assert (tmp_path / "results" / "failed" / "b1.pdf").exists()
    refused = await folder.parse_message(raw, name)
    assert suggested(refused) == {("lis.files", "time_zone", None)}
    mended = FolderAdapter(folder_settings(tmp_path, time_zone="Europe/Moscow"), "files")
    ((message_id, report),) = contents(await mended.parse_message(raw, name)).items()
    assert message_id == accepted_id(name)
    assert "b1.json" not in message_id, "the name of a file may be the patient's"
    assert isinstance(report, LabReport)
    assert report.documents[0].content == b"%PDF-1.7"


async def test_folder_without_its_document_is_a_problem(folder: FolderAdapter) -> None:
    tree = {**NO_ZONE, "effective": "2024-05-17", "issued": "2024-05-17T08:30:00Z", "documents": [{"file": "b1.pdf"}]}
    (part,) = (await folder.parse_message(json.dumps(tree).encode(), "b1.json")).parts
    assert "documents[0].file" in (part.problem or "")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"{HEAD}\n{GOOD}\n".replace(";", ",").encode(), {("csv", "delimiter", '","')}),
        (f"{HEAD}\n{GOOD}\n".replace("13.40", "13,40").encode(), {("csv", "decimal_comma", "true")}),
        (f"{HEAD}\n{GOOD}\n".replace("XN", "Анализатор").encode("cp1251"), {("csv", "encoding", '"cp1251"')}),
        (f"{HEAD}\n{GOOD}\n".replace("XN", "Анализатор").encode("koi8-r"), {("csv", "encoding", '"koi8-r"')}),
        (f"{HEAD}\n{GOOD}\n".replace("XN", "Zählgerät").encode("cp1252"), {("csv", "encoding", '"cp1252"')}),
        (f"{HEAD}\n{GOOD}\n".replace("g/dL", "г/дл").encode("cp1251"), {("csv", "encoding", None)}),
        (f"{HEAD}\n{GOOD}\n".replace("g/dL", "µg/l").encode("cp1252"), {("csv", "encoding", None)}),
        (f"{HEAD}\n{GOOD}\n".replace("Tube", "TUBE ").encode(), {("csv.columns", "barcode", '"TUBE"')}),
        (f"{HEAD}\n{GOOD}\n".replace("Tube", "Sample").encode(), {("csv.columns", "barcode", None)}),
        (f"{HEAD}\n{GOOD}\n".replace("718-7", "HB").encode(), {("csv", "code_system", None)}),
        (f"{HEAD}\n{GOOD}\n".replace("Tube", "Tubes").encode(), {("csv.columns", "barcode", None)}),
        (f"{HEAD}X\n{GOOD};\n".replace("Tube", "TUBE").replace("X", ";_tube").encode(), {("csv.columns", "barcode", None)}),
        (f"{HEAD}\n{GOOD}\n".replace("+03:00", "").encode(), {("", "time_zone", None)}),
        (
            f"{HEAD}\n{GOOD}\n".replace("2024-05-17T08:30:00+03:00", "17.05.2024 8:30").encode(),
            {("csv", "date_format", '"%d.%m.%Y"'), ("", "time_zone", None)},
        ),
        (f"{HEAD}\n{GOOD}\n".replace("2024-05-17T08:30:00+03:00", "5/7/2024").encode(), {("csv", "date_format", None)}),
        (f"{HEAD}\n{GOOD}\n".encode(), set()),
    ],
)
async def test_folder_suggests_lines_of_settings(
    folder: FolderAdapter, tmp_path: Path, data: bytes, expected: set[tuple[str, str, str | None]]
) -> None:
    """The lines, once they are in the settings, make the file readable."""
    parsed = await folder.parse_message(data, "day.csv")
    assert suggested(parsed) == {(f"lis.files.{table}".rstrip("."), key, value) for table, key, value in expected}
    if any(value is None and key != "time_zone" for _, key, value in expected):
        return
    mended = FolderAdapter(with_lines(tmp_path, parsed.suggestions), "files")
    (part,) = (await mended.parse_message(data, "day.csv")).parts
    assert (part.problem, isinstance(part.content, LabReport)) == (None, True)


async def test_folder_suggests_columns_of_unknown_csv(tmp_path: Path) -> None:
    adapter = FolderAdapter(folder_settings(tmp_path, csv=None), "files")
    parsed = await adapter.parse_message(f"{HEAD}\n{GOOD}".replace(";", ",").encode(), "day.csv")
    assert parsed.parts[0].problem
    assert ("lis.files.csv", "delimiter", '","') in suggested(parsed)
    assert ("lis.files.csv.columns", "report_id", None) in suggested(parsed)
    assert "Report, Tube" in parsed.suggestions[-1].reason


async def test_folder_suggests_encoding_of_json(tmp_path: Path) -> None:
    tree = {**NO_ZONE, "issued": "2024-05-17T08:30:00Z", "effective": "2024-05-17", "report_id": "Ответ"}
    raw = json.dumps(tree, ensure_ascii=False).encode("cp1251")
    for encoding, expected in (("utf-8", {("lis.files", "encoding", '"cp1251"')}), ("cp1251", set())):
        adapter = FolderAdapter(folder_settings(tmp_path, encoding=encoding), "files")
        parsed = await adapter.parse_message(raw, "a.json")
        assert suggested(parsed) == expected
        assert bool(parsed.parts[0].problem) == bool(expected)


def with_lines(tmp_path: Path, suggestions: tuple[MapSuggestion, ...]) -> FolderSettings:
    csv: dict[str, Any] = {"columns": dict(COLUMNS)}
    more: dict[str, Any] = {}
    for one in suggestions:
        value = json.loads(one.value) if one.value else "Europe/Moscow"
        {"lis.files": more, "lis.files.csv": csv, "lis.files.csv.columns": csv["columns"]}[one.table][one.key] = value
    return folder_settings(tmp_path, **more, csv=csv)


async def test_sql_reads_rejected_row_under_its_id(tmp_path: Path, inbox: RawInbox) -> None:
    url = f"sqlite:///{tmp_path / 'lis.db'}"
    tables, engine = make_tables("lab_", None), create_engine(url)
    moment = "2024-05-17T08:30:00"
    head = {"report_id": "B1", "order_key": "R1", "status": "final", "effective_at": moment, "issued_at": moment, "ready": 1}
    with engine.begin() as connection:
        for statement in filter(str.strip, create_statements("sqlite", "lab_").split(";")):
            connection.execute(text(statement))
        connection.execute(insert(tables.results).values(id=7, **head))
        connection.execute(insert(tables.values).values(result_id=7, position=0, code="718-7", value="<13.40", unit="g/dL"))
        connection.execute(
            insert(tables.results).values({**head, "id": 8, "effective_at": moment + "Z", "issued_at": moment + "Z"})
        )
        connection.execute(insert(tables.values).values(result_id=8, position=0, code="718-7", value=DATA))
    adapter = SqlAdapter(SqlSettings.model_validate({"url": url}), "tables")
    await adapter.start(inbox)
    assert await adapter.collect() == 0
    with engine.begin() as connection:
        assert "is a document in Base64" in connection.execute(text("select fault from lab_results where id = 8")).scalar_one()
        connection.execute(text("delete from lab_results where id = 8"))
    name, raw = next(iter(inbox.raw.items()))
    assert raw is not None
    refused = await adapter.parse_message(raw, name)
    assert (refused.parts[0].content, suggested(refused)) == (None, {("lis.tables", "time_zone", None)})
    await adapter.stop()
    mended = SqlAdapter(SqlSettings.model_validate({"url": url, "time_zone": "Europe/Moscow"}), "tables")
    await mended.start(inbox)
    with engine.begin() as connection:
        connection.execute(text("update lab_results set fault = null"))
    parsed = await mended.parse_message(raw, name)
    assert await mended.collect() == 1
    assert contents(parsed) == inbox.messages
    places = {line.place: line.meaning for line in parsed.trace}
    assert places["observations[0]"] == "http://loinc.org|718-7 = quantity <13.40 g/dL"
    await mended.stop()
    engine.dispose()


async def test_http_reads_rejected_body_under_its_id(inbox: RawInbox) -> None:
    lis = HttpLis(free_port())
    given = {"url": lis.url, "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "port": lis.agent_port}
    adapter = HttpAdapter(HttpSettings.model_validate(given), "web")
    await adapter.start(inbox)
    try:
        body, good = json.dumps({**NO_ZONE, "colour": "red"}).encode(), dump_message(REPORT)
        text = dump_message(
            replace(REPORT, observations=(replace(REPORT.observations[0], value_quantity=None, value_string=DATA),))
        )
        for name, one, expected in (("m1", body, 422), ("m2", good, 200), ("m3", text, 422)):
            status, _ = await asyncio.to_thread(lis.post, one, signed_headers(LIS_SECRET, name, one))
            assert status == expected
        (name, raw), (_, document) = inbox.raw.items()
        assert document == text
        assert raw == body
        refused = await adapter.parse_message(body, name)
        assert refused.parts[0].message_id == name
        assert [line.place for line in refused.trace if line.skipped] == ["colour"]
        assert suggested(refused) == {("lis.web", "time_zone", None)}
        assert contents(await adapter.parse_message(good, "m2")) == inbox.messages
    finally:
        await adapter.stop()
        await asyncio.to_thread(lis.close)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"kind": "fax"}', b"a;b;c", b"\x00" * 50])
async def test_unreadable_message_is_one_part_with_problem(folder: FolderAdapter, raw: bytes) -> None:
    http = HttpAdapter(HttpSettings(url="http://x/", secret=AGENT_SECRET, incoming_secret=LIS_SECRET), "web")
    for parser in (folder, http):
        for name in ("-", "a.json", "a.csv", "/srv/files/a.txt"):
            (part,) = (await parser.parse_message(raw, name)).parts
            assert part.problem
            assert part.content is None
