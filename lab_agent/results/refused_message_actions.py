"""What an operator does with refused messages, from the command line or the status page: look, replay, dismiss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import Protocol

import structlog

from lab_agent.lis.lab_messages import LabMessage, LabReport
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage, ParsedPart
from lab_agent.orders.audit_trail import note_decision
from lab_agent.orders.job_actions import validate_note
from lab_agent.results.refused_messages import one_line, refresh_alert
from lab_agent.results.refused_records import RefusedContent, RefusedMessage, RefusedState, sender_name
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure, InvalidTransitionError, StoreError
from lab_agent.shared.ids import RefusedKey
from lab_agent.store.audit_records import AuditAction, AuditEntry, AuditValue
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)


class RawMessageReader(Protocol):
    """An adapter behind its guard, as far as refused messages need it."""

    async def parse_message(self, raw: bytes, name: str, /) -> ParsedMessage:
        """Read a raw message with the present map; what cannot be read is a part with a `problem`."""
        ...

    async def on_replayed(self, message: LabMessage, /) -> None:
        """Be told that a replay has put a message into the inbox."""
        ...


class RawMessageReaders(Protocol):
    """The adapters by name."""

    def get(self, name: str | None = None, /) -> RawMessageReader:
        """The adapter with that name. Raises `LisUnavailable` with the reason if it was not loaded."""
        ...


class PartOutcome(StrEnum):
    """What a replay would do with a part."""

    ACCEPTED_BEFORE = "accepted before"
    ACCEPTED = "would be accepted"
    OVERTAKEN = "would take back a newer one"
    """A later message about its report was accepted: only over an operator's answer."""
    LEFT_OUT = "would be left out"
    """On purpose, by a rule of the map; its notes say which."""
    REFUSED = "would be refused"


@dataclass(frozen=True, slots=True)
class PreviewedPart:
    """What the present map makes of a part. `later_at`: when a message about the same report was accepted since."""

    part: ParsedPart
    was_accepted: bool = False
    later_at: datetime | None = None

    @property
    def outcome(self) -> PartOutcome:
        """What a replay would do with it."""
        if self.part.problem:
            return PartOutcome.REFUSED
        if self.part.content is None:
            return PartOutcome.LEFT_OUT
        if self.was_accepted:
            return PartOutcome.ACCEPTED_BEFORE
        return PartOutcome.ACCEPTED if self.later_at is None else PartOutcome.OVERTAKEN


@dataclass(frozen=True, slots=True)
class Preview:
    """What the present map makes of a message, and the lines that would mend the map."""

    parts: tuple[PreviewedPart, ...] = ()
    suggestions: tuple[MapSuggestion, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """A refused message after its replay: the numbers of parts that are new in the inbox, and that were there before."""

    message: RefusedMessage
    new: int
    known: int
    problems: tuple[str, ...]
    is_overtaken: bool = False
    """Whether a part was left out because a later message about its report was accepted."""


class _Acceptance(Enum):
    """What became of a part."""

    NOTHING = "nothing"
    NEW = "new"
    KNOWN = "known"
    OVERTAKEN = "overtaken"


_OVERTAKEN = (
    "a later message about the same report was accepted since, and this one would take its values back; dismiss it,"
    " or replay it over the newer one if it is right"
)


@dataclass(frozen=True, slots=True)
class RefusedMessageDesk:
    """What an operator does with refused messages. Every action, and each look at a raw text, stands in the message's history.

    All raise `StoreError` for an unknown message, and `InvalidTransitionError` where its state or what is kept does not allow it.
    """

    store: Store
    clock: Clock
    adapters: RawMessageReaders

    async def preview(self, key: RefusedKey) -> Preview:
        """What the present map makes of a message; nothing changes. Raises `LisUnavailable` if its adapter is not loaded."""
        message, content = await self.store.run_read_only(lambda uow: _load(uow, key))
        parsed = await self.adapters.get(message.source).parse_message(_raw_of(message, content), content.message_id)

        def look_up(uow: UnitOfWork) -> Preview:
            parts = tuple(_preview_part(uow, message, part) for part in parsed.parts)
            return Preview(parts, tuple(each for each in parsed.suggestions if _is_needed(uow, message, each)))

        return await self.store.run_read_only(look_up)

    async def replay(self, key: RefusedKey, *, by: str, over_newer: bool = False) -> ReplayOutcome:
        """Read a waiting message with the present map, and put every good part into the inbox; nothing is there twice.

        It stays waiting, with the new reason, while a part has a problem. A part about a report of which a later message was
        accepted meanwhile would take its values back: it is left out as a question, unless `over_newer` answers that.
        Raises `LisUnavailable` as `preview` does.
        """
        message, content = await self.store.run_read_only(lambda uow: _load(uow, key))
        _require_waiting(message)
        adapter = self.adapters.get(message.source)
        parsed = await adapter.parse_message(_raw_of(message, content), content.message_id)
        accepted = [await self._accept(message, part, over_newer=over_newer) for part in parsed.parts]
        problems = [_problem_text(part, part.problem) for part in parsed.parts if part.problem]
        problems += [_OVERTAKEN for each in accepted if each is _Acceptance.OVERTAKEN][:1]
        problems += [problem for part in parsed.parts if (problem := await self._tell_adapter(adapter, message, part))]
        return await self.store.transact(lambda uow: self._finish_replay(uow, key, accepted, tuple(problems), by))

    async def replay_all(self, source: str, *, by: str) -> tuple[ReplayOutcome, ...]:
        """Replay what waits of an adapter, in the sequence in which it was refused; without what is not kept any more."""
        found = await self.store.transact(lambda uow: _waiting_of(uow, source))
        oldest_first = sorted(
            (each for each in found if each.is_kept and each.size is not None), key=lambda each: each.first_seen_at
        )
        return tuple([await self.replay(each.key, by=by) for each in oldest_first])

    async def _accept(self, message: RefusedMessage, part: ParsedPart, *, over_newer: bool) -> _Acceptance:
        """Put a part into the inbox; the look for a later message and the commit are one."""
        content = part.content
        if content is None:
            return _Acceptance.NOTHING
        inbox = StoreInbox(self.store, self.clock, message.source)

        def write(uow: UnitOfWork) -> _Acceptance:
            if uow.reports.find(message.source, part.message_id) is not None:
                return _Acceptance.KNOWN
            if not over_newer and _later_message(uow, message, part) is not None:
                return _Acceptance.OVERTAKEN
            if inbox.add_message(uow, part.message_id, content) is None:
                return _Acceptance.KNOWN
            return _Acceptance.NEW

        return await self.store.transact(write)

    async def _tell_adapter(self, adapter: RawMessageReader, message: RefusedMessage, part: ParsedPart) -> str | None:
        """Let the adapter keep what it needs of a part, unless a later message about its report came; why it could not."""
        later = await self.store.transact(lambda uow: _later_message(uow, message, part))
        if part.content is None or later is not None:
            return None
        try:
            await adapter.on_replayed(part.content)
        except Failure as failure:
            return str(failure)
        return None

    def _finish_replay(
        self, uow: UnitOfWork, key: RefusedKey, accepted: Sequence[_Acceptance], problems: tuple[str, ...], by: str
    ) -> ReplayOutcome:
        now, new, known = self.clock.now(), accepted.count(_Acceptance.NEW), accepted.count(_Acceptance.KNOWN)
        message = _get(uow, key)
        reason = one_line("; ".join(problems)) or message.reason
        done = replace(message, state=message.state if problems else RefusedState.REPLAYED, reason=reason, changed_at=now)
        text = f"replayed: {new} new, {known} accepted before"
        event = _event(done, "refused_replayed", f"{text}, refused again: {reason}" if problems else text, by, now)
        _save(uow, done, event, AuditAction.REFUSED_REPLAYED, details={"new": new, "known": known, "problems": len(problems)})
        log.info("refused message replayed", action="refused_replayed", adapter=message.source, count=new, state=done.state)
        return ReplayOutcome(done, new, known, problems, is_overtaken=_Acceptance.OVERTAKEN in accepted)

    async def dismiss(self, key: RefusedKey, *, by: str, note: str) -> RefusedMessage:
        """Leave a waiting message for good. Raises `InputError` for an empty or too long note."""

        def change(uow: UnitOfWork) -> RefusedMessage:
            return self._dismiss(uow, key, by, validate_note(note))

        return await self.store.transact(change)

    async def dismiss_all(self, source: str, *, by: str, note: str, expected_count: int | None = None) -> int:
        """Leave all waiting messages of an adapter; how many. Raises `InvalidTransitionError` if it is not `expected_count`."""
        return await self.store.transact(lambda uow: self._dismiss_all(uow, source, by, validate_note(note), expected_count))

    def _dismiss_all(self, uow: UnitOfWork, source: str, by: str, note: str, expected_count: int | None) -> int:
        waiting = uow.refused_messages.waiting_counts().get(source, 0)
        if expected_count not in (None, waiting):
            raise InvalidTransitionError(f"meanwhile {waiting} messages of {source} wait; nothing was done, look again")
        found = _waiting_of(uow, source)
        for message in found:
            self._dismiss(uow, message.key, by, note)
        return len(found)

    def _dismiss(self, uow: UnitOfWork, key: RefusedKey, by: str, note: str) -> RefusedMessage:
        now, message = self.clock.now(), _get(uow, key)
        _require_waiting(message)
        done = replace(message, state=RefusedState.DISMISSED, changed_at=now)
        event = _event(done, "refused_dismissed", f"dismissed: {note}", by, now)
        _save(uow, done, event, AuditAction.REFUSED_DISMISSED, note=note)
        return done

    async def find_sender_name(self, key: RefusedKey, *, by: str) -> str | None:
        """What the sender called the message, such as a file's name: for operators alone. None once it is not kept any more.

        It may name a patient, so the look is in the audit.
        """

        def read(uow: UnitOfWork) -> str | None:
            content = uow.refused_messages.content(key) if _get(uow, key).is_kept else None
            name = None if content is None else sender_name(content)
            if name is not None:
                uow.audit.add(AuditEntry(at=self.clock.now(), action=AuditAction.SENDER_NAME_SHOWN, subject=key, by=by))
            return name

        return await self.store.transact(read)

    async def look_at(self, key: RefusedKey, *, by: str) -> RefusedContent:
        """The content of a message, for one look, which is in its history before the content is given."""

        def note_look(uow: UnitOfWork) -> RefusedContent:
            message, content = _load(uow, key)
            event = _event(message, "refused_looked_at", "the raw text was shown", by, self.clock.now())
            note_decision(uow, event, AuditAction.RAW_MESSAGE_SHOWN)
            return content

        content = await self.store.transact(note_look)
        log.info("raw message shown", action="refused_looked_at", by=by)
        return content


def describe_content(content: LabMessage | None) -> str:
    """What a part is, without its values: `report 4711, final, 3 observations`; empty for nothing."""
    if not isinstance(content, LabReport):
        return "" if content is None else type(content).__name__.removeprefix("Lab").lower()
    counts = [(len(content.observations), "observation"), (len(content.documents), "document")]
    counted = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count]
    return ", ".join([f"report {content.report_id}", content.status.value, *counted])


def _get(uow: UnitOfWork, key: RefusedKey) -> RefusedMessage:
    message = uow.refused_messages.get(key)
    if message is None:
        raise StoreError(f"There is no refused message {key}; `lab-agent results refused list` shows them.")
    return message


def _waiting_of(uow: UnitOfWork, source: str) -> tuple[RefusedMessage, ...]:
    waiting = uow.refused_messages.waiting_counts().get(source, 0)
    return uow.refused_messages.list(source=source, states=(RefusedState.WAITING,), limit=max(1, waiting))[0]


def _load(uow: UnitOfWork, key: RefusedKey) -> tuple[RefusedMessage, RefusedContent]:
    message = _get(uow, key)
    content = uow.refused_messages.content(key) if message.is_kept else None
    if content is None:
        raise InvalidTransitionError(f"the content of message {key} is not kept (any more); have it sent again")
    return message, content


def _raw_of(message: RefusedMessage, content: RefusedContent) -> bytes:
    if content.raw is None:
        raise InvalidTransitionError(f"the adapter {message.source} did not hand over the bytes of message {message.key}")
    return content.raw


def _require_waiting(message: RefusedMessage) -> None:
    if message.state is not RefusedState.WAITING:
        raise InvalidTransitionError(f"message {message.key} is {message.state.value}; it does not wait")


def _is_needed(uow: UnitOfWork, message: RefusedMessage, suggestion: MapSuggestion) -> bool:
    """Whether a line would mend the map for sure: a barcode must be one of an order; tests and codes are known only with it."""
    if suggestion.if_barcode is not None:
        return bool(uow.orders.by_barcode(suggestion.if_barcode, message.source))
    return suggestion.unless_item is None and not suggestion.if_codes


def _preview_part(uow: UnitOfWork, message: RefusedMessage, part: ParsedPart) -> PreviewedPart:
    was_accepted = part.content is not None and uow.reports.find(message.source, part.message_id) is not None
    return PreviewedPart(part, was_accepted, _later_message(uow, message, part))


def _later_message(uow: UnitOfWork, message: RefusedMessage, part: ParsedPart) -> datetime | None:
    """When another message about the report of a part was accepted, after this one was refused first."""
    if not isinstance(part.content, LabReport):
        return None
    return uow.refused_messages.accepted_since(
        message.source, part.content.report_id, message.first_seen_at, except_message=part.message_id
    )


def _problem_text(part: ParsedPart, problem: str) -> str:
    return problem if not part.place or part.place in problem else f"{part.place}: {problem}"


def _save(
    uow: UnitOfWork,
    message: RefusedMessage,
    event: Event,
    action: AuditAction,
    *,
    note: str | None = None,
    details: Mapping[str, AuditValue] | None = None,
) -> None:
    uow.refused_messages.save(message)
    note_decision(uow, event, action, note=note, details=details)
    refresh_alert(uow, message.source, event.at)


def _event(message: RefusedMessage, action: str, text: str, by: str, now: datetime) -> Event:
    return Event(order=None, refused_message=message.key, at=now, action=action, text=text, by=by)
