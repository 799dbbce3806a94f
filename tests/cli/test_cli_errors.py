"""Errors: one clear sentence on standard error, exit code 1; wrong usage is 2; never a trace."""

import sqlite3
from importlib.metadata import version

import pytest

from lab_agent.cli import app as cli_app
from tests.cli.conftest import KEY


def test_wrong_settings_come_all_at_once(cli, lab):
    lab.config.write_text(lab.config.read_text().replace('laboratory = "our-guid"', "") + "[worker]\nmod = 1\n")
    done = cli("orders", "list")
    assert (done.code, done.out) == (1, "")
    assert "exchange.laboratory: is missing" in done.err
    assert "did you mean mode?" in done.err
    assert "hunter2" not in done.err


def test_without_a_settings_file_it_says_how_to_name_one(cli):
    done = cli("orders", "list")
    assert done.code == 1
    assert "--config" in done.err
    assert "lab-agent init" in done.err


def test_a_missing_settings_file_is_named(cli):
    done = cli("run", "--config", "none.toml")
    assert done.code == 1
    assert "none.toml: there is no such file" in done.err


@pytest.mark.parametrize("command", [("orders", "list"), ("run",)])
def test_a_database_that_is_not_there_yet_names_the_mend(cli, lab, command):
    (lab.folder / "lab.db").unlink()
    done = cli(*command)
    assert done.code == 1
    assert "lab-agent db upgrade" in done.err
    assert "Traceback" not in done.err


def test_a_database_of_a_newer_program_is_not_touched(cli, lab):
    with sqlite3.connect(lab.folder / "lab.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
    connection.close()
    for command in (("orders", "list"), ("db", "upgrade")):
        done = cli(*command)
        assert done.code == 1
        assert "Traceback" not in done.err


def test_a_daemon_with_other_keys_than_the_store_s_does_not_begin(cli, lab):
    assert cli("user", "list").code == 0  # the store is marked with the keys of the settings
    other = "YTEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    lab.config.write_text(lab.config.read_text().replace(KEY, other))
    done = cli("run")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("What is stored encrypted cannot be read")
    assert "worker started" not in done.out + done.err
    assert "ended by itself" not in done.err


def test_the_database_is_made_and_made_again_without_harm(cli, lab):
    (lab.folder / "lab.db").unlink()
    for _ in range(2):
        assert cli("db", "upgrade").code == 0
    assert cli("orders", "list", "--json").json() == []


def test_wrong_usage_is_exit_code_2(cli, lab):
    for args in (("orders", "lst"), ("orders", "list", "--state", "lost"), ("outbox", "retry", "one"), ("orders", "show")):
        assert cli(*args).code == 2


def test_help_is_exit_code_0_and_names_every_command(cli):
    done = cli("--help")
    assert done.code == 0
    for name in ("run", "init", "login", "check", "schema", "orders", "outbox", "results", "adapters", "db", "user"):
        assert name in done.out


def test_the_version_is_told_without_settings(cli):
    done = cli("--version")
    assert (done.code, done.out.strip()) == (0, version("lab-agent"))


def test_an_error_of_the_program_itself_shows_its_place_and_no_data(cli, monkeypatch):
    def broken() -> None:
        raise KeyError("Ivanova 1980-01-01")

    monkeypatch.setattr(cli_app, "app", broken)
    done = cli("orders", "list")
    assert done.code == 1
    assert "KeyError" in done.err
    assert "test_cli_errors.py" in done.err
    assert "Ivanova" not in done.err


def test_adapters_show_why_one_is_not_there(cli, lab):
    (there,) = cli("adapters", "--json").json()
    assert there == {**there, "name": "folder", "adapter": "folder", "loaded": True, "default": True, "reason": None}
    lab.config.write_text(lab.config.read_text() + '[lis.other]\nadapter = "foldr"\n')
    done = cli("adapters")
    assert done.code == 1
    assert "did you mean folder" in done.out


def test_rules_are_listed_with_the_severity_that_they_have_here(cli, lab):
    lab.config.write_text(lab.config.read_text() + '[rules.severities]\n"tube.quantity-enough" = "off"\n')
    here = {each["rule"]: each["severity"] for each in cli("rules", "--json").json()}
    assert (here["tube.quantity-enough"], here["patient.gender"]) == ("off", "refuse")
    assert "patient.gender" in cli("rules").out


def test_schemas_are_json(cli):
    order, result = cli("schema", "order").json(), cli("schema", "result").json()
    assert "requisition" in str(order)
    assert "report_id" in str(result)
