"""The results of one order as the clinic sees them, and their documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.operations.audit_log import note_look
from lab_agent.shared.state_machines import ReportState
from lab_agent.status.auth import HttpError, Revealer, Viewer
from lab_agent.status.context import Context, Renderer
from lab_agent.status.formatting import ResultView, format_observation, load_result
from lab_agent.status.forms import one_line
from lab_agent.status.order_decisions import Detail
from lab_agent.status.translation import gettext
from lab_agent.store.audit_records import AuditAction

router = APIRouter()

_DOCUMENT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A document of a laboratory system runs nothing and fetches nothing, whatever it is."""
_SHOWN_INLINE = frozenset({"application/pdf", "image/png", "image/jpeg", "text/plain"})


@router.get("/orders/{key}/results")
async def show_results_of_order(user: Viewer, context: Context, renderer: Renderer, detail: Detail) -> Response:
    """The results of an order as the clinic sees them, corrections beside what they correct. The look is in the audit."""
    key = detail.order.key
    await note_look(context.store, AuditAction.RESULT_SHOWN, key, by=user.name, now=context.clock.now())
    views = [load_result(found) for each in detail.reports if (found := await context.queries.report(each.key)) is not None]
    return await renderer.render_page(
        "order_results.html", user, detail=detail, sheets=compare_versions(views), test_name=context.test_name
    )


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """An observation of the newest version, and what the version before it said, where that is another value."""

    observation: ReportedObservation
    former: str | None = None


@dataclass(frozen=True, slots=True)
class ReportSheet:
    """A report as the clinic sees it: its newest delivered version, or the newest of all where none is delivered yet."""

    view: ResultView
    values: tuple[ComparedValue, ...]
    versions: int


def compare_versions(views: Sequence[ResultView]) -> tuple[ReportSheet, ...]:
    """Put the versions of each report together."""
    by_report: dict[tuple[str, str], list[ResultView]] = {}
    for view in views:
        if isinstance(view.message, LabReport) and view.report.state is not ReportState.DISMISSED:
            name = view.report.report_id or view.report.key
            by_report.setdefault((view.report.source, name), []).append(view)
    return tuple(_to_sheet(versions) for versions in by_report.values())


def _to_sheet(versions: list[ResultView]) -> ReportSheet:
    in_order = sorted(versions, key=lambda each: (each.report.version or 0, each.report.sequence))
    gone = {ReportState.DELIVERED, ReportState.SUPERSEDED}
    seen = [each for each in in_order if each.report.state in gone] or in_order
    newest, before = seen[-1], seen[-2] if len(seen) > 1 else None
    former = _values_by_name(before.message) if before else {}
    values = []
    message = newest.message
    for one in message.observations if isinstance(message, LabReport) else ():
        was = former.get(_name_of(one))
        values.append(ComparedValue(one, was if was is not None and was != format_observation(one) else None))
    return ReportSheet(newest, tuple(values), len(versions))


def _values_by_name(message: object) -> dict[tuple[str, ...], str]:
    return {_name_of(one): format_observation(one) for one in message.observations} if isinstance(message, LabReport) else {}


def _name_of(one: ReportedObservation) -> tuple[str, ...]:
    return (one.id or "", one.code.system or "", one.code.code)


@router.get("/results/{key}/documents/{number}")
async def show_document(user: Revealer, context: Context, key: str, number: str) -> Response:
    """A document of a result, to be looked at: it may name the patient, so only those see it who may. It is in the audit."""
    report = await context.queries.report(one_line(key))  # type: ignore[arg-type]
    documents = load_result(report).documents if report else ()
    place = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    if not 1 <= place <= len(documents):
        raise HttpError(gettext("There is no such document."), 404)
    name = documents[place - 1].file
    stored = await context.store.run_read_only(lambda uow: uow.vault.document(name)) if name else None
    if stored is None:
        raise HttpError(gettext("This document is not stored (any more)."), 404)
    await note_look(context.store, AuditAction.DOCUMENT_SHOWN, f"{one_line(key)}/{place}", by=user.name, now=context.clock.now())
    content, content_type = stored
    plain = content_type.split(";")[0].strip().lower()
    disposition = "inline" if plain in _SHOWN_INLINE else "attachment"
    headers = {"Content-Disposition": f'{disposition}; filename="document-{place}"', "Content-Security-Policy": _DOCUMENT_POLICY}
    return Response(content, media_type=plain if plain in _SHOWN_INLINE else "application/octet-stream", headers=headers)
