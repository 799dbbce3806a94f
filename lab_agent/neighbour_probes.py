"""Builds what watches the laboratory's API, its callers, and whether the laboratory systems report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from lab_agent.api_health import build_api_health
from lab_agent.monitoring.api_callers import ApiCallersProbe
from lab_agent.monitoring.api_probes import build_api_probes
from lab_agent.monitoring.catalogue import CatalogueProbe
from lab_agent.monitoring.monitor import Probe
from lab_agent.monitoring.overdue import OverdueResultsProbe
from lab_agent.ports.clock import Clock
from lab_agent.settings.root import Settings
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store


def build_own_api_probes(settings: Settings, store: Store, clock: Clock, *, once: bool = False) -> Iterator[Probe]:
    """Build what asks this machine's lab-api, only where there is one. `once`: a single failure is told at once."""
    monitoring = settings.monitoring
    if health := build_api_health(settings.api, monitoring, proxy=settings.exchange.proxy):
        yield from build_api_probes(health, store, clock, timedelta(seconds=monitoring.api_interval), once=once)


def build_neighbour_probes(settings: Settings, store: Store, queries: Queries, clock: Clock) -> Iterator[Probe]:
    """Build the probes that look at what all machines share."""
    monitoring = settings.monitoring
    yield ApiCallersProbe(store, clock, monitoring.refused_callers_after)
    yield CatalogueProbe(store, clock, is_production=settings.status.environment == "production")
    yield OverdueResultsProbe(queries, clock, timedelta(seconds=monitoring.lis_silent_after))
