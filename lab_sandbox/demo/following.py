"""Points 7 and 8 of the daily flow: the orders are followed to their ends, and their results read and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lab_sandbox.demo.findings import Found, judge
from lab_sandbox.demo.growing import Growing
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.ordering import Ordered
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.screen import Screen, counted
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.plain_json import Json
from lab_sandbox.partner.reading import OrderStatus, Report, documents, order_status, reports, until


class Following:
    """The clinic follows its orders. `patience` is how many seconds anything may take that the laboratory's side does."""

    def __init__(self, client: PartnerClient, record: Record, ledger: Ledger, screen: Screen, patience: float) -> None:
        self._client = client
        self._record = record
        self._ledger = ledger
        self._screen = screen
        self._patience = patience

    async def go(self, ordered: Sequence[Ordered]) -> dict[str, Json]:
        """Both points; gives each order as the partner sees it at the end."""
        self._screen.heading("7  The laboratory polls, checks and sets the Tasks")
        await asyncio.gather(*(self._processed(one) for one in ordered))
        self._screen.heading("8  The laboratory uploads results; the clinic reads them")
        for one in ordered:
            with self._ledger.about(f"{one.scene.name}: can be read to its end"):
                await self._results(one)
        with self._ledger.about("the clinic is notified"):
            await self._notified(ordered)
        return {one.scene.name: await self._summary(one) for one in ordered}

    async def _processed(self, one: Ordered) -> None:
        """The first sign of the laboratory's work that a partner sees: a report, or a Task at its end."""
        name = f"{one.scene.name}: the laboratory has taken it up"
        with self._ledger.about(name):
            status, found = await until(
                lambda: asyncio.gather(order_status(self._client, one.order), reports(self._client, one.order)),
                lambda seen: bool(seen[1]) or seen[0].ended(),
                within=self._patience,
                what=name,
            )
            self._ledger.note(name, True, f"{status}; {counted(len(found), 'report')}")

    async def _results(self, one: Ordered) -> None:
        self._screen.step(f"{one.scene.name}: {one.scene.title}")
        if one.scene.staged:
            await Growing(self._client, self._record, self._ledger, self._patience).watch(one)
        status = await until(
            lambda: order_status(self._client, one.order),
            OrderStatus.ended,
            within=self._patience,
            what=f"{one.scene.name}: Tasks",
        )
        found = await self._reports(one)
        files = [await documents(self._client, report) for report in found]
        judge(one.scene, one.order, Found(status, found, files), self._record.reported(one.order.requisition), self._ledger)
        if one.scene.plan.patient == "anonymous":
            await self._anonymous(one)

    async def _reports(self, one: Ordered) -> list[Report]:
        """The order's reports, as soon as there are as many as the laboratory says it wrote."""
        expected = len(self._record.reported(one.order.requisition))
        return await until(
            lambda: reports(self._client, one.order),
            lambda found: len(found) >= expected,
            within=self._patience,
            what=f"{one.scene.name}: {expected} reports",
        )

    async def _anonymous(self, one: Ordered) -> None:
        name = (await self._client.read(one.order.patient))["name"][0]
        right = len(name["family"]) == 10 and name["family"].isdigit() and name["given"] == ["-", "-"]
        self._ledger.note(f"{one.scene.name}: the patient is a number, with no name", right)

    async def _notified(self, ordered: Sequence[Ordered]) -> None:
        told = {(one["order_task"], one["status"]) for one in await self._client.notifications() if one["level"] == "order"}
        missing = [one.scene.name for one in ordered if (f"task/{one.order.order_task}", "completed") not in told]
        self._ledger.note("the clinic is notified of the end of every order", not missing, ", ".join(missing))

    async def _summary(self, one: Ordered) -> Json:
        status, found = await asyncio.gather(order_status(self._client, one.order), reports(self._client, one.order))
        lines = {line.item: status.lines[line.procedure_request] for line in one.order.lines}
        return {"requisition": one.order.requisition, "status": status.order, "lines": lines, "reports": len(found)}
