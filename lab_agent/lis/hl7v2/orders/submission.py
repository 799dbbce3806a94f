"""Submits orders and answers for them: one message an order, or one a line, so that no line is sent twice or forgotten (law 3).

Where each line is a message of its own, some may be accepted, some rejected, and some not sent when this process dies. The log
of sent messages tells them apart; what the LIS has accepted is not sent again while others of the order are still to be sent.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lab_agent.lis.disk_errors import to_lis_failure
from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.orders.sender import Sender, check_ack
from lab_agent.lis.hl7v2.orders.sent_messages import Answer, SentMessage, SentMessageLog, build_answer
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.lab_messages import Accession, AccessionUpdate, LabRejection, NotPerformed
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox
from lab_agent.shared.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.shared.ids import LineKey, OrderKey


@dataclass(frozen=True, slots=True)
class OrderSubmitter:
    """Submits the orders of one adapter, and knows what became of them."""

    settings: Hl7v2Settings
    builder: OrderBuilder
    sender: Sender
    sent: SentMessageLog

    def build_messages(self, order: LabOrder) -> tuple[bytes, ...]:
        """Build all messages of an order. Raises `LisRejected` if one cannot be written."""
        parts = _split(order, self.settings.one_line_per_message)
        return tuple(self._build(key, part)[1] for key, part in parts.items())

    async def submit(self, order: LabOrder) -> tuple[Answer, ...]:
        """Send what the LIS has not accepted yet; returns its answers to all messages of the order.

        Raises `LisUnavailable` and `LisOutcomeUnknown` at once: the messages after that are not sent. A rejected message does
        not stop the others (law 9); `LisRejected` then names the lines.
        """
        parts, known = await self._plan(order)
        is_partial = not all(key in known and known[key].is_accepted for key in parts)
        answers: list[Answer] = []
        rejections: list[tuple[str, LisRejected]] = []
        unknown: list[str] = []
        for key, part in parts.items():
            before = known.get(key)
            if before is not None and before.answer is not None and before.is_accepted and is_partial:
                answers.append(before.answer)
            elif before is not None and len(parts) > 1 and self._is_unsettled(before):
                unknown.append(key)
            else:
                try:
                    answers.append(await self._send(order.key, key, part))
                except LisRejected as rejection:
                    rejections.append((key, rejection))
        _raise_failures(parts, rejections, unknown)
        return tuple(answers)

    async def was_received(self, key: OrderKey) -> bool | None:
        """Whether the LIS has accepted all messages of an order; None if it has not answered one of them."""
        messages = await asyncio.to_thread(self.sent.messages, key)
        if not messages:
            return None  # nothing is known of it, or all of it was cancelled
        if any(message is None for message in messages.values()):
            return False  # the rest of it is still to be sent, whatever became of the others
        answers = [message.answer for message in messages.values() if message is not None]
        if all(answer is not None and answer.accepted and not self._is_held(answer) for answer in answers):
            return True
        if any(answer is None or (answer.accepted and self._is_held(answer)) for answer in answers):
            await asyncio.to_thread(self.sent.mark_asked, messages)
            return None
        return False

    async def answers(self, key: OrderKey) -> tuple[tuple[SentMessage, Answer], ...]:
        """What the LIS answered to the messages of an order."""
        messages = await asyncio.to_thread(self.sent.messages, key) or {}
        return tuple((each, each.answer) for each in messages.values() if each is not None and each.answer is not None)

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Send a cancellation, in as many messages as the order was sent in."""
        messages = await asyncio.to_thread(self.sent.messages, order) or {}
        is_by_line = self.settings.one_line_per_message if not messages else order not in messages
        rejections: list[LisRejected] = []
        for group in [(line,) for line in lines] if is_by_line else [lines]:
            try:
                await self._cancel_lines(order, group, reason)
            except LisRejected as rejection:
                rejections.append(rejection)  # it stops no other line (law 9)
        if rejections:
            raise rejections[0]

    async def _cancel_lines(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        control_id = self.control_id(_cancel_key(order, lines))
        message = self.builder.build_cancel(lines, reason, control_id, datetime.now(UTC))
        ack = await self.sender.send(message, control_id)
        if ack is not None:
            check_ack(ack, self.settings)
        await asyncio.to_thread(self.sent.forget_lines, order, lines)

    def control_id(self, key: str) -> str:
        """MSH-10: the key if the LIS recognises repeats by it, else a new id for each attempt; up to 20 characters."""
        if self.settings.duplicates == "msh10":
            return key
        return key + base64.b32encode(secrets.token_bytes(3)).decode("ascii")[:4]

    async def _plan(self, order: LabOrder) -> tuple[Mapping[str, LabOrder], Mapping[str, SentMessage]]:
        """Split an order into messages as it was split before, while an answer to those may still come or was positive."""
        messages = await asyncio.to_thread(self.sent.messages, order.key) or {}
        known = {key: message for key, message in messages.items() if message is not None}
        is_bound = any(each.answer is None or each.is_accepted for each in known.values())
        parts = _split(order, order.key not in messages if is_bound else self.settings.one_line_per_message)
        try:
            await asyncio.to_thread(self.sent.plan, order.key, parts)
        except OSError as exc:
            raise _unwritable(exc) from exc
        return parts, known

    def _is_held(self, answer: Answer) -> bool:
        """Whether an operator has to ask the laboratory about lines that the answer passes over."""
        return bool(answer.unnamed_lines) and self.settings.unnamed_lines == "hold"

    def _is_unsettled(self, message: SentMessage) -> bool:
        """Whether nobody has decided yet that a message without an answer is sent again."""
        return message.answer is None and self.settings.duplicates == "none" and not message.was_asked

    async def _send(self, order: OrderKey, key: str, part: LabOrder) -> Answer:
        control_id, message = self._build(key, part)
        lines = tuple(line.key for line in part.lines)

        async def record_attempt() -> None:
            try:
                await asyncio.to_thread(self.sent.record_attempt, key, order, lines, control_id)
            except OSError as exc:
                raise _unwritable(exc) from exc

        ack = await self.sender.send(message, control_id, record_attempt)
        if ack is None:
            ack = Ack(code="CA", control_id=control_id)  # no answer is due: it counts as accepted once it is sent
            await asyncio.to_thread(self.sent.record_answer, ack, True)
        check_ack(ack, self.settings)
        answer = build_answer(ack, accepted=True, lines=lines)
        if self._is_held(answer):
            raise LisRejected(f"the LIS accepted the order, and its answer does not name {', '.join(answer.unnamed_lines)}")
        return answer

    def _build(self, key: str, part: LabOrder) -> tuple[str, bytes]:
        control_id = self.control_id(key)
        return control_id, self.builder.build_order(part, control_id, datetime.now(UTC))


async def report_answer(inbox: Inbox, order: str, answer: Answer, own_lines: Collection[str]) -> None:
    """Tell the inbox what an answer says of lines: numbers that come late, and rejections. Harmless when repeated."""
    await report_rejected_lines(inbox, order, answer, own_lines)
    numbers = tuple(Accession(line=line, number=number) for line, number in answer.accessions if line in own_lines)
    if numbers:
        digest = hashlib.sha256(repr(numbers).encode()).hexdigest()[:24]
        await inbox.accept(f"ack/{order}/{digest}", AccessionUpdate(order=order, accessions=numbers))


async def report_rejected_lines(inbox: Inbox, order: str, answer: Answer, own_lines: Collection[str]) -> None:
    """Tell the inbox which lines the LIS rejected in an answer that accepts the others."""
    for key, reason in answer.rejected_lines:
        if key in own_lines:
            entry = NotPerformed(line=key, reason=reason)
            await inbox.accept(f"ack/{order}/{key}", LabRejection(order=order, not_performed=(entry,)))


def _split(order: LabOrder, by_line: bool) -> dict[str, LabOrder]:
    """The messages of an order by key; a message for a line holds that line and all that belongs to the order."""
    if not by_line:
        return {order.key: order}
    return {line.key: replace(order, lines=(line,)) for line in order.lines}


def _raise_failures(parts: Mapping[str, LabOrder], rejections: list[tuple[str, LisRejected]], unknown: list[str]) -> None:
    if unknown:
        raise LisOutcomeUnknown(f"the LIS has not answered about {len(unknown)} of {len(parts)} lines: {', '.join(unknown)}")
    if len(parts) == 1 and rejections:
        raise rejections[0][1]
    if rejections:
        told = "; ".join(f"{key}: {rejection}" for key, rejection in rejections)
        raise LisRejected(f"the LIS rejected {len(rejections)} of {len(parts)} lines, which are a message each: {told}")


def _unwritable(exc: OSError) -> LisUnavailable:
    return to_lis_failure(exc, "the adapter's folder, where each message is noted before it is sent,")


def _cancel_key(order: OrderKey, lines: Collection[LineKey]) -> str:
    digest = hashlib.sha256("\n".join((order, *sorted(lines))).encode()).digest()
    return "C" + base64.b32encode(digest).decode("ascii")[:15]
