"""The page of all rules, made from the rules themselves, so that it cannot say anything else than they do."""

from __future__ import annotations

from collections.abc import Iterable

from lab_agent.rules.rule import Rule, Severity

_RULES_INTRODUCTION = """# The rules by which orders are judged

Made from `lab_agent/rules`; a test holds it current. `refuse` cancels the line's Task (or every line's, where the whole order is
at fault) with the message as its output; `hold` keeps the order for a person, since it may be our own fault; `warn` is shown and
changes nothing. `[rules.severities]` gives a rule another severity, as far as the last column allows.
"""
_RULE_GROUP_TITLES = {
    "order": "The order as a whole",
    "line": "One order line",
    "specimen": "Biomaterial",
    "tube": "Containers and barcodes",
    "patient": "The patient",
    "questionnaire": "Answers",
    "rights": "Rights",
}


def render_rules_page(rules: Iterable[Rule]) -> str:
    """Give the page as Markdown."""
    rooms: dict[str, list[Rule]] = {room: [] for room in _RULE_GROUP_TITLES}
    for rule in rules:
        rooms[rule.id.partition(".")[0]].append(rule)
    return _RULES_INTRODUCTION + "".join(_rules_section(_RULE_GROUP_TITLES[room], found) for room, found in rooms.items())


def _rules_section(title: str, rules: Iterable[Rule]) -> str:
    head = f"\n## {title}\n\n| Rule | Severity | Interface | Message | May be |\n|---|---|---|---|---|\n"
    return head + "".join(_rule_row(rule) for rule in rules)


def _rule_row(rule: Rule) -> str:
    allowed = ", ".join(severity.value for severity in Severity if severity in rule.allowed_severities)
    message = rule.message.replace("|", "\\|")
    return f"| `{rule.id}` | {rule.severity.value} | {rule.section} | {message} | {allowed} |\n"
