"""`lab-agent check`, offline: the settings, the database, the catalogue, what the API offers, and the installed units."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.versions import pack_tables
from lab_agent.orders.records import LineRecord
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import LineState
from lab_agent.store.credential_records import StoredToken
from tests.harness.daemon import title
from tests.harness.paths import CATALOGUE, ROOT
from tests.integration.cli.conftest import KEY, SETTINGS, Cli, edit, make_order, said

OFFLINE = ("check", "--offline", "--json")
FILES = ("check", "--files", "--json")


def test_offline_check_skips_network(cli, lab):
    done = cli(*OFFLINE)
    assert done.code == 0
    found = {name: status for name, (status, *_) in said(done).items()}
    ok = ("settings", "encryption key", "store", "rules", "catalogue", "contracts", "mappings", "adapter folder")
    to_do = ("active catalogue", "API clients", "notifications")
    skipped = ("exchange", "sign-in", "service contracts")
    assert found == dict.fromkeys(ok, "ok") | dict.fromkeys(to_do, "to do") | dict.fromkeys(skipped, "skipped")
    lab.config.write_text(lab.config.read_text() + '\n[notify.command.pager]\nargv = ["/bin/true"]\n')
    assert said(cli(*OFFLINE))["notifications"][:2] == ("ok", "command.pager")
    shown = cli("check", "--offline", "--settings").out
    assert ("exchange.oauth.password = ***" in shown, "hunter2" in shown, KEY[:8] in shown) == (True, False, False)


def test_pending_setup_steps_are_not_errors(cli, lab):
    (lab.folder / "lab.db").unlink()
    edit(lab, str(CATALOGUE), "no-catalogue")
    done = cli("check", "--offline")
    assert (done.code, "run `lab-agent db upgrade`" in done.out, "api.catalogue" in done.out) == (0, True, True)


@pytest.mark.parametrize("by", [None, "anna"])
@pytest.mark.slow
def test_folder_is_compared_with_catalogue_in_force(cli, lab, tmp_path, by):
    """Which the contracts of the settings are held against."""
    tables = read_tables(CATALOGUE)
    stored = CatalogueVersion(
        version=content_version(tables), since=datetime.now(UTC), content=pack_tables(tables), origin="x", by=by
    )
    lab.write(lambda uow: uow.catalogues.add(stored))
    folder = Path(shutil.copytree(CATALOGUE, tmp_path / "folder"))
    edit(lab, str(CATALOGUE), str(folder))
    for words in (OFFLINE, FILES):
        assert (said(cli(*words))["catalogue"][0], "as in force" in said(cli(*words))["catalogue"][1]) == ("ok", True)
    (folder / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n")
    for words in (OFFLINE, FILES):
        found = said(cli(*words))
        assert found["catalogue"][0] == "to do"
        assert ("which anna imported" if by else "which it replaces at the next start") in found["catalogue"][1]
        assert stored.version in found["active catalogue"][1]
    edit(lab, "[exchange.contracts.C-200]", "[exchange.contracts.C-300]")
    edit(lab, str(folder), "nowhere")
    assert said(cli(*OFFLINE))["contracts"][:2] == ("WRONG", "only in the catalogue: C-200")


@pytest.mark.parametrize(
    ("kept", "environment", "status", "says"),
    [
        ({"units.csv": 2}, "production", "ok", "codes.csv is missing, units.csv 1 rows, answers.csv is missing"),
        ({"codes.csv": 99}, "production", "to do", "codes.csv has those of the example"),
        ({"codes.csv": 99}, "stage", "ok", "codes.csv "),
    ],
)
@pytest.mark.slow
def test_tables_and_sample_in_use_are_named(cli, lab, kept, environment, status, says):
    edit(lab, 'environment = "sandbox"', f'environment = "{environment}"')
    (lab.folder / "tables").mkdir()
    edit(lab, "[status]", '[results]\nmappings = "tables"\n[status]')
    for name, lines in kept.items():
        text = (CATALOGUE.parent / "mappings" / name).read_text(encoding="utf-8")
        (lab.folder / "tables" / name).write_text("".join(text.splitlines(keepends=True)[:lines]), encoding="utf-8")
    found = said(cli(*FILES))
    assert (found["mappings"][0], says in found["mappings"][1]) == (status, True)
    assert found.get("sample", [None])[0] == ("to do" if environment == "production" else None)


@pytest.mark.parametrize(
    ("before", "after", "code", "says"),
    [
        ("[exchange.contracts.C-200]", "", 1, "only in the catalogue: C-200"),
        ("C-200]", "C-200]\n[exchange.contracts.C-300]", 1, "not in the catalogue: C-300"),
        (KEY, "short", 1, "encryption key"),
        ("[api]", '[rules.severities]\n"tube.lable" = "warn"\n[api]', 1, "tube.lable"),
        ('results = "results"', 'reslts = "results"', 1, "lis.folder"),
        ('"our-guid"', '"<our guid>"', 2, "exchange.laboratory: is still a placeholder"),
        ("[api]", "[[api.tokens]]\nname='x'\nsha256='" + "0" * 64 + "'\ncontracts=['C-9']\n[api]", 1, "C-9"),
        ("[api]", "[[lis.routes]]\ngroups=['Chemistri']\nadapter='folder'\n[api]", 1, "lis.routes.0.groups"),
        ('second_labels_system = "http://codes.lab.example/second-labels"', "", 1, "042.036"),
    ],
)
def test_failed_check_is_told_by_exit_code(cli, lab, before, after, code, says):
    edit(lab, before, after)
    done = cli("check", "--offline")
    assert done.code == code
    assert [line for line in done.out.splitlines() if line.startswith("WRONG") and says in line]


def test_broken_catalogues_are_wrong(cli, lab):
    damaged = CatalogueVersion(version="v", since=datetime.now(UTC), content=b"damaged", origin="x")
    lab.write(lambda uow: uow.catalogues.add(damaged))
    (lab.folder / "broken").mkdir()
    (lab.folder / "broken" / "items.csv").write_text("item\n", encoding="utf-8")
    edit(lab, str(CATALOGUE), str(lab.folder / "broken"))
    done = cli(*OFFLINE)
    assert (done.code, said(done)["active catalogue"][0], "items.csv" in done.out) == (1, "WRONG", True)


@pytest.mark.slow
def test_invalid_logo_and_font_detected_where_reports_printed(cli, lab):
    (lab.folder / "logo.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    (lab.folder / "font.ttf").write_bytes(b"no font")
    keys = f'print_logo = "{lab.folder}/logo.svg"\nprint_font = "{lab.folder}/font.ttf"\n'
    edit(lab, "[api]", f"[results]\nprint_reports = false\n{keys}[api]")
    assert cli("check", "--offline").code == 0
    edit(lab, "print_reports = false", "print_reports = true")
    done = cli("check", "--offline")
    assert (done.code, "results.print_logo: " in done.out, "results.print_font: " in done.out) == (1, True, True)


def test_encryption_key_mismatch_detected(cli, lab):
    token = StoredToken(generation=1, access_token="a", refresh_token=None, expires_at=datetime.now(UTC))
    lab.write(lambda uow: uow.oauth_tokens.add(token))
    assert cli("check", "--offline").code == 0
    edit(lab, KEY, "YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=")
    done = cli("check", "--offline")
    assert (done.code, "not among those set" in done.out) == (2, True)
    assert [each["condition"] for each in json.loads(cli(*OFFLINE).out)["conditions"]] == ["store.other_key"]


def test_locked_database_is_told_soon(cli, lab):
    """SQLite's usual patience is fifteen seconds for each who writes."""
    with closing(sqlite3.connect(lab.folder / "lab.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        done = cli("check", "--offline")
        assert time.monotonic() - began < 10
        other.execute("ROLLBACK")
    assert (done.code, title(ConditionId.STORE_LOCKED) in done.out) == (2, True)


@pytest.mark.slow
def test_contract_without_api_client_reported(cli, lab):
    assert cli("api-token", "create", "clinic", "--contract", "C-100").code == 0
    done = cli(*OFFLINE)
    assert (done.code, *said(done)["API clients"][:2]) == (1, "WRONG", "no client may see C-200")
    assert cli("api-token", "create", "other", "--contract", "C-200").code == 0
    assert said(cli(*OFFLINE))["API clients"][:2] == ("ok", "clinic, other")
    assert cli("api-token", "create", "third", "--contract", "C-9").code == 0
    assert "name unknown contracts: C-9" in said(cli(*OFFLINE))["contracts"][1]
    assert cli("api-token", "revoke", "third").code == cli("api-token", "revoke", "other").code == 0
    assert said(cli(*OFFLINE))["API clients"][1] == "no client may see C-200"


@pytest.mark.slow
def test_low_or_exhausted_label_pools_reported(cli, lab):
    pools = "".join(
        f"[[api.pools]]\nname='{name}'\npattern='{name}##'\nlast=99\nwarn_below=10\ncontracts=['{contract}']\n"
        for name, contract in (("one", "C-100"), ("two", "C-200"))
    )
    edit(lab, "[api]", f"{pools}[api]\nlabel_mark = '{lab.folder}/mark.json'")
    lab.write(lambda uow: (uow.issued_labels.lock_ranges("one##", 1), uow.issued_labels.set_next_number("one##", 1, 95)))
    found = said(cli(*OFFLINE))
    assert (found["labels one"][:2], found["labels two"][:2]) == (("to do", "5 left"), ("ok", "99 left"))
    (lab.folder / "mark.json").write_text('{"two##": {"1": 99}}')
    done = cli(*OFFLINE)
    assert (done.code, said(done)["labels two"][0]) == (1, "WRONG")
    assert lab.write(lambda uow: uow.issued_labels.lock_ranges("two##", 1)) == {1: 1}  # the check took nothing
    (lab.folder / "mark.json").write_text("{")
    assert said(cli(*OFFLINE))["labels"][0] == "WRONG"


def test_removed_table_of_a_system_with_open_lines_is_wrong(cli, lab):
    """Its results would not be read any more, and nobody would be told."""
    now = datetime.now(UTC)
    line = LineRecord(key="L1", order="R1", task_id="t1", state=LineState.ACCEPTED, adapter="micro", changed_at=now)
    lab.write(lambda uow: (uow.orders.add(make_order("R1")), uow.orders.add_line(line)))
    done = cli(*OFFLINE)
    assert (done.code, said(done)["adapter micro"][0]) == (1, "WRONG")
    assert said(done)["adapter micro"][1].endswith("lines there wait for results: 1")


SYSTEMCTL = """#!/bin/sh
for unit; do :; done
[ "$1" = cat ] && exec cat "{folder}/$unit"
"""
API, BACKUP = "lab-api.service", "lab-agent-backup.service"
OWN_SECRETS = {"store.encryption_keys": KEY, "exchange.oauth.password": "p"}
KEYS = "LoadCredential=store.encryption_keys:/x"


@pytest.fixture
def installed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Install units that load what is named, and give how `check` found each."""
    home, units, given = tmp_path / "etc" / "lab-agent", tmp_path / "units", tmp_path / "given"
    for folder in (home, units, given, tmp_path / "bin"):
        folder.mkdir(parents=True)
    monkeypatch.setattr("lab_agent.shared.systemd_units.SETTINGS_FOLDER", home)
    (tmp_path / "bin" / "systemctl").write_text(SYSTEMCTL.format(folder=units))
    (tmp_path / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    plain = SETTINGS.replace(f'encryption_keys = ["{KEY}"]\n', "").replace('password = "hunter2"\n', "")
    (home / "lab-agent.toml").write_text(plain)
    for name, value in OWN_SECRETS.items():
        (given / name).write_text(value)

    def check(loads: dict[str, str]) -> dict[str, str]:
        for unit, lines in loads.items():
            text = (ROOT / "systemd" / unit).read_text().replace("/etc/lab-agent/", f"{home}/")
            kept = [line for line in text.splitlines() if not line.startswith("LoadCredential")]
            (units / unit).write_text("\n".join([*kept, "[Service]", lines]))
        done = cli("check", "--files", "--json", "--config", str(home / "lab-agent.toml"))
        return {each["name"]: each["status"] for each in json.loads(done.out)["checks"] if each["name"] in {API, BACKUP}}

    return check


@pytest.mark.slow
def test_unit_is_tried_as_it_runs(installed: Callable[..., dict[str, str]]) -> None:
    """The worker's unit has the key and the password: what is wrong for it, too, ends the check before."""
    assert installed({API: KEYS}) == {API: "ok", BACKUP: "skipped"}, "one is not installed"
    for api, found in (
        (KEYS, "ok"),
        ("LoadCredential=exchange.oauth.password:/x", "WRONG"),
        ("", "WRONG"),
        (f"{KEYS}\nEnvironment=LAB_AGENT_API__PORT=-1", "WRONG"),
        (f"{KEYS}\nEnvironment=LAB_AGENT_NOTIFY__AT_MOST=0", "ok"),
        ("LoadCredential=of.its.own:/x", "skipped"),
    ):
        assert installed({API: api, BACKUP: KEYS}) == {API: found, BACKUP: "ok"}, api


@pytest.mark.slow
def test_unused_second_label_pool_fails_check(cli, lab):
    assert cli("catalogue", "import", str(CATALOGUE), "--yes").code == 0
    pools = "".join(
        f"[[api.pools]]\nname='{name}'\npattern='{pattern}'\nlast=999\nwarn_below=10\nsecond=true\n"
        for name, pattern in (("serves", "9###-####"), ("useless", "###-####"))
    )
    edit(lab, "[api]", f"{pools}[api]")
    lines = json.loads(cli(*OFFLINE).out)["checks"]  # two are about each pool
    (wrong,) = [line for line in lines if line["name"].startswith("labels") and line["status"] == "WRONG"]
    assert (wrong["name"], "000-000-000, 0000-0000" in wrong["hint"]) == ("labels useless", True)
