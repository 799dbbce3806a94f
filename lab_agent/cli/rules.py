"""`lab-agent rules`: every rule that an order is judged by, with the severity that it has here."""

from __future__ import annotations

from pathlib import Path

from lab_agent.cli.options import AsJson, Config
from lab_agent.cli.shown import Row, show_list
from lab_agent.rules.judge import RULES
from lab_agent.rules.rule import Rule
from lab_agent.settings.root import load_settings


def rules(config: Config = None, as_json: AsJson = False) -> None:
    """List the rules: what each does here, what settings may make of it, where it comes from, and what it says."""
    here = _severities(config)
    show_list([_row(rule, here.get(rule.id)) for rule in RULES], as_json=as_json, nothing="No rules.")


def _severities(config: Path | None) -> dict[str, str]:
    """The settings' own severities; without settings, every rule has its own."""
    return dict(load_settings(config).rules.severities) if config else {}


def _row(rule: Rule, here: str | None) -> Row:
    return {
        "rule": rule.id,
        "severity": here or rule.severity,
        "own_severity": rule.severity,
        "allowed": sorted(rule.allowed),
        "source": rule.section,
        "message": rule.message,
    }
