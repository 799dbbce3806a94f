"""The files for Prometheus and Grafana are about metrics and labels that the agent exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AffectedCount, OpenCondition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.metrics import CallOutcome, Metrics, StoreGauges
from tests.harness.paths import ROOT
from tools.docs.alert_rules import render_alert_rules
from tools.docs.dashboard import render_dashboard

RULES = ROOT / "config" / "monitoring" / "lab-agent.rules.yml"
METRIC = re.compile(r"\b(up|lab_agent_[a-z_]+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""


def test_conditions_and_absence_of_the_agent_have_rules() -> None:
    by_condition, absence = (group["rules"] for group in yaml.safe_load(render_alert_rules())["groups"])
    rules = {each["labels"]["condition"]: each for each in by_condition}
    assert set(rules) == set(ConditionId)
    for condition in CONDITIONS.values():
        rule, texts = rules[condition.id], (condition.title, condition.mend, condition.command)
        told = [re.sub(r"\{(words|subject)\}", "…", each) for each in texts]
        assert [rule["annotations"].get(name, "") for name in ("summary", "mend", "command")] == told
        assert rule["labels"]["severity"] == condition.severity
        assert f'condition="{condition.id}"' in rule["expr"]
    expressions = {each["alert"]: each["expr"] for each in absence}
    assert 'absent(up{job="lab-agent"})' in expressions["LabAgentDown"]
    assert set(expressions) == {"LabAgentDown", "LabAgentNoPoll", "LabAgentDatabaseUnreachable", "LabAgentConditionsMissing"}
    names = [each["alert"] for each in (*by_condition, *absence)]
    assert len(set(names)) == len(names)


def test_rules_and_panels_are_about_exported_metrics() -> None:
    for group in yaml.safe_load(render_alert_rules())["groups"]:
        for rule in group["rules"]:
            check_expression(rule["expr"])
    for target in (each for panel in json.loads(render_dashboard())["panels"] for each in panel["targets"]):
        labels = check_expression(target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(render_dashboard())["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert taken.isdisjoint(cells)
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_unknown_metric_and_label_are_noticed() -> None:
    for wrong in ("lab_agent_condition_opened > 0", 'lab_agent_condition_open{id="x"} > 0', "sum by (id) (lab_agent_orders)"):
        with pytest.raises(AssertionError):
            check_expression(wrong)


def test_promtool_accepts_rules(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    shutil.copy(RULES, tmp_path)
    (tmp_path / "tests.yml").write_text(PROMTOOL_TESTS.replace("RULES", RULES.name), encoding="utf-8")
    for words in (["check", "rules", RULES.name], ["test", "rules", "tests.yml"]):
        done = subprocess.run([promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


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


PROMTOOL_TESTS = """
rule_files: [RULES]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'up{job="lab-agent", instance="a"}', values: 1x30}
  - series: 'lab_agent_condition_open{job="lab-agent", instance="a", condition="lis.unavailable", severity="critical"}'
    values: 0x10 1x20
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 20m, exp_samples: [{labels: '{}', value: 1}]}
  - expr: 'count by (alertname) (ALERTS{alertname="LabAgentLisUnavailable", alertstate="firing"})'
    eval_time: 20m
    exp_samples: [{labels: '{alertname="LabAgentLisUnavailable"}', value: 1}]
- interval: 1m
  input_series: [{series: 'up{job="lab-agent", instance="a"}', values: 1x5 0x20}]
  promql_expr_test:
  - expr: 'count by (alertname) (ALERTS{alertname="LabAgentDown", alertstate="firing"})'
    eval_time: 15m
    exp_samples: [{labels: '{alertname="LabAgentDown"}', value: 1}]
"""
