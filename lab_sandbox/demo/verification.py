"""Points 7 and 8 of the daily flow: the orders are followed to their end, and their results are read and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

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
    """The clinic follows its orders. `timeout`: seconds to wait for each step of the laboratory.

    `notifications`: what comes to the clinic's address; None if it has none, and can only ask for them.
    """

    def __init__(
        self,
        client: PartnerClient,
        lis_record: LisRecord,
        check_list: CheckList,
        console: DemoConsole,
        timeout: float,
        notifications: Sequence[Json] | None = None,
    ) -> None:
        self._client = client
        self._lis_record = lis_record
        self._check_list = check_list
        self._console = console
        self._timeout = timeout
        self._notifications = notifications

    async def run(self, placed_orders: Sequence[PlacedScenario]) -> dict[str, Json]:
        """Both points; gives each order as the partner sees it at the end."""
        self._console.heading("7  The laboratory polls, checks and sets the Tasks")
        await asyncio.gather(*(self._wait_until_processed(one) for one in placed_orders))
        self._console.heading("8  The laboratory uploads results; the clinic reads them")
        for one in placed_orders:
            with self._check_list.record_partner_errors(f"{one.scenario.name}: all results can be read"):
                await self._check_results(one)
        with self._check_list.record_partner_errors("the clinic gets notifications"):
            await self._check_notifications(placed_orders)
        return {one.scenario.name: await self._summarize(one) for one in placed_orders}

    async def _wait_until_processed(self, placed: PlacedScenario) -> None:
        """Waits for the first sign of the laboratory's work that a partner sees: a report, or a Task at its end."""
        name = f"{placed.scenario.name}: the laboratory has processed the order"
        with self._check_list.record_partner_errors(name):
            status, reports = await wait_until(
                lambda: asyncio.gather(read_order_status(self._client, placed.order), read_reports(self._client, placed.order)),
                lambda found: bool(found[1]) or found[0].has_ended(),
                timeout=self._timeout,
                description=name,
            )
            self._check_list.record(name, True, f"{status}; {pluralize(len(reports), 'report')}")

    async def _check_results(self, placed: PlacedScenario) -> None:
        self._console.step(f"{placed.scenario.name}: {placed.scenario.title}")
        if placed.scenario.staged:
            await CorrectionScenario(self._client, self._lis_record, self._check_list, self._timeout).run(placed)
        status = await wait_until(
            lambda: read_order_status(self._client, placed.order),
            OrderStatus.has_ended,
            timeout=self._timeout,
            description=f"{placed.scenario.name}: the end of all Tasks",
        )
        reports = await self._wait_for_reports(placed)
        documents = [await download_documents(self._client, report) for report in reports]
        compare_results(
            placed.scenario,
            placed.order,
            OrderFindings(status, reports, documents),
            self._lis_record.latest_reports(placed.order.requisition),
            self._check_list,
        )
        if placed.scenario.plan.patient == "anonymous":
            await self._check_anonymous_patient(placed)

    async def _wait_for_reports(self, placed: PlacedScenario) -> list[ReceivedReport]:
        """The order's reports, as soon as there are as many as the laboratory has sent."""
        expected = len(self._lis_record.latest_reports(placed.order.requisition))
        return await wait_until(
            lambda: read_reports(self._client, placed.order),
            lambda found: len(found) >= expected,
            timeout=self._timeout,
            description=f"{placed.scenario.name}: {expected} reports",
        )

    async def _check_anonymous_patient(self, placed: PlacedScenario) -> None:
        name = (await self._client.read(placed.order.patient))["name"][0]
        is_anonymous = len(name["family"]) == 10 and name["family"].isdigit() and name["given"] == ["-", "-"]
        self._check_list.record(f"{placed.scenario.name}: the patient is a number without a name", is_anonymous)

    async def _check_notifications(self, placed_orders: Sequence[PlacedScenario]) -> None:
        """The end of every order is in the service's list, and was posted to the clinic's address."""
        expected = {(f"task/{one.order.order_task}", "completed") for one in placed_orders}
        missing = expected - _order_changes(await self._client.notifications())
        self._check_list.record(
            "the clinic is notified of the end of every order", not missing, f"{len(missing)} missing" if missing else ""
        )
        if self._notifications is not None:
            await self._check_received(self._notifications, expected)

    async def _check_received(self, received: Sequence[Json], expected: set[tuple[str, str]]) -> None:
        async def read_changes() -> set[tuple[str, str]]:
            return _order_changes(received)

        name = "the clinic gets the end of every order at its address"
        await wait_until(read_changes, expected.issubset, timeout=self._timeout, description=name)
        self._check_list.record(name, True, f"{len(received)} notifications")

    async def _summarize(self, placed: PlacedScenario) -> Json:
        status, reports = await asyncio.gather(
            read_order_status(self._client, placed.order), read_reports(self._client, placed.order)
        )
        lines = {line.item: status.lines[line.procedure_request] for line in placed.order.lines}
        return {"requisition": placed.order.requisition, "status": status.order, "lines": lines, "reports": len(reports)}


def _order_changes(notifications: Iterable[Json]) -> set[tuple[str, str]]:
    return {(one["order_task"], one["status"]) for one in notifications if one["level"] == "order"}
