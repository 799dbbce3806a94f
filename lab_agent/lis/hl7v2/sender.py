"""One message out, and what the LIS says to it: the three failures that matter, told apart as exactly as MLLP allows.

Before the first byte is sent, nothing has happened: `LisUnavailable`. From then on only an answer whose MSA-2 is our MSH-10
counts; until it comes, the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lab_agent.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.lis.hl7v2.connection import MllpConnection
from lab_agent.lis.hl7v2.connector import MllpConnector
from lab_agent.lis.hl7v2.pending_acks import PendingAcks
from lab_agent.lis.hl7v2.settings import Hl7v2Settings


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends on the links of one endpoint."""

    settings: Hl7v2Settings
    connector: MllpConnector
    pending_acks: PendingAcks

    async def send(self, message: bytes, control_id: str, target: str) -> Ack | None:
        """Send a message and give the LIS's last word on it; None where none is asked for.

        Raises `LisUnavailable`, `LisRejected` or `LisOutcomeUnknown`.
        """
        link = await self.connector.get_connection(self.settings.connect_timeout)
        with self.pending_acks.expect(control_id, target) as answers:
            async with link.exclusive():
                if link.closed.is_set():
                    raise LisUnavailable(self.connector.disconnect_reason)
                await self._write(link, message)
                if self.settings.acknowledgement == "none":
                    return None
                answer = await self._wait_for_ack(answers, link)
            while answer.is_commit and answer.is_positive and self.settings.acknowledgement == "enhanced":
                answer = await self._wait_for_ack(answers, None)
        self.pending_acks.record_final(answer)
        return check_ack(answer, self.settings)

    async def _write(self, connection: MllpConnection, message: bytes) -> None:
        try:
            await connection.send(message)
        except (OSError, TimeoutError) as exc:
            await connection.close()
            raise LisOutcomeUnknown("the connection to the LIS broke while a message was being sent") from exc

    async def _wait_for_ack(self, acks: asyncio.Queue[Ack], connection: MllpConnection | None) -> Ack:
        """Wait for the next answer; on a link until it closes, else from wherever it comes."""
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
            if connection is not None:
                await connection.close()  # what comes on it now would be about something else
            raise LisOutcomeUnknown(f"the LIS did not answer within {self.settings.answer_timeout:g} seconds")
        raise LisOutcomeUnknown("the LIS closed the connection without an answer")


def check_ack(ack: Ack, settings: Hl7v2Settings) -> Ack:
    """Give a positive answer, and turn all others into failures.

    The LIS's own words are not repeated here: they may quote the patient.
    """
    if ack.is_positive or set(ack.error_codes) & set(settings.duplicate_codes):
        return ack
    codes = ", ".join(code for code in ack.error_codes if code.isalnum() and len(code) < 20)
    said = f"the LIS answered {ack.code}" + (f" with error {codes}" if codes else "")
    if set(ack.error_codes) & set(settings.retry_codes):
        raise LisUnavailable(f"{said}: it may take it later")
    if ack.code in {"AE", "AR", "CE", "CR"}:
        raise LisRejected(said)
    raise LisOutcomeUnknown("the LIS answered with a code in MSA-1 that is none of HL7's")
