"""`lab-agent rehearse` from outside: a day that goes well, what it finds, and that it touches nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.paths import CATALOGUE
from tests.harness.paths import MAPPINGS as TABLES
from tests.integration.cli.conftest import SETTINGS, Cli, LaboratoryFolder

MAPPINGS = f'[results]\nmappings = "{TABLES}"\n'
CONTRACTS = "[exchange.contracts.C-100]\n[exchange.contracts.C-200]\n"
FOLDER = '[lis.folder]\norders = "orders"\nresults = "results"\n'
HL7 = """[lis]
default = "main"
[lis.main]
adapter = "hl7v2"
folder = "hl7v2"
duplicates = "none"
{more}
[lis.main.orders]
role = "client"
port = {port}
"""
HTTP = """[lis]
default = "main"
[lis.main]
adapter = "http"
url = "http://127.0.0.1:{port}"
secret = "0123456789abcdef"
incoming_secret = "fedcba9876543210"
"""
KINDS = {
    "http": HTTP,
    "sql": '[lis]\ndefault = "main"\n[lis.main]\nadapter = "sql"\nurl = "sqlite:///lis.db"\n',
    "hl7v2": HL7.replace("{more}", ""),
}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody who would notice a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def rehearsed(cli: Cli, *options: str, code: int) -> Any:
    done = cli("rehearse", "--json", "--seed", "one", *options)
    assert done.code == code, done.out + done.err
    return json.loads(done.out)


def configure(lab: LaboratoryFolder, *changes: tuple[str, str], more: str = MAPPINGS) -> None:
    text = SETTINGS + more
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    lab.config.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_good_day_completes_every_order_and_touches_nothing(cli: Cli, lab: LaboratoryFolder) -> None:
    configure(lab)
    before = _digests(lab.folder)
    day = rehearsed(cli, "--orders", "70", code=0)
    assert day["findings"] == []
    assert day["numbers"]["orders"] == day["numbers"]["completed"] == day["numbers"]["results"] == 70
    assert day["numbers"]["handed_over"] == day["numbers"]["messages"] == {"folder": 70}
    assert day["numbers"]["uploads"]["DiagnosticReport"] >= 70
    assert not [note for note in day["notes"] if "too few orders" in note]
    assert _digests(lab.folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_adapter_writes_its_orders_and_connects_to_nobody(
    cli: Cli, lab: LaboratoryFolder, listener: socket.socket, kind: str
) -> None:
    port = listener.getsockname()[1]
    configure(lab, (FOLDER, KINDS[kind].replace("{port}", str(port))), ("127.0.0.1:9", f"127.0.0.1:{port}"))
    day = rehearsed(cli, "--orders", "12", "--output", "kept", code=0)
    assert day["numbers"]["messages"] == {"main": 12}
    files = list((lab.folder / "kept" / "main").iterdir())
    assert len(files) == 12
    for file in files:
        key, content = file.stem, file.read_bytes()
        assert key.encode() in content
        assert content.startswith(b"MSH|") if kind == "hl7v2" else json.loads(content)
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert not (lab.folder / "lis.db").exists()


@pytest.mark.slow
def test_names_that_a_code_page_lacks_are_found(cli: Cli, lab: LaboratoryFolder) -> None:
    configure(lab, (FOLDER, HL7.replace("{more}", 'encoding = "iso-8859-1"').replace("{port}", "6661")))
    day = rehearsed(cli, "--orders", "20", code=1)
    (finding,) = day["findings"]
    assert finding["condition"] == "jobs.lis_rejected/main"
    assert "PID contains a character that the code page iso8859-1 lacks" in json.dumps(finding)
    assert finding["count"] + day["numbers"]["completed"] == 20


@pytest.mark.slow
def test_pool_that_does_not_last_the_day_is_found(cli: Cli, lab: LaboratoryFolder) -> None:
    pool = '[[api.pools]]\nname = "short"\npattern = "77####"\nfirst = 1\nlast = 20\n'
    configure(lab, more=MAPPINGS + pool)
    day = rehearsed(cli, "--orders", "30", code=1)
    (finding,) = day["findings"]
    assert (finding["kind"], "'short' is used up" in finding["text"]) == ("not_orderable", True)
    assert finding["count"] + day["numbers"]["orders"] == 30
    assert day["numbers"]["completed"] == day["numbers"]["orders"]
    assert day["numbers"]["labels"] <= 20


@pytest.mark.slow
def test_catalogue_that_is_named_is_taken_instead(cli: Cli, lab: LaboratoryFolder) -> None:
    configure(lab)
    shutil.copytree(CATALOGUE, lab.folder / "new")
    offered = lab.folder / "new" / "contract_items.csv"
    rows = offered.read_text(encoding="utf-8").splitlines(keepends=True)
    offered.write_text("".join(row for row in rows if not row.startswith("C-100") or ",001.001," in row), encoding="utf-8")
    made = []
    for output in ("kept", "again"):
        rehearsed(cli, "--orders", "5", "--contract", "C-100", "--catalogue", "new", "--output", output, code=0)
        orders = [json.loads(file.read_bytes()) for file in sorted((lab.folder / output / "folder").iterdir())]
        made.append([(order["key"], order["patient"]) for order in orders])
    assert made[0] == made[1], "the same seed gives the same orders"
    assert {line["item"] for order in orders for line in order["lines"]} == {"001.001"}
    assert {order["contract"] for order in orders} == {"C-100"}


def test_people_read_numbers_findings_and_mends(cli: Cli, lab: LaboratoryFolder) -> None:
    """A contract is missing in the settings."""
    configure(lab, ("[exchange.contracts.C-200]\n", ""))
    done = cli("rehearse", "--orders", "3")
    assert (done.code, "--seed" in done.err) == (1, True)
    assert re.search(r"^orders +3, 3 of them completed$", done.out, re.MULTILINE)
    assert "add the table [exchange.contracts.C-200]" in done.out


@pytest.mark.slow
def test_what_cannot_be_rehearsed_is_told(cli: Cli, lab: LaboratoryFolder) -> None:
    unchanged = ("", "")
    for changes, options, told in (
        ((f'catalogue = "{CATALOGUE}"', ""), (), "there is no catalogue"),
        ((CONTRACTS, "[exchange.contracts.C-9]\n"), (), "nothing can be ordered"),
        (unchanged, ("--contract", "C-999"), "C-999"),
        (unchanged, ("--output", "orders"), "exists already"),
        (unchanged, ("--catalogue", "nowhere"), "nowhere"),
    ):
        configure(lab, changes)
        done = cli("rehearse", "--orders", "2", *options)
        assert (done.code != 0, told in done.err, "Traceback" in done.err) == (True, True, False), told


def _digests(folder: Path) -> dict[str, str]:
    """Each file with what is in it; what SQLite keeps beside a database that was opened is no change of it."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(("-wal", "-shm")))
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
