"""The page of all rules, made from the rules themselves, so that it cannot say anything else than they do."""

from __future__ import annotations

from collections.abc import Iterable

from lab_agent.rules.rule import Rule, Severity

_HEAD = """# The rules by which orders are judged

Made from `lab_agent/rules`; a test holds it current. `refuse` cancels the line's Task (or every line's, where the whole order is
at fault) with the message as its output; `hold` keeps the order for a person, since it may be our own fault; `warn` is shown and
changes nothing. `[rules.severities]` gives a rule another severity, as far as the last column allows.
"""
_TITLES = {
    "order": "The order as a whole",
    "line": "One order line",
    "specimen": "Biomaterial",
    "tube": "Containers and barcodes",
    "patient": "The patient",
    "questionnaire": "Answers",
    "rights": "Rights",
}


def rules_page(rules: Iterable[Rule]) -> str:
    """Give the page as Markdown."""
    rooms: dict[str, list[Rule]] = {room: [] for room in _TITLES}
    for rule in rules:
        rooms[rule.id.partition(".")[0]].append(rule)
    return _HEAD + "".join(_section(_TITLES[room], found) for room, found in rooms.items())


def _section(title: str, rules: Iterable[Rule]) -> str:
    head = f"\n## {title}\n\n| Rule | Severity | Interface | Message | May be |\n|---|---|---|---|---|\n"
    return head + "".join(_row(rule) for rule in rules)


def _row(rule: Rule) -> str:
    allowed = ", ".join(severity.value for severity in Severity if severity in rule.allowed)
    message = rule.message.replace("|", "\\|")
    return f"| `{rule.id}` | {rule.severity.value} | {rule.section} | {message} | {allowed} |\n"
