"""Errors: one clear sentence on standard error, exit code 1; wrong usage is 2; never a trace."""

import re
import sys
from importlib.metadata import version

import typer

from lab_agent.cli import app as cli_app


def test_invalid_settings_reported_all_at_once(cli, lab):
    lab.config.write_text(lab.config.read_text().replace('laboratory = "our-guid"', "") + "[worker]\nmod = 1\n")
    done = cli("run")
    assert (done.code, done.out) == (1, "")
    assert "exchange.laboratory: is missing" in done.err
    assert "did you mean 'mode'?" in done.err
    assert "hunter2" not in done.err


def test_missing_settings_or_database_explain_themselves(cli, lab, monkeypatch):
    done = cli("run", "--config", "none.toml")
    assert (done.code, "none.toml: there is no such file" in done.err) == (1, True)
    (lab.folder / "lab.db").unlink()
    done = cli("orders", "list")
    assert (done.code, "lab-agent db upgrade" in done.err, "Traceback" in done.err) == (1, True, False)
    monkeypatch.delenv("LAB_AGENT_CONFIG")
    done = cli("orders", "list")
    assert (done.code, "--config" in done.err, "lab-agent init" in done.err) == (1, True, True)


def test_wrong_usage_exits_with_code_2(cli, lab):
    for args in (("orders", "lst"), ("orders", "list", "--state", "lost"), ("outbox", "retry", "one"), ("orders", "show")):
        assert cli(*args).code == 2


def test_help_lists_daily_commands_unless_asked_for_all(cli):
    few, everything = (set(re.findall(r"^│ ([a-z]\S+)", cli("--help", *more).out, re.MULTILINE)) for more in ((), ("--all",)))
    assert {"run", "init", "check", "status", "orders"} <= few < everything
    assert set(typer.main.get_command(cli_app.app).commands) == everything
    assert cli("--help").out.strip() == cli().out.strip()
    assert cli("--version").out.strip() == version("lab-agent")


def test_internal_error_shows_location_without_data(cli, monkeypatch):
    def broken() -> None:
        raise KeyError("Ivanova 1980-01-01")

    monkeypatch.setattr(cli_app, "app", broken)
    done = cli("orders", "list")
    told = ["KeyError" in done.err, "test_errors.py" in done.err, "Ivanova" in done.err]
    assert (done.code, told) == (1, [True, True, False])


def test_adapter_list_explains_unavailable_adapter(cli, lab, monkeypatch):
    monkeypatch.setitem(sys.modules, "lab_agent.lis.sql.adapter", None)  # as without a library
    monkeypatch.delitem(sys.modules, "lab_agent.lis.sql", raising=False)
    (there,) = cli("adapter", "list", "--json").json()
    assert there == {**there, "name": "folder", "adapter": "folder", "loaded": True, "default": True, "reason": None}
    lab.config.write_text(lab.config.read_text() + '[lis.other]\nadapter = "foldr"\n[lis.sql]\nurl = "sqlite:///lis.db"\n')
    done = cli("adapter", "list")
    told = [each in done.out for each in ("did you mean 'folder'?", "lab_agent.lis.sql.adapter")]
    assert (done.code, told) == (1, [True, True])


def test_rules_listed_with_configured_severity(cli, lab):
    lab.config.write_text(lab.config.read_text() + '[rules.severities]\n"tube.quantity-enough" = "off"\n')
    here = {each["rule"]: each["severity"] for each in cli("rules", "--json").json()}
    assert (here["tube.quantity-enough"], here["patient.gender"]) == ("off", "refuse")
    assert "patient.gender" in cli("rules").out


def test_schemas_are_json(cli):
    order, result = cli("schema", "order").json(), cli("schema", "result").json()
    assert ("requisition" in str(order), "report_id" in str(result)) == (True, True)
