"""The laboratory system (LIS): what an adapter is, the inbox it delivers results to, and how the agent finds its adapters.

Adapter authors import these names from `lab_agent.lis.contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.lab_order import LabOrder
from lab_agent.shared.errors import LisUnavailable
from lab_agent.shared.ids import LineKey, OrderKey

CONTRACT_VERSION = 1
"""Version of what the agent and an adapter expect of each other; raised when a correct adapter would no longer be correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """The laboratory's own numbers, where the LIS assigns them on submission (otherwise it sends an `AccessionUpdate` later).

    `accession` is the number of the whole order, `line_accessions` those of lines by line key, `tube_accessions` those of
    tubes by the partner's barcode. `unnamed_lines` are lines that the LIS's answer passes over although it names others: they
    count as accepted, and the order's timeline says so.
    """

    accession: str | None = None
    line_accessions: Mapping[LineKey, str] = field(default_factory=dict)
    tube_accessions: Mapping[str, str] = field(default_factory=dict)
    unnamed_lines: tuple[LineKey, ...] = ()


class Inbox(Protocol):
    """Where an adapter delivers what the LIS reports. Once a call has returned, its message is committed; acknowledge it then."""

    async def accept(self, message_id: str, message: LabMessage, /) -> bool:
        """Store a message under the adapter's stable id for it. False: a message with that id was stored before (a success)."""
        ...

    async def accept_all(self, messages: Mapping[str, LabMessage], /) -> frozenset[str]:
        """Store several messages by their ids, in this order and in one commit; gives the ids of those that are new.

        Where one cannot be stored, none is, and its error is raised: accept them one by one then.
        """
        ...

    async def was_accepted(self, message_id: str, /) -> bool:
        """Whether a message with that id was stored before."""
        ...

    async def find_accepted(self, message_ids: Collection[str], /) -> frozenset[str]:
        """Those of these ids whose messages were stored before."""
        ...

    async def reject(self, message_id: str, reason: str, /, *, raw: bytes | None = None) -> None:
        """Record that the adapter rejected a message it could not understand; `reason` never names a patient.

        The LIS may ignore the rejection, so the agent alerts its own operators. `raw` is the message as it came: it is stored
        sealed, so that an operator can read it and, if the adapter is a `RawMessageParser`, replay it.
        """
        ...

    async def skip(self, message_id: str, reason: str, /) -> None:
        """Count what the adapter acknowledged and left out on purpose, such as a message of quality control, or an empty value.

        `reason` names the rule, never a patient or a value. Metrics and the log show it, so that nobody wonders where it went.
        """
        ...

    async def alert(self, key: str, text: str | None, /) -> None:
        """Open an alert about trouble that no call fails of, such as a peer that floods the adapter; None closes it.

        One of a `key` is open at a time: another text replaces the first. `text` never names a patient.
        """
        ...

    async def seal(self, content: bytes, /) -> bytes:
        """Encrypt what the adapter must keep in a file of its own and may name a patient, such as a part of a message."""
        ...

    async def unseal(self, sealed: bytes, /) -> bytes | None:
        """Give back what `seal` encrypted; None where its key is gone, or it was altered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPart:
    """One part of a raw message: its `content`, or the `problem` for which it is refused, or neither: left out on purpose.

    `message_id` is the id under which the inbox gets it, the same whenever and however the same message is read. `place` says
    where the part stands ("OBR 2", "row 3"); `notes` what was left out or changed while it was read, and by which rule.
    """

    message_id: str
    place: str = ""
    content: LabMessage | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One element of a raw message (a segment, a row, a member) and what was read from it; `skipped`: nothing was.

    `personal`: `text` may identify the patient, and is shown on request alone; else `open_text`, which is what of it does not.
    `meaning` never identifies anybody.
    """

    place: str
    text: str
    meaning: str = ""
    skipped: bool = False
    personal: bool = False
    open_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSuggestion:
    """A line to add to the adapter's own map or settings: `key = value` in the TOML table `table`, and why.

    `table` is one of the adapter's map (its setting `mapping`), or, as `lis.NAME` and below that, one of the settings. `value` is
    as TOML writes it (`true`, `"final"`), None where only the laboratory knows it: a text then. `unless_item`: the line is needed
    only where the order has no test of that name; `if_barcode`: only where that is the barcode of an order; `if_codes`: only
    while the mapping tables lack one of these codes.
    """

    table: str
    key: str
    value: str | None = None
    reason: str
    unless_item: str | None = None
    if_barcode: str | None = None
    if_codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMessage:
    """A raw message as an adapter reads it.

    `names` are the words (casefolded) by which it names the patient: a text that has one is shown on request alone.
    """

    parts: tuple[ParsedPart, ...]
    trace: tuple[TraceLine, ...] = ()
    suggestions: tuple[MapSuggestion, ...] = ()
    names: frozenset[str] = frozenset()


@runtime_checkable
class RawMessageParser(Protocol):
    """Optional for an adapter: reads a raw message as it would read it from the LIS, and touches nothing.

    `lab-agent adapter NAME try` and the replay of refused messages use it.
    """

    async def parse_message(self, raw: bytes, name: str, /) -> ParsedMessage:
        """Read a message. `name`: its file, or the id it was refused under. What cannot be read is a part with a `problem`."""
        ...


@dataclass(frozen=True, slots=True)
class RenderedOrder:
    """One message, file or set of rows of an order, as the LIS would get it; `name` is a file name for it."""

    name: str
    content: bytes


@runtime_checkable
class OrderRenderer(Protocol):
    """Optional for an adapter: writes an order as `submit` would write it for the LIS, and touches nothing.

    `lab-agent rehearse` uses it.
    """

    async def render_order(self, order: LabOrder, /) -> tuple[RenderedOrder, ...]:
        """Write an order. Raises `LisRejected` for one that cannot be written. May be called without a start."""
        ...


@runtime_checkable
class ReplayListener(Protocol):
    """Optional for an adapter that keeps something of what it has put into the inbox, such as values that later messages need."""

    async def on_replayed(self, message: LabMessage, /) -> None:
        """Be told that a replay has put a part into the inbox; not where a later message about its report was accepted before.

        May come without a start.
        """
        ...


@runtime_checkable
class ReloadableAdapter(Protocol):
    """Optional for an adapter whose settings name files, such as a map: takes them over while it runs (SIGHUP)."""

    async def reload(self, settings: BaseModel, /) -> None:
        """Use `settings` from the next message on; they are those of the start, but for what stands in the files they name."""
        ...


class LisCalls(Protocol):
    """What the agent asks of a laboratory system.

    Only three failures matter: `LisUnavailable` (temporary, with the wait the LIS asks for), `LisRejected` (permanent) and
    `LisOutcomeUnknown`.
    """

    async def start(self, inbox: Inbox) -> None:
        """Open connections. Raises `LisUnavailable` if the LIS cannot be reached; the agent then calls it again."""
        ...

    async def stop(self) -> None:
        """Close everything, leaving nothing half-done."""
        ...

    async def check(self) -> None:
        """Check that the LIS is healthy; raises what is wrong."""
        ...

    async def prepare(self, order: LabOrder) -> None:
        """Do what the LIS cannot see yet. Idempotent. The agent commits *prepared* afterwards, then calls `submit`."""
        ...

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Submit the order. Called after `prepare` and the commit; after a crash, only once `was_received` returned False."""
        ...

    async def was_received(self, key: OrderKey) -> bool | None:
        """Whether the LIS has the order with that key; None if that cannot be determined (an operator decides)."""
        ...

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Tell the LIS that the partner withdrew the lines. Idempotent."""
        ...

    async def collect(self) -> int:
        """Fetch waiting results into the inbox; returns the number of new messages. Adapters the LIS pushes to return 0."""
        ...


class Lis(LisCalls, Protocol):
    """A laboratory system as the workflow sees it: an adapter behind its guard."""

    @property
    def idempotent(self) -> bool:
        """Whether `submit` may be repeated for the same key without creating a second order in the LIS."""
        ...


class LisAdapter(LisCalls, Protocol):
    """The adapter of one laboratory system (entry-point group `lab_agent.adapters`).

    Constructed as `AdapterClass(settings, name)` with its own `Settings`, without I/O. A class may declare `contract_version`,
    the version of this contract (`CONTRACT_VERSION`) it was written for; the default is 1.
    """

    Settings: ClassVar[type[BaseModel]]
    """Model of the `[lis.<name>]` table; it forbids unknown keys."""

    idempotent: ClassVar[bool]
    """Whether `submit` may be repeated for the same key without creating a second order in the LIS."""


class AdapterSource(Protocol):
    """The configured adapters."""

    def get(self, name: str | None = None) -> Lis:
        """The adapter with that name, the default one for None. Raises `LisUnavailable` with the reason if it is not running."""
        ...

    def running(self) -> Iterator[tuple[str, Lis]]:
        """The adapters that were loaded, with their names."""
        ...


class NoAdapters:
    """No laboratory system at all: what a worker in observe mode has."""

    def get(self, name: str | None = None) -> Lis:
        """Raise `LisUnavailable`: there is none."""
        raise LisUnavailable(f"this worker only observes; it does not contact the laboratory system {name or 'of its orders'}")

    def running(self) -> Iterator[tuple[str, Lis]]:
        """Nothing is running."""
        return iter(())
