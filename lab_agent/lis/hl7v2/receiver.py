"""Handles what comes in: results are stored, then acknowledged (law 1); acknowledgements go to whoever waits for them.

Nothing is acknowledged that is not in the inbox. While the inbox cannot store a message, the LIS gets no acknowledgement and
the connection is closed, so that it sends again. A message with an invalid part is answered with AE and kept, sealed, for an
operator; its other parts are in the inbox, under ids by which a repeat is recognised.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from lab_agent.lis.hl7v2.acks import (
    ACK_MESSAGE_TYPES,
    Ack,
    AckDecision,
    build_ack,
    build_reject_ack,
    is_ack_requested,
    parse_ack,
    requested_acks,
)
from lab_agent.lis.hl7v2.code_pages import hl7_charset_name
from lab_agent.lis.hl7v2.field_map import FieldMap, IgnoreRule
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.orders.pending_acks import PendingAcks
from lab_agent.lis.hl7v2.orders.sender import is_accepted, is_final
from lab_agent.lis.hl7v2.orders.sent_messages import SentMessage, SentMessageLog
from lab_agent.lis.hl7v2.orders.submission import report_answer
from lab_agent.lis.hl7v2.parser import (
    InvalidMessageError,
    Message,
    Segment,
    decode_message,
    parse_message,
    split_batch,
    strip_padding,
)
from lab_agent.lis.hl7v2.results.continued_messages import UNFINISHED, ContinuedMessages
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.transport.connection import MllpConnection
from lab_agent.lis.hl7v2.transport.mllp import InvalidFrame, ReceivedFrame
from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.laboratory_system import Inbox, ParsedPart
from lab_agent.shared.errors import DataInvalidError

log = structlog.get_logger(__name__)
_MAX_CONTROL_ID = 199
_MAX_UNREADABLE = 3
"""Unreadable messages in a row after which a connection is closed."""
_ACCEPTED_EVENTS = {
    "ORU": frozenset({"R01", "R30", "R31", "R32", ""}),
    "OUL": frozenset({"R21", "R22", "R23", "R24", ""}),
}
"""Events of each message type that brings results (HL7, chapters 7 and 13)."""
_SEGMENT_SEQUENCE_ERROR = "100"
_REQUIRED_FIELD_MISSING = "101"
_DATA_TYPE_ERROR = "102"
_UNSUPPORTED_MESSAGE_TYPE = "200"
_UNSUPPORTED_EVENT = "201"
_UNSUPPORTED_PROCESSING_ID = "202"


@dataclass(frozen=True, slots=True)
class Receiver:
    """Handles what comes in on any connection of one adapter."""

    settings: Hl7v2Settings
    name: str
    inbox: Inbox
    pending_acks: PendingAcks
    archive: MessageArchive
    continued: ContinuedMessages
    sent: SentMessageLog

    async def handle(self, connection: MllpConnection, frame: ReceivedFrame) -> None:
        """Handle one frame, or bytes that are none; each message of a batch has its own answer.

        Raises what the inbox raises, without answering.
        """
        if isinstance(frame, InvalidFrame):
            await self._handle_unreadable(connection, frame.data, frame.reason, answerable=frame.answerable)
            return
        if not strip_padding(frame.data):
            return  # an empty frame keeps the connection open, and asks for nothing
        for data, message in await asyncio.to_thread(lambda: list(_read_frame(frame.data, self.settings))):
            if isinstance(message, InvalidMessageError):
                await self._handle_unreadable(connection, data, str(message))
            else:
                connection.unreadable_count = 0
                await self._handle_message(connection, message, data)

    async def _handle_message(self, connection: MllpConnection, message: Message, data: bytes) -> None:
        if is_acknowledgement(message):
            await self._handle_ack(connection, message, data)
            return
        decision = check_header(message, self.settings)
        if decision is None:
            decision, data = await self._take_results(connection, message, data)
        if decision.letter != "A" and data:
            await self._reject(data, "; ".join(decision.reasons), _message_key(message, data))
        elif self.settings.keep == "all" and data:
            await asyncio.to_thread(self.archive.store_accepted, data, datetime.now(UTC))
        await self._reply(connection, message.header, decision)

    async def _take_results(self, connection: MllpConnection, message: Message, data: bytes) -> tuple[AckDecision, bytes]:
        """Store what a message says once it is whole; returns the answer, and the message that it is about, if it is read now."""
        step = await asyncio.to_thread(self.continued.take, connection, message, data)
        if step.whole is None:
            refused = AckDecision("E", (step.problem,), _SEGMENT_SEQUENCE_ERROR) if step.problem else None
            return refused or step.answer or AckDecision(), data if refused else b""
        if step.whole is not data:
            try:
                message = await asyncio.to_thread(decode_message, step.whole, self.settings.encoding_in)
            except InvalidMessageError as error:
                return AckDecision("E", (str(error),), _SEGMENT_SEQUENCE_ERROR), step.whole
        decision = await self._store_results(message, step.whole)
        await asyncio.to_thread(self.continued.end, connection, decision)
        return decision, step.whole

    async def refuse_unfinished(self) -> None:
        """Refuse the continued messages whose next part did not come: their parts were acknowledged."""
        for path, data in await asyncio.to_thread(lambda: list(self.continued.overdue())):
            if data is None:
                await self.inbox.reject(path.stem, UNFINISHED)  # its key is gone: nobody can read it any more
            else:
                await self._reject(data, UNFINISHED)
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _store_results(self, message: Message, data: bytes) -> AckDecision:
        """Store every part in the inbox."""
        parts = await asyncio.to_thread(parse_results, message, data, self.settings, self.archive)
        problems = [problem for part in parts if (problem := await self._store_report(part))]
        return AckDecision("E", tuple(problems), _DATA_TYPE_ERROR) if problems else AckDecision()

    async def _store_report(self, part: ParsedPart) -> str | None:
        """Store one part; returns why it is invalid."""
        if part.notes and part.problem is None:
            await self.inbox.skip(part.message_id, "; ".join(part.notes))
        if part.content is None:
            return part.problem
        try:
            await self.inbox.accept(part.message_id, part.content)
        except DataInvalidError as error:
            return f"{part.place}: " + ", ".join(f"{one.where} {one.what}" for one in error.problems[:5])
        if isinstance(part.content, LabReport):
            await asyncio.to_thread(self.archive.save_open_report, part.content)
        return None

    async def _handle_ack(self, connection: MllpConnection, message: Message, data: bytes) -> None:
        ack = parse_ack(message)
        if ack is None:
            await self._reject(data, "an acknowledgement without MSA")
            return
        sent = await self._record_ack(ack)
        if not self.pending_acks.resolve(ack):
            await self._handle_late_ack(sent)
        conditions = requested_acks(message.header)
        if conditions and is_ack_requested(conditions[0], "A") and not ack.is_commit:
            await self._send_ack(connection, message.header, "C", AckDecision())

    async def _record_ack(self, ack: Ack) -> SentMessage | None:
        """Record a final answer to a message of an order, so that it is known after a crash, too."""
        if not is_final(ack, self.settings):
            return None
        return await asyncio.to_thread(self.sent.record_answer, ack, is_accepted(ack, self.settings))

    async def _handle_late_ack(self, sent: SentMessage | None) -> None:
        """Store what an acknowledgement says that came after its timeout; that it came settles the outcome (`was_received`)."""
        if sent is None:
            log.info("acknowledgement of nothing that waits for one", action="hl7_ack_unmatched", adapter=self.name)
            return
        log.info("acknowledgement arrived after its timeout", action="hl7_ack_late", adapter=self.name)
        if sent.answer is not None and sent.answer.accepted:
            await report_answer(self.inbox, sent.order, sent.answer, sent.lines)

    async def _handle_unreadable(self, connection: MllpConnection, data: bytes, reason: str, *, answerable: bool = True) -> None:
        """Keep what cannot be read, and say so where that can help.

        A peer that answers our answer in the same way would go on for ever; so it is never answered where only orders go, and
        a connection that says nothing else is closed.
        """
        connection.unreadable_count += 1
        await self._reject(data, reason)
        if connection.unreadable_count >= _MAX_UNREADABLE:
            log.warning("connection closed", action="hl7_connection_unreadable", adapter=self.name, host=connection.host)
            await connection.close()
        elif answerable and connection.answers_unreadable:
            await self._send_reject(connection, data, reason)

    async def _send_reject(self, connection: MllpConnection, data: bytes, reason: str) -> None:
        """Answer an unreadable message, as far as its header can be read."""
        header = _parse_header(data)
        if header is not None and _is_acknowledgement(header.text(9), has_msa="MSA" in _segment_names(data)):
            return  # an acknowledgement is never answered, or two programs could go on for ever
        if header is not None and _is_valid_control_id(header.raw(10).strip()):
            await self._reply(connection, header, AckDecision("R", (reason,), _SEGMENT_SEQUENCE_ERROR))
        elif self.settings.answer_results != "none":
            text = build_reject_ack(
                reason, control_id=_new_control_id(), msh_fields=self._own_msh_fields("ascii"), now=datetime.now(UTC)
            )
            await connection.send(text.encode("ascii", "replace"))

    async def _reject(self, data: bytes, reason: str, message_id: str | None = None) -> None:
        """Hand a rejected message to the inbox as it came, where it is sealed; it is committed before anybody is answered."""
        log.warning("message rejected", action="hl7_message_rejected", adapter=self.name, size=len(data), reason=reason)
        await self.inbox.reject(message_id or _digest(data), reason, raw=data)

    async def _reply(self, connection: MllpConnection, header: Segment, decision: AckDecision) -> None:
        """Answer as the message or the settings ask."""
        if self.settings.answer_results == "none":
            return
        conditions = requested_acks(header) if self.settings.answer_results == "as_asked" else None
        if conditions is None:
            await self._send_ack(connection, header, "A", decision)
            return
        for kind, condition in zip(("C", "A"), conditions, strict=True):
            if is_ack_requested(condition, decision.letter):
                await self._send_ack(connection, header, kind, decision)

    async def _send_ack(self, connection: MllpConnection, header: Segment, kind: str, decision: AckDecision) -> None:
        names = self._own_msh_fields(header.encoding)
        text = build_ack(header, kind, decision, control_id=_new_control_id(), msh_fields=names, now=datetime.now(UTC))
        await connection.send(text.encode(header.encoding, "replace"))

    def _own_msh_fields(self, encoding: str) -> Mapping[int, str]:
        return {11: self.settings.processing_id, 12: self.settings.version, 18: hl7_charset_name(encoding)}


def _read_frame(frame: bytes, settings: Hl7v2Settings) -> Iterator[tuple[bytes, Message | InvalidMessageError]]:
    for data in split_batch(frame):
        try:
            yield data, read_message(data, settings)
        except InvalidMessageError as error:
            yield data, error


def read_message(data: bytes, settings: Hl7v2Settings) -> Message:
    """Decode a message as it came. Raises `InvalidMessageError`."""
    try:
        return decode_message(data, settings.encoding_in)
    except InvalidMessageError as error:
        raise type(error)(_describe_unreadable(data, str(error))) from error


def is_acknowledgement(message: Message) -> bool:
    """Whether a message only acknowledges another one."""
    return _is_acknowledgement(message.message_type[0], has_msa=message.first_segment("MSA") is not None)


def _is_acknowledgement(kind: str, *, has_msa: bool) -> bool:
    """Whether a message only acknowledges another one; results may come with an MSA, in answer to a query."""
    return kind in ACK_MESSAGE_TYPES or (has_msa and kind not in _ACCEPTED_EVENTS)


def check_header(message: Message, settings: Hl7v2Settings) -> AckDecision | None:
    """Why a message is not for us; None if it is."""
    message_type, event = message.message_type
    if not _is_valid_control_id(message.control_id):
        return AckDecision("R", ("MSH-10 is missing or not printable",), _REQUIRED_FIELD_MISSING)
    if find_ignore_rule(message, settings.field_map):
        return None
    if message_type not in _ACCEPTED_EVENTS:
        return AckDecision("R", ("only results (ORU, OUL) are accepted",), _UNSUPPORTED_MESSAGE_TYPE)
    if event not in (known := _ACCEPTED_EVENTS[message_type]):
        listed = ", ".join(sorted(filter(None, known)))
        return AckDecision("R", (f"only the events {listed} of {message_type} are accepted",), _UNSUPPORTED_EVENT)
    given = message.header.text(11)
    if given and given != settings.processing_id:
        return AckDecision("R", (f"MSH-11 is not {settings.processing_id}",), _UNSUPPORTED_PROCESSING_ID)
    return None


def parse_results(message: Message, data: bytes, settings: Hl7v2Settings, archive: MessageArchive) -> tuple[ParsedPart, ...]:
    """Read every part of a message of results; nothing is stored."""
    key = _message_key(message, data)
    if rule := find_ignore_rule(message, settings.field_map):
        return (ParsedPart(message_id=f"{key}/0", notes=(f"ignored, because {rule}",)),)
    reader = ResultReader(ObxValueReader(settings.field_map, settings.zone), archive.load_open_report)
    return tuple(
        ParsedPart(
            message_id=f"{key}/{part.name}",
            place=f"OBR {part.number}" if part.number else "",
            content=part.content,
            problem=part.problem,
            notes=part.notes,
        )
        for part in reader.read(message)
    )


def find_ignore_rule(message: Message, field_map: FieldMap) -> IgnoreRule | None:
    """The rule of the map by which a whole message is not read: one about its header. Others are about single groups."""
    header = message.header
    return field_map.results.find_ignore_rule(lambda path: header.texts_at(path) if path.segment == header.name else ())


def _describe_unreadable(data: bytes, reason: str) -> str:
    """Name the code page where it can be recognised: half of the bytes of UTF-16 are NUL."""
    start = data[:200]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or start.count(0) * 3 > len(start):
        return "the message is in UTF-16 or UTF-32: let the LIS send the code page of `encoding`"
    return reason


def _is_valid_control_id(control_id: str) -> bool:
    return 0 < len(control_id) <= _MAX_CONTROL_ID and control_id.isprintable()


def _new_control_id() -> str:
    return f"A{secrets.token_hex(8).upper()}"


def _message_key(message: Message, data: bytes) -> str:
    """Identify a message by MSH-10, its sender and its content after MSH, since some counters start over.

    MSH itself is left out: its time may differ when a message is sent again.
    """
    header = message.header
    body = re.split(rb"[\r\n]", data.lstrip(), maxsplit=1)[-1]
    return f"{message.control_id}/{_digest(header.raw(3).encode(), header.raw(4).encode(), body)}"


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()[:24]


def _parse_header(data: bytes) -> Segment | None:
    """Parse the first segment of damaged bytes; None if that is impossible."""
    first = re.split(rb"[\r\n]", strip_padding(data), maxsplit=1)[0].decode("ascii", "replace")
    try:
        return parse_message(first, "ascii").header if first.startswith("MSH") else None
    except InvalidMessageError:
        return None


def _segment_names(data: bytes) -> set[str]:
    return {line[:3].decode("ascii", "replace") for line in re.split(rb"[\r\n]+", data)}
