"""The table of values (`tests/unit/lis/test_value_reading.py`) by every door: a value is the same by each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.testing import MemoryInbox
from lab_agent.lis.value_reading import ValueFault
from tests.harness.databases import create_staging_tables
from tests.harness.hl7_peer import read_message
from tests.unit.lis.test_value_reading import ALIKE, UNIT, WITH_COMMA, WITH_POINT, Case

MSH = "MSH|^~\\&|LIS|LAB|AGENT||20260518100000+0300||ORU^R01|1|P|2.5.1"
OBR = "OBR|1||{name}|GLU|||20260517083000+0300|||||||||||||||20260518090000+0300|||F"
COLUMNS = {name: name for name in ("report_id", "barcode", "effective", "code", "value", "value_type", "unit", "note")}
REFUSED = "refused"
NO_NUMBER_PARTS = re.compile(r"(?P<sign>[<>=≤≥⩽⩾≦≧]*)\s*(?P<rest>.*)", re.DOTALL)
POINT_CASES, COMMA_CASES = (*ALIKE, *WITH_POINT), (*ALIKE, *WITH_COMMA)


def expected(cases: Sequence[Case]) -> dict[str, str]:
    """What the clinic gets, by the text that was sent."""
    return {text: REFUSED if isinstance(meant, ValueFault) else meant for text, meant in cases}


def shown(one: ReportedObservation) -> str:
    """A value in the writing of the table; a number without its unit is not in it."""
    amount = one.value_quantity
    if amount is None:
        return str(one.value_string)
    return f"={amount.comparator or ''}{amount.value:f}" + ("" if amount.unit == UNIT else f" without {UNIT}")


def by_name(contents: Sequence[object], cases: Sequence[Case]) -> dict[str, str]:
    """What arrived of each case, which was sent as report R0, R1 and so on; what did not was refused."""
    found = {one.accession or one.report_id: shown(one.observations[0]) for one in contents if isinstance(one, LabReport)}
    return {text: found.get(f"R{place}", REFUSED) for place, (text, _) in enumerate(cases)}


def rows(cases: Sequence[Case]) -> bytes:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(COLUMNS), delimiter=";", restval="")
    table.writeheader()
    for place, (value, _) in enumerate(cases):
        given = {"barcode": "42", "effective": "2026-05-17T08:30:00Z", "code": "GLU", "value": value, "unit": UNIT}
        table.writerow({"report_id": f"R{place}", **given})
    return text.getvalue().encode()


@pytest.mark.parametrize(("comma", "cases"), [(False, POINT_CASES), (True, COMMA_CASES)])
async def test_csv_value_is_that_of_the_table(tmp_path: Path, comma: bool, cases: tuple[Case, ...]) -> None:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    table = {"columns": COLUMNS, "decimal_comma": comma, "date_format": "%d.%m.%Y"}
    given = {"orders": tmp_path / "orders", "results": tmp_path / "results", "settle": 0, "csv": table}
    adapter, inbox = FolderAdapter(FolderSettings.model_validate(given), "folder"), MemoryInbox()
    await adapter.start(inbox)
    (tmp_path / "results" / "day.csv").write_bytes(rows(cases))
    await adapter.collect()
    await adapter.stop()
    tried = [part.content for part in (await adapter.parse_message(rows(cases), "day.csv")).parts]
    assert by_name(inbox.contents, cases) == by_name(tried, cases) == expected(cases)


@pytest.mark.slow
async def test_row_value_is_that_of_the_table(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lis.db'}"
    engine, tables = create_staging_tables(url)
    head = {"ready": 1, "order_key": "R1", "status": "final", "effective_at": "2026-05-17T08:30:00Z"}
    with engine.begin() as connection:
        for place, (value, _) in enumerate(POINT_CASES):
            result = insert(tables.results).values(report_id=f"R{place}", issued_at="2026-05-17T09:00:00Z", **head)
            (number,) = connection.execute(result).inserted_primary_key or (0,)
            row = {"result_id": number, "position": 0, "code": "2345-7", "value": value, "unit": UNIT}
            connection.execute(insert(tables.values).values(row))
    adapter, inbox = SqlAdapter(SqlSettings.model_validate({"url": url, "batch": 1000}), "sql"), MemoryInbox()
    await adapter.start(inbox)
    await adapter.collect()
    await adapter.stop()
    assert by_name(inbox.contents, POINT_CASES) == expected(POINT_CASES)
    with engine.connect() as connection:
        faults = [fault for fault in connection.execute(select(tables.results.c.fault)).scalars() if fault]
    engine.dispose()
    assert len(faults) == len(inbox.rejections) == list(expected(POINT_CASES).values()).count(REFUSED)
    assert all(fault.startswith("observations[0].value: ") for fault in faults)


def structured(text: str, meant: str | ValueFault) -> str | None:
    """A text as SN; None for one that this type does not have."""
    parts = NO_NUMBER_PARTS.fullmatch(text)
    return f"{parts['sign']}^{parts['rest']}" if parts and (isinstance(meant, ValueFault) or meant.startswith("=")) else None


@pytest.mark.parametrize("kind", ["NM", pytest.param("ST", marks=pytest.mark.slow), pytest.param("SN", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("comma", "cases"), [(False, POINT_CASES), (True, COMMA_CASES)])
async def test_obx_value_is_that_of_the_table(tmp_path: Path, kind: str, comma: bool, cases: tuple[Case, ...]) -> None:
    """One message with an OBR for each: `tests/dialects/test_inputs.py` shows that it is read alike when it arrives."""
    sent = [case for case in cases if kind != "SN" or structured(*case) is not None]
    segments = [MSH]
    for place, case in enumerate(sent):
        written = structured(*case) if kind == "SN" else case[0]
        segments += [OBR.format(name=f"R{place}"), f"OBX|1|{kind}|2345-7^Glucose^LN||{written}|{UNIT}|||||F"]
    read = await read_message(tmp_path, *segments, mapping="[results]\ndecimal_comma = true\n" if comma else "")
    assert by_name(read.reports, sent) == expected(sent)
