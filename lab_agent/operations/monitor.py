"""Probes that look at regular intervals, and the alerts that follow from what they find."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import LabAgentError
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """That a condition holds: `detail` identifies no patient; `since` is when it began, None for when it is first found."""

    condition: ConditionId
    subject: str = ""
    detail: str = ""
    since: datetime | None = None
    count: int | None = None

    @property
    def key(self) -> AlertKey:
        """The alert that says so."""
        return AlertKey(self.condition, self.subject)


class Probe(Protocol):
    """Looks at one part of operation. It decides alone about its `conditions`: what it does not find of them has ended."""

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The conditions that it decides about."""
        ...

    async def look(self) -> Sequence[Finding]:
        """Give what holds now. Raises `LabAgentError` if it cannot tell: then nothing is opened or closed."""
        ...


PROBE_SECONDS = 20.0
"""How long a look may take: a file system whose server is gone lets nobody return."""


@dataclass(slots=True)
class Monitor:
    """Runs probes, and opens and closes the alerts of what they decide about; each is logged at its start and at its end.

    A probe that does not return within `deadline` seconds is told, with the host, and not started again before it has: the others
    go on.
    """

    store: Store
    clock: Clock
    probes: Sequence[Probe]
    host: str = field(default_factory=socket.gethostname)
    deadline: float = PROBE_SECONDS
    _looks: dict[int, asyncio.Task[Sequence[Finding]]] = field(default_factory=dict, init=False)
    """Looks that have not returned yet, by the place of the probe."""

    async def run(self) -> None:
        """Look once with all probes. Raises `StoreUnreachableError`, and in the end what one raised that nobody expects."""
        fault: Exception | None = None
        for place, probe in enumerate(self.probes):
            look = self._looks.get(place)
            is_late = look is not None and not look.done()
            if look is None:
                look = self._looks[place] = asyncio.create_task(_look(probe), name=f"probe {type(probe).__name__}")
            await asyncio.wait({look}, timeout=0 if is_late else self.deadline)
            if not look.done():
                continue
            del self._looks[place]
            try:
                found = look.result()
            except (LabAgentError, OSError) as exc:
                log.debug("probe failed", action="probe_failed", task=type(probe).__name__, reason=str(exc))
            except Exception as exc:  # noqa: BLE001 - raised below: the looks after it must not go without (law 9)
                fault = fault or exc
            else:
                await self._apply(probe.conditions, found)
        await self._tell_late_probes()
        if fault is not None:
            raise fault

    async def _tell_late_probes(self) -> None:
        """Open an alert for each probe that hangs here, and close those of this host whose probe has returned."""
        found = [late_finding(self.probes[place], self.deadline, self.host) for place in self._looks]
        hanging = frozenset({ConditionId.AGENT_PROBE_HANGS})
        known = await self.store.run_read_only(lambda uow: uow.alerts.open_of(hanging))
        others = {each.subject for each in known if not each.subject.endswith(f" on {self.host}")}
        if {each.subject for each in found} | others == {each.subject for each in known}:
            return
        await self.store.transact(lambda uow: update_alerts(uow, hanging, found, self.clock.now(), keep=others))

    async def _apply(self, conditions: frozenset[ConditionId], found: Sequence[Finding]) -> None:
        known = await self.store.run_read_only(lambda uow: uow.alerts.open_of(conditions))
        if found or known:
            await self.store.transact(lambda uow: update_alerts(uow, conditions, found, self.clock.now()))


def late_finding(probe: Probe, seconds: float, host: str = "") -> Finding:
    """Give that a probe has not returned; the `host` is this machine."""
    subject = f"{min(probe.conditions)} on {host or socket.gethostname()}"
    return Finding(condition=ConditionId.AGENT_PROBE_HANGS, subject=subject, detail=f"no answer for {seconds:.0f} seconds")


async def _look(probe: Probe) -> Sequence[Finding]:
    return await probe.look()


def update_alerts(
    uow: UnitOfWork,
    conditions: frozenset[ConditionId],
    found: Sequence[Finding],
    now: datetime,
    *,
    keep: Collection[str] = (),
) -> None:
    """Open what was found, and close what is open of the same conditions and was not found.

    Alerts about a subject in `keep` stay as they are.
    """
    gone = uow.alerts.open_of(conditions) - {each.key for each in found}
    for key in (each for each in gone if each.subject not in keep):
        close_alert(uow, key, now)
    for each in found:
        alert = Alert(
            condition=each.condition,
            subject=each.subject,
            detail=each.detail,
            since=each.since or now,
            opened_at=now,
            count=each.count,
        )
        open_alert(uow, alert)
