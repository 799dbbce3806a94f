"""The hl7v2 adapter: orders out and results in over MLLP, on one or two links, whoever calls whom."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.order import LabOrder
from lab_agent.domain.results import LabRefusal, NotPerformed
from lab_agent.errors import LisUnavailable
from lab_agent.lis.hl7v2.acknowledgements import Answer
from lab_agent.lis.hl7v2.endpoint import Endpoint, Patience
from lab_agent.lis.hl7v2.link import Link
from lab_agent.lis.hl7v2.mllp import Found
from lab_agent.lis.hl7v2.outgoing import Writer
from lab_agent.lis.hl7v2.receiver import Receiver
from lab_agent.lis.hl7v2.sender import Sender
from lab_agent.lis.hl7v2.settings import Hl7v2Settings, LinkSettings
from lab_agent.lis.hl7v2.shelf import Shelf
from lab_agent.lis.hl7v2.waiting import Waiting
from lab_agent.ports.lis import Inbox, Receipt


class Hl7v2Adapter:
    """A LIS that speaks HL7 v2."""

    Settings: ClassVar[type[BaseModel]] = Hl7v2Settings
    idempotent: bool = False
    """Whether the LIS tells repeats: of an instance, by its setting `duplicates`."""

    def __init__(self, settings: Hl7v2Settings, name: str) -> None:
        self.idempotent = settings.duplicates != "none"
        self._settings = settings
        self._name = name
        self._writer = Writer(settings)
        self._waiting = Waiting()
        self._shelf = Shelf(settings.folder, settings.keep_days)
        self._orders = self._endpoint(settings.orders, "orders")
        self._results = self._endpoint(settings.results, "results") if settings.results else None
        self._sender = Sender(settings, self._orders, self._waiting)
        self._receiver: Receiver | None = None

    @property
    def ports(self) -> tuple[int, int]:
        """The ports of the links for orders and for results; of a server, the one that it really listens on."""
        return self._orders.port, (self._results or self._orders).port

    async def start(self, inbox: Inbox) -> None:
        """Listen, and begin to connect. A LIS that is away is told of by `check`; its coming back needs nobody."""
        try:
            await asyncio.to_thread(self._shelf.open)
        except OSError as exc:
            raise LisUnavailable(f"the adapter's folder cannot be used: {exc.strerror or type(exc).__name__}") from exc
        self._receiver = Receiver(self._settings, self._name, inbox, self._waiting, self._shelf)
        try:
            for endpoint in self._endpoints:
                await endpoint.open()
        except LisUnavailable:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close every connection. A message in the middle is given again by the LIS: it has got no answer."""
        for endpoint in self._endpoints:
            await endpoint.close()
        self._receiver = None

    async def check(self) -> None:
        """Look whether the LIS is connected; without a start, whether it can be reached."""
        for endpoint in self._endpoints:
            if self._receiver is None:
                await endpoint.probe()
            elif endpoint.caller or endpoint is self._orders:
                await endpoint.link(self._settings.connect_timeout)

    async def prepare(self, order: LabOrder) -> None:
        """Look whether the order can be written at all."""
        self._writer.order(order, self._control_id(order.key), datetime.now(UTC))

    async def submit(self, order: LabOrder) -> Receipt:
        """Send the order, and wait for the answer that the settings ask for."""
        inbox = self._started().inbox
        control_id = self._control_id(order.key)
        message = self._writer.order(order, control_id, datetime.now(UTC))
        answer = await self._sender.send(message, control_id, order.key)
        return Receipt() if answer is None else await _taken(order, answer, inbox)

    async def was_received(self, key: OrderKey) -> bool | None:
        """Say what the LIS answered, even too late; where it did not, nobody can tell (or a repeat does no harm)."""
        return self._waiting.received(key)

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Send a withdrawal (ORC-1 is CA)."""
        self._started()
        control_id = self._control_id(_cancel_key(order, lines))
        message = self._writer.cancel(lines, reason, control_id, datetime.now(UTC))
        await self._sender.send(message, control_id, f"cancel {order}")

    async def collect(self) -> int:
        """Nothing is fetched: the LIS sends. Old raw messages are cleared away."""
        await asyncio.to_thread(self._shelf.clear)
        return 0

    def _control_id(self, key: str) -> str:
        """Give MSH-10: the key where the LIS tells repeats by it, else another for each attempt; up to 20 characters."""
        if self._settings.duplicates == "msh10":
            return key
        return key + base64.b32encode(secrets.token_bytes(3)).decode("ascii")[:4]

    @property
    def _endpoints(self) -> tuple[Endpoint, ...]:
        return (self._orders, self._results) if self._results else (self._orders,)

    def _endpoint(self, settings: LinkSettings, what: str) -> Endpoint:
        ours = self._settings
        patience = Patience(
            connect=ours.connect_timeout,
            frame=ours.frame_timeout,
            reconnect=ours.reconnect_wait,
            keep_alive=ours.keep_alive,
            limit=ours.max_message_bytes,
        )
        return Endpoint(settings, patience, self._handle, f"{self._name}-{what}")

    async def _handle(self, link: Link, found: Found) -> None:
        await self._started().handle(link, found)

    def _started(self) -> Receiver:
        if self._receiver is None:
            raise LisUnavailable("the adapter was not started")
        return self._receiver


async def _taken(order: LabOrder, answer: Answer, inbox: Inbox) -> Receipt:
    """Read the LIS's numbers and the lines that it will not do."""
    own = {line.key for line in order.lines}
    for key, reason in answer.refused:
        if key in own:
            entry = NotPerformed(line=key, reason=reason)
            await inbox.accept(f"answer/{order.key}/{key}", LabRefusal(order=order.key, not_performed=(entry,)))
    numbers = {LineKey(key): number for key, number in answer.accessions if key in own}
    whole = next(iter(set(numbers.values()))) if len(set(numbers.values())) == 1 and len(numbers) > 1 else None
    return Receipt(accession=whole, line_accessions=numbers)


def _cancel_key(order: OrderKey, lines: tuple[LineKey, ...]) -> str:
    digest = hashlib.sha256("\n".join((order, *sorted(lines))).encode()).digest()
    return "C" + base64.b32encode(digest).decode("ascii")[:15]
