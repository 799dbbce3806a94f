"""One message out, and what the LIS says to it: the three failures that matter, told apart as exactly as MLLP allows.

Before the first byte is sent, nothing has happened: `LisUnavailable`. From then on only an answer whose MSA-2 is our MSH-10
counts; until it comes, the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lab_agent.errors import LisOutcomeUnknown, LisRefusal, LisUnavailable
from lab_agent.lis.hl7v2.acknowledgements import Answer
from lab_agent.lis.hl7v2.endpoint import Endpoint
from lab_agent.lis.hl7v2.link import Link
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends on the links of one endpoint."""

    settings: Hl7v2Settings
    endpoint: Endpoint
    waiting: Waiting

    async def send(self, message: bytes, control_id: str, subject: str) -> Answer | None:
        """Send a message and give the LIS's last word on it; None where none is asked for.

        Raises `LisUnavailable`, `LisRefusal` or `LisOutcomeUnknown`.
        """
        link = await self.endpoint.link(self.settings.connect_timeout)
        with self.waiting.expect(control_id, subject) as answers:
            async with link.alone():
                if link.closed.is_set():
                    raise LisUnavailable(self.endpoint.reason)
                await self._out(link, message)
                if self.settings.acknowledgement == "none":
                    return None
                answer = await self._answer(answers, link)
            while answer.commit and answer.positive and self.settings.acknowledgement == "enhanced":
                answer = await self._answer(answers, None)
        self.waiting.remember(answer)
        return judged(answer, self.settings)

    async def _out(self, link: Link, message: bytes) -> None:
        try:
            await link.send(message)
        except (OSError, TimeoutError) as exc:
            await link.close()
            raise LisOutcomeUnknown("the connection to the LIS broke while a message was being sent") from exc

    async def _answer(self, answers: asyncio.Queue[Answer], link: Link | None) -> Answer:
        """Wait for the next answer; on a link until it closes, else from wherever it comes."""
        waiting = {asyncio.ensure_future(answers.get())}
        closed = {asyncio.ensure_future(link.closed.wait())} if link else set()
        try:
            await asyncio.wait(waiting | closed, timeout=self.settings.answer_timeout, return_when=asyncio.FIRST_COMPLETED)
            got = next(iter(waiting))
            if got.done():
                return got.result()
        finally:
            for task in waiting | closed:
                task.cancel()
        if not answers.empty():
            return answers.get_nowait()
        if link is None or not link.closed.is_set():
            if link is not None:
                await link.close()  # what comes on it now would be about something else
            raise LisOutcomeUnknown(f"the LIS did not answer within {self.settings.answer_timeout:g} seconds")
        raise LisOutcomeUnknown("the LIS closed the connection without an answer")


def judged(answer: Answer, settings: Hl7v2Settings) -> Answer:
    """Give a positive answer, and turn all others into failures.

    The LIS's own words are not repeated here: they may quote the patient.
    """
    if answer.positive or set(answer.errors) & set(settings.duplicate_codes):
        return answer
    codes = ", ".join(code for code in answer.errors if code.isalnum() and len(code) < 20)
    said = f"the LIS answered {answer.code}" + (f" with error {codes}" if codes else "")
    if set(answer.errors) & set(settings.retry_codes):
        raise LisUnavailable(f"{said}: it may take it later")
    if answer.code in {"AE", "AR", "CE", "CR"}:
        raise LisRefusal(said)
    raise LisOutcomeUnknown("the LIS answered with a code in MSA-1 that is none of HL7's")
