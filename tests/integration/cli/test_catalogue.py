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


@pytest.fixture
def run(cli, lab):
    """The command line of a laboratory that is set up."""
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
    for target in ("sample.xlsx", "sample"):
        assert run("catalogue", "template", target, "--sample").code == 0
        assert load_catalogue(tmp_path / target).version == wanted
        assert run("catalogue", "template", target, "--sample").code == 1  # it exists already
        assert run("catalogue", "template", target, "--force").code == 0
        assert run("catalogue", "check", target).code == 1  # empty again
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
    assert "items 001.002: changed, caption: Erythrocyte sedimentation rate → Sedimentation" in shown
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


def test_second_notice_of_same_start_is_a_change(sample, tmp_path):
    sample("catalogue", "export", "new")
    notices = tmp_path / "new" / "notices.csv"
    delay = "001.001,,delayed,2020-01-01T00:00+03:00,2090-01-02T00:00+03:00,24,\n"
    notices.write_text(notices.read_text() + delay)
    assert sample("catalogue", "import", "new", "--yes").code == 0
    stop = "001.001,,stopped,2020-01-01T00:00+03:00,2090-01-01T00:00+03:00,,\n"
    notices.write_text(notices.read_text().replace(delay, stop + delay))
    assert "1 rows are new, 0 gone, 0 changed." in sample("catalogue", "diff", "new").out
    assert "active already" not in sample("catalogue", "import", "new", "--yes").out
    assert "active already" in sample("catalogue", "import", "new").out
    notices.write_text(notices.read_text() + stop)
    assert "has the same item, contract, status, start and end as row" in sample("catalogue", "check", "new").err


def test_settings_contracts_compared_with_catalogue(run, lab):
    text = lab.config.read_text().replace("[exchange.contracts.C-200]", "[exchange.contracts.C-300]")
    lab.config.write_text(text + '[[api.pools]]\nname = "p"\npattern = "####"\nlast = 9\ncontracts = ["C-20"]\n')
    shown = run("catalogue", "check", str(CATALOGUE)).out
    assert "[exchange.contracts.C-300]: is not in the catalogue" in shown
    assert "contracts, C-200: is not in the settings" in shown
    assert "[[api.pools]] p: contract 'C-20' is not in the catalogue — did you mean 'C-200'?" in shown
    assert "36 items" in shown
    assert run("catalogue", "check", str(CATALOGUE), "--json").json()["contracts"] == {"C-100": 36, "C-200": 20}


def eta(run, words, *more):
    return run("eta", *words.split(), *more)


def test_stop_and_delay_announced_listed_and_lifted(run):
    """A test is stopped or delayed at once, and the notice is listed and lifted."""
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
    elsewhere = "'001.002' is not offered in contract C-200 — name a contract that offers it: C-100"
    for words, said in (
        ("stop 001.0011 --until 3d", "did you mean '001.001'?"),
        ("stop 001.001 --until soon", "'soon' is not a time"),
        ("stop 001.001 --until 2020-01-01", "is not in the future"),
        ("stop 001.001 --until 3d --contract C-10", "did you mean"),
        ("stop 001.002 --until 3d --contract C-200", elsewhere),
        ("delay 001.001 --until 3d --hours 0", "is not above 0"),
        ("delay 001.001 --until 3d --hours x", "'x' is not a number"),
    ):
        done = eta(sample, words)
        assert (done.code, said in done.err) == (1, True), words


def test_general_stop_outlives_lift_of_contract_stop(sample):
    """A stop for every contract outlives the lift of the one for a single contract."""
    assert eta(sample, "stop 001.001 --until 2090-01-01").code == 0
    assert eta(sample, "stop 001.001 --until 2090-01-01 --contract C-100").code == 0
    said = eta(sample, "clear 001.001 --contract C-100").out
    assert said.startswith("Notice for 001.001 in C-100 lifted.\n001.001 is still stopped in C-100 until 2090-01-01")
    assert "for every contract; run `lab-agent eta clear 001.001` to lift it.\n" in said
    again = eta(sample, "clear 001.001 --contract C-100")
    assert (again.code, "has no notice to lift — 001.001 is still stopped in C-100" in again.err) == (1, True)
    assert eta(sample, "clear 001.001").out == "Notice lifted: 001.001 has no restriction any more.\n"


def test_notices_of_one_contract_and_outweighed_ones_are_told(sample):
    """A notice that a graver one outweighs is reported as such; a lift in one contract names that contract."""
    assert eta(sample, "stop 001.001 --until 2090-01-01 --contract C-100").out.count("\n") == 1
    output, still = eta(sample, "delay 001.001 --hours 5 --until 2089-01-01").out.splitlines()
    assert output.startswith("001.001 is delayed by 5 hours from")
    assert still.startswith("001.001 is still stopped in C-100 until 2090-01-01")
    later = eta(sample, "delay 001.001 --hours 6 --from 2088-01-01 --until 2089-01-01 --contract C-100")
    assert later.out.count("\n") == 1  # nobody can say today what will hold then
    assert eta(sample, "clear 001.001").code == 0
    eta(sample, "stop 001.001 --until 2090-01-01 --contract C-100")
    eta(sample, "delay 001.001 --hours 5 --until 2090-01-01 --contract C-200")
    lifted = eta(sample, "clear 001.001 --contract C-100").out
    assert lifted == "Notice lifted: 001.001 has no restriction in C-100 any more.\n"
    assert eta(sample, "clear 001.001").out == "Notice lifted: 001.001 has no restriction any more.\n"


def test_sheet_notices_listed_and_mentioned_after_lift(sample, tmp_path):
    run = sample
    run("catalogue", "export", "new")
    notices = tmp_path / "new" / "notices.csv"
    rows = (
        "001.001,C-100,delayed,2020-01-01T00:00+03:00,2090-01-02T00:00+03:00,24,Late",
        "001.001,C-200,stopped,2089-01-01T12:00+00:00,2090-01-02T00:00+03:00,,",
    )
    notices.write_text(notices.read_text() + "\n".join(rows))
    assert run("catalogue", "import", "new", "--yes").code == 0
    listed = run("eta", "list").out
    assert listed.count("(sheet notices)") == 2
    run("eta", "stop", "001.001", "--until", "2088-01-01")
    assert [(each["contract"], each["by"] == "(sheet notices)") for each in run("eta", "list", "--json").json()] == [
        ("(all)", False),
        ("C-100", True),
        ("C-200", True),
    ]
    lifted, still, also = run("eta", "clear", "001.001").out.splitlines()
    assert lifted == "Notice for 001.001 lifted; no restriction any more in C-200."
    assert still.startswith("001.001 is still delayed by 24 h in C-100 until 2090-01-0")
    assert still.endswith("set in the catalogue's sheet notices; change it there and import it.")
    assert also.startswith("Also: stopped in C-200 from 2089-01-01")
    assert "still delayed by 24 h in C-100" in run("eta", "clear", "001.001").err


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
    """Two versions in the store; the folder of the second."""
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
    assert "unreadable: everything counts as new" in run("catalogue", "diff", two).out
    as_json = run("catalogue", "diff", two, "--json")
    assert (as_json.json(), "everything counts as new" in as_json.err) == ([], True)
    done = run("catalogue", "export", "older")
    assert done.code == 0
    assert "this is an older version" in done.err
    assert load_catalogue(tmp_path / "older").version == load_catalogue(CATALOGUE).version
    flip(lab, "number = 1")
    assert "import it again" in run("catalogue", "export", "none").err


@pytest.mark.slow
def test_stop_works_while_catalogue_unreadable(run, lab, two):
    flip(lab)
    done = run("eta", "stop", "001.001", "--until", "3d", "--json")
    assert done.json()["item"] == "001.001"
    assert "were looked up in the one before it" in done.err
    assert "did you mean" in run("eta", "stop", "001.0011", "--until", "3d").err
    flip(lab, "number = 1")
    done = run("eta", "delay", "whatever", "--hours", "2", "--until", "3d")
    assert done.code == 0
    assert "were not checked" in done.err
    assert [each["item"] for each in run("eta", "list", "--json").json()] == ["001.001", "whatever"]
    assert "known to be" not in run("eta", "list").out
    cleared = run("eta", "clear", "001.001")
    assert (cleared.code, cleared.out) == (0, "Notice for 001.001 lifted.\n")
    assert "what its sheet notices says is not known" in cleared.err
    assert run("eta", "clear", "whatever").code == 0
    assert run("eta", "list").out == "Nothing is known to be stopped or delayed.\n"


def test_explain_shows_tubes_of_basket(run, tmp_path):
    basket = tmp_path / "basket.json"
    items = [{"id": "002.002"}, {"id": "003.001"}, {"id": "005.010"}, {"id": "190.100"}, {"id": "006.001"}]
    basket.write_text(json.dumps({"contract": "C-100", "analyticsrequests": items}))
    assert "has no catalogue" in run("preanalytics", "explain", str(basket)).err
    assert run("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    said = run("preanalytics", "explain", str(basket)).out
    assert "type 10, SST5 (Serum gel 5), Venepuncture: 2 tubes, and fewer are not possible" in said
    assert "  tube 1: 1.1 of 5.0 ml, 0.5 of it dead volume\n    003.001: 0.4\n    002.002: 0.2\n" in said
    assert "190.100: 0.5 (needs its own tube)" in said
    assert "005.010: 9.5 (of 25 that it needs)" in said
    assert ", 60 minutes, Venepuncture 60 minutes after the load: 1 tube" in said
    assert run("preanalytics", "explain", str(basket), "--catalogue", str(CATALOGUE)).out == said
    basket.write_bytes(b"\xef\xbb\xbf" + basket.read_bytes())  # as some editors save UTF-8; the API takes it
    assert run("preanalytics", "explain", str(basket)).out == said
    (documented_basket,) = documented.blocks((ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8"), "json")
    basket.write_text(documented_basket)
    assert "190.100: 0.5 (needs its own tube)" in run("preanalytics", "explain", str(basket)).out
    basket.write_text("{}")
    wrong = run("preanalytics", "explain", str(basket))
    assert (wrong.code, wrong.out) == (1, "")
    assert "contract: is missing" in wrong.err
    assert run("preanalytics", "explain", str(basket) + "x").code == 1


def test_explain_rejects_invalid_basket_like_api(run, tmp_path):
    for content, said in (
        (b'{"contract": "C-200", "contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}', "duplicate key"),
        (b'{"contract": "\\ud800"}', "half of a character"),
        ('{"contract": "C-100"}'.encode("utf-16"), "not JSON"),
        (b" " * 2_000_000, "is larger than"),
    ):
        (tmp_path / "basket.json").write_bytes(content)
        done = run("preanalytics", "explain", "basket.json", "--catalogue", str(CATALOGUE))
        assert (done.code, done.out, said in done.err) == (1, "", True), said


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
