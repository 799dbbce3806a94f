"""A database that was restored from a backup: noticed, held, compared with the service, and released by an operator.

It does not know what was done after its backup: orders that laboratory systems have, results that were delivered. So nothing is
told to anybody until its open orders were compared with the service; and nothing is told to a laboratory system until an operator
has agreed. Then the handover of each order that was known by that time asks the laboratory system first.
"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import datetime

import structlog

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Alert
from lab_agent.store.restoration import INSTANCE_ID_KEY, SIGN_WORDS, MarkedNumber, Restoration, RestoreSign
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)

RESTORED_ALERT = AlertKey(ConditionId.STORE_RESTORED)
SECOND_AGENT_ALERT = AlertKey(ConditionId.AGENT_SECOND_AGENT)
_KEY = "restoration"
_NUMBER_KEY = "store.number"


def read_number(uow: UnitOfWork) -> MarkedNumber:
    """The number of the database, for its mark."""
    return MarkedNumber(uow.key_values.get(INSTANCE_ID_KEY) or "", _read_advance(uow)[0])


def advance_number(uow: UnitOfWork, now: datetime, at_least: int = 0) -> MarkedNumber:
    """Let the database be one number further, beyond `at_least`. Whoever has copied it does that after the copy."""
    number = max(_read_advance(uow)[0], at_least) + 1
    uow.key_values.set(_NUMBER_KEY, json.dumps({"number": number, "at": now.isoformat()}))
    return replace(read_number(uow), number=number)


def _read_advance(uow: UnitOfWork) -> tuple[int, datetime | None]:
    """The number, and when the database was advanced to it: what was done later, a copy of it may not know."""
    stored = uow.key_values.get(_NUMBER_KEY)
    if stored is None:
        return 0, None
    values = json.loads(stored)
    return int(values["number"]), datetime.fromisoformat(values["at"])


def load_restoration(uow: UnitOfWork) -> Restoration | None:
    """The newest restore that was noticed; None if there never was one."""
    stored = uow.key_values.get(_KEY)
    return None if stored is None else Restoration.from_json(stored)


def note_second_agent(uow: UnitOfWork, now: datetime, found: str, *, before: datetime) -> None:
    """Record that something of our own making was found that the database does not know, though no mark shows a restore.

    It is held as a restored one is: the other agent, or what was done since the backup, may have handed over the same orders.
    """
    note_restoration(uow, RestoreSign.OWN_REPORTS, now, before=before, found=found)


def note_restoration(
    uow: UnitOfWork, sign: RestoreSign, now: datetime, *, before: datetime | None = None, found: str = ""
) -> Restoration:
    """Record that the database was restored, also where it holds the record of an earlier restore; `found` is what shows it.

    `before`: what shows it is as old as that. Where a restore is open, or was released since, it is no sign of another one.
    Without it, it is another one: what a backup says of an earlier restore, such as a comparison, is as old as the backup.
    """
    known = load_restoration(uow)
    if known is not None and before is not None and known.concerns(before):
        return known
    _, known_until = _read_advance(uow)
    if known is not None and known.is_open and known.known_until is not None:
        known_until = min(known.known_until, known_until or known.known_until)
    noted = Restoration(sign=sign, noticed_at=now, known_until=known_until)
    uow.key_values.set(_KEY, noted.to_json())
    if sign is RestoreSign.OWN_REPORTS:
        key, other, detail = SECOND_AGENT_ALERT, RESTORED_ALERT, f"{found}; this agent runs on {socket.gethostname()}"
    else:
        key, other, detail = RESTORED_ALERT, SECOND_AGENT_ALERT, SIGN_WORDS[sign]
        detail += f"; the newest that it knows is of {known_until:%Y-%m-%d %H:%M} UTC" if known_until else ""
    close_alert(uow, other, now)
    open_alert(uow, Alert(condition=key.condition, detail=detail, since=now, opened_at=now))
    return noted


def note_reconciled(uow: UnitOfWork, now: datetime, not_compared: int = 0) -> None:
    """Record that the open orders were compared with the service since the restore was noticed, but for so many."""
    known = load_restoration(uow)
    if known is not None and known.is_open:
        uow.key_values.set(_KEY, known.reconciled(now, not_compared).to_json())


def release_restoration(uow: UnitOfWork, now: datetime, by: str) -> Restoration:
    """Let work go on. Raises `InvalidTransitionError` where it is too early, or there is nothing to release."""
    known = load_restoration(uow)
    if known is None or not known.is_open:
        raise InvalidTransitionError("The database was not restored, or is released already; there is nothing to release.")
    if known.reconciled_at is None:
        raise InvalidTransitionError(
            "The open orders are not compared with the service yet. The agent does that as soon as it runs and the service "
            "answers; release the database then."
        )
    released = known.released(now, by)
    uow.key_values.set(_KEY, released.to_json())
    for key in (RESTORED_ALERT, SECOND_AGENT_ALERT):
        close_alert(uow, key, now)
    uow.audit.add(AuditEntry(at=now, action=AuditAction.RESTORE_RELEASED, by=by))
    log.warning("the restored database was released", action="restore_released", by=by)
    return released
