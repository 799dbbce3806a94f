"""Imports the catalogue that the settings name, and tells what becomes of it: replaced, not valid, or not in force."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import structlog

from lab_agent.alert_log import close_alert, open_alert
from lab_agent.catalogue_service.versions import INVALID_ALERT, UNUSED_ALERT, SourceState, import_if_changed
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.alerts import Alert
from lab_agent.errors import CatalogueError
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_MAX_DETAIL = 300


async def import_source(store: Store, source: Path, *, now: datetime) -> None:
    """Import a folder or workbook as `import_if_changed` does. Raises `CatalogueError`, and then an alert is open that says why.

    Agent and API both import: the one that succeeds closes the alerts of either.
    """
    try:
        done = await import_if_changed(store, source, now=now)
    except CatalogueError as exc:
        await _update_alerts(store, INVALID_ALERT, _describe(exc), now)
        raise
    if done.former is not None:
        log.warning(
            "catalogue replaced by the one of the settings", action="catalogue_replaced", source=str(source), former=done.former
        )
    if done.state is SourceState.UNUSED:
        await _update_alerts(store, UNUSED_ALERT, str(source), now)
    else:
        await _update_alerts(store, None, "", now)


def _describe(error: CatalogueError) -> str:
    """The first problem, and how many there are; a catalogue names no patient."""
    count, first = len(error.problems), str(error.problems[0])[:_MAX_DETAIL]
    return first if count == 1 else f"{count} problems, the first: {first}"


async def _update_alerts(store: Store, found: AlertKey | None, detail: str, now: datetime) -> None:
    """Open the alert of what was found, and close the other ones."""
    known = await store.run_read_only(lambda uow: uow.alerts.open_among([INVALID_ALERT, UNUSED_ALERT]))
    if found is None and not known:
        return

    def work(uow: UnitOfWork) -> None:
        for key in (INVALID_ALERT, UNUSED_ALERT):
            if key == found:
                open_alert(uow, Alert(condition=key.condition, detail=detail, since=now, opened_at=now))
            else:
                close_alert(uow, key, now)

    await store.transact(work)
