"""A result that changes: preliminary, then final, then corrected, each seen by the partner before the next is let go."""

from __future__ import annotations

from lab_sandbox.demo.findings import by_code
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.ordering import Ordered
from lab_sandbox.demo.record import Record
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.reading import OrderStatus, Report, order_status, reports, until

_ORGANISM, _COUNT = "630-4", "19090-0"


class Growing:
    """Watches the culture of one order."""

    def __init__(self, client: PartnerClient, record: Record, ledger: Ledger, patience: float) -> None:
        self._client = client
        self._record = record
        self._ledger = ledger
        self._patience = patience

    async def watch(self, one: Ordered) -> None:
        """See all three versions of the report, and what they do to the Task."""
        name, requisition = one.scene.name, one.order.requisition
        early = await self._organism(one, "preliminary", "while it grows")
        status = await order_status(self._client, one.order)
        self._ledger.note(f"{name}: preliminary, and its Task still open", not status.ended(), f"{status}")
        self._record.let_go(requisition, "final")
        final = await self._organism(one, "final", "when it is read", after=early)
        await until(
            lambda: order_status(self._client, one.order), OrderStatus.ended, within=self._patience, what=f"{name}: Tasks"
        )
        self._record.let_go(requisition, "corrected")
        last = await self._organism(one, "amended", "when it is corrected", after=final)
        same = {early.resource["id"], final.resource["id"], last.resource["id"]}
        self._ledger.note(f"{name}: three versions of one report, the last one final", len(same) == 1 and last.status == "final")
        before, after = (_version(by_code(report, _COUNT)) for report in (final, last))
        self._ledger.note(f"{name}: what the correction leaves alone was not sent again", before is not None and before == after)

    async def _organism(self, one: Ordered, wanted: str, when: str, after: Report | None = None) -> Report:
        """Waits for the version of the report, another one than `after`, whose organism has this status.

        The report is what a clinic goes by: its Observations may be there a moment earlier.
        """
        old = None if after is None else _version(after.resource)

        def is_it(report: Report) -> bool:
            organism = by_code(report, _ORGANISM) or {}
            return organism.get("status") == wanted and _version(report.resource) != old

        found = await until(
            lambda: reports(self._client, one.order),
            lambda listed: any(is_it(report) for report in listed),
            within=self._patience,
            what=f"{one.scene.name}: {wanted}",
        )
        report = next(each for each in found if is_it(each))
        self._ledger.note(f"{one.scene.name}: the organism is {wanted} {when}", True, _words(by_code(report, _ORGANISM)))
        return report


def _version(resource: Json | None) -> str | None:
    return None if resource is None else str(resource["meta"]["versionId"])


def _words(observation: Json | None) -> str:
    seen = observation or {}
    return str(seen.get("valueString") or seen.get("valueCodeableConcept", {}).get("text", ""))
