"""Whatever a person decides is in the audit, as the source shows, and a reload that fails is told."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

import lab_agent
from lab_agent.daemon import update_reload_alert
from lab_agent.lis.reloading import ReloadOutcome, ReloadResult
from lab_agent.shared.conditions.model import ConditionId
from tests.harness.databases import InlineStore


def _events_of_people(source: str) -> list[int]:
    """Lines that add an event with an actor straight to the timeline."""
    if ".add(" not in source or "events" not in source:  # to parse what cannot have one takes long
        return []
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    added = [each for each in calls if each.func.attr == "add" and ast.unparse(each.func).endswith("events.add")]  # type: ignore[attr-defined]
    events = [(each.lineno, argument) for each in added for argument in each.args if isinstance(argument, ast.Call)]
    return [line for line, event in events if any(keyword.arg == "by" for keyword in event.keywords)]


def test_events_of_people_are_added_with_audit() -> None:
    files = Path(lab_agent.__file__).parent.rglob("*.py")
    assert {file.name: lines for file in files if (lines := _events_of_people(file.read_text()))} == {}
    assert _events_of_people("uow.events.add(Event(order=key, by=by))") == [1], "it finds one"


async def test_reload_alerts_have_a_line_each() -> None:
    store = InlineStore()
    with capture_logs() as said:
        for outcome in (ReloadOutcome.INVALID, ReloadOutcome.INVALID, ReloadOutcome.UNCHANGED):

            def reload(uow: Any, outcome: ReloadOutcome = outcome) -> None:
                result = ReloadResult(name="his", outcome=outcome, reason="line 3")
                update_reload_alert(uow, result, datetime(2026, 11, 20, 12, tzinfo=UTC))

            await store.transact(reload)
    key = f"{ConditionId.LIS_MAP_INVALID.value}/his"
    told = [(each["log_level"], each["action"], each["alert"]) for each in said if "alert" in each]
    assert told == [("warning", "condition_found", key), ("info", "condition_ended", key)]
