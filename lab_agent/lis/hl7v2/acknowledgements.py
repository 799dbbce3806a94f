"""Answers: those that we write to what comes in, and those that we read to what we sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent.lis.hl7v2.escapes import STANDARD, Separators, escape
from lab_agent.lis.hl7v2.message import Message, Place, Segment
from lab_agent.lis.hl7v2.outgoing import segment
from lab_agent.lis.hl7v2.times import stamp

ANSWERS = frozenset({"ACK", "ORL", "ORR", "ORG", "RRL"})
"""Message types that answer something."""
_LONGEST = 200
_LINE = Place.of("ORC-2.1")
_ACCESSION = Place.of("ORC-3.1")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the LIS answered: `code` is MSA-1, `about` MSA-2; `errors` are the codes of ERR-3, `text` says why."""

    code: str
    about: str
    text: str = ""
    errors: tuple[str, ...] = ()
    accessions: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def commit(self) -> bool:
        """Whether it says only that the message was (not) kept, and not what became of it."""
        return self.code.startswith("C")

    @property
    def positive(self) -> bool:
        """Whether it says yes."""
        return self.code in {"AA", "CA"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What we answer: the letter after A or C (A accept, E error, R reject), and why with an ERR-3 code (HL7 table 0357)."""

    letter: str = "A"
    reasons: tuple[str, ...] = ()
    error: str = "0"


def read_answer(message: Message) -> Answer | None:
    """Read an answer; None if there is no MSA in it."""
    msa = message.first("MSA")
    if msa is None:
        return None
    errors = [one for one in message.segments if one.name == "ERR"]
    codes = (one.text(3) or one.text(1, 4) for one in errors)
    texts = (msa.text(3), *(one.text(8) or one.text(7) or one.text(3, 2) for one in errors), *_notes(message))
    orcs = [one for one in message.segments if one.name == "ORC"]
    return Answer(
        code=msa.text(1).upper(),
        about=msa.value(2).text.strip(),
        text="; ".join(dict.fromkeys(text for text in texts if text))[:500],
        errors=tuple(code for code in codes if code),
        accessions=tuple(pair for pair in map(_numbers, orcs) if all(map(_is_name, pair))),
        refused=tuple((_numbers(one)[0], _why(one)) for one in orcs if one.text(1) in {"UA", "OC", "DR"} and _numbers(one)[0]),
    )


def asked_of(header: Segment) -> tuple[str, str] | None:
    """Give MSH-15 and MSH-16; None where both are empty, which means the original mode."""
    asked = header.text(15).upper(), header.text(16).upper()
    return asked if any(asked) else None


def wanted(condition: str, letter: str) -> bool:
    """Whether an acknowledgement is wanted (HL7 table 0155: AL always, ER on error, SU on success; NE never)."""
    return condition == "AL" or (condition == "ER" and letter != "A") or (condition == "SU" and letter == "A")


def write_answer(to: Segment, kind: str, verdict: Verdict, *, own_id: str, names: Mapping[int, str], now: datetime) -> str:
    """Write an ACK in the separators of what it answers; `kind` is A or C. `names` are our MSH-11, MSH-12 and MSH-18."""
    separators = to.separators
    msh = {
        2: separators.encoding,
        **{mine: _plain(to.raw(theirs)) for mine, theirs in ((3, 5), (4, 6), (5, 3), (6, 4))},
        7: stamp(now.astimezone(UTC).replace(microsecond=0)),
        9: separators.component.join(("ACK", to.text(9, 2))).rstrip(separators.component),
        10: own_id,
        **{number: escape(text, separators) for number, text in names.items()},
    }
    if kind == "A" and asked_of(to):
        msh[15] = msh[16] = "NE"
    reason = "; ".join(verdict.reasons)[:_LONGEST]
    msa = {1: kind + verdict.letter, 2: _plain(to.raw(10)), 3: escape(reason[:80], separators)}
    lines = [segment("MSH", msh, separators.field), segment("MSA", msa, separators.field)]
    if verdict.letter != "A":
        err = {3: separators.component.join((verdict.error, "", "HL70357")), 4: "E", 8: escape(reason, separators)}
        lines.append(segment("ERR", err, separators.field))
    return "\r".join(lines) + "\r"


def write_rejection(reason: str, *, own_id: str, names: Mapping[int, str], now: datetime) -> str:
    """Write an AR to something of which not even the header can be read."""
    nobody = Segment("MSH", ("MSH", STANDARD.field, STANDARD.encoding), Separators(), "utf-8")
    return write_answer(nobody, "A", Verdict("R", (reason,), "100"), own_id=own_id, names=names, now=now)


def _plain(raw: str) -> str:
    """Give what is echoed, without anything that could end a line or a frame."""
    return "".join(char for char in raw if char.isprintable()).strip()[:_LONGEST]


def _numbers(orc: Segment) -> tuple[str, str]:
    return next(orc.texts(_LINE), ""), next(orc.texts(_ACCESSION), "")


def _is_name(text: str) -> bool:
    """Whether it can be a number or a key: a strange one must not keep the others from being taken."""
    return 0 < len(text) <= _LONGEST and text.isprintable()


def _why(orc: Segment) -> str:
    return orc.text(16, 2) or orc.text(16, 1) or "the laboratory system does not accept this line"


def _notes(message: Message) -> tuple[str, ...]:
    return tuple(one.text(3) for one in message.segments if one.name == "NTE")
