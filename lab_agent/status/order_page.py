"""One order: its way, its tubes, its story, and why it was judged as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lab_agent.lis.lab_order import OrderPatient
from lab_agent.lis.serialization import load_order_patient
from lab_agent.operations.accounts import Role
from lab_agent.operations.audit_log import note_look
from lab_agent.orders.job_actions import WAITING_STATES, can_be_marked_done
from lab_agent.orders.patient_data import unpack_lab_patient
from lab_agent.orders.pause_actions import load_pauses
from lab_agent.orders.records import OrderRecord
from lab_agent.queue.job_records import AT_LABORATORY_SYSTEM, AttemptRecord, Job, JobKind, ServiceMessage
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Finding
from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import DataInvalidError, LabAgentError, StoreUnreachableError
from lab_agent.shared.ids import JobId
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, OPEN_JOBS, JobState, OrderState, ReportState
from lab_agent.status import order_decisions
from lab_agent.status.auth import Operator, Revealer, Viewer
from lab_agent.status.charts import format_seconds
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.formatting import find_unconfirmed_submit, format_timestamp, job_kind_name
from lab_agent.status.forms import Form
from lab_agent.status.order_decisions import Detail
from lab_agent.status.pages import Flash
from lab_agent.status.translation import gettext
from lab_agent.status.wording import cause_about
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import OrderDetail

router = APIRouter()


@router.get("/orders/{key}")
async def show_order(user: Viewer, context: Context, renderer: Renderer, detail: Detail, flash: Flash) -> Response:
    """One order, with all that belongs to it."""
    order = detail.order.key
    is_operator = user.account.has_role(Role.OPERATOR)  # what the service says may name the patient
    waiting = {each.system for each in detail.jobs if is_for_system(each)}
    said, pauses = await context.store.run_read_only(
        lambda uow: (uow.vault.service_messages(order) if is_operator else {}, load_pauses(uow, waiting))
    )
    if said:
        await note_look(context.store, AuditAction.SERVICE_WORDS_SHOWN, order, by=user.name, now=context.clock.now())
    return await renderer.render_page(
        "order.html",
        user,
        detail=detail,
        pauses=pauses,
        is_for_system=is_for_system,
        held_for=_held_for(detail.order),
        can_release=order_decisions.can_release(detail.order),
        can_reject=order_decisions.can_reject(detail.order),
        held_lines=order_decisions.held_lines(detail),
        systems_of=order_decisions.systems_of,
        track=build_track(detail),
        tubes=read_tubes(detail, context),
        test_name=context.test_name,
        retryable_states=WAITING_STATES,
        ended_jobs=frozenset(JobState) - OPEN_JOBS,
        needing_operator=JOBS_NEEDING_OPERATOR,
        unconfirmed_submit=find_unconfirmed_submit(detail),
        can_be_marked_done=can_be_marked_done,
        service_messages=said,
        timeline=_merge_timeline(detail, said),
        flash=flash,
    )


def is_for_system(job: Job) -> bool:
    """Whether a job waits to be claimed, and talks to the laboratory system that is its `system`."""
    return job.kind in AT_LABORATORY_SYSTEM and job.is_waiting


def _held_for(order: OrderRecord) -> AlertKey | None:
    """The alert that tells why an order is held."""
    return AlertKey(ConditionId.ORDERS_HELD, order.hold_cause or "") if order.state is OrderState.HELD else None


# --- the way of an order -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Station:
    """A station of an order's way: `past`, `current`, `stopped` or `ahead`, and when it was reached."""

    name: str
    standing: str
    at: datetime | None = None


_STATION_EVENTS = (
    ("order_seen",),
    ("assessed", "order_assessed"),
    ("handed_over",),
    ("report_received", "report_matched", "result_matched"),
    ("report_delivered", "delivered"),
    ("order_closed", "closed"),
)


def build_track(detail: OrderDetail) -> tuple[Station, ...]:
    """The stations of the order, with when each was reached first."""
    names = (
        gettext("Seen"),
        gettext("Assessed"),
        gettext("At the laboratory"),
        gettext("First result"),
        gettext("Delivered"),
        gettext("Closed"),
    )
    reached = _reached(detail)
    times = [_first_event(detail.events, actions) for actions in _STATION_EVENTS]
    times[0], times[1] = detail.order.seen_at, times[1] or _assessed_at(detail.jobs, times[2])
    if detail.reports:
        times[3] = min(each.received_at for each in detail.reports)
        delivered = [each.changed_at for each in detail.reports if each.state is ReportState.DELIVERED]
        times[4] = min(delivered) if delivered else None
    if detail.order.state is OrderState.CLOSED:
        times[5] = detail.order.changed_at
    stopped = detail.order.state in {OrderState.HELD, OrderState.WITHDRAWN} or any(
        job.state in JOBS_NEEDING_OPERATOR for job in detail.jobs
    )
    stations = []
    for place, name in enumerate(names):
        standing = "past" if place <= reached else "ahead"
        if place == reached + 1 and detail.order.state is not OrderState.CLOSED:
            standing = "stopped" if stopped else "current"
        stations.append(Station(name, standing, times[place] if standing == "past" else None))
    return tuple(stations)


def _reached(detail: OrderDetail) -> int:
    """The number of the last station that is behind the order."""
    order = detail.order
    if order.state is OrderState.CLOSED:
        return 5
    if any(each.state is ReportState.DELIVERED for each in detail.reports):
        return 4
    if detail.reports:
        return 3
    return {OrderState.SEEN: 0, OrderState.HELD: 0, OrderState.FETCHED: 1}.get(order.state, 2)


def _assessed_at(jobs: Sequence[Job], handed_over_at: datetime | None) -> datetime | None:
    """When the order was assessed first: its decision has no event of its own where nothing was to be said."""
    ended = (each.changed_at for each in jobs if each.kind is JobKind.FETCH_ORDER and each.state is JobState.DONE)
    found = min(ended, default=None)
    return found if found is None or handed_over_at is None or found <= handed_over_at else None


def _first_event(events: Sequence[Event], actions: tuple[str, ...]) -> datetime | None:
    return next((each.at for each in events if each.action in actions), None)


# --- tubes ---------------------------------------------------------------------------------------------------------------
_CAPS = (
    ("edta", "lavender"),
    ("citrat", "blue"),
    ("heparin", "green"),
    ("fluor", "grey"),
    ("urin", "yellow"),
    ("gel", "yellow"),
    ("serum", "red"),
    ("swab", "white"),
    ("slide", "white"),
)
"""Colours of caps as they are common, by a part of the container's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tube:
    """A tube as a picture shows it."""

    barcode: str
    second_barcode: str
    kind: str
    cap: str
    specimen: str
    quantity: str
    collected_at: datetime | None
    lines: tuple[str, ...]


def read_tubes(detail: OrderDetail, context: StatusContext) -> tuple[Tube, ...]:
    """The tubes of the order as the laboratory system got it; of one that is not decided yet, its labels alone."""
    if detail.order.lab_order is None:
        return tuple(_label_tube(each.barcode, each.line) for each in detail.labels)
    try:
        content = exact_json.loads(detail.order.lab_order)
    except DataInvalidError:
        return ()
    return tuple(_iter_tubes(content, context))


def _label_tube(barcode: str, line: str) -> Tube:
    return Tube(barcode=barcode, second_barcode="", kind="", cap="", specimen="", quantity="", collected_at=None, lines=(line,))


def _iter_tubes(content: Mapping[str, Any], context: StatusContext) -> Iterator[Tube]:
    for specimen in content.get("specimens", ()):
        of = tuple(line.get("item", "") for line in content.get("lines", ()) if specimen.get("id") in line.get("specimens", ()))
        collected = specimen.get("collected_at")
        containers: Sequence[Mapping[str, Any]] = specimen.get("containers") or ({},)
        for container in containers:
            kind = container.get("type")
            name = context.container_name(kind) or kind or ""
            quantity = container.get("quantity")
            yield Tube(
                barcode=container.get("barcode") or "",
                second_barcode=container.get("second_barcode") or "",
                kind=name,
                cap=next((colour for part, colour in _CAPS if part in name.casefold()), ""),
                specimen=str(specimen.get("type") or ""),
                quantity="" if quantity is None else str(quantity),
                collected_at=datetime.fromisoformat(collected) if isinstance(collected, str) else None,
                lines=of,
            )


# --- the story -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _TimelineEntry:
    at: datetime
    text: str
    by: str | None = None
    said: bool = False
    """Whether these are the service's own words."""
    tone: str = ""
    """Of an attempt at a job: `good` or `bad`."""


def _merge_timeline(detail: OrderDetail, messages: Mapping[JobId, Sequence[ServiceMessage]]) -> list[_TimelineEntry]:
    """The events of an order, the attempts at its jobs, and what the service said to these, oldest first."""
    entries = [_TimelineEntry(each.at, each.text, each.by) for each in detail.events]
    if detail.order.state is OrderState.HELD and detail.order.held_since is not None:
        words = gettext("still held since %(since)s; read %(count)s times in all, last at this time")
        values = {"since": format_timestamp(detail.order.held_since), "count": detail.times_read}
        entries.append(_TimelineEntry(detail.order.changed_at, words % values))
    entries += [
        _TimelineEntry(each.at, describe_attempt(job, each), tone="good" if each.cause is None else "bad")
        for job in detail.jobs
        for each in job.attempt_log
    ]
    entries += [
        _TimelineEntry(each.at, f"job {job}, attempt {each.attempt}: {each.answer}. The service said: {each.text}", said=True)
        for job, said in messages.items()
        for each in said
    ]
    return sorted(entries, key=lambda entry: entry.at)


def describe_attempt(job: Job, attempt: AttemptRecord) -> str:
    """How an attempt ended, as in `… (job 4, attempt 1): PUT Task · HTTP 503 Service Unavailable · 80 ms · …`."""
    heading = gettext("%(kind)s (job %(job)s, attempt %(number)s)") % {
        "kind": job_kind_name(job.kind),
        "job": job.id,
        "number": attempt.number,
    }
    call = f"{attempt.call} {job.system}" if attempt.call and job.kind in AT_LABORATORY_SYSTEM else attempt.call
    status = "" if attempt.status is None else f"HTTP {attempt.status} {_STATUS_PHRASES.get(attempt.status, '')}".strip()
    outcome = gettext("did not fail")
    if attempt.cause is not None:
        outcome = cause_about(CONDITIONS[attempt.cause.condition], job.system)
    parts = (call, status, format_seconds(attempt.milliseconds / 1000), outcome)
    return f"{heading}: {' · '.join(part for part in parts if part)}"


_STATUS_PHRASES = {each.value: each.phrase for each in HTTPStatus}


# --- why it was judged so ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What one rule says of an order: its findings, none where it has nothing against it."""

    id: str
    section: str
    message: str
    findings: tuple[Finding, ...]


@router.get("/orders/{key}/judgement")
async def show_judgement(user: Viewer, context: Context, renderer: Renderer, detail: Detail) -> Response:
    """Every rule, applied once more to the order as it was last fetched; nothing is written."""
    problem, verdicts = None, tuple[RuleVerdict, ...]()
    try:
        verdicts = _verdicts((await context.assess_order(detail.order.key)).assessment)
    except StoreUnreachableError:
        raise
    except LabAgentError as exc:
        problem = str(exc)
    return await renderer.render_page("judgement.html", user, detail=detail, verdicts=verdicts, problem=problem)


def _verdicts(assessment: Any) -> tuple[RuleVerdict, ...]:
    """Those that found something first, then the others, each in the order in which they are applied."""
    found: dict[str, list[Finding]] = {}
    of_lines = [one for line in assessment.lines.values() for one in (*line.rejections, *line.warnings)]
    for finding in (*assessment.holds, *assessment.order_rejections, *of_lines, *assessment.warnings):
        found.setdefault(finding.rule, []).append(finding)
    all_of_them = [RuleVerdict(each.id, each.section, each.message, tuple(found.pop(each.id, ()))) for each in RULES]
    others = [RuleVerdict(rule, "", "", tuple(findings)) for rule, findings in found.items()]
    return tuple(sorted((*others, *all_of_them), key=lambda each: not each.findings))


@router.get("/orders/{key}/raw")
async def show_raw(user: Operator, renderer: Renderer, detail: Detail) -> Response:
    """What was fetched of the order and what the laboratory system got, as JSON; identification is kept apart, and not in it."""
    order = detail.order
    parts = [(name, _indented(content)) for name, content in (("received", order.received), ("lab_order", order.lab_order))]
    return await renderer.render_page("order_raw.html", user, detail=detail, parts=parts)


def _indented(content: bytes | None) -> str | None:
    return None if content is None else json.dumps(json.loads(content, parse_float=str), indent=2, ensure_ascii=False)


# --- what only those see who may reveal ----------------------------------------------------------------------------------
@router.post("/orders/{key}/patient")
async def reveal_patient(user: Revealer, _: Form, context: Context, renderer: Renderer, detail: Detail) -> Response:
    """Whose order it is. The look is in the audit before it is shown."""
    key = detail.order.key
    packed = await context.store.run_read_only(lambda uow: uow.vault.identity(key))
    await note_look(context.store, AuditAction.PATIENT_SHOWN, key, by=user.name, now=context.clock.now())
    return await renderer.render_page("patient.html", user, detail=detail, patient=_read_patient(packed))


def _read_patient(packed: bytes | None) -> OrderPatient | None:
    content = None if packed is None else unpack_lab_patient(packed)
    return None if content is None else load_order_patient(content)
