"""An order that does not exist, for a message whose order is not known: its values can be planned as those of a real one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import cast

from lab_agent.lis.lab_messages import Document, LabMessage, LabRejection, LabReport
from lab_agent.lis.report_documents import map_documents
from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder
from lab_agent.results.order_lookup import OrderPart
from lab_agent.shared import exact_json
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId
from lab_agent.shared.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.store.unit_of_work import UnitOfWork

STAND_IN_ORDER = OrderKey("RTRIAL0000000000")
"""No real key: those have neither 0 nor 1."""
_UNNAMED_ITEM = "-"


def stand_in_part(content: LabMessage, adapter: str, now: datetime) -> OrderPart:
    """What the laboratory system `adapter` has of an order that has exactly the tests and the tubes of a message."""
    items = (content.items if isinstance(content, LabReport) else ()) or (_UNNAMED_ITEM,)
    lines = [LineKey(f"LTRIAL{number:010}") for number in range(len(items))]
    specimen = "trial-specimen"
    barcodes = sorted({each.specimen for each in content.observations if each.specimen} if isinstance(content, LabReport) else ())
    tree = {
        "lines": [{"key": key, "item": item, "specimens": [specimen]} for key, item in zip(lines, items, strict=True)],
        "specimens": [{"id": specimen, "containers": [{"barcode": barcode} for barcode in barcodes]}],
    }
    order = OrderRecord(
        key=STAND_IN_ORDER,
        task_id=ResourceId("trial"),
        state=OrderState.HANDED_OVER,
        seen_at=now,
        changed_at=now,
        patient_reference="Patient/trial",
        counterparty="trial",
        received=exact_json.dumps([]),
        lab_order=exact_json.dumps(tree),
    )
    records = tuple(
        LineRecord(
            key=key,
            order=STAND_IN_ORDER,
            task_id=ResourceId(f"trial-{key}"),
            procedure_request_id=ResourceId(f"trial-{key}"),
            item=item,
            state=LineState.ACCEPTED,
            adapter=adapter,
            changed_at=now,
        )
        for key, item in zip(lines, items, strict=True)
    )
    work_order = WorkOrder(order=STAND_IN_ORDER, adapter=adapter, state=WorkOrderState.HANDED_OVER, changed_at=now)
    return OrderPart(order, adapter, adapter, work_order, records, ())


class StandInRecords:
    """What is kept of that order, as far as the checks of a report look: nothing was sent, and the documents are the message's.

    `message` is the message with its documents kept here.
    """

    def __init__(self, message: LabMessage) -> None:
        self._documents: dict[str, tuple[bytes, str]] = {}
        self.message = map_documents(message, self._keep) if isinstance(message, LabReport) else message
        self.uploads = self.vault = self

    @property
    def unit_of_work(self) -> UnitOfWork:
        """These records in the place of the store's."""
        return cast("UnitOfWork", self)

    def get(self, _name: str) -> None:
        """No upload is known."""

    def document(self, file: str) -> tuple[bytes, str] | None:
        """A document of the message."""
        return self._documents.get(file)

    def _keep(self, document: Document) -> Document:
        if document.content is None:
            return document
        file = sha256(document.content).hexdigest()
        self._documents[file] = (document.content, document.content_type)
        return replace(document, content=None, file=file)


def address_to(content: LabMessage, order: OrderKey) -> LabMessage:
    """The message as if it named this order, and nothing else of its references but the tests."""
    if isinstance(content, LabReport):
        return replace(content, order=order, lines=(), accession=None, barcode=None)
    if isinstance(content, LabRejection):
        reasons = tuple(
            replace(each, line=None, item=None if order == STAND_IN_ORDER else each.item) for each in content.not_performed
        )
        return replace(content, order=order, accession=None, barcode=None, not_performed=reasons)
    return replace(content, order=order)
