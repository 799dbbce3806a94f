"""Sends one message and waits for its acknowledgement, telling the three failures apart as exactly as MLLP allows.

Before the first byte is sent, nothing has happened: `LisUnavailable`. After that only an acknowledgement whose MSA-2 is our
MSH-10 counts; until it arrives, the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.lis.hl7v2.orders.pending_acks import PendingAcks
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.transport.connection import MllpConnection
from lab_agent.lis.hl7v2.transport.connector import MllpConnector
from lab_agent.shared.errors import LisOutcomeUnknown, LisRejected, LisUnavailable

_ACK_CODES = frozenset({"AA", "AE", "AR", "CA", "CE", "CR"})
"""HL7 table 0008."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends on the connections of one connector."""

    settings: Hl7v2Settings
    connector: MllpConnector
    pending_acks: PendingAcks

    async def send(self, message: bytes, control_id: str, before: Callable[[], Awaitable[None]] | None = None) -> Ack | None:
        """Send a message, and return the final acknowledgement of the LIS, whatever it says; None if none is requested.

        `before` is awaited right before the first byte is sent. Raises `LisUnavailable` or `LisOutcomeUnknown`.
        """
        connection = await self.connector.get_connection(self.settings.connect_timeout)
        with self.pending_acks.expect(control_id) as acks:
            async with connection.exclusive():
                if connection.closed.is_set():
                    raise LisUnavailable(self.connector.disconnect_reason)
                if before is not None:
                    await before()
                await self._write(connection, message)
                if self.settings.acknowledgement == "none":
                    return None
                ack = await self._wait_for_ack(acks, connection)
            while ack.is_commit and ack.is_positive and self.settings.acknowledgement == "enhanced":
                ack = await self._wait_for_ack(acks, None)
        return ack

    async def _write(self, connection: MllpConnection, message: bytes) -> None:
        try:
            await connection.send(message)
        except (OSError, TimeoutError) as exc:
            await connection.close()
            raise LisOutcomeUnknown("the connection to the LIS broke while a message was being sent") from exc

    async def _wait_for_ack(self, acks: asyncio.Queue[Ack], connection: MllpConnection | None) -> Ack:
        """Wait for the next acknowledgement: on a connection until it closes, else from anywhere."""
        waiting = {asyncio.ensure_future(acks.get())}
        closed = {asyncio.ensure_future(connection.closed.wait())} if connection else set()
        try:
            await asyncio.wait(waiting | closed, timeout=self.settings.answer_timeout, return_when=asyncio.FIRST_COMPLETED)
            got = next(iter(waiting))
            if got.done():
                return got.result()
        finally:
            for task in waiting | closed:
                task.cancel()
        if not acks.empty():
            return acks.get_nowait()
        if connection is None or not connection.closed.is_set():
            raise LisOutcomeUnknown(await self._after_silence(connection))
        raise LisOutcomeUnknown("the LIS closed the connection without an acknowledgement")

    async def _after_silence(self, connection: MllpConnection | None) -> str:
        """Give the reason. The connection stays open for a late answer, unless it has been silent for two messages."""
        said = f"the LIS did not answer within {self.settings.answer_timeout:g} seconds"
        if connection is None:
            return said
        if connection.unreadable_count:
            said += ", and what it sent could not be read: compare its code page with `encoding`"
        if connection.count_silence() > 1:
            await connection.close()
        return said


def is_final(ack: Ack, settings: Hl7v2Settings) -> bool:
    """Whether an acknowledgement ends the exchange: a positive CA does so only where nothing follows it."""
    if ack.code not in _ACK_CODES:
        return False
    return not (ack.is_commit and ack.is_positive) or settings.acknowledgement == "commit"


def is_accepted(ack: Ack, settings: Hl7v2Settings) -> bool:
    """Whether a final acknowledgement says that the LIS has the order."""
    return ack.is_positive or bool(set(ack.error_codes) & set(settings.duplicate_codes))


def check_ack(ack: Ack, settings: Hl7v2Settings) -> Ack:
    """Return a positive acknowledgement; raise a failure for any other.

    The LIS's own text is not repeated, since it may name the patient.
    """
    if is_accepted(ack, settings):
        return ack
    codes = ", ".join(code for code in ack.error_codes if code.isalnum() and len(code) < 20)
    answer = f"the LIS answered {ack.code}" + (f" with error {codes}" if codes else "")
    if set(ack.error_codes) & set(settings.retry_codes):
        raise LisUnavailable(f"{answer}: it may accept the message later")
    if ack.code in _ACK_CODES:
        raise LisRejected(answer)
    raise LisOutcomeUnknown("the LIS answered with an unknown code in MSA-1")
