"""What comes in: results are kept, then acknowledged (law 1); answers find who waits; all else is refused with its reason.

Nothing is acknowledged that is not in the inbox. Where the inbox cannot take a message now, the LIS gets no answer and the
connection is closed: it will send again. A message of which a part cannot be taken is answered with AE and kept for a person; its
other parts are in the inbox, under names by which a repeat is told.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from lab_agent.domain.results import Accession, LabReceipt, LabReport
from lab_agent.errors import DataInvalidError
from lab_agent.lis.hl7v2.acknowledgements import (
    ANSWERS,
    Answer,
    Verdict,
    asked_of,
    read_answer,
    wanted,
    write_answer,
    write_rejection,
)
from lab_agent.lis.hl7v2.charset import hl7_name
from lab_agent.lis.hl7v2.link import Link
from lab_agent.lis.hl7v2.message import Message, MessageError, Segment, parse, read_message
from lab_agent.lis.hl7v2.mllp import Damaged, Found
from lab_agent.lis.hl7v2.results import Part, Results
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.shelf import Shelf
from lab_agent.lis.hl7v2.values import Reader
from lab_agent.lis.hl7v2.waiting import Waiting
from lab_agent.ports.lis import Inbox

log = structlog.get_logger(__name__)
_LONGEST_ID = 199
_RESULTS = frozenset({"R01", ""})
_WRONG_TYPE, _WRONG_EVENT, _WRONG_PROCESSING, _NOT_UNDERSTOOD, _MISSING = "200", "201", "202", "102", "101"


@dataclass(frozen=True, slots=True)
class Receiver:
    """Deals with what comes in on any link of one adapter."""

    settings: Hl7v2Settings
    name: str
    inbox: Inbox
    waiting: Waiting
    shelf: Shelf

    async def handle(self, link: Link, found: Found) -> None:
        """Deal with one frame, or with bytes that are none. Raises what the inbox raises; then nothing is answered."""
        if isinstance(found, Damaged):
            await self._damaged(link, found)
            return
        try:
            message = await asyncio.to_thread(read_message, found.data, self.settings.encoding)
        except MessageError as error:
            await self._unreadable(link, found.data, str(error))
            return
        await self._message(link, message, found.data)

    async def _message(self, link: Link, message: Message, data: bytes) -> None:
        kind, event = message.kind
        if kind in ANSWERS or message.first("MSA"):
            await self._answered(link, message, data)
            return
        verdict = self._fit(message, kind, event) or await self._kept(message, data)
        if verdict.letter != "A":
            await self._refused(data, "; ".join(verdict.reasons))
        elif self.settings.keep == "all":
            await asyncio.to_thread(self.shelf.keep, "taken", data, "", datetime.now(UTC))
        await self._reply(link, message.header, verdict)

    def _fit(self, message: Message, kind: str, event: str) -> Verdict | None:
        """Say why a message is none of ours; None if it is one."""
        if not _usable(message.control_id):
            return Verdict("R", ("MSH-10 is missing or no plain text",), _MISSING)
        if kind != "ORU":
            return Verdict("R", ("only results (ORU, R01) are taken here",), _WRONG_TYPE)
        if event not in _RESULTS:
            return Verdict("R", ("of ORU only R01 is taken here",), _WRONG_EVENT)
        given = message.header.text(11)
        if given and given != self.settings.processing_id:
            return Verdict("R", (f"MSH-11 is not {self.settings.processing_id}",), _WRONG_PROCESSING)
        return None

    async def _kept(self, message: Message, data: bytes) -> Verdict:
        """Put every part into the inbox."""
        results = Results(Reader(self.settings.field_map, self.settings.zone), self.shelf.recall)
        parts = await asyncio.to_thread(results.read, message)
        name = _name(message, data)
        problems = [problem for part in parts if (problem := await self._part(name, part))]
        return Verdict("E", tuple(problems), _NOT_UNDERSTOOD) if problems else Verdict()

    async def _part(self, name: str, part: Part) -> str | None:
        """Keep one part; gives why it cannot be taken."""
        if part.content is None:
            return part.problem
        try:
            await self.inbox.accept(f"{name}/{part.number}", part.content)
        except DataInvalidError as error:
            return f"OBR {part.number}: " + ", ".join(f"{one.where} {one.what}" for one in error.problems[:5])
        if isinstance(part.content, LabReport):
            await asyncio.to_thread(self.shelf.remember, part.content)
        return None

    async def _answered(self, link: Link, message: Message, data: bytes) -> None:
        answer = read_answer(message)
        if answer is None:
            await self._refused(data, "an answer without MSA")
            return
        if not self.waiting.take(answer):
            await self._late(answer)
        asked = asked_of(message.header)
        if asked and wanted(asked[0], "A") and not answer.commit:
            await self._send(link, message.header, "C", Verdict())

    async def _late(self, answer: Answer) -> None:
        """Nobody waits for it any more: its numbers are kept, and it will be found when the outcome is looked into."""
        subject = self.waiting.subject(answer.about)
        log.info("answer nobody waits for", action="hl7_answer_late", adapter=self.name)
        if subject and answer.positive and answer.accessions:
            numbers = tuple(Accession(line=line, number=number) for line, number in answer.accessions)
            await self.inbox.accept(
                f"answer/{subject}/{_digest(repr(numbers).encode())}", LabReceipt(order=subject, accessions=numbers)
            )

    async def _damaged(self, link: Link, found: Damaged) -> None:
        await self._refused(found.data, found.reason)
        if found.answerable:
            await self._reject(link, found.data, found.reason)

    async def _unreadable(self, link: Link, data: bytes, reason: str) -> None:
        await self._refused(data, reason)
        await self._reject(link, data, reason)

    async def _reject(self, link: Link, data: bytes, reason: str) -> None:
        """Answer a message that cannot be read, by what can be read of its header."""
        header = _header_of(data)
        if header is not None and (header.text(9) in ANSWERS or "MSA" in _segment_names(data)):
            return  # an answer is never answered: two programs that do so never end
        if header is not None and _usable(header.raw(10).strip()):
            await self._reply(link, header, Verdict("R", (reason,), "100"))
        elif self.settings.answer_results != "none":
            text = write_rejection(reason, own_id=_own_id(), names=self._names("ascii"), now=datetime.now(UTC))
            await link.send(text.encode("ascii", "replace"))

    async def _refused(self, data: bytes, reason: str) -> None:
        """Keep what cannot be taken, as it came, for a person, and tell the agent so that somebody looks."""
        log.warning("message refused", action="hl7_message_refused", adapter=self.name, size=len(data), reason=reason)
        try:
            path = await asyncio.to_thread(self.shelf.keep, "refused", data, reason, datetime.now(UTC))
        except OSError:
            log.exception("refused message not kept", action="hl7_message_not_kept", adapter=self.name)
            path = None
        await self.inbox.refused(path.name if path else _digest(data), reason)

    async def _reply(self, link: Link, header: Segment, verdict: Verdict) -> None:
        """Answer as the message asks, or as the settings say."""
        if self.settings.answer_results == "none":
            return
        asked = asked_of(header) if self.settings.answer_results == "as_asked" else None
        if asked is None:
            await self._send(link, header, "A", verdict)
            return
        for kind, condition in zip(("C", "A"), asked, strict=True):
            if wanted(condition, verdict.letter):
                await self._send(link, header, kind, verdict)

    async def _send(self, link: Link, header: Segment, kind: str, verdict: Verdict) -> None:
        names = self._names(header.encoding)
        text = write_answer(header, kind, verdict, own_id=_own_id(), names=names, now=datetime.now(UTC))
        await link.send(text.encode(header.encoding, "replace"))

    def _names(self, encoding: str) -> Mapping[int, str]:
        return {11: self.settings.processing_id, 12: self.settings.version, 18: hl7_name(encoding)}


def _usable(control_id: str) -> bool:
    return 0 < len(control_id) <= _LONGEST_ID and control_id.isprintable()


def _own_id() -> str:
    return f"A{secrets.token_hex(8).upper()}"


def _name(message: Message, data: bytes) -> str:
    """Name a message: by MSH-10, by who sent it, and by its content behind MSH, since some counters begin anew.

    MSH itself is left aside, for its time may be another when a message is sent again.
    """
    header = message.header
    body = re.split(rb"[\r\n]", data, maxsplit=1)[-1]
    return f"{message.control_id}/{_digest(header.raw(3).encode(), header.raw(4).encode(), body)}"


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()[:24]


def _header_of(data: bytes) -> Segment | None:
    """Read the first segment of damaged bytes, as far as that can be done."""
    first = re.split(rb"[\r\n]", data, maxsplit=1)[0].decode("ascii", "replace")
    try:
        return parse(first, "ascii").header if first.startswith("MSH") else None
    except MessageError:
        return None


def _segment_names(data: bytes) -> set[str]:
    return {line[:3].decode("ascii", "replace") for line in re.split(rb"[\r\n]+", data)}
