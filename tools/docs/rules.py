"""The page of all rules, made from the rules themselves, so that it cannot differ from them."""

from __future__ import annotations

from collections.abc import Iterable

from lab_agent.rules.rule import Rule, Severity

_INTRODUCTION = """# The rules by which orders are checked

`make docs` writes this page from `lab_agent/rules`; a test keeps it current. What a severity does:

- `refuse` rejects the line, or every line where the whole order is at fault: the Task is cancelled with the message as output.
- `hold` keeps the order until a person has decided, since the fault may be our own. Nothing of the order is rejected meanwhile.
- `warn` notes the message in the order's timeline, and changes nothing.
- `off` switches the rule off.

`[rules.severities]` gives a rule another severity, within what the last column allows.
"""
_GROUP_TITLES = {
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
    groups: dict[str, list[Rule]] = {group: [] for group in _GROUP_TITLES}
    for rule in rules:
        groups[rule.id.partition(".")[0]].append(rule)
    return _INTRODUCTION + "".join(_rules_section(_GROUP_TITLES[group], found) for group, found in groups.items())


def _rules_section(title: str, rules: Iterable[Rule]) -> str:
    head = f"\n## {title}\n\n| Rule | Severity | Interface | Message | Allowed |\n|---|---|---|---|---|\n"
    return head + "".join(_rule_row(rule) for rule in rules)


def _rule_row(rule: Rule) -> str:
    allowed = ", ".join(severity.value for severity in Severity if severity in rule.allowed_severities)
    message = rule.message.replace("|", "\\|")
    return f"| `{rule.id}` | {rule.severity.value} | {rule.section} | {message} | {allowed} |\n"
