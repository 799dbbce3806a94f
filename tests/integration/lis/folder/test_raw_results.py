"""A raw file read by `parse_message`: as `collect` reads it, under the same id, and nothing is touched; and what it lacks."""

import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.folder.raw_results import accepted_id
from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage
from tests.harness.documents import PDF
from tests.integration.lis.folder.conftest import Place

MOMENT = "2024-05-17T08:30:00"
CULTURE = {"code": {"system": "urn:ours", "code": "CULT"}, "value_string": "negative"}
NO_ZONE = {"report_id": "B1", "order": "R1", "status": "final", "effective": MOMENT, "issued": MOMENT, "observations": [CULTURE]}
COLUMNS = {"report_id": "Report", "barcode": "Tube", "effective": "Taken", "code": "Code", "value": "Value", "unit": "Unit"}
HEAD = "Report;Tube;Taken;Code;Value;Unit;Analyser"
GOOD = f"B1;42;{MOMENT}+03:00;718-7;13.40;g/dL;XN"
DATA = b64encode(PDF).decode()


def reader(place: Place, **more: Any) -> FolderAdapter:
    return FolderAdapter(place.settings(**{"document_wait": 0, "csv": {"columns": COLUMNS}, **more}), "files")


def suggested(parsed: ParsedMessage) -> set[tuple[str, str, str | None]]:
    return {(one.table, one.key, one.value) for one in parsed.suggestions}


async def test_rejected_csv_is_read_as_it_came(place: Place) -> None:
    """The good report has the id that it was stored under, so that a replay does not store it again."""
    place.put("day.csv", "\n".join((HEAD, GOOD, "B2;43;yesterday;718-7;140;g/L;XN", "")).encode())
    adapter = await place.adapter(csv={"columns": COLUMNS})
    assert await adapter.collect() == 1
    before = {*place.results.rglob("*")}
    ((name, raw),) = place.inbox.raw.items()
    good, bad = (await adapter.parse_message(raw, name)).parts
    assert {good.message_id: good.content} == place.inbox.messages
    assert (good.place, bad.place, bad.content) == ("rows 2", "rows 3", None)
    assert "effective" in (bad.problem or "")
    assert {*place.results.rglob("*")} == before


async def test_rejected_json_is_read_with_its_document(place: Place) -> None:
    """Once the setting is mended, the same bytes become the report, with the document that was moved along."""
    place.put("b1.pdf", b"%PDF-1.7")
    place.put("b1.json", json.dumps({**NO_ZONE, "documents": [{"file": "b1.pdf"}]}).encode())
    assert await (await place.adapter()).collect() == 0
    ((name, raw),) = place.inbox.raw.items()
    assert "b1.pdf" in place.names("failed")
    assert suggested(await reader(place).parse_message(raw, name)) == {("lis.files", "time_zone", None)}
    (part,) = (await reader(place, time_zone="Europe/Moscow").parse_message(raw, name)).parts
    assert part.message_id == accepted_id(name)
    assert "b1.json" not in part.message_id, "the name of a file may be the patient's"
    assert isinstance(part.content, LabReport)
    assert part.content.documents[0].content == b"%PDF-1.7"
    (place.results / "failed" / "b1.pdf").unlink()
    (part,) = (await reader(place, time_zone="Europe/Moscow").parse_message(raw, "b1.json")).parts
    assert "documents[0].file" in (part.problem or "")


@pytest.mark.parametrize("name", ["day.csv", "b1.json"])
@pytest.mark.parametrize("value", [DATA, DATA[:200], f"data:application/pdf;base64,{DATA}"])
async def test_document_as_text_is_refused(place: Place, name: str, value: str) -> None:
    moment, seen = f"{MOMENT}+03:00", {"code": {"code": "CULT"}, "value_string": value}
    tree = {**NO_ZONE, "effective": moment, "issued": moment, "observations": [seen]}
    row = f'{HEAD}\nB1;42;{moment};718-7;"{value}";;XN\n'
    place.put(name, (json.dumps(tree) if name.endswith("json") else row).encode())
    assert await (await place.adapter(csv={"columns": COLUMNS})).collect() == 0
    assert not place.inbox.messages
    assert "observations[0].value_string: is a document in Base64" in place.reasons()


async def test_trace_shows_every_column_and_row(place: Place) -> None:
    parsed = await reader(place).parse_message("\n".join((HEAD, GOOD, "")).encode(), "day.csv")
    lines = {line.place: (line.text, line.skipped) for line in parsed.trace}
    assert [lines[name] for name in ("column 4", "column 7", "row 2")] == [("Code", False), ("Analyser", True), (GOOD, False)]
    assert parsed.trace[-1].meaning == "http://loinc.org|718-7 = quantity 13.40 g/dL"


WHOLE, ZONE = f"{HEAD}\n{GOOD}\n", ("", "time_zone", None)
TAKEN = f"{MOMENT}+03:00"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (WHOLE.replace(";", ",").encode(), {("csv", "delimiter", '","')}),
        (WHOLE.replace("13.40", "13,40").encode(), {("csv", "decimal_comma", "true")}),
        *((WHOLE.replace("XN", name).encode(page), {("csv", "encoding", f'"{page}"')})
          for name, page in (("Анализатор", "cp1251"), ("Анализатор", "koi8-r"), ("Zählgerät", "cp1252"))),
        *((WHOLE.replace("g/dL", unit).encode(page), {("csv", "encoding", None)})
          for unit, page in (("г/дл", "cp1251"), ("µg/l", "cp1252"))),
        (WHOLE.replace("Tube", "TUBE ").encode(), {("csv.columns", "barcode", '"TUBE"')}),
        *((WHOLE.replace("Tube", name).encode(), {("csv.columns", "barcode", None)}) for name in ("Sample", "Tubes")),
        (f"{HEAD};_tube\n{GOOD};\n".replace("Tube", "TUBE").encode(), {("csv.columns", "barcode", None)}),
        (WHOLE.replace("718-7", "HB").encode(), {("csv", "code_system", None)}),
        (WHOLE.replace("+03:00", "").encode(), {ZONE}),
        (WHOLE.replace(TAKEN, "17.05.2024 8:30").encode(), {("csv", "date_format", '"%d.%m.%Y"'), ZONE}),
        (WHOLE.replace(TAKEN, "5/7/2024").encode(), {("csv", "date_format", None)}),
        (WHOLE.encode(), set()),
    ],
)  # fmt: skip
async def test_lines_of_settings_are_suggested(place: Place, data: bytes, expected: set[tuple[str, str, str | None]]) -> None:
    """The lines, once they are in the settings, make the file readable."""
    parsed = await reader(place).parse_message(data, "day.csv")
    assert suggested(parsed) == {(f"lis.files.{table}".rstrip("."), key, value) for table, key, value in expected}
    if any(value is None and key != "time_zone" for _, key, value in expected):
        return
    (part,) = (await reader(place, **with_lines(parsed.suggestions)).parse_message(data, "day.csv")).parts
    assert (part.problem, isinstance(part.content, LabReport)) == (None, True)


def with_lines(suggestions: Iterable[MapSuggestion]) -> dict[str, Any]:
    columns = dict(COLUMNS)
    csv: dict[str, Any] = {"columns": columns}
    more: dict[str, Any] = {"csv": csv}
    for one in suggestions:
        value = json.loads(one.value) if one.value else "Europe/Moscow"
        {"lis.files": more, "lis.files.csv": csv, "lis.files.csv.columns": columns}[one.table][one.key] = value
    return more


async def test_settings_of_unknown_files_are_suggested(place: Place) -> None:
    """The columns of a CSV file that nothing is said of, and the encoding of JSON."""
    parsed = await reader(place, csv=None).parse_message(f"{HEAD}\n{GOOD}".replace(";", ",").encode(), "day.csv")
    assert parsed.parts[0].problem
    assert suggested(parsed) >= {("lis.files.csv", "delimiter", '","'), ("lis.files.csv.columns", "report_id", None)}
    tree = {**NO_ZONE, "issued": f"{MOMENT}Z", "effective": "2024-05-17", "report_id": "Ответ"}
    raw = json.dumps(tree, ensure_ascii=False).encode("cp1251")
    for encoding, expected in (("utf-8", {("lis.files", "encoding", '"cp1251"')}), ("cp1251", set())):
        parsed = await reader(place, encoding=encoding).parse_message(raw, "a.json")
        assert (suggested(parsed), bool(parsed.parts[0].problem)) == (expected, bool(expected))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"kind": "fax"}', b"a;b;c", b"\x00" * 50])
async def test_unreadable_message_is_one_part_with_problem(place: Place, raw: bytes) -> None:
    http = HttpAdapter(HttpSettings(url="http://x/", secret="of-the-agent-itself", incoming_secret="of-the-lis-itself"), "web")
    for parser in (reader(place), http):
        for name in ("-", "a.json", "a.csv", "/srv/files/a.txt"):
            (part,) = (await parser.parse_message(raw, name)).parts
            assert part.problem
            assert part.content is None
