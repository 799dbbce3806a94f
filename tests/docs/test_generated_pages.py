"""What is made from the code is current (else run `make docs`), and complete; what monitors reads is exported."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Match

from lab_agent.cli.app import app
from lab_agent.cli.lazy_commands import load_command
from lab_agent.settings.introspection import iter_keys
from lab_agent.settings.root import Settings
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.conditions.model import AffectedCount, ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.metrics import CallOutcome, Metrics, StoreGauges
from lab_agent.status.app import create_app
from lab_api.cli import app as api_app
from tests.docs.documented import is_setting
from tests.harness.paths import ROOT
from tools.docs.alert_rules import render_alert_rules
from tools.docs.commands import commands_page
from tools.docs.conditions import GROUPS, render_conditions_page
from tools.docs.configuration import built_in_adapter_settings, settings_page
from tools.docs.dashboard import render_dashboard
from tools.docs.dialects import read_dialects, render_dialects_page
from tools.docs.metrics import render_metrics_page
from tools.docs.states import states_page

PAGES: dict[str, Callable[[], str]] = {
    "docs/commands.md": commands_page,
    "docs/conditions.md": render_conditions_page,
    "docs/configuration.md": lambda: settings_page(built_in_adapter_settings()),
    "docs/dialects.md": lambda: render_dialects_page(read_dialects()),
    "docs/metrics.md": render_metrics_page,
    "docs/states.md": states_page,
    "config/monitoring/lab-agent.rules.yml": render_alert_rules,
    "config/monitoring/lab-agent-dashboard.json": render_dashboard,
}
SYSTEM_COMMANDS = {"chmod", "df", "journalctl", "ss", "systemctl", "timedatectl"}
"""Programs of any Linux machine with systemd."""


def test_generated_pages_are_current() -> None:
    assert [page for page, render in PAGES.items() if (ROOT / page).read_text(encoding="utf-8") != render()] == []


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for each, lazy in getattr(command, "commands", {}).items():
        found = load_command(lazy)
        yield from leaves(found, f"{name} {each}") if hasattr(found, "commands") else [(f"{name} {each}".strip(), found)]


def test_commands_and_options_have_help_without_markup() -> None:
    """A terminal takes brackets for markup and leaves them out; what is listed or shown is also there as JSON."""
    agent, api = (dict(leaves(typer.main.get_command(each))) for each in (app, api_app))
    assert "new-token" in api
    helps = {
        f"{name} {each.opts[0]}": each.help or ""
        for name, command in (agent | api).items()
        for each in command.params
        if each.param_type_name == "option"
    }
    texts = helps | {name: command.help or "" for name, command in (agent | api).items()}
    assert [name for name, text in texts.items() if "[" in text or (not text and name.split(" -")[0] in agent)] == []
    listing = [name for name in agent if name.split()[-1] in {"list", "show", "rules", "check"}]
    assert [name for name in listing if f"{name} --json" not in helps] == []


def test_every_setting_has_a_description() -> None:
    models = {"": Settings, **built_in_adapter_settings()}
    assert "folder" in models
    assert [f"{name}.{key.path}" for name, model in models.items() for key in iter_keys(model) if not key.field.description] == []


def test_every_condition_has_one_complete_entry() -> None:
    assert set(CONDITIONS) == set(ConditionId)
    assert sorted(each.id for group in GROUPS.values() for each in group) == sorted(ConditionId)
    incomplete = []
    for entry in CONDITIONS.values():
        told = (entry.title, entry.cause, entry.affects, entry.mend, entry.noticed, entry.opens, entry.ends)
        texts = " ".join((entry.title, entry.cause, entry.mend, entry.command, entry.page))
        is_complete = all(each.strip() == each != "" for each in told) and entry.mend.endswith((".", "?"))
        names_subject = "{subject}" in texts or "{words}" in texts
        if not is_complete or (names_subject and not entry.subject) or not entry.covered_by <= set(ConditionId) - {entry.id}:
            incomplete.append(entry.id)
    assert incomplete == []


def test_commands_settings_and_pages_of_conditions_exist() -> None:
    """Settings stand in backticks (`exchange.timeout`), tables in brackets ([exchange.oauth])."""
    context: Any = SimpleNamespace(settings=StatusSettings(), cipher=None, accounts=None, clock=None, store=None, queries=None)
    routes = [route for route in create_app(context).routes if getattr(route, "path", "") != "/static"]
    wrong = []
    for entry in CONDITIONS.values():
        program, *words = shlex.split(entry.command.replace("{subject}", next(iter(entry.subject_words), "SUBJECT"))) or [""]
        if program == "lab-agent":
            parse_command(words)
        elif program not in {"", *SYSTEM_COMMANDS}:
            wrong.append(entry.command)
        if program == "systemctl" and not any((ROOT / "systemd").rglob(f"{words[-1]}.service")):
            wrong.append(entry.command)
        texts = " ".join((entry.cause, entry.affects, entry.mend, entry.noticed, entry.opens, entry.ends, entry.title))
        texts = texts.replace("{subject}", "webhook")
        named = [*re.findall(r"`([a-z_]+\.[a-z_.]+)`", texts), *re.findall(r"\[([a-z_]+(?:\.[a-z_]+)*)\]", texts)]
        wrong += [name for name in named if not (name.split(".")[0] in Settings.model_fields and is_setting(name))]
        path = re.split(r"[?#]", entry.page.replace("{subject}", "SUBJECT"))[0]
        scope = {"type": "http", "method": "GET", "path": path, "root_path": ""}
        if path and Match.FULL not in {route.matches(scope)[0] for route in routes}:
            wrong.append(entry.page)
    assert wrong == []


def parse_command(words: list[str]) -> None:
    """Parse it as the program would, without running it. Raises `click.UsageError` for what the program does not know."""
    command: Any = load_command(typer.main.get_command(app))
    while getattr(command, "commands", None):
        name, *words = words
        assert name in command.commands, f"{command.name} has no {name}"
        command = load_command(command.commands[name])
    with command.make_context(command.name, list(words)):
        pass


METRIC = re.compile(r"\b(up|lab_agent_[a-z_]+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""


def test_conditions_absence_and_panels_are_about_exported_metrics() -> None:
    by_condition, absence = (group["rules"] for group in yaml.safe_load(render_alert_rules())["groups"])
    for rule in by_condition:
        assert f'condition="{rule["labels"]["condition"]}"' in rule["expr"]
    assert {each["labels"]["condition"] for each in by_condition} == set(ConditionId)
    assert any('absent(up{job="lab-agent"})' in each["expr"] for each in absence)
    for rule in (*by_condition, *absence):
        check_expression(rule["expr"])
    for target in (each for panel in json.loads(render_dashboard())["panels"] for each in panel["targets"]):
        labels = check_expression(target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target


def check_expression(expression: str) -> set[str]:
    """Fail for a metric or a label that is not exported; gives the labels that its metrics have."""
    known = exported_labels()
    named = METRIC.findall(expression)
    assert named, expression
    labels: set[str] = set(OF_PROMETHEUS)
    for metric, selectors in named:
        assert metric in known, f"{metric} is not exported"
        labels |= known[metric]
        for label, value in LABEL.findall(selectors):
            assert label in known[metric] | OF_PROMETHEUS, f"{metric} has no label {label}"
            assert label != "condition" or value in set(ConditionId)
    grouped = {name.strip() for names in GROUPED.findall(expression) for name in names.split(",")}
    assert grouped <= labels, f"{grouped - labels} are no labels"
    return labels


@cache
def exported_labels() -> dict[str, set[str]]:
    """The labels of each metric by its name, from a registry in which everything has happened once."""
    metrics = Metrics()
    metrics.record_poll(CallOutcome.OK, new=1, at=1.0)
    metrics.record_exchange_call("GET Task", CallOutcome.OK, 0.2)
    metrics.record_lis_call("folder", "submit", CallOutcome.OK, 0.1)
    metrics.record_attempt("deliver_report", "done")
    metrics.record_skip("hl7v2")
    metrics.update_store(
        StoreGauges(orders={"seen": 1}, lines={"accepted": 1}, reports={"held": 1}, jobs={("submit_order", "due"): 1})
    )
    metrics.update_conditions(
        OpenCondition(condition=each, since=datetime.now(UTC), affected=(AffectedCount(number=1, noun="order"),))
        for each in CONDITIONS.values()
    )
    return {**dict(_samples(metrics.render().decode())), "up": {"job", "instance"}}


def _samples(text: str) -> Iterator[tuple[str, set[str]]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, set(sample.labels)
