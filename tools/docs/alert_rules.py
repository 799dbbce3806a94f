"""Prometheus' alert rules, made from the table of conditions: `config/monitoring/lab-agent.rules.yml`.

The strings are written as JSON, which YAML reads as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab_agent.shared.conditions.model import Condition, ConditionId, Severity
from lab_agent.shared.conditions.table import CONDITIONS

JOB = "lab-agent"
"""The name of the scrape job: what is `job_name` in the settings of Prometheus."""
_HEADER = f"""# Alert rules for Prometheus. Made from lab_agent/shared/conditions by `make docs`; do not edit.
#
# They need a scrape job named {JOB} that reads /metrics of the status page; see docs/operations.md.
# `promtool check rules` checks this file.

groups:
"""
_PAGE = "docs/conditions.md"
_TARGET = f'up{{job="{JOB}"}}'


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule: it fires when `expression` has had a value for as long as `wait`."""

    name: str
    expression: str
    wait: str
    severity: Severity
    annotations: Mapping[str, str]
    condition: ConditionId | None = None

    def to_yaml(self) -> str:
        """The rule as an item of a group's `rules`."""
        labels = {"severity": self.severity.value, **({"condition": self.condition.value} if self.condition else {})}
        lines = [
            f"      - alert: {self.name}",
            f"        expr: {json.dumps(self.expression)}",
            f"        for: {self.wait}",
            "        labels:",
            *(f"          {key}: {json.dumps(value)}" for key, value in labels.items()),
            "        annotations:",
            *(f"          {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in self.annotations.items()),
        ]
        return "".join(f"{line}\n" for line in lines)


def render_alert_rules() -> str:
    """Give the file."""
    groups = {"lab-agent-conditions": [_build_rule(each) for each in CONDITIONS.values()], "lab-agent-absence": _absence_rules()}
    return _HEADER + "\n".join(
        f"  - name: {name}\n    rules:\n{''.join(rule.to_yaml() for rule in rules)}" for name, rules in groups.items()
    )


def _build_rule(condition: Condition) -> AlertRule:
    """A rule for a condition of the table: the agent decides when it opens and ends."""
    return AlertRule(
        name=_rule_name(condition.id),
        expression=f'lab_agent_condition_open{{condition="{condition.id.value}"}} > 0',
        wait="1m",
        severity=condition.severity,
        annotations=dict(_annotations(condition)),
        condition=condition.id,
    )


def _absence_rules() -> list[AlertRule]:
    """Rules for what the agent cannot say itself: it is not there, it asks for nothing, its numbers are missing."""
    return [
        _absence_rule("LabAgentDown", f"{_TARGET} == 0 or absent({_TARGET})", "2m", CONDITIONS[ConditionId.AGENT_NOT_RUNNING]),
        _absence_rule(
            "LabAgentNoPoll",
            "time() - lab_agent_last_poll_timestamp_seconds > 900",
            "15m",
            CONDITIONS[ConditionId.AGENT_POLL_OVERDUE],
        ),
        _absence_rule(
            "LabAgentDatabaseUnreachable", "lab_agent_store_reachable == 0", "2m", CONDITIONS[ConditionId.STORE_UNREACHABLE]
        ),
        AlertRule(
            name="LabAgentConditionsMissing",
            expression=f"{_TARGET} == 1 unless on (instance) lab_agent_condition_open",
            wait="5m",
            severity=Severity.WARNING,
            annotations={
                "summary": "The agent's conditions are not among its metrics",
                "description": "Another program or another version answers at the address of the scrape job: no rule can fire.",
                "mend": "Correct the address of the scrape job, or take the rules that belong to the agent's version.",
            },
        ),
    ]


def _absence_rule(name: str, expression: str, wait: str, condition: Condition) -> AlertRule:
    return AlertRule(name, expression, wait, condition.severity, dict(_annotations(condition)), condition.id)


def _annotations(condition: Condition) -> Iterator[tuple[str, str]]:
    yield "summary", _general(condition.title)
    yield "description", f"Cause: {_general(condition.cause)}. Affects: {_general(condition.affects)}."
    yield "mend", _general(condition.mend)
    if condition.command:
        yield "command", _general(condition.command)
    yield "details", f"{_PAGE}, {condition.id.value}"


def _general(text: str) -> str:
    """A text about no one subject: the number of open alerts does not say which one it is."""
    return text.replace("{subject}", "…").replace("{words}", "…")


def _rule_name(condition: ConditionId) -> str:
    """`exchange.sign_in` becomes `LabAgentExchangeSignIn`."""
    return "LabAgent" + "".join(word.capitalize() for word in condition.value.replace(".", "_").split("_"))


if __name__ == "__main__":
    sys.stdout.write(render_alert_rules())
