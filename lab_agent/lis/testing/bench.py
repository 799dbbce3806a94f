"""A bench: the laboratory system (or a stand-in) and the adapter on it; and the agent's way of handing an order over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lab_agent.domain.order import LabOrder
from lab_agent.domain.results import LabMessage
from lab_agent.ports.lis import Lis


class Bench(Protocol):
    """What the suite has to know of the laboratory system, and make it do."""

    def adapter(self) -> Lis:
        """Make a new adapter on the same LIS, as a new start of the agent would."""
        ...

    async def orders(self) -> Sequence[str]:
        """Give the keys of the orders that the LIS got, one for each time that it got one."""
        ...

    async def cancelled_lines(self) -> Sequence[str]:
        """Give the keys of the lines that the LIS was told are withdrawn (repeats do not matter)."""
        ...

    async def publish(self, message: LabMessage) -> None:
        """Let the LIS report something."""
        ...

    async def unacknowledged_count(self) -> int:
        """Give the number of reports that the LIS would give again, since nobody has acknowledged them."""
        ...

    async def close(self) -> None:
        """Clear away what the bench opened."""
        ...


async def submit_order(adapter: Lis, order: LabOrder) -> None:
    """Do what the agent does: prepare, (commit,) submit."""
    await adapter.prepare(order)
    await adapter.submit(order)


async def resume_submit(adapter: Lis, order: LabOrder, *, prepared_committed: bool) -> bool:
    """Do what the agent does after it died in a handover; `committed` says whether *prepared* was. False: a person decides."""
    if not prepared_committed:
        await submit_order(adapter, order)
        return True
    known = await adapter.was_received(order.key)
    if known is False or (known is None and adapter.idempotent):
        await adapter.submit(order)
        return True
    return known is True
