"""Stand-ins for laboratory systems: each takes what its adapter would send, and answers later with made-up results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from lab_agent.lis.adapter_checks import validate_delivered
from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import AdapterSource, Inbox, Lis, SubmitResult
from lab_agent.lis.registry import AdapterRegistry
from lab_agent.rehearsal.made_results import ResultMaker
from lab_agent.shared.clock import Clock
from lab_agent.shared.ids import LineKey, OrderKey


@dataclass(slots=True)
class StandInLis(Lis):
    """One laboratory system. `folder`: where to keep what the adapter would send; None keeps nothing."""

    adapter: GuardedAdapter
    folder: Path | None
    rendered: int = 0
    """Messages, files or sets of rows."""
    submitted: int = 0
    reported: int = 0
    _unreported: list[LabOrder] = field(default_factory=list)

    @property
    @override
    def idempotent(self) -> bool:
        return self.adapter.idempotent

    @override
    async def start(self, inbox: Inbox) -> None:
        """Nothing connects."""

    @override
    async def stop(self) -> None:
        """Nothing is open."""

    @override
    async def check(self) -> None:
        """It is there."""

    @override
    async def prepare(self, order: LabOrder) -> None:
        for each in await self.adapter.render_order(order):
            self.rendered += 1
            if self.folder is not None:
                self.folder.joinpath(Path(each.name).name).write_bytes(each.content)

    @override
    async def submit(self, order: LabOrder) -> SubmitResult:
        self.submitted += 1
        self._unreported.append(order)
        return SubmitResult()

    @override
    async def was_received(self, key: OrderKey) -> bool | None:
        return any(each.key == key for each in self._unreported)

    @override
    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Nothing is withdrawn in a rehearsal."""

    @override
    async def collect(self) -> int:
        return 0

    async def report(self, maker: ResultMaker, inbox: Inbox, clock: Clock) -> int:
        """Report all orders that were not reported yet; their number. Raises `DataInvalidError`, `StoreError`."""
        orders, self._unreported = self._unreported, []
        for order in orders:
            made = maker.make(order, clock.now())
            await inbox.accept(made.report_id, validate_delivered(made.report_id, made))
            self.reported += 1
        return len(orders)


class StandInAdapters(AdapterSource):
    """A stand-in for each adapter that was loaded."""

    def __init__(self, registry: AdapterRegistry, folder: Path | None) -> None:
        self._registry = registry
        self.by_name: Mapping[str, StandInLis] = {
            name: StandInLis(adapter, _subfolder(folder, name)) for name, adapter in registry.running()
        }

    @override
    def get(self, name: str | None = None) -> Lis:
        self._registry.get(name)  # raises what the agent would meet
        return self.by_name[name or self._registry.default]

    @override
    def running(self) -> Iterator[tuple[str, Lis]]:
        yield from self.by_name.items()


def _subfolder(folder: Path | None, name: str) -> Path | None:
    if folder is None:
        return None
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    return own
