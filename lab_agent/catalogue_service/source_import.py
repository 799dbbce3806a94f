"""Imports the catalogue that the settings name, and tells by an alert where it has changed and is not valid."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from lab_agent.alert_log import close_alert, open_alert
from lab_agent.catalogue_service.versions import INVALID_ALERT, import_if_changed
from lab_agent.domain.records import Alert
from lab_agent.errors import CatalogueError
from lab_agent.ports.repositories import Store, UnitOfWork

_MAX_DETAIL = 300


async def import_source(store: Store, source: Path, *, now: datetime) -> bool:
    """Import a folder or workbook as `import_if_changed` does. Raises `CatalogueError`, and then an alert is open that says why.

    Agent and API both import: the one that succeeds closes the alert of either.
    """
    try:
        activated = await import_if_changed(store, source, now=now)
    except CatalogueError as exc:
        alert = Alert(condition=INVALID_ALERT.condition, detail=_describe(exc), since=now, opened_at=now)
        await store.run(lambda uow: _open(uow, alert))
        raise
    if await store.run_read_only(lambda uow: uow.alerts.open_among([INVALID_ALERT])):
        await store.run(lambda uow: _close(uow, now))
    return activated


def _describe(error: CatalogueError) -> str:
    """The first problem, and how many there are; a catalogue names no patient."""
    count, first = len(error.problems), str(error.problems[0])[:_MAX_DETAIL]
    return first if count == 1 else f"{count} problems, the first: {first}"


def _open(uow: UnitOfWork, alert: Alert) -> None:
    open_alert(uow, alert)
    uow.commit()


def _close(uow: UnitOfWork, now: datetime) -> None:
    close_alert(uow, INVALID_ALERT, now)
    uow.commit()
