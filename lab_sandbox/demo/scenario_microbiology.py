"""One order, two laboratory systems: a blood count for the one, a culture for that of microbiology, which finds two isolates.

It comes after the daily flow, where the LIS is connected by HL7 v2. The clinic sees one order; which drug works against which
organism must be clear from what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab_sandbox.demo.checks import CheckList
from lab_sandbox.demo.console import DemoConsole, pluralize
from lab_sandbox.demo.lis.microbiology import ISOLATES, ORGANISM_CODE, Isolate, Susceptibility
from lab_sandbox.demo.lis.simulator import RECEIVED_FOLDER
from lab_sandbox.demo.scenarios import MICROBIOLOGY_ITEM, build_two_systems_plan
from lab_sandbox.demo.workspace import Workspace
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.clinic import Clinic, PlacedOrder
from lab_sandbox.partner.errors import Json, decode
from lab_sandbox.partner.result_reader import OrderStatus, ReceivedReport, read_order_status, read_reports, wait_until


@dataclass(frozen=True, slots=True)
class MicrobiologyScenario:
    """Follows one order through both laboratory systems. `timeout`: seconds to wait for each step."""

    workspace: Workspace
    clinic: Clinic
    check_list: CheckList
    console: DemoConsole
    timeout: float

    async def run(self) -> None:
        """Runs the scenario and records its checks."""
        self.console.heading("Finally: one order for two laboratory systems, and a culture with two isolates")
        with self.check_list.record_partner_errors("two systems: the order is completed"):
            plan = build_two_systems_plan(self._client.account.contract, await self._client.nomenclature())
            order = await self.clinic.place_order(plan)
            self.check_list.record("two systems: the service accepts the order", True, f"requisition {order.requisition}")
            status = await wait_until(
                lambda: read_order_status(self._client, order),
                OrderStatus.has_ended,
                timeout=self.timeout,
                description="the end of the order of two laboratory systems",
            )
            completed = {status.order, *status.lines.values()} == {"completed"}
            self.check_list.record("two systems: the order is completed", completed, str(status))
            self._check_division(order)
            self._check_reports(order, await read_reports(self._client, order))

    @property
    def _client(self) -> PartnerClient:
        return self.clinic.client

    def _check_division(self, order: PlacedOrder) -> None:
        """Each system got its own lines, and nothing of the other's."""
        folders = (self.workspace.lis, self.workspace.microbiology)
        received = [_received_items(folder / RECEIVED_FOLDER, order.requisition) for folder in folders]
        others = {line.item for line in order.lines} - {MICROBIOLOGY_ITEM}
        divided = received == [others, {MICROBIOLOGY_ITEM}]
        self.check_list.record("two systems: each laboratory system got its own part of the order", divided, str(received))

    def _check_reports(self, order: PlacedOrder, reports: list[ReceivedReport]) -> None:
        (culture,) = (line.procedure_request for line in order.lines if line.item == MICROBIOLOGY_ITEM)
        others = [one for one in reports if culture not in one.lines and one.observations]
        self.check_list.record("two systems: the blood count has its own report", bool(others), pluralize(len(reports), "report"))
        found = [one for one in reports if culture in one.lines and one.observations]
        for isolate in ISOLATES:
            differences = list(_isolate_differences(isolate, found))
            self.check_list.record(
                f"two systems: {isolate.name} is told with its own susceptibilities alone",
                not differences,
                "; ".join(differences),
            )


def _isolate_differences(isolate: Isolate, reports: list[ReceivedReport]) -> list[str]:
    """What is wrong with the one report that names this organism and has susceptibilities."""
    own = [one for one in reports if _names(one, isolate) and len(one.observations) > 1 and not _names_another(one, isolate)]
    if len(own) != 1:
        return [f"{len(own)} reports name it alone, with susceptibilities"]
    drugs = {_code(each): each for each in own[0].observations if _code(each) != ORGANISM_CODE}
    expected = {drug.code: drug for drug in isolate.susceptibilities}
    if set(drugs) != set(expected):
        return [f"drugs {sorted(drugs)}"]
    return [f"{drug.name}: {_shown(drugs[code])}" for code, drug in expected.items() if not _is_told(drug, drugs[code])]


def _is_told(drug: Susceptibility, observation: Json) -> bool:
    """Whether an Observation says this MIC and this judgement, or the judgement as its value where nothing was measured."""
    value, judged = observation.get("valueQuantity", {}), _codes(observation.get("interpretation", {}))
    if not drug.mic:
        return drug.judgement in _codes(observation.get("valueCodeableConcept", {}))
    return f"{value.get('comparator', '')}{value.get('value', '')}" == drug.mic and drug.judgement in judged


def _names(report: ReceivedReport, isolate: Isolate) -> bool:
    return any(isolate.code in _codes(each.get("valueCodeableConcept", {})) for each in report.observations)


def _names_another(report: ReceivedReport, isolate: Isolate) -> bool:
    return any(_names(report, other) for other in ISOLATES if other != isolate)


def _code(observation: Json) -> str:
    return str(observation["code"]["coding"][0]["code"])


def _codes(concept: Json) -> set[str]:
    return {str(coding.get("code")) for coding in concept.get("coding", ())}


def _shown(observation: Json) -> str:
    return str({name: observation.get(name) for name in ("valueQuantity", "valueCodeableConcept", "interpretation")})


def _received_items(folder: Path, requisition: str) -> set[str]:
    """The items of the lines that a laboratory system received of one order."""
    orders = (decode(file.read_bytes()) for file in folder.glob("R*.json") if "cancel" not in file.name)
    return {line["item"] for order in orders if order["requisition"]["value"] == requisition for line in order["lines"]}
