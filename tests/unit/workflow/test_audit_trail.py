"""Whatever a person decides is in the audit, too: no module writes such an event by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import lab_agent

PACKAGE = Path(lab_agent.__file__).parent


def _events_of_people(tree: ast.AST) -> list[int]:
    """Lines that add an event with an actor straight to the timeline."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    added = [each for each in calls if ast.unparse(each.func).endswith("events.add")]
    return [
        each.lineno
        for each in added
        for argument in each.args
        if isinstance(argument, ast.Call) and any(keyword.arg == "by" for keyword in argument.keywords)
    ]


def test_events_of_people_are_added_with_audit():
    found = {file.name: lines for file in PACKAGE.rglob("*.py") if (lines := _events_of_people(ast.parse(file.read_text())))}
    assert found == {}


def test_search_finds_an_event_of_a_person():
    assert _events_of_people(ast.parse("uow.events.add(Event(order=key, by=by))")) == [1]
