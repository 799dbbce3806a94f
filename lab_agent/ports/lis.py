"""The laboratory system: what an adapter is, and the inbox that it hands results to.

Adapter authors import these names from `lab_agent.lis.contract`.

Where steps find the laboratory systems: a name gives an adapter, or says why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pydantic import BaseModel

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import LabMessage
from lab_agent.domain.lab_order import LabOrder
from lab_agent.errors import LisUnavailable

CONTRACT_VERSION = 1
"""Version of what the agent and an adapter expect of each other; raised when an adapter that was right would be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """What the LIS said on taking an order: its own numbers, where it gives them at once (else it sends a `LabReceipt` later).

    `accession` is the number of the whole order, `line_accessions` are those of lines by their keys, `tube_accessions` those of
    tubes by the partner's barcodes.
    """

    accession: str | None = None
    line_accessions: Mapping[LineKey, str] = field(default_factory=dict)
    tube_accessions: Mapping[str, str] = field(default_factory=dict)


class Inbox(Protocol):
    """Where an adapter puts what the LIS reports. When a call returns, the message is committed; only then acknowledge it."""

    async def accept(self, message: str, content: LabMessage) -> bool:
        """Keep a message; `message` is the adapter's stable name for it. False: it was kept before (a success)."""
        ...

    async def was_accepted(self, message: str) -> bool:
        """Whether a message of that name was kept before."""
        ...

    async def refused(self, message: str, reason: str) -> None:
        """Hear that a message could not be understood and was refused in the adapter's own way; `reason` names no patient.

        The laboratory system may not look at its refusals, so somebody here is to.
        """
        ...


class LisCalls(Protocol):
    """What a laboratory system can be asked.

    The only failures that matter are `LisUnavailable` (temporary, with the wait it asks for), `LisRefusal` (permanent) and
    `LisOutcomeUnknown`.
    """

    async def start(self, inbox: Inbox) -> None:
        """Begin: open what must be open. Raises `LisUnavailable` where the LIS is away; it is tried again."""
        ...

    async def stop(self) -> None:
        """End, and leave nothing half-done."""
        ...

    async def check(self) -> None:
        """Ask the LIS for a sign of life; raises what is wrong."""
        ...

    async def prepare(self, order: LabOrder) -> None:
        """Do what the LIS cannot see yet. Harmless when repeated. The agent commits *prepared* after it, then calls `submit`."""
        ...

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Hand the order over. Called after `prepare` and the commit; after a crash, only once `was_received` has said no."""
        ...

    async def was_received(self, key: OrderKey) -> bool | None:
        """Whether the LIS has the order of that key; None where nobody can tell (a person will decide)."""
        ...

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Tell the LIS that the partner withdrew the lines. Harmless when repeated."""
        ...

    async def collect(self) -> int:
        """Take what the LIS has put out for us into the inbox; the number of new messages. Pushing adapters return 0."""
        ...


class Lis(LisCalls, Protocol):
    """A laboratory system as the steps see it: an adapter behind its guard."""

    @property
    def idempotent(self) -> bool:
        """Whether `submit` may be repeated for the same key without a second order in the LIS."""
        ...


class LisAdapter(LisCalls, Protocol):
    """One laboratory system (entry-point group `lab_agent.adapters`).

    Constructed as `AdapterClass(settings, name)` with its own `Settings`, without I/O. A class may declare `contract_version`,
    the version of this contract (`CONTRACT_VERSION`) that it was written for; 1 if it does not.
    """

    Settings: ClassVar[type[BaseModel]]
    """Model of the `[lis.<name>]` group; unknown keys are forbidden."""

    idempotent: ClassVar[bool]
    """Whether `submit` may be repeated for the same key without a second order in the LIS."""


class AdapterSource(Protocol):
    """The adapters that are set up."""

    def get(self, name: str | None = None) -> Lis:
        """The adapter of that name, the default one for None. Raises `LisUnavailable` with the reason where it is not running."""
        ...

    def running(self) -> Iterator[tuple[str, Lis]]:
        """Those that could be loaded, with their names."""
        ...


class NoAdapters:
    """No laboratory system at all: what a worker has that only observes."""

    def get(self, name: str | None = None) -> Lis:
        """Raise `LisUnavailable`: there is none."""
        raise LisUnavailable(f"this worker only observes; the laboratory system {name or 'of its orders'} is not spoken to")

    def running(self) -> Iterator[tuple[str, Lis]]:
        """Give none."""
        return iter(())
