"""The composition root: settings in, running parts out. Nothing is wired elsewhere; its keyword overrides are the test seam."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from lab_agent.catalogue.catalogue_cache import CatalogueCache
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.exchange.service import Exchange
from lab_agent.lis.laboratory_system import AdapterSource
from lab_agent.lis.registry import AdapterRegistry, load_adapters
from lab_agent.operations.activity import RecentCalls
from lab_agent.operations.exchange_probes import CallDurations
from lab_agent.orders.cancellation import CancelOrderHandler
from lab_agent.orders.ended_orders import EndedOrderChecker
from lab_agent.orders.handover import SubmitOrderHandler
from lab_agent.orders.intake import FetchOrderHandler
from lab_agent.orders.line_lifecycle import LateLineFinder
from lab_agent.orders.line_routing import LineRouter
from lab_agent.orders.order_assessment import OrderAssessor
from lab_agent.orders.order_decision import DecisionPolicy
from lab_agent.orders.order_reading import OrderReader
from lab_agent.orders.polling import OrderPoller
from lab_agent.orders.rejection_breaker import RejectionBreaker
from lab_agent.orders.task_reconciliation import Reconciler
from lab_agent.orders.task_standing import TaskInspector
from lab_agent.orders.task_updates import TaskUpdateHandler
from lab_agent.queue.job_handler import AnyJobHandler
from lab_agent.queue.job_records import JobKind
from lab_agent.result_bootstrap import SystemClock, build_code_systems, build_matcher, build_planning, build_version_horizon
from lab_agent.results.delivery import DeliverReportHandler
from lab_agent.results.document_service import DocumentService
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.own_reports import OwnReports
from lab_agent.results.result_matching import MatchReportHandler
from lab_agent.rules.engine import check_severities
from lab_agent.rules.translations import load_messages
from lab_agent.settings.root import Settings
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import SettingsError
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import worker_name
from lab_agent.shared.metrics import CallOutcome, Metrics
from lab_agent.store.audit_records import AuditOrigin
from lab_agent.store.opening import open_store
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store


@dataclass(frozen=True, slots=True)
class Components:
    """The parts that everything else is built from. Tests replace single ones."""

    settings: Settings
    clock: Clock
    store: Store
    queries: Queries
    exchange: Exchange
    authenticator: Authenticator
    adapters: AdapterRegistry
    catalogue_cache: CatalogueCache
    metrics: Metrics
    owner: str
    call_durations: CallDurations = field(default_factory=CallDurations)
    recent_calls: RecentCalls = field(default_factory=RecentCalls)
    mapping_cache: MappingCache = field(default_factory=lambda: MappingCache(None))
    config: Path | None = None
    """The settings file, where there is one."""


@asynccontextmanager
async def open_components(
    settings: Settings,
    *,
    store: Store | None = None,
    wrap_exchange: Callable[[Exchange], Exchange] = lambda exchange: exchange,
    clock: Clock | None = None,
    config: Path | None = None,
    origin: AuditOrigin | None = None,
) -> AsyncIterator[Components]:
    """Open everything that a command or the daemon needs, and close it again. `origin` is as in `open_store`."""
    clock = clock or SystemClock()
    opened = open_store(settings.store, origin=origin) if store is None else store
    owner = worker_name(socket.gethostname())
    metrics, call_durations, recent_calls = Metrics(), CallDurations(), RecentCalls()

    def observe_call(operation: str, outcome: CallOutcome, seconds: float) -> None:
        metrics.record_exchange_call(operation, outcome, seconds)
        call_durations.record(operation, outcome, seconds)
        if outcome is CallOutcome.OK:
            recent_calls.record_call(clock.now(), seconds)

    async with HttpClient(http_options(settings.exchange)) as http:
        authenticator = Authenticator(settings.exchange.oauth, http, opened, clock, owner)
        try:
            yield Components(
                settings=settings,
                clock=clock,
                store=opened,
                queries=Queries(opened),
                exchange=wrap_exchange(ExchangeClient(settings.exchange, http, authenticator, on_call=observe_call)),
                authenticator=authenticator,
                adapters=build_adapters(settings, metrics),
                catalogue_cache=CatalogueCache(opened, settings.api.catalogue, build_version_horizon(settings), clock),
                mapping_cache=MappingCache(settings.results.mappings),
                metrics=metrics,
                call_durations=call_durations,
                recent_calls=recent_calls,
                owner=owner,
                config=config,
            )
        finally:
            await authenticator.aclose()
            if opened is not store:
                await opened.close()


def build_adapters(settings: Settings, metrics: Metrics | None = None) -> AdapterRegistry:
    """Load the LIS adapters. Never raises: one that could not be loaded is a status with its reason."""
    lis = settings.lis
    return load_adapters(lis.tables, lis.default, call_timeout=lis.call_timeout, metrics=metrics)


def adapter_encoding(settings: Settings, name: str) -> str | None:
    """The code page of an adapter's messages, where its table names one: for showing what could not be read."""
    table = settings.lis.tables.get(name, {})
    encoding = table.get("received_encoding", table.get("encoding"))
    return encoding if isinstance(encoding, str) else None


def build_handlers(components: Components, adapters: AdapterSource) -> dict[JobKind, AnyJobHandler]:
    """Build one handler for each kind of job."""
    settings, store, clock, exchange = components.settings, components.store, components.clock, components.exchange
    assessor = build_assessor(components)
    handlers: list[AnyJobHandler] = [
        FetchOrderHandler(
            build_order_reader(components, assessor), clock, assessor, build_decision_policy(settings), settings.worker
        ),
        SubmitOrderHandler(
            clock,
            adapters,
            TaskInspector(exchange, settings.exchange.line_task_codes),
            build_own_reports(components),
            settings.worker,
        ),
        CancelOrderHandler(clock, adapters),
        MatchReportHandler(clock, build_matcher(settings, components.mapping_cache, components.catalogue_cache.view)),
        DeliverReportHandler(
            exchange,
            store,
            clock,
            build_planning(settings, components.mapping_cache, components.catalogue_cache.view),
            DocumentService(settings.results),
            settings.api.public_url if settings.results.documents == "host" else None,
        ),
        TaskUpdateHandler(
            exchange, clock, build_late_lines(components), build_own_reports(components), settings.worker.mixed_order_status
        ),
    ]
    return {kind: handler for handler in handlers for kind in handler.kinds}


def build_order_reader(components: Components, assessor: OrderAssessor) -> OrderReader:
    """Build what reads and assesses an order."""
    settings = components.settings
    return OrderReader(
        components.exchange,
        components.store,
        components.clock,
        assessor,
        settings.worker,
        settings.exchange.base_url,
        build_late_lines(components),
        settings.exchange.line_task_codes,
    )


def build_late_lines(components: Components) -> LateLineFinder:
    """Build what finds lines that come after their order was assessed."""
    settings = components.settings.exchange
    return LateLineFinder(components.exchange, components.store, components.clock, settings.base_url, settings.line_task_codes)


def build_reconciler(components: Components) -> Reconciler:
    """Build what notices changes of Tasks by others."""
    late_lines, own_reports = build_late_lines(components), build_own_reports(components)
    return Reconciler(components.exchange, components.store, components.clock, late_lines, own_reports)


def build_own_reports(components: Components) -> OwnReports:
    """Build what finds our reports, whatever the database knows of them."""
    settings = components.settings
    return OwnReports(components.exchange, components.store, settings.order_system, settings.exchange.base_url)


def build_poller(components: Components) -> OrderPoller:
    """Build what asks for new orders."""
    return OrderPoller(components.exchange, components.store, components.clock, components.settings.exchange.base_url)


def build_ended_orders(components: Components) -> EndedOrderChecker:
    """Build what checks ended orders again."""
    return EndedOrderChecker(components.exchange, components.store, components.clock, build_late_lines(components))


def build_assessor(components: Components) -> OrderAssessor:
    """Build this installation's assessor. Raises `SettingsError` if a severity is set for an unknown rule or not allowed."""
    settings = components.settings
    if problems := check_severities(settings.rules.severities):
        raise SettingsError(problems)
    return OrderAssessor(
        exchange=components.exchange,
        clock=components.clock,
        systems=build_code_systems(settings),
        laboratory=settings.exchange.laboratory,
        contracts=settings.exchange.contracts,
        rules=settings.rules,
        catalogues=components.catalogue_cache.view,
        messages=load_messages(settings.rules.messages, settings.rules.messages_folder),
        service_clock_offset=components.exchange.service_clock_offset,
        clock_tolerance=timedelta(seconds=settings.monitoring.clock_tolerance),
    )


def build_decision_policy(settings: Settings) -> DecisionPolicy:
    """Build what decides an assessed order in this installation."""
    systems = build_code_systems(settings)
    return DecisionPolicy(
        systems=systems,
        router=LineRouter(systems, settings.lis.routes, settings.exchange.contracts, settings.lis.default),
        cancel_whole_order=settings.worker.on_line_error == "cancel_order",
        breaker=RejectionBreaker(settings.rules.refusal_limit, timedelta(seconds=settings.rules.refusal_window)),
    )
