"""Wires what matches and plans results, for those that need nothing else: a trial of messages imports no client, no handlers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from typing_extensions import override

from lab_agent.catalogue.catalogue_cache import CatalogueCache
from lab_agent.catalogue.versions import VersionHorizon
from lab_agent.orders.order_assessment import CatalogueSource
from lab_agent.results.document_service import DocumentService
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.result_checks import ReleaseChecks
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.results.upload_planning import UploadPlanner
from lab_agent.settings.root import Settings
from lab_agent.shared.clock import Clock
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.store.unit_of_work import Store


class SystemClock(Clock):
    """The machine's clock."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


def build_version_horizon(settings: Settings) -> VersionHorizon:
    """How far back this installation needs catalogue versions."""
    return VersionHorizon(timedelta(days=settings.rules.look_back_days), timedelta(seconds=settings.api.cache_lifetime))


def build_code_systems(settings: Settings) -> CodeSystems:
    """Build the code systems of this installation."""
    return CodeSystems(
        base_url=settings.exchange.base_url,
        lab_codes_url=settings.exchange.lab_codes_url,
        second_labels_system=settings.exchange.second_labels_system,
    )


def build_planning(settings: Settings, mappings: MappingCache, catalogues: CatalogueSource) -> UploadPlanner:
    """Build what turns this installation's reports into uploads."""
    return UploadPlanner(
        systems=build_code_systems(settings),
        contracts=settings.exchange.contracts,
        settings=settings.results,
        report_system=settings.report_system,
        observation_system=settings.observation_system,
        order_system=settings.order_system,
        mappings=mappings,
        catalogues=catalogues,
        references=settings.exchange.references,
        own_guid=settings.exchange.laboratory if settings.exchange.grant_own_read else None,
    )


def build_matcher(settings: Settings, mappings: MappingCache, catalogues: CatalogueSource) -> ReportMatcher:
    """Build what finds the order of a report."""
    return ReportMatcher(ReleaseChecks(build_planning(settings, mappings, catalogues), DocumentService(settings.results)))


def build_manual_matcher(settings: Settings, catalogues: CatalogueSource) -> ReportMatcher:
    """Build what matches results by hand, with the mapping tables as they are in their folder now."""
    return build_matcher(settings, MappingCache(settings.results.mappings), catalogues)


async def load_catalogues(settings: Settings, store: Store) -> CatalogueSource:
    """Load the catalogue versions as they are in the store now; for a command, which ends before they change."""
    cache = CatalogueCache(store, None, build_version_horizon(settings), SystemClock())
    await cache.refresh()
    return cache.view
