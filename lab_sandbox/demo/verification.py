"""Points 7 and 8 of the daily flow: the orders are followed to their ends, and their results read and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole, pluralize
from lab_sandbox.demo.ordering import PlacedScenario
from lab_sandbox.demo.result_comparison import OrderFindings, compare_results
from lab_sandbox.demo.scenario_corrections import CorrectionScenario
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.result_reader import (
    OrderStatus,
    ReceivedReport,
    download_documents,
    read_order_status,
    read_reports,
    wait_until,
)


class ResultVerification:
    """The clinic follows its orders. `patience` is how many seconds anything may take that the laboratory's side does."""

    def __init__(
        self, client: PartnerClient, lis_record: LisRecord, check_list: CheckList, console: DemoConsole, timeout: float
    ) -> None:
        self._client = client
        self._lis_record = lis_record
        self._check_list = check_list
        self._console = console
        self._timeout = timeout

    async def run(self, ordered: Sequence[PlacedScenario]) -> dict[str, Json]:
        """Both points; gives each order as the partner sees it at the end."""
        self._console.heading("7  The laboratory polls, checks and sets the Tasks")
        await asyncio.gather(*(self._wait_until_processed(one) for one in ordered))
        self._console.heading("8  The laboratory uploads results; the clinic reads them")
        for one in ordered:
            with self._check_list.record_partner_errors(f"{one.scenario.name}: can be read to its end"):
                await self._check_results(one)
        with self._check_list.record_partner_errors("the clinic is notified"):
            await self._check_notifications(ordered)
        return {one.scenario.name: await self._summarize(one) for one in ordered}

    async def _wait_until_processed(self, placed: PlacedScenario) -> None:
        """The first sign of the laboratory's work that a partner sees: a report, or a Task at its end."""
        name = f"{placed.scenario.name}: the laboratory has taken it up"
        with self._check_list.record_partner_errors(name):
            status, found = await wait_until(
                lambda: asyncio.gather(read_order_status(self._client, placed.order), read_reports(self._client, placed.order)),
                lambda seen: bool(seen[1]) or seen[0].has_ended(),
                timeout=self._timeout,
                description=name,
            )
            self._check_list.record(name, True, f"{status}; {pluralize(len(found), 'report')}")

    async def _check_results(self, placed: PlacedScenario) -> None:
        self._console.step(f"{placed.scenario.name}: {placed.scenario.title}")
        if placed.scenario.staged:
            await CorrectionScenario(self._client, self._lis_record, self._check_list, self._timeout).run(placed)
        status = await wait_until(
            lambda: read_order_status(self._client, placed.order),
            OrderStatus.has_ended,
            timeout=self._timeout,
            description=f"{placed.scenario.name}: Tasks",
        )
        found = await self._wait_for_reports(placed)
        files = [await download_documents(self._client, report) for report in found]
        compare_results(
            placed.scenario,
            placed.order,
            OrderFindings(status, found, files),
            self._lis_record.latest_reports(placed.order.requisition),
            self._check_list,
        )
        if placed.scenario.plan.patient == "anonymous":
            await self._check_anonymous_patient(placed)

    async def _wait_for_reports(self, placed: PlacedScenario) -> list[ReceivedReport]:
        """The order's reports, as soon as there are as many as the laboratory says it wrote."""
        expected = len(self._lis_record.latest_reports(placed.order.requisition))
        return await wait_until(
            lambda: read_reports(self._client, placed.order),
            lambda found: len(found) >= expected,
            timeout=self._timeout,
            description=f"{placed.scenario.name}: {expected} reports",
        )

    async def _check_anonymous_patient(self, placed: PlacedScenario) -> None:
        name = (await self._client.read(placed.order.patient))["name"][0]
        right = len(name["family"]) == 10 and name["family"].isdigit() and name["given"] == ["-", "-"]
        self._check_list.record(f"{placed.scenario.name}: the patient is a number, with no name", right)

    async def _check_notifications(self, ordered: Sequence[PlacedScenario]) -> None:
        told = {(one["order_task"], one["status"]) for one in await self._client.notifications() if one["level"] == "order"}
        missing = [one.scenario.name for one in ordered if (f"task/{one.order.order_task}", "completed") not in told]
        self._check_list.record("the clinic is notified of the end of every order", not missing, ", ".join(missing))

    async def _summarize(self, placed: PlacedScenario) -> Json:
        status, found = await asyncio.gather(
            read_order_status(self._client, placed.order), read_reports(self._client, placed.order)
        )
        lines = {line.item: status.lines[line.procedure_request] for line in placed.order.lines}
        return {"requisition": placed.order.requisition, "status": status.order, "lines": lines, "reports": len(found)}
