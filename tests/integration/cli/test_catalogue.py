"""Catalogue, notices, explanations and API tokens by command."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import openpyxl
import pytest

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from tests.docs import documented
from tests.harness.paths import CATALOGUE, ROOT
from tests.integration.cli.conftest import edit


@pytest.fixture
def run(cli, lab):
    return cli


@pytest.fixture
def sample(run):
    """The same, with the sample catalogue in force."""
    done = run("catalogue", "import", str(CATALOGUE), "--yes")
    assert (done.code, "everything is new" in done.out) == (0, True), done.err
    return run


@pytest.mark.slow
def test_template_and_export_are_read_back(run, tmp_path):
    wanted = load_catalogue(CATALOGUE).version
    assert run("catalogue", "template", "sample", "--sample").code == 0
    assert load_catalogue(tmp_path / "sample").version == wanted
    assert run("catalogue", "template", "sample", "--sample").code == 1  # it exists already
    assert run("catalogue", "template", "sample", "--force").code == 0
    assert run("catalogue", "check", "sample").code == 1  # empty again
    assert run("catalogue", "export", "out.xlsx").err.count("has no catalogue yet") == 1, "nothing was activated"
    assert run("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert run("catalogue", "export", "out.xlsx").code == 0
    assert run("catalogue", "export", "out.xlsx").code == 1  # it exists already
    assert run("catalogue", "export", "out.xlsx", "--force").code == run("catalogue", "export", "csv").code == 0
    assert (load_catalogue(tmp_path / "out.xlsx").version, load_catalogue(tmp_path / "csv").version) == (wanted, wanted)
    assert "active already" in run("catalogue", "import", "out.xlsx").out


def test_import_shows_changes_and_asks(sample, tmp_path):
    sample("catalogue", "export", "new.xlsx")
    book = openpyxl.load_workbook(tmp_path / "new.xlsx")
    book["contract_items"]["C2"] = 500.5
    book["items"]["B3"] = "Sedimentation"
    book.save(tmp_path / "new.xlsx")
    shown = sample("catalogue", "diff", "new.xlsx").out
    assert "contract_items C-100 / 001.001: changed, price: 480.00 → 500.50" in shown
    assert "0 rows are new, 0 gone, 2 changed." in shown
    assert [each["kind"] for each in sample("catalogue", "diff", "new.xlsx", "--json").json()] == ["changed", "changed"]
    assert sample("catalogue", "import", "new.xlsx", stdin="n\n").code == 1
    assert "2 changed" in sample("catalogue", "diff", "new.xlsx").out
    assert sample("catalogue", "import", "new.xlsx", stdin="y\n").code == 0
    assert "0 rows are new, 0 gone, 0 changed." in sample("catalogue", "diff", "new.xlsx").out
    book["contract_items"]["C2"] = "free"
    book.save(tmp_path / "new.xlsx")
    for command in ("check", "diff", "import"):
        done = sample("catalogue", command, "new.xlsx")
        assert (done.code, "contract_items row 2, column price: 'free' is not a number" in done.err) == (1, True)


def test_settings_contracts_compared_with_catalogue(run, lab):
    edit(lab, "[exchange.contracts.C-200]", "[exchange.contracts.C-300]")
    assert "[exchange.contracts.C-300]: is not in the catalogue" in run("catalogue", "check", str(CATALOGUE)).out
    assert run("catalogue", "check", str(CATALOGUE), "--json").json()["contracts"] == {"C-100": 36, "C-200": 20}


def eta(run, words, *more):
    return run("eta", *words.split(), *more)


def test_stop_and_delay_announced_listed_and_lifted(run):
    assert "lab-agent catalogue import" in eta(run, "stop 001.001 --until 3d").err
    assert run("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    assert eta(run, "list").out.strip() == "Nothing is stopped or delayed."
    assert eta(run, "stop 001.001 --until 3d --contract C-100").code == 0
    delayed = eta(run, "delay 002.001 --hours 1,5 --until 2090-01-01 --caption Reagent --json").json()
    assert (delayed["delay_hours"], delayed["caption"]) == ("1.5", "Reagent")
    assert [each["item"] for each in eta(run, "list --json").json()] == ["001.001", "002.001"]
    assert eta(run, "clear 001.001").code == 0
    assert eta(run, "clear 001.001").code == 1
    assert [each["item"] for each in eta(run, "list --json").json()] == ["002.001"]


def test_invalid_announcements_rejected(sample):
    """Each of them is refused in one place, which the page asks as well."""
    for words, said in (
        ("stop 001.0011 --until 3d", "did you mean '001.001'?"),
        ("stop 001.001 --until soon", "'soon' is not a time"),
        ("delay 001.001 --until 3d --hours 0", "is not above 0"),
    ):
        done = eta(sample, words)
        assert (done.code, said in done.err) == (1, True), words


def test_what_still_holds_after_a_notice_or_a_lift_is_told(sample, tmp_path):
    """What outweighs a notice, and what was set for every contract or in the sheet of the catalogue."""
    assert eta(sample, "stop 001.001 --until 2090-01-01 --contract C-100").out.count("\n") == 1
    output, still = eta(sample, "delay 001.001 --hours 5 --until 2089-01-01").out.splitlines()
    assert output.startswith("001.001 is delayed by 5 hours from")
    assert still.startswith("001.001 is still stopped in C-100 until 2090-01-01")
    said = eta(sample, "clear 001.001 --contract C-100").out
    assert said.startswith("Notice for 001.001 in C-100 lifted.\n001.001 is still delayed by 5 h in C-100 until 2089-01-01")
    assert "for every contract; run `lab-agent eta clear 001.001` to lift it.\n" in said
    again = eta(sample, "clear 001.001 --contract C-100")
    assert (again.code, "has no notice to lift — 001.001 is still delayed by 5 h in C-100" in again.err) == (1, True)
    sample("catalogue", "export", "new")
    with (tmp_path / "new" / "notices.csv").open("a") as notices:
        notices.write("001.001,C-100,delayed,2020-01-01T00:00+03:00,2090-01-02T00:00+03:00,24,Late\n")
    assert sample("catalogue", "import", "new", "--yes").code == 0
    listed = eta(sample, "list --json").json()
    assert [(each["contract"], each["by"] == "(sheet notices)") for each in listed] == [("(all)", False), ("C-100", True)]
    lifted, still = eta(sample, "clear 001.001").out.splitlines()
    assert lifted == "Notice for 001.001 lifted; no restriction any more in C-200."
    assert still.endswith("set in the catalogue's sheet notices; change it there and import it.")


# --- a stored catalogue that cannot be read ---------------------------------------------------------------------------------


def flip(lab, which="number = (SELECT max(number) FROM catalogues)"):
    """Flip two bytes, as a bad disk does."""
    with closing(sqlite3.connect(lab.folder / "lab.db")) as db, db:
        for number, content in db.execute(f"SELECT number, content FROM catalogues WHERE {which}").fetchall():
            broken = bytearray(content)
            broken[20] ^= 0xFF
            broken[len(broken) // 2] ^= 0xFF
            db.execute("UPDATE catalogues SET content = ? WHERE number = ?", (bytes(broken), number))


@pytest.fixture
def two(sample, run, tmp_path):
    new = shutil.copytree(CATALOGUE, tmp_path / "new")
    prices = new / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "500.50"))
    assert run("catalogue", "import", "new", "--yes").code == 0
    return "new"


@pytest.mark.parametrize("same", [True, False])
def test_import_repairs_unreadable_catalogue(run, lab, two, same):
    source = two if same else str(CATALOGUE)
    flip(lab)
    done = run("catalogue", "import", source, "--yes")
    assert done.code == 0, done.err
    assert "The active catalogue is unreadable: everything counts as new." in done.out
    assert "active already" in run("catalogue", "import", source).out
    assert run("catalogue", "export", "healed").code == 0
    assert load_catalogue(lab.folder / "healed").version == load_catalogue(lab.folder / source).version
    assert len(lab.write(lambda uow: uow.catalogues.active_since(datetime(2000, 1, 1, tzinfo=UTC)))) == (2 if same else 3)


@pytest.mark.slow
def test_diff_and_export_report_unreadable_catalogue(run, lab, two, tmp_path):
    flip(lab)
    as_json = run("catalogue", "diff", two, "--json")
    assert (as_json.json(), "everything counts as new" in as_json.err) == ([], True)
    done = run("catalogue", "export", "older")
    assert (done.code, "this is an older version" in done.err) == (0, True)
    assert load_catalogue(tmp_path / "older").version == load_catalogue(CATALOGUE).version
    flip(lab, "number = 1")
    assert "import it again" in run("catalogue", "export", "none").err


@pytest.mark.slow
def test_stop_works_while_catalogue_unreadable(run, lab, two):
    flip(lab)
    done = eta(run, "stop 001.001 --until 3d --json")
    assert (done.json()["item"], "were looked up in the one before it" in done.err) == ("001.001", True)
    flip(lab, "number = 1")
    done = eta(run, "delay whatever --hours 2 --until 3d")
    assert (done.code, "were not checked" in done.err) == (0, True)
    cleared = eta(run, "clear 001.001")
    assert (cleared.code, cleared.out) == (0, "Notice for 001.001 lifted.\n")
    assert "what its sheet notices says is not known" in cleared.err
    assert eta(run, "clear whatever").code == 0
    assert eta(run, "list").out == "Nothing is known to be stopped or delayed.\n"


def test_explain_shows_tubes_of_basket(run, tmp_path):
    """Of the documented basket; one that the API would refuse is refused."""
    basket = tmp_path / "basket.json"
    (content,) = documented.blocks((ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8"), "json")
    basket.write_text(content)
    assert "has no catalogue" in run("preanalytics", "explain", "basket.json").err
    assert run("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    said = run("preanalytics", "explain", "basket.json").out
    assert "190.100: 0.5 (needs its own tube)" in said
    assert run("preanalytics", "explain", "basket.json", "--catalogue", str(CATALOGUE)).out == said
    for content, said in (
        (b"{}", "contract: is missing"),
        (b'{"contract": "C-200", "contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}', "duplicate key"),
        ('{"contract": "C-100"}'.encode("utf-16"), "not JSON"),
        (b" " * 2_000_000, "is larger than"),
    ):
        basket.write_bytes(content)
        done = run("preanalytics", "explain", "basket.json")
        assert (done.code, done.out, said in done.err) == (1, "", True), said
    assert run("preanalytics", "explain", "none.json").code == 1


def test_api_tokens_created_listed_and_revoked(run, lab):
    made = run("api-token", "create", "exchange", "--contract", "C-100", "--days", "30", "--json").json()
    (kept,) = lab.write(lambda uow: uow.api_tokens.all())
    assert (kept.sha256, made["token"] in repr(kept)) == (hashlib.sha256(made["token"].encode()).hexdigest(), False)
    again = run("api-token", "create", "exchange", "--json").json()
    listed = run("api-token", "list", "--json").json()
    assert [(each["id"], each["valid"], each["contracts"]) for each in listed] == [
        (made["id"], True, "C-100"),
        (again["id"], True, "(all)"),
    ]
    assert made["token"] not in json.dumps(listed)
    assert run("api-token", "revoke", made["id"]).code == 0
    assert [each["valid"] for each in run("api-token", "list", "--json").json()] == [False, True]
    assert run("api-token", "revoke", "exchange").code == 0
    assert run("api-token", "revoke", "exchange").code == 1
    assert run("api-token", "create", "two words").code == 1
