"""A result that changes: preliminary, final, corrected. Each version reaches the partner before the next is released."""

from __future__ import annotations

from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.ordering import PlacedScenario
from lab_sandbox.demo.result_comparison import find_observation
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.result_reader import OrderStatus, ReceivedReport, read_order_status, read_reports, wait_until

_ORGANISM_CODE, _COLONY_COUNT_CODE = "630-4", "19090-0"


class CorrectionScenario:
    """Follows the culture of one order."""

    def __init__(self, client: PartnerClient, lis_record: LisRecord, check_list: CheckList, timeout: float) -> None:
        self._client = client
        self._lis_record = lis_record
        self._check_list = check_list
        self._timeout = timeout

    async def run(self, placed: PlacedScenario) -> None:
        """Checks all three versions of the report, and what they do to the Task."""
        name, requisition = placed.scenario.name, placed.order.requisition
        early = await self._wait_for_organism(placed, "preliminary", "while the culture grows")
        status = await read_order_status(self._client, placed.order)
        self._check_list.record(f"{name}: the Task stays open after a preliminary report", not status.has_ended(), f"{status}")
        self._lis_record.release_stage(requisition, "final")
        final = await self._wait_for_organism(placed, "final", "when the culture is read", previous=early)
        await wait_until(
            lambda: read_order_status(self._client, placed.order),
            OrderStatus.has_ended,
            timeout=self._timeout,
            description=f"{name}: the end of all Tasks",
        )
        self._lis_record.release_stage(requisition, "corrected")
        last = await self._wait_for_organism(placed, "amended", "after the correction", previous=final)
        same = {early.resource["id"], final.resource["id"], last.resource["id"]}
        self._check_list.record(
            f"{name}: all three are versions of one report, and the last is final", len(same) == 1 and last.status == "final"
        )
        before, after = (_version_id(find_observation(report, _COLONY_COUNT_CODE)) for report in (final, last))
        self._check_list.record(
            f"{name}: what the correction does not change is not sent again", before is not None and before == after
        )

    async def _wait_for_organism(
        self, placed: PlacedScenario, status: str, when: str, previous: ReceivedReport | None = None
    ) -> ReceivedReport:
        """Waits for another version of the report than `previous` whose organism has this status.

        The clinic goes by the report: its Observations may exist a moment earlier.
        """
        old = None if previous is None else _version_id(previous.resource)

        def is_new_version(report: ReceivedReport) -> bool:
            organism = find_observation(report, _ORGANISM_CODE) or {}
            return organism.get("status") == status and _version_id(report.resource) != old

        found = await wait_until(
            lambda: read_reports(self._client, placed.order),
            lambda reports: any(is_new_version(report) for report in reports),
            timeout=self._timeout,
            description=f"{placed.scenario.name}: a {status} result",
        )
        report = next(each for each in found if is_new_version(each))
        self._check_list.record(
            f"{placed.scenario.name}: the organism is {status} {when}",
            True,
            _value_text(find_observation(report, _ORGANISM_CODE)),
        )
        return report


def _version_id(resource: Json | None) -> str | None:
    return None if resource is None else str(resource["meta"]["versionId"])


def _value_text(observation: Json | None) -> str:
    found = observation or {}
    return str(found.get("valueString") or found.get("valueCodeableConcept", {}).get("text", ""))
