"""`lab-agent adapter NAME try` from outside: what it shows, what it hides, what it adds, and its exit codes."""

from __future__ import annotations

import io
import json
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from lab_agent.domain.state_machines import LineState
from tests.harness.dialects import ORDER, Dialect, line_key, put_order
from tests.harness.documents import PDF
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


def test_message_is_tried_before_anything_is_configured(cli: Cli, message: Path) -> None:
    done = cli("adapter", "hl7v2", "try", str(message))
    assert done.code == 1
    assert "13.20 g/dL" in done.out
    assert "code 'HGB' is not mapped" in done.out
    assert "\nHGB,,,\n" in done.out
    assert "not known: there are no settings" in done.err
    assert [path.name for path in message.parent.iterdir()] == [message.name]


def test_patient_is_shown_on_request_alone(cli: Cli, message: Path) -> None:
    hidden = cli("adapter", "hl7v2", "try", str(message))
    shown = cli("adapter", "hl7v2", "try", str(message), "--show-patient")
    for form in ((), ("--json",)):
        done = cli("adapter", "hl7v2", "try", str(message), *form)
        assert "Sample" not in done.out + done.err
        assert "19800229" not in done.out + done.err
    assert "PID|1||77||Sample^Anna" in shown.out
    assert "Sample Anna; 1980-02-29" in shown.out
    assert "birth" not in hidden.out


def test_terminal_is_not_steered(cli: Cli, message: Path) -> None:
    message.write_text(MESSAGE.format(line=line_key(0)).replace("Haemoglobin", "\x1b[2J\u202e"), newline="")
    for form in ((), ("--json",), ("--show-patient",)):
        assert not {"\x1b", "\u202e"} & set(cli("adapter", "hl7v2", "try", str(message), *form).out)


def test_part_meets_its_order_and_nothing_is_touched(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    before = (connected.folder / "lab.db").read_bytes()
    done = cli("adapter", "hl7v2", "try", str(message), "--json")
    (part,) = json.loads(done.out)["messages"][0]["parts"]
    assert done.code == 0
    assert (part["fate"], part["order"], part["lines"]) == ("delivered", ORDER, [line_key(0)])
    assert part["observations"][0] | {"sent_as": "718-7", "value": "13.20 g/dL", "status": "final"} == part["observations"][0]
    assert connected.write(lambda uow: uow.orders.line(line_key(0))).state is LineState.ACCEPTED  # type: ignore[union-attr]
    assert json.loads(cli("results", "list", "--json").out) == []
    assert (connected.folder / "lab.db").read_bytes() == before
    assert not (connected.folder / "hl7v2").exists()


@pytest.mark.parametrize(("cut", "fate"), [(0, "delivered"), (9, "waits")])
def test_cut_off_document_waits_as_it_would_live(
    cli: Cli, connected: LaboratoryFolder, message: Path, cut: int, fate: str
) -> None:
    data = b64encode(PDF[: len(PDF) - cut]).decode()
    document = f"OBX|2|ED|PDF^Report^L||^application^pdf^Base64^{data[:76]}\n{data[76:]}||||||F\r"
    message.write_text(MESSAGE.format(line=line_key(0)) + document, newline="")
    (part,) = json.loads(cli("adapter", "hl7v2", "try", str(message), "--json").out)["messages"][0]["parts"]
    assert (part["fate"], part["documents"]) == (fate, 1)
    assert ("documents[0]: is cut off or damaged" in part["reason"]) == (fate == "waits")


def test_order_that_is_not_known_is_missing(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line="P-17"), newline="")
    done = cli("adapter", "hl7v2", "try", str(message))
    assert done.code == 1
    assert "accession F1: no order here is known by it" in done.out
    assert "718-7" in done.out  # what its values become is shown all the same


def test_message_is_taken_as_if_it_named_an_order(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line="P-17"), newline="")
    done = cli("adapter", "hl7v2", "try", str(message), "--order", ORDER, "--json")
    (part,) = json.loads(done.out)["messages"][0]["parts"]
    assert (done.code, part["fate"], part["lines"]) == (0, "delivered", [line_key(0)])
    assert cli("adapter", "hl7v2", "try", str(message), "--order", "RNONE").code == 2


def test_rejected_specimen_rejects_the_line(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    text = MESSAGE.format(line=line_key(0)).partition("OBX|")[0] + "SPM|1||||||||||||||||||||RC^clotted\r"
    message.write_text(text, newline="")
    (part,) = json.loads(cli("adapter", "hl7v2", "try", str(message), "--json").out)["messages"][0]["parts"]
    assert part["fate"] == "rejects_lines"
    assert part["not_performed"] == [f"{line_key(0)}: clotted"]


def test_test_that_the_order_does_not_have_is_a_line_for_the_map(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line="P-17").replace("CBC^", "X17^"), newline="")
    done = cli("adapter", "hl7v2", "try", str(message), "--order", ORDER, "--json")
    (line,) = json.loads(done.out)["missing"]["map"]
    assert (done.code, line["table"], line["key"], line["value"]) == (1, "tables.items", "X17", None)


def test_write_asks_and_keeps_what_is_there(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    text = MESSAGE.format(line=line_key(0)).replace("HGB^", "HB2^").replace("|||F\rNTE", "|||Q\rNTE").replace("13.20", "13,20")
    message.write_text(text, newline="")
    command = ("adapter", "hl7v2", "try", str(message), "--write")
    refused = cli(*command, stdin="final\nn\n")
    assert (connected.folder / "map.toml").read_text() == "# Ours.\n"
    assert "+ decimal_comma = true" in refused.err
    done = cli(*command, stdin="final\ny\n718-8\n718-7\ny\n")
    assert done.code == 0, done.err
    assert "'718-8' cannot be the loinc of HB2" in done.err
    written = (connected.folder / "map.toml").read_text()
    assert written.startswith("# Ours.\n")
    assert '[tables.observation_status]\nQ = "final"\n' in written
    assert (connected.folder / "tables" / "codes.csv").read_text() == "code,loinc\nHGB,718-7\nHB2,718-7\n"


def test_end_of_input_says_what_was_added(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    """The second round asks again: by then the map is another one."""
    text = MESSAGE.format(line=line_key(0)).replace("HGB^", "HB2^").replace("13.20", "13,20")
    message.write_text(text, newline="")
    command = ("adapter", "hl7v2", "try", str(message), "--write")
    unchanged = cli(*command, stdin="")
    assert (unchanged.code, "nothing was changed" in unchanged.err) == (2, True)
    assert (connected.folder / "map.toml").read_text() == "# Ours.\n"
    changed = cli(*command, stdin="y\n")
    assert (changed.code, "nothing was changed" in changed.err) == (2, False)
    assert "decimal_comma = true" in (connected.folder / "map.toml").read_text()


def test_unit_without_table_has_its_own_exit_code(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    assert cli("adapter", "hl7v2", "try", str(message)).code == 0
    (connected.folder / "tables" / "units.csv").unlink()
    done = cli("adapter", "hl7v2", "try", str(message), "--json")
    found = json.loads(done.out)
    assert (done.code, found["complete"], found["uncoded_units"]) == (3, True, ["g/dL"])
    message.write_text(MESSAGE.format(line=line_key(0)).replace("HGB^", "X^"), newline="")
    assert cli("adapter", "hl7v2", "try", str(message)).code == 1


def test_comments_and_what_is_not_sent_are_shown(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line=line_key(0)).replace("seen by Sample", "drawn twice"), newline="")
    (part,) = json.loads(cli("adapter", "hl7v2", "try", str(message), "--json").out)["messages"][0]["parts"]
    assert part["comments"] == ["HGB: drawn twice"]
    assert part["not_sent"] == ["the comment of HGB (results.send_notes)", "N of HGB (results.send_interpretation)"]
    connected.config.write_text(connected.config.read_text() + "send_notes = true\nsend_interpretation = true\n")
    (part,) = json.loads(cli("adapter", "hl7v2", "try", str(message), "--json").out)["messages"][0]["parts"]
    assert (part["comments"], part["not_sent"]) == (["HGB: drawn twice"], [])


@pytest.mark.parametrize("value", ["****", "neg", "5."])
def test_text_for_a_number_is_shown_as_it_is_read(cli: Cli, connected: LaboratoryFolder, message: Path, value: str) -> None:
    message.write_text(MESSAGE.format(line=line_key(0)).replace("13.20", value), newline="")
    done = cli("adapter", "hl7v2", "try", str(message))
    assert f"HGB = {value}" in done.out
    assert "invalid" not in done.out


def test_settings_get_their_lines_too(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line=line_key(0)).replace("+0000", ""), newline="")
    done = cli("adapter", "hl7v2", "try", str(message), "--write", stdin="Europe/Berlin\ny\n")
    assert done.code == 0, done.err
    assert 'mapping = "map.toml"\ntime_zone = "Europe/Berlin"\n[results]' in connected.config.read_text()


def test_map_that_would_not_load_is_not_written(cli: Cli, connected: LaboratoryFolder, message: Path) -> None:
    message.write_text(MESSAGE.format(line=line_key(0)).replace("|||F\rNTE", "|||Q\rNTE"), newline="")
    done = cli("adapter", "hl7v2", "try", str(message), "--write", stdin="nonsense\ny\n")
    assert done.code == 2
    assert "tables.observation_status.Q is 'nonsense'" in done.err
    assert (connected.folder / "map.toml").read_text() == "# Ours.\n"


def test_standard_input_is_read(cli: Cli, connected: LaboratoryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(MESSAGE.format(line=line_key(0)).encode()))
    monkeypatch.setattr("lab_agent.cli.adapter_try.sys.stdin", given)
    monkeypatch.setattr("lab_agent.cli.adapter_try._read_standard_input", given.buffer.read)
    assert cli("adapter", "hl7v2", "try", "-").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hl7v3", "try", "one.hl7"), "no adapter hl7v3"),
        (("hl7v2", "try", "none.hl7"), "no such file"),
        (("hl7v2", "try", "one.hl7", "--yes"), "--yes belongs to --write"),
        (("hl7v2", "try", "one.hl7", "--set", "time_zone"), "KEY=VALUE"),
        (("folder", "try", "one.hl7", "--set", "csv.=excel-de"), "KEY=VALUE"),
        (("hl7v2", "try", "one.hl7", "--set", "time_zone=Mars"), "time_zone"),
        (("hl7v2", "try", "one.hl7", "--order", "RX"), "no order is known"),
        (("hl7v2", "try", "one.hl7", "--json", "--write"), "--write asks questions"),
    ],
)
def test_mistakes_of_use_have_their_own_exit_code(cli: Cli, message: Path, arguments: tuple[str, ...], words: str) -> None:
    done = cli("adapter", *arguments)
    assert done.code == 2
    assert words in done.err


def test_other_adapters_try_too(cli: Cli, tmp_path: Path) -> None:
    report = {
        "report_id": "B1", "order": "R1", "status": "final", "effective": "2026-03-02", "issued": "2026-03-02T10:00:00Z",
        "observations": [{"code": {"code": "718-7"}, "value_quantity": {"value": 13.20, "unit": "g/dL"}}],
    }  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(report).replace("13.2,", "13.20,"))
    for name in ("folder", "sql", "http"):
        done = cli("adapter", name, "try", "r.json")
        assert (done.code, "13.20 g/dL" in done.out) == (3, True), done.out
    (tmp_path / "r.csv").write_text("report_id;barcode;effective;code;value;unit\nB1;42;2026-03-02T10:00:00Z;718-7;13,20;g/dL\n")
    added = cli("adapter", "folder", "try", "r.csv", "--map", "folder.toml", "--write", "--yes")
    assert added.code == 3, added.out
    assert (tmp_path / "folder.toml").read_text() == "[csv]\ndecimal_comma = true\n"


PATIENT = {"family": "Quarkington", "given": ["Xerxes"], "birth_date": "1971-04-05", "gender": "female"}
REPORT = {
    "report_id": "B1", "order": "R1", "status": "final", "effective": "2026-03-02", "issued": "2026-03-02T10:00:00Z",
    "patient": PATIENT,
    "observations": [{"code": {"code": "718-7"}, "value_quantity": {"value": 132, "unit": "g/L"}, "note": "for Quarkington"}],
}  # fmt: skip
COLUMNS = ("family", "given", "birth_date", "sex")
HEADINGS = "report_id;barcode;effective;code;value;unit;patient_family;patient_given;patient_birth_date;patient_sex"
ROW = "B1;42;2026-03-02T10:00:00Z;718-7;132;g/L;Quarkington;Xerxes;1971-04-05;female"
PERSONAL = ("Quarkington", "Xerxes", "1971", "female")


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("folder", "r.csv", f"{HEADINGS}\n{ROW}\n"),
        ("folder", "bad.csv", f"{HEADINGS}\n{ROW.replace('132', 'x').replace('1971-04-05', '1971-44-05')}\n"),
        ("folder", "unread.csv", f"{HEADINGS.replace('patient_', '')}\n{ROW}\n"),
        ("folder", "r.json", json.dumps(REPORT)),
        ("http", "r.json", json.dumps(REPORT)),
        ("sql", "bad.json", json.dumps({**REPORT, "status": "nothing", "patient": {**PATIENT, "birth_date": "1971-44-05"}})),
        ("http", "more.json", json.dumps({**REPORT, "patientName": "Xerxes Quarkington", "sex": "female"})),
        ("folder", "odd.json", json.dumps({**REPORT, "patient": "Xerxes Quarkington, 1971, female"})),
    ],
)
def test_patient_of_any_format_is_shown_on_request(
    cli: Cli, tmp_path: Path, name: str, file: str, content: str, form: tuple[str, ...]
) -> None:
    (tmp_path / file).write_text(content)
    mapped = file.endswith(".csv") and "unread" not in file
    columns = ["--set", "csv.code_system=http://loinc.org"] if file.endswith(".csv") else []
    for column in COLUMNS if mapped else ():
        columns += ["--set", f"csv.columns.patient_{column}=patient_{column}"]
    hidden = cli("adapter", name, "try", file, *columns, *form)
    assert not [each for each in PERSONAL if each in hidden.out + hidden.err]
    assert "B1" in hidden.out
    shown = cli("adapter", name, "try", file, *columns, *form, "--show-patient")
    assert "Quarkington" in shown.out


def test_help_names_the_laboratory_system(cli: Cli) -> None:
    assert "NAME" in cli("adapter", "--help").out
    assert "try" in cli("adapter", "anything", "--help").out
    assert shutil.which("lab-agent") is None or "--order" in cli("adapter", "sql", "try", "--help").out
