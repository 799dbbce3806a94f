"""The daily flow, told point by point as the interface document lists it, from the partner's side alone."""

from __future__ import annotations

from lab_sandbox.demo.following import Following
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.ordering import Ordering
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.screen import Screen
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.plain_json import Json


async def tell(clinic: Clinic, record: Record, ledger: Ledger, screen: Screen, patience: float) -> dict[str, Json]:
    """All eight points; gives each order as the partner sees it at the end.

    `patience` is how many seconds anything may take that the laboratory's side does.
    """
    ordered = await Ordering(clinic, ledger, screen).go()
    return await Following(clinic.client, record, ledger, screen, patience).go(ordered)
