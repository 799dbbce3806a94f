"""The hl7v2 adapter: orders out and results in over MLLP, on one or two connections, whichever side connects."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic import BaseModel

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import LabRejection, NotPerformed
from lab_agent.domain.lab_order import LabOrder
from lab_agent.errors import LisUnavailable
from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.lis.hl7v2.connection import MllpConnection
from lab_agent.lis.hl7v2.connector import MllpConnector, Timeouts
from lab_agent.lis.hl7v2.continued_messages import ContinuedMessages
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.message_trace import trace_raw_message
from lab_agent.lis.hl7v2.mllp import ReceivedFrame
from lab_agent.lis.hl7v2.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.pending_acks import PendingAcks
from lab_agent.lis.hl7v2.receiver import Receiver
from lab_agent.lis.hl7v2.sender import Sender
from lab_agent.lis.hl7v2.settings import ConnectionSettings, Hl7v2Settings
from lab_agent.ports.lis import Inbox, ParsedMessage, SubmitResult


class Hl7v2Adapter:
    """A LIS that speaks HL7 v2."""

    Settings: ClassVar[type[BaseModel]] = Hl7v2Settings
    trial_settings: ClassVar[Mapping[str, Any]] = {
        "orders": {"role": "client", "port": 6661},
        "folder": "no-folder-of-hl7v2",
        "duplicates": "none",
    }
    """Enough to read a captured message without settings; nothing connects, and the folder is not created."""
    idempotent: bool = False
    """Whether the LIS recognises repeats: set for each instance by its setting `duplicates`."""

    def __init__(self, settings: Hl7v2Settings, name: str) -> None:
        self.idempotent = settings.duplicates != "none"
        self._settings = settings
        self._name = name
        self._order_builder = OrderBuilder(settings)
        self._pending_acks = PendingAcks()
        self._archive = MessageArchive(settings.folder, settings.keep_days)
        self._order_connector = self._create_connector(settings.orders, "orders")
        self._result_connector = self._create_connector(settings.results, "results") if settings.results else None
        self._sender = Sender(settings, self._order_connector, self._pending_acks)
        self._receiver: Receiver | None = None

    @property
    def ports(self) -> tuple[int, int]:
        """The ports for orders and for results; for a server, the port it actually listens on."""
        return self._order_connector.port, (self._result_connector or self._order_connector).port

    async def start(self, inbox: Inbox) -> None:
        """Listen, or start connecting. `check` reports a LIS that is unreachable; reconnecting is automatic."""
        try:
            await asyncio.to_thread(self._archive.open)
        except OSError as exc:
            raise LisUnavailable(f"the adapter's folder cannot be used: {exc.strerror or type(exc).__name__}") from exc
        continued = ContinuedMessages(
            self._settings.folder / "continued", self._settings.max_message_bytes, self._settings.frame_timeout
        )
        self._receiver = Receiver(self._settings, self._name, inbox, self._pending_acks, self._archive, continued)
        try:
            for connector in self._connectors:
                await connector.open()
        except LisUnavailable:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close all connections. The LIS resends a message in progress, since it got no acknowledgement."""
        for connector in self._connectors:
            await connector.close()
        self._receiver = None

    async def check(self) -> None:
        """Check that the LIS is connected; without a start, that it can be reached."""
        for connector in self._connectors:
            if self._receiver is None:
                await connector.check_reachable()
            elif connector.is_client or connector is self._order_connector:
                await connector.get_connection(self._settings.connect_timeout)

    async def prepare(self, order: LabOrder) -> None:
        """Check that the order can be written as HL7 at all."""
        self._order_builder.build_order(order, self._control_id(order.key), datetime.now(UTC))

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Send the order, and wait for the acknowledgement that the settings ask for."""
        inbox = self._require_receiver().inbox
        control_id = self._control_id(order.key)
        message = self._order_builder.build_order(order, control_id, datetime.now(UTC))
        ack = await self._sender.send(message, control_id, order.key)
        return SubmitResult() if ack is None else await _to_submit_result(order, ack, inbox)

    async def was_received(self, key: OrderKey) -> bool | None:
        """What the LIS answered, even after the timeout; None if it has not answered."""
        return self._pending_acks.was_received(key)

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Send a cancellation (ORC-1 is CA)."""
        self._require_receiver()
        control_id = self._control_id(_cancel_control_key(order, lines))
        message = self._order_builder.build_cancel(lines, reason, control_id, datetime.now(UTC))
        await self._sender.send(message, control_id, f"cancel {order}")

    async def collect(self) -> int:
        """Nothing to collect: the LIS sends. Old raw messages are deleted, and continued ones that ended halfway are refused."""
        await asyncio.to_thread(self._archive.purge)
        await self._require_receiver().refuse_unfinished()
        return 0

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:  # noqa: ARG002 — the protocol's signature
        """Read a message, in a frame or bare, as it would be read if it arrived."""
        return await asyncio.to_thread(trace_raw_message, raw, self._name, self._settings, self._archive)

    def _control_id(self, key: str) -> str:
        """MSH-10: the key if the LIS recognises repeats by it, else a new id for each attempt; up to 20 characters."""
        if self._settings.duplicates == "msh10":
            return key
        return key + base64.b32encode(secrets.token_bytes(3)).decode("ascii")[:4]

    @property
    def _connectors(self) -> tuple[MllpConnector, ...]:
        return (self._order_connector, self._result_connector) if self._result_connector else (self._order_connector,)

    def _create_connector(self, settings: ConnectionSettings, purpose: str) -> MllpConnector:
        ours = self._settings
        timeouts = Timeouts(
            connect=ours.connect_timeout,
            frame=ours.frame_timeout,
            reconnect=ours.reconnect_wait,
            keep_alive=ours.keep_alive,
            max_message_bytes=ours.max_message_bytes,
        )
        return MllpConnector(settings, timeouts, self._handle_frame, f"{self._name}-{purpose}")

    async def _handle_frame(self, connection: MllpConnection, frame: ReceivedFrame) -> None:
        await self._require_receiver().handle(connection, frame)

    def _require_receiver(self) -> Receiver:
        if self._receiver is None:
            raise LisUnavailable("the adapter was not started")
        return self._receiver


async def _to_submit_result(order: LabOrder, ack: Ack, inbox: Inbox) -> SubmitResult:
    """Read the LIS's numbers; lines that it rejects go to the inbox."""
    own = {line.key for line in order.lines}
    for key, reason in ack.rejected_lines:
        if key in own:
            entry = NotPerformed(line=key, reason=reason)
            await inbox.accept(f"ack/{order.key}/{key}", LabRejection(order=order.key, not_performed=(entry,)))
    numbers = {LineKey(key): number for key, number in ack.accessions if key in own}
    whole = next(iter(set(numbers.values()))) if len(set(numbers.values())) == 1 and len(numbers) > 1 else None
    return SubmitResult(accession=whole, line_accessions=numbers)


def _cancel_control_key(order: OrderKey, lines: tuple[LineKey, ...]) -> str:
    digest = hashlib.sha256("\n".join((order, *sorted(lines))).encode()).digest()
    return "C" + base64.b32encode(digest).decode("ascii")[:15]
