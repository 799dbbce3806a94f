"""The audit: who did what, newest first, each record compared with the one before it; one record with its note. For admins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lab_agent.operations.audit_log import note_look, record
from lab_agent.status import audit_words
from lab_agent.status.auth import AdminReader, HttpError
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.csv_export import csv_file
from lab_agent.status.forms import one_line
from lab_agent.status.order_list import start_of_day
from lab_agent.status.translation import gettext
from lab_agent.store.audit_queries import MAX_LOOKED_AT, AuditCriteria, CheckedRecord
from lab_agent.store.audit_records import AuditAction, AuditEntry, AuditRecord

router = APIRouter()

MAX_EXPORTED = 50_000
_EXPORT_PORTION = 2_000
_MAX_LOOKS = 500
"""How often an export looks at the next records, so that a filter that fits none ends, too."""
_MAX_LENGTH = 200
_COLUMNS = ("number", "at", "action", "channel", "actor", "origin", "subject", "details", "note_digest", "hash")
_WORDS: Mapping[str, Any] = {
    "action_words": audit_words.action_words,
    "channel_words": audit_words.channel_words,
    "subject_page": audit_words.subject_page,
    "read_details": audit_words.read_details,
}


@dataclass(frozen=True, slots=True)
class AuditAddress:
    """What the address of the list says: the criteria, and their parameters as a form and a link repeat them."""

    criteria: AuditCriteria
    parameters: Mapping[str, str]
    problem: str | None = None

    @property
    def query_string(self) -> str:
        """The parameters, without where the page begins."""
        return urlencode(self.parameters)

    def value(self, name: str) -> str:
        """One parameter; empty where it is not given."""
        return self.parameters.get(name, "")


async def read_address(
    actor: str = "",
    action: str = "",
    subject: str = "",
    since: Annotated[str, Query(alias="from")] = "",
    until: str = "",
) -> AuditAddress:
    """Read the filters; a date that is none is told, and left out."""
    texts = {"actor": actor, "action": action, "subject": subject, "from": since, "until": until}
    values = {name: one_line(text)[:_MAX_LENGTH] for name, text in texts.items()}
    days: dict[str, datetime | None] = {}
    problem = None
    for name in ("from", "until"):
        try:
            days[name] = start_of_day(values[name])
        except ValueError:
            days[name] = None
            problem = gettext("“%(text)s” is no date: write it as 2026-01-31.") % {"text": values[name]}
    until_day = days["until"]
    criteria = AuditCriteria(
        actor=values["actor"],
        action=AuditAction(values["action"]) if values["action"] in audit_words.ACTION_WORDS else None,
        subject=values["subject"],
        since=days["from"],
        until=None if until_day is None else until_day + timedelta(days=1),
    )
    return AuditAddress(criteria, {name: text for name, text in values.items() if text}, problem)


Address = Annotated[AuditAddress, Depends(read_address)]


def _to_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


async def read_before(before: str = "") -> int | None:
    """The number below which the page begins; nonsense is the first page."""
    return _to_number(before)


Before = Annotated[int | None, Depends(read_before)]


@router.get("/audit")
async def show_audit(user: AdminReader, context: Context, renderer: Renderer, address: Address, before: Before) -> Response:
    """The records, narrowed; the address is the filter, to be kept as a bookmark."""
    found = await context.queries.audit_list(address.criteria, before=before)
    older = urlencode([*address.parameters.items(), ("before", found.older_before)])
    actions = sorted(AuditAction, key=lambda each: audit_words.action_words(each).casefold())
    return await renderer.render_page(
        "audit.html",
        user,
        found=found,
        address=address,
        before=before,
        older=older if found.older_before is not None else None,
        actions=actions,
        max_looked_at=MAX_LOOKED_AT,
        max_exported=MAX_EXPORTED,
        **_WORDS,
    )


@router.get("/audit/{number}")
async def show_record(user: AdminReader, context: Context, renderer: Renderer, number: str) -> Response:
    """One record, with what the person wrote. The look at that is in the audit before it is shown."""
    found = await _find(context, number)
    note = None
    if found.record.note_digest is not None:
        now = context.clock.now()
        await note_look(context.store, AuditAction.AUDIT_NOTES_SHOWN, str(found.record.number), by=user.name, now=now)
        note = await context.queries.audit_note(found.record.number)
    return await renderer.render_page(
        "audit_record.html", user, record=found.record, is_whole=found.is_whole, note=note, **_WORDS
    )


async def _find(context: StatusContext, text: str) -> CheckedRecord:
    number = _to_number(text)
    found = None if number is None else await context.queries.audit_record(number)
    if found is None:
        raise HttpError(gettext("There is no such record in the audit; it may have been deleted when its time was over."), 404)
    return found


@router.get("/audit.csv")
async def export_audit(user: AdminReader, context: Context, address: Address) -> Response:
    """The newest `MAX_EXPORTED` records that fit the filter as CSV, without notes. That it is exported is recorded."""
    rows: list[AuditRecord] = []
    before: int | None = None
    for _ in range(_MAX_LOOKS):
        found = await context.queries.audit_list(address.criteria, before=before, limit=_EXPORT_PORTION)
        rows += found.records
        before = found.older_before
        if before is None or len(rows) >= MAX_EXPORTED:
            break
    del rows[MAX_EXPORTED:]
    now, details = context.clock.now(), {"records": len(rows)}
    await record(context.store, AuditEntry(at=now, action=AuditAction.AUDIT_EXPORTED, by=user.name, details=details))
    return csv_file("audit", now, _COLUMNS, map(_csv_values, rows))


def _csv_values(each: AuditRecord) -> tuple[str, ...]:
    at = each.at.astimezone(UTC).isoformat(timespec="microseconds")
    start = (str(each.number), at, each.action, each.channel, each.actor, each.origin, each.subject, each.details)
    return (*start, each.note_digest or "", each.hash)
