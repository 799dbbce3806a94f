"""`lab-agent adapter NAME try` from outside: what it shows, what it hides, what it adds, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab_agent.shared.state_machines import LineState
from tests.harness.dialects import ORDER, Dialect, line_key, put_order
from tests.integration.cli.conftest import SETTINGS, Cli, LaboratoryFolder

MESSAGE = (
    "MSH|^~\\&|LIS|LAB|||20260302101500+0000||ORU^R01|1|P|2.5\r"
    "PID|1||77||Sample^Anna||19800229|F\r"
    "ORC|RE|{line}\r"
    "OBR|1|{line}|F1|CBC^Blood count^L|||20260302090000+0000|||||||||||||||20260302101000+0000|||F\r"
    "OBX|1|NM|HGB^Haemoglobin^L||13.20|g/dL|12.0-16.0|N|||F\r"
    "NTE|1||seen by Sample\r"
)
DIALECT = Dialect("one", {"tests": {"100": "CBC", "101": "GLU"}, "becomes": []})
ADAPTER = """
[lis.hl7v2]
orders = { role = "client", port = 6661 }
folder = "hl7v2"
duplicates = "msh10"
mapping = "map.toml"
[results]
mappings = "tables"
"""


@pytest.fixture
def message(tmp_path: Path) -> Path:
    file = tmp_path / "one.hl7"
    file.write_text(MESSAGE.format(line=line_key(0)), newline="")
    return file


@pytest.fixture
def connected(lab: LaboratoryFolder) -> LaboratoryFolder:
    """A laboratory with an HL7 v2 system and an order of two lines."""
    lab.config.write_text(SETTINGS + ADAPTER, encoding="utf-8")
    (lab.folder / "map.toml").write_text("# Ours.\n", encoding="utf-8")
    (lab.folder / "tables").mkdir()
    (lab.folder / "tables" / "codes.csv").write_text("code,loinc\nHGB,718-7\n", encoding="utf-8")
    (lab.folder / "tables" / "units.csv").write_text("unit,ucum\ng/dL,g/dL\n", encoding="utf-8")
    lab.write(lambda uow: put_order(uow, DIALECT))
    return lab


def parts_of(cli: Cli, message: Path, *more: str) -> list[dict[str, Any]]:
    (found,) = json.loads(cli("adapter", "hl7v2", "try", str(message), *more, "--json").out)["messages"]
    return list(found["parts"])


def change(message: Path, *changes: tuple[str, str], line: str = "") -> None:
    text = MESSAGE.format(line=line or line_key(0))
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    message.write_text(text, newline="")


def test_message_is_tried_before_anything_is_configured(cli: Cli, message: Path) -> None:
    done = cli("adapter", "hl7v2", "try", str(message))
    shown = [each in done.out for each in ("13.20 g/dL", "code 'HGB' is not mapped", "\nHGB,,,\n")]
    assert (done.code, shown, "not known: there are no settings" in done.err) == (1, [True] * 3, True)
    assert [path.name for path in message.parent.iterdir()] == [message.name]


def test_patient_is_shown_on_request_alone_and_steers_no_terminal(cli: Cli, message: Path) -> None:
    for form in ((), ("--json",)):
        done = cli("adapter", "hl7v2", "try", str(message), *form)
        assert not [secret for secret in ("Sample", "19800229") if secret in done.out + done.err]
        assert form or "birth" not in done.out
    shown = cli("adapter", "hl7v2", "try", str(message), "--show-patient")
    assert "PID|1||77||Sample^Anna" in shown.out
    assert "Sample Anna; 1980-02-29" in shown.out
    change(message, ("Haemoglobin", "\x1b[2J\u202e"))
    for form in ((), ("--json",), ("--show-patient",)):
        assert not {"\x1b", "\u202e"} & set(cli("adapter", "hl7v2", "try", str(message), *form).out)


def test_part_meets_its_order_and_nothing_is_touched(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    before = (connected.folder / "lab.db").read_bytes()
    done = cli("adapter", "hl7v2", "try", str(message), "--json")
    (part,) = json.loads(done.out)["messages"][0]["parts"]
    assert done.code == 0
    assert (part["fate"], part["order"], part["lines"]) == ("delivered", ORDER, [line_key(0)])
    assert part["observations"][0] | {"sent_as": "718-7", "value": "13.20 g/dL", "status": "final"} == part["observations"][0]
    assert part["not_sent"] == ["the comment of HGB (results.send_notes)", "N of HGB (results.send_interpretation)"]
    assert connected.write(lambda uow: uow.orders.line(line_key(0))).state is LineState.ACCEPTED  # type: ignore[union-attr]
    assert json.loads(cli("results", "list", "--json").out) == []
    assert (connected.folder / "lab.db").read_bytes() == before
    assert not (connected.folder / "hl7v2").exists()


def test_unknown_order_is_missing_or_taken_as_named(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    change(message, line="P-17")
    done = cli("adapter", "hl7v2", "try", str(message))
    assert (done.code, "accession F1: no order here is known by it" in done.out) == (1, True)
    assert "718-7" in done.out  # what its values become is shown all the same
    (part,) = parts_of(cli, message, "--order", ORDER)
    assert (part["fate"], part["lines"]) == ("delivered", [line_key(0)])
    assert cli("adapter", "hl7v2", "try", str(message), "--order", "RNONE").code == 2
    change(message, ("CBC^", "X17^"), line="P-17")  # a test that the order does not have is a line for the map
    done = cli("adapter", "hl7v2", "try", str(message), "--order", ORDER, "--json")
    (line,) = json.loads(done.out)["missing"]["map"]
    assert (done.code, line["table"], line["key"], line["value"]) == (1, "tables.items", "X17", None)


def test_rejected_specimen_rejects_the_line(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    text = MESSAGE.format(line=line_key(0)).partition("OBX|")[0] + "SPM|1||||||||||||||||||||RC^clotted\r"
    message.write_text(text, newline="")
    (part,) = parts_of(cli, message)
    assert (part["fate"], part["not_performed"]) == ("rejects_lines", [f"{line_key(0)}: clotted"])


def test_write_asks_and_keeps_what_is_there(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    """Where the input ends it says what was added: the second round asks again, by then of another map."""
    change(message, ("HGB^", "HB2^"), ("|||F\rNTE", "|||Q\rNTE"), ("13.20", "13,20"))
    command = ("adapter", "hl7v2", "try", str(message), "--write")
    for answers in ("", "final\nn\n"):
        refused = cli(*command, stdin=answers)
        assert (connected.folder / "map.toml").read_text() == "# Ours.\n"
    assert "+ decimal_comma = true" in refused.err
    done = cli(*command, stdin="final\ny\n718-8\n718-7\ny\n")
    assert (done.code, "'718-8' cannot be the loinc of HB2" in done.err) == (0, True), done.err
    written = (connected.folder / "map.toml").read_text()
    assert written.startswith("# Ours.\n")
    assert '[tables.observation_status]\nQ = "final"\n' in written
    assert (connected.folder / "tables" / "codes.csv").read_text() == "code,loinc\nHGB,718-7\nHB2,718-7\n"
    (connected.folder / "map.toml").write_text("# Ours.\n")
    change(message, ("HGB^", "HB3^"), ("13.20", "13,20"))
    for answers, is_unchanged in (("", True), ("y\n", False)):
        ended = cli(*command, stdin=answers)
        assert (ended.code, "nothing was changed" in ended.err) == (2, is_unchanged)
        assert ("decimal_comma = true" in (connected.folder / "map.toml").read_text()) is not is_unchanged


def test_settings_get_their_lines_and_no_map_that_would_not_load(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    change(message, ("+0000", ""))
    done = cli("adapter", "hl7v2", "try", str(message), "--write", stdin="Europe/Berlin\ny\n")
    assert done.code == 0, done.err
    assert 'mapping = "map.toml"\ntime_zone = "Europe/Berlin"\n[results]' in connected.config.read_text()
    change(message, ("|||F\rNTE", "|||Q\rNTE"))
    done = cli("adapter", "hl7v2", "try", str(message), "--write", stdin="nonsense\ny\n")
    assert (done.code, "tables.observation_status.Q is 'nonsense'" in done.err) == (2, True)
    assert (connected.folder / "map.toml").read_text() == "# Ours.\n"


def test_unit_without_table_has_its_own_exit_code(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    (connected.folder / "tables" / "units.csv").unlink()
    done = cli("adapter", "hl7v2", "try", str(message), "--json")
    found = json.loads(done.out)
    assert (done.code, found["complete"], found["uncoded_units"]) == (3, True, ["g/dL"])
    change(message, ("HGB^", "X^"))
    assert cli("adapter", "hl7v2", "try", str(message)).code == 1


def test_mistakes_of_use_have_their_own_exit_code(cli: Cli, message: Path) -> None:
    for arguments, words in (
        ("hl7v3 try one.hl7", "no adapter hl7v3"),
        ("hl7v2 try none.hl7", "no such file"),
        ("hl7v2 try one.hl7 --yes", "--yes belongs to --write"),
        ("folder try one.hl7 --set csv.=excel-de", "KEY=VALUE"),
        ("hl7v2 try one.hl7 --set time_zone=Mars", "time_zone"),
        ("hl7v2 try one.hl7 --order RX", "no order is known"),
        ("hl7v2 try one.hl7 --json --write", "--write asks questions"),
    ):
        done = cli("adapter", *arguments.split())
        assert (done.code, words in done.err) == (2, True), arguments


PATIENT = {"family": "Quarkington", "given": ["Xerxes"], "birth_date": "1971-04-05", "gender": "female"}
REPORT = {
    "report_id": "B1", "order": "R1", "status": "final", "effective": "2026-03-02", "issued": "2026-03-02T10:00:00Z",
    "patient": PATIENT,
    "observations": [{"code": {"code": "718-7"}, "value_quantity": {"value": 132, "unit": "g/L"}, "note": "for Quarkington"}],
}  # fmt: skip


def test_other_adapters_try_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(REPORT).replace("132", "13.20"))
    for name in ("folder", "sql", "http"):
        done = cli("adapter", name, "try", "r.json")
        assert (done.code, "13.20 g/L" in done.out) == (3, True), done.out
    (tmp_path / "r.csv").write_text("report_id;barcode;effective;code;value;unit\nB1;42;2026-03-02T10:00:00Z;718-7;13,20;g/dL\n")
    added = cli("adapter", "folder", "try", "r.csv", "--map", "folder.toml", "--write", "--yes")
    assert added.code == 3, added.out
    assert (tmp_path / "folder.toml").read_text() == "[csv]\ndecimal_comma = true\n"


HEADINGS = "report_id;barcode;effective;code;value;unit;patient_family;patient_given;patient_birth_date;patient_sex"
ROW = "B1;42;2026-03-02T10:00:00Z;718-7;132;g/L;Quarkington;Xerxes;1971-04-05;female"


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("folder", "bad.csv", f"{HEADINGS}\n{ROW.replace('132', 'x').replace('1971-04-05', '1971-44-05')}\n"),
        ("folder", "unread.csv", f"{HEADINGS.replace('patient_', '')}\n{ROW}\n"),
        ("http", "r.json", json.dumps(REPORT)),
        ("sql", "bad.json", json.dumps({**REPORT, "status": "nothing", "patient": {**PATIENT, "birth_date": "1971-44-05"}})),
        ("http", "more.json", json.dumps({**REPORT, "patientName": "Xerxes Quarkington", "sex": "female"})),
        ("folder", "odd.json", json.dumps({**REPORT, "patient": "Xerxes Quarkington, 1971, female"})),
    ],
)
@pytest.mark.slow
def test_patient_of_any_format_is_shown_on_request(cli: Cli, tmp_path: Path, name: str, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    options = ["--set", "csv.code_system=http://loinc.org"] if file.endswith(".csv") else []
    for column in ("family", "given", "birth_date", "sex") if file == "bad.csv" else ():
        options += ["--set", f"csv.columns.patient_{column}=patient_{column}"]
    for form in ([], ["--json"]):
        hidden = cli("adapter", name, "try", file, *options, *form)
        assert not [each for each in ("Quarkington", "Xerxes", "1971", "female") if each in hidden.out + hidden.err]
        assert "B1" in hidden.out
        assert "Quarkington" in cli("adapter", name, "try", file, *options, *form, "--show-patient").out
