"""`lab-agent rules`: every rule that an order is judged by, with the severity that it has here."""

from __future__ import annotations

from pathlib import Path

from lab_agent.cli.options import ConfigOption, JsonOption
from lab_agent.cli.shown import Row, print_list
from lab_agent.rules.judge import RULES
from lab_agent.rules.rule import Rule
from lab_agent.settings.root import load_settings


def list_rules(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the rules: what each does here, what settings may make of it, where it comes from, and what it says."""
    here = _configured_severities(config)
    print_list([_rule_row(rule, here.get(rule.id)) for rule in RULES], as_json=as_json, empty_text="No rules.")


def _configured_severities(config: Path | None) -> dict[str, str]:
    """The settings' own severities; without settings, every rule has its own."""
    return dict(load_settings(config).rules.severities) if config else {}


def _rule_row(rule: Rule, configured_severity: str | None) -> Row:
    return {
        "rule": rule.id,
        "severity": configured_severity or rule.severity,
        "own_severity": rule.severity,
        "allowed": sorted(rule.allowed_severities),
        "source": rule.section,
        "message": rule.message,
    }
