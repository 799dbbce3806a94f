"""Every alert that opens or ends has one line in the log that names its condition."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from functools import partial
from typing import Any

from structlog.testing import capture_logs

from lab_agent.conditions.ids import ConditionId
from lab_agent.daemon import update_reload_alert
from lab_agent.lis.reloading import ReloadOutcome, ReloadResult
from tests.fakes.memory_store import MemoryStore
from tests.harness.paths import ROOT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TELLS_ITSELF = {
    "lab_agent/alert_log.py",
    "lab_agent/catalogue_service/fallback.py",
    "lab_agent/daemon.py",
    "lab_agent/worker/outages.py",
    "lab_agent/worker/schedule.py",
    "lab_agent/worker/store_watch.py",
    "lab_agent/workflow/document_upload.py",
    "lab_agent/workflow/group_alerts.py",
    "lab_agent/workflow/refused_messages.py",
    "lab_agent/workflow/result_inbox.py",
    "lab_agent/workflow/search_alerts.py",
}
"""Modules that open or close alerts by themselves: their own lines have the field `alert` or `outage`."""


def changes_alerts(source: str) -> bool:
    """Whether it calls `….alerts.open(…)` or `….alerts.close(…)`."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in {"open", "close"}
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "alerts"
        for node in ast.walk(ast.parse(source))
    )


def names_alerts(source: str) -> bool:
    """Whether it logs a line with the field `alert` or `outage`."""
    return any(isinstance(node, ast.keyword) and node.arg in {"alert", "outage"} for node in ast.walk(ast.parse(source)))


def test_who_changes_alerts_names_them_in_the_log() -> None:
    found = {}
    for folder in ("lab_agent", "lab_api"):
        for file in (ROOT / folder).rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            if "store" not in file.parts and changes_alerts(source):
                found[file.relative_to(ROOT).as_posix()] = names_alerts(source)
    assert found == dict.fromkeys(TELLS_ITSELF, True)


def lines_of(said: list[Any]) -> list[tuple[str, str, str]]:
    return [(each["log_level"], each["action"], each["alert"]) for each in said if "alert" in each]


async def test_reload_alerts_have_a_line_each() -> None:
    store = MemoryStore()

    def reload(outcome: ReloadOutcome, uow: Any) -> None:
        update_reload_alert(uow, ReloadResult(name="his", outcome=outcome, reason="line 3"), NOW)
        uow.commit()

    with capture_logs() as said:
        for outcome in (ReloadOutcome.INVALID, ReloadOutcome.INVALID, ReloadOutcome.UNCHANGED):
            await store.run(partial(reload, outcome))
    key = f"{ConditionId.LIS_MAP_INVALID.value}/his"
    assert lines_of(said) == [("warning", "condition_found", key), ("info", "condition_ended", key)]
