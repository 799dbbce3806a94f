"""`lab-agent rules`: the rules for orders, and their severities in this installation."""

from __future__ import annotations

from pathlib import Path

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import ColumnsOption, ConfigOption, JsonOption, WideOption
from lab_agent.cli.output import Row, print_list
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Rule
from lab_agent.settings.root import load_settings

_COLUMNS = ("rule", "severity", "message", "allowed", "source", "own_severity")


def list_rules(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the rules for orders: severity, allowed severities, source in the interface, and message."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)
    configured = _configured_severities(config)
    print_list(
        [_rule_row(rule, configured.get(rule.id)) for rule in RULES], as_json=as_json, columns=chosen, empty_text="No rules."
    )


def _configured_severities(config: Path | None) -> dict[str, str]:
    """The severities set in the settings, if a settings file is given."""
    return dict(load_settings(config, requires_login=False).rules.severities) if config else {}


def _rule_row(rule: Rule, configured_severity: str | None) -> Row:
    return {
        "rule": rule.id,
        "severity": configured_severity or rule.severity,
        "own_severity": rule.severity,
        "allowed": sorted(rule.allowed_severities),
        "source": rule.section,
        "message": rule.message,
    }
