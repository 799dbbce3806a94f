"""Acknowledgements: those we write for received messages, and those we read for sent ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent.lis.hl7v2.orders.order_builder import build_segment
from lab_agent.lis.hl7v2.parser import ACK_CONDITIONS, STANDARD_SEPARATORS, FieldPath, Message, Segment, Separators, escape
from lab_agent.lis.hl7v2.timestamps import format_timestamp

ACK_MESSAGE_TYPES = frozenset({"ACK", "ORL", "ORR", "ORG", "RRL"})
"""Message types that acknowledge something."""
_MAX_TEXT_LENGTH = 200
_PLACER_NUMBER = FieldPath.parse("ORC-2.1")
_FILLER_NUMBER = FieldPath.parse("ORC-3.1")


@dataclass(frozen=True, slots=True)
class Ack:
    """What the LIS answered: `code` is MSA-1, `control_id` MSA-2, `error_codes` are ERR-3; `text` says why."""

    code: str
    control_id: str
    text: str = ""
    error_codes: tuple[str, ...] = ()
    accessions: tuple[tuple[str, str], ...] = ()
    rejected_lines: tuple[tuple[str, str], ...] = ()
    orders: tuple[str, ...] = ()
    """ORC-2 of every ORC, empty where it has none."""

    @property
    def is_commit(self) -> bool:
        """Whether it is a commit acknowledgement: stored (or not), but not yet processed."""
        return self.code.startswith("C")

    @property
    def is_positive(self) -> bool:
        """Whether it is positive."""
        return self.code in {"AA", "CA"}

    def unnamed_lines(self, lines: Collection[str]) -> tuple[str, ...]:
        """Those of `lines` that it passes over although it names others; none if it names no line, as a plain ACK does."""
        if len(self.orders) >= len(lines) and not set(self.orders) & set(lines):
            return ()  # it names them all, by numbers of its own
        return tuple(line for line in lines if line not in self.orders) if self.orders else ()


@dataclass(frozen=True, slots=True)
class AckDecision:
    """Our answer: the letter after A or C (A accept, E error, R reject), the reasons and an ERR-3 code (HL7 table 0357)."""

    letter: str = "A"
    reasons: tuple[str, ...] = ()
    error_code: str = "0"


def parse_ack(message: Message) -> Ack | None:
    """Read an acknowledgement; None if it has no MSA."""
    msa = message.first_segment("MSA")
    if msa is None:
        return None
    errors = [one for one in message.segments if one.name == "ERR"]
    codes = (one.text(3) or one.text(1, 4) for one in errors)
    texts = (msa.text(3), *(one.text(8) or one.text(7) or one.text(3, 2) for one in errors), *_note_texts(message))
    orcs = [one for one in message.segments if one.name == "ORC"]
    return Ack(
        code=msa.text(1).upper(),
        control_id=msa.first_repetition(2).text.strip(),
        text="; ".join(dict.fromkeys(text for text in texts if text))[:500],
        error_codes=tuple(code for code in codes if code),
        accessions=tuple(pair for pair in map(_order_numbers, orcs) if all(map(_is_valid_number, pair))),
        orders=tuple(_order_numbers(one)[0] for one in orcs),
        rejected_lines=tuple(
            (_order_numbers(one)[0], _line_rejection_reason(one))
            for one in orcs
            if one.text(1) in {"UA", "OC", "DR"} and _order_numbers(one)[0]
        ),
    )


def requested_acks(header: Segment) -> tuple[str, str] | None:
    """MSH-15 and MSH-16; None if both are empty, which means original mode.

    What is not in HL7 table 0155 counts as empty: some analysers number their messages there (0, 1, 2), and wait for an answer.
    """
    accept, application = (_ack_condition(header.text(number)) for number in (15, 16))
    return (accept, application) if accept or application else None


def _ack_condition(given: str) -> str:
    condition = given.strip().upper()
    return condition if condition in ACK_CONDITIONS else ""


def is_ack_requested(condition: str, letter: str) -> bool:
    """Whether the sender wants an acknowledgement (HL7 table 0155: AL always, ER on error, SU on success, NE never)."""
    return condition == "AL" or (condition == "ER" and letter != "A") or (condition == "SU" and letter == "A")


def build_ack(
    header: Segment, kind: str, decision: AckDecision, *, control_id: str, msh_fields: Mapping[int, str], now: datetime
) -> str:
    """Write an ACK with the separators of the message it answers.

    `kind` is A (application) or C (commit); `msh_fields` are our MSH-11, MSH-12 and MSH-18.
    """
    separators = header.separators
    msh = {
        2: separators.encoding_characters,
        **{mine: _printable(header.raw(theirs)) for mine, theirs in ((3, 5), (4, 6), (5, 3), (6, 4))},
        7: format_timestamp(now.astimezone(UTC).replace(microsecond=0)),
        9: separators.component.join(("ACK", header.text(9, 2))).rstrip(separators.component),
        10: control_id,
        **{number: escape(text, separators) for number, text in msh_fields.items()},
    }
    if kind == "A" and requested_acks(header):
        msh[15] = msh[16] = "NE"
    reason = "; ".join(decision.reasons)[:_MAX_TEXT_LENGTH]
    msa = {1: kind + decision.letter, 2: _printable(header.raw(10)), 3: escape(reason[:80], separators)}
    lines = [build_segment("MSH", msh, separators.field), build_segment("MSA", msa, separators.field)]
    if decision.letter != "A":
        err = {3: separators.component.join((decision.error_code, "", "HL70357")), 4: "E", 8: escape(reason, separators)}
        lines.append(build_segment("ERR", err, separators.field))
    return "\r".join(lines) + "\r"


def build_reject_ack(reason: str, *, control_id: str, msh_fields: Mapping[int, str], now: datetime) -> str:
    """Write an AR to a message whose header cannot be read."""
    unknown = Segment("MSH", ("MSH", STANDARD_SEPARATORS.field, STANDARD_SEPARATORS.encoding_characters), Separators(), "utf-8")
    return build_ack(unknown, "A", AckDecision("R", (reason,), "100"), control_id=control_id, msh_fields=msh_fields, now=now)


def _printable(raw: str) -> str:
    """What is echoed, without characters that could end a line or a frame."""
    return "".join(char for char in raw if char.isprintable()).strip()[:_MAX_TEXT_LENGTH]


def _order_numbers(orc: Segment) -> tuple[str, str]:
    return next(orc.texts_at(_PLACER_NUMBER), ""), next(orc.texts_at(_FILLER_NUMBER), "")


def _is_valid_number(text: str) -> bool:
    """Whether it can be a number or a key: an invalid one must not spoil the others."""
    return 0 < len(text) <= _MAX_TEXT_LENGTH and text.isprintable()


def _line_rejection_reason(orc: Segment) -> str:
    return orc.text(16, 2) or orc.text(16, 1) or "the laboratory system rejected this line"


def _note_texts(message: Message) -> tuple[str, ...]:
    return tuple(one.text(3) for one in message.segments if one.name == "NTE")
