"""Results that wait at the match desk, over the seeded page: one for nobody, one without a mapping, one that came too late."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from lab_agent import result_bootstrap
from lab_agent.lis.lab_messages import Document, LabMessage, LabReport, NotPerformed, ReferenceRange, ReportedObservation
from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord, WorkOrder
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared import exact_json
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId, report_key
from lab_agent.shared.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.shared.values import CodeableConcept, Coding, Identifier, Quantity
from tests.harness.paths import MAPPINGS
from tests.harness.results import LOINC, haemoglobin, make_report, make_settings

SUBMITTED_ORDER, WITHDRAWN_ORDER = OrderKey("R000000000WORKED"), OrderKey("R00000000000GONE")
HOSTILE = "<script>alert('x')</script>"
CLINIC = {"contract": "C-100", "counterparty": "partner-guid"}
"""Who has ordered."""


def use_mappings(page: Any, folder: Path) -> Path:
    """Give the page mapping tables of its own; where they lie."""
    shutil.copytree(MAPPINGS, folder)
    page.context = replace(
        page.context,
        create_matcher=partial(result_bootstrap.build_manual_matcher, make_settings({"mappings": folder}), lambda: None),
    )
    return folder


async def add_orders(page: Any) -> None:
    """Two orders of two lines: one that the laboratory works on, one that was withdrawn."""
    now = page.clock.now() - timedelta(days=1)

    def write(uow: Any) -> None:
        for number, (key, state) in enumerate(
            ((SUBMITTED_ORDER, OrderState.HANDED_OVER), (WITHDRAWN_ORDER, OrderState.WITHDRAWN))
        ):
            lines = [make_line(key, f"W{number}{place}", now, item=f"00{place}.001") for place in range(2)]
            lab_order = {"lines": [{"key": line.key, "item": line.item, "specimens": ["s"]} for line in lines], "specimens": []}
            names = {"task_id": ResourceId(f"desk-task-{number}"), "patient_reference": "patient/1", **CLINIC}
            requisition = Identifier(system="urn:clinic:orders", value=f"77-{number}")
            content = {"requisition": requisition, "lab_order": exact_json.dumps(lab_order), **names}
            order = OrderRecord(key=key, state=state, seen_at=now, changed_at=now, **content)
            save_order(uow, order, lines, accession=f"A-{number}", barcode=f"90{number}")

    await page.write(write)


def save_order(
    uow: Any,
    order: OrderRecord,
    lines: Sequence[LineRecord],
    *,
    accession: str,
    barcode: str,
    part: WorkOrderState = WorkOrderState.HANDED_OVER,
) -> None:
    """An order with a part for the folder, and one tube for each of its lines."""
    uow.orders.add(order)
    own = WorkOrder(order=order.key, adapter="folder", state=part, changed_at=order.seen_at, accession=accession)
    uow.orders.save_work_order(own)
    tube = {"order": order.key, "specimen_id": "s", "patient_reference": "patient/1"}
    for line in lines:
        uow.orders.add_line(line)
    labels = [LabelUse(barcode=f"{barcode}{place}", line=line.key, **tube) for place, line in enumerate(lines)]
    uow.orders.set_labels(order.key, labels)


def make_line(order: OrderKey, key: str, at: datetime, **fields: Any) -> LineRecord:
    start: dict[str, Any] = {"adapter": "folder", "state": LineState.ACCEPTED}
    start |= {"task_id": ResourceId(f"line-task-{key.removeprefix('L')}"), "procedure_request_id": ResourceId(f"pr-{key}")}
    return LineRecord(key=LineKey(key), order=order, changed_at=at, **{**start, **fields})


async def receive_message(page: Any, name: str, content: LabMessage, source: str = "folder") -> ReportKey:
    await StoreInbox(page.context.store, page.clock, source).accept(name, content)
    key = report_key(source, name)
    await page.write(lambda uow: page.context.create_matcher().match(uow, key, page.clock.now()))
    page.clock.advance(minutes=7)
    return key


def report_now(page: Any, *observations: ReportedObservation, **fields: Any) -> LabReport:
    now = page.clock.now()
    return make_report(*observations, **{"effective": now, "issued": now, **fields})


async def get_report(page: Any, key: ReportKey) -> ReportRecord:
    found = await page.context.queries.report(key)
    assert found is not None
    return found


async def unmatched_result(page: Any, **fields: Any) -> ReportKey:
    """A result that names a barcode which nobody knows, with a document, a range, a flag and a hostile note."""
    low, high = (Quantity(value=Decimal(value), unit="g/dL") for value in ("12.0", "15.50"))
    more = {"flags": ("L",), "reference_ranges": (ReferenceRange(low=low, high=high),), "note": HOSTILE}
    value = haemoglobin("1.20", method=CodeableConcept(text="photometry"), **more)
    other = haemoglobin("0.0500", id="crp", code=Coding(system=LOINC, code="1988-5", display="C-reactive protein"))
    usual = {"report_id": "lost-1", "order": None, "barcode": "4711", "accession": "A-9"}
    usual |= {
        "documents": (Document(content=b"%PDF-1.4\n" + b"x" * 4200, title=HOSTILE),),
        "not_performed": (NotPerformed(item="020.014", reason="too little material"),),
    }
    content = report_now(page, value, other, **{**usual, **fields})
    return await receive_message(page, f"{content.report_id}.{content.version}.json", content)


async def late_result(page: Any) -> ReportKey:
    return await receive_message(
        page, "late.json", report_now(page, haemoglobin("13.20"), report_id="late-1", order=WITHDRAWN_ORDER, version=2)
    )


async def unmapped_result(page: Any, name: str, code: str) -> ReportKey:
    """A result in the laboratory's own words."""
    value = haemoglobin("5.10", code=Coding(code=code), value_quantity=Quantity(value=Decimal("5.10"), unit="g/l"))
    return await receive_message(
        page, f"{name}.json", report_now(page, value, report_id=name, order=SUBMITTED_ORDER, lines=("W00",))
    )
