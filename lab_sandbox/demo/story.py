"""The daily flow, told point by point as the interface document lists it, from the partner's side alone."""

from __future__ import annotations

from lab_sandbox.demo.following import ResultVerification
from lab_sandbox.demo.ledger import CheckList
from lab_sandbox.demo.ordering import OrderPlacement
from lab_sandbox.demo.record import LisRecord
from lab_sandbox.demo.screen import DemoConsole
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.plain_json import Json


async def run_daily_flow(
    clinic: Clinic, lis_record: LisRecord, check_list: CheckList, console: DemoConsole, timeout: float
) -> dict[str, Json]:
    """All eight points; gives each order as the partner sees it at the end.

    `patience` is how many seconds anything may take that the laboratory's side does.
    """
    ordered = await OrderPlacement(clinic, check_list, console).run()
    return await ResultVerification(clinic.client, lis_record, check_list, console, timeout).run(ordered)
