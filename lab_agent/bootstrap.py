"""The composition root: settings in, running parts out. The only place that wires; its keyword overrides are the test seam."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lab_agent.catalogues.reach import Reach
from lab_agent.catalogues.shelf import CatalogueShelf
from lab_agent.crypto import Cipher
from lab_agent.documents.room import DocumentRoom
from lab_agent.domain.ids import worker_name
from lab_agent.domain.journal import EffectKind
from lab_agent.domain.retry import Backoff
from lab_agent.domain.systems import Systems
from lab_agent.errors import Failure, SettingsError
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.exchange.tokens import Authenticator
from lab_agent.http import HttpClient
from lab_agent.lis.registry import Adapters, load_adapters
from lab_agent.mapping_tables import MappingShelf
from lab_agent.metrics import Metrics
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.ports.views import Views
from lab_agent.rules.judge import check_severities
from lab_agent.rules.messages import messages_of
from lab_agent.settings.root import Settings
from lab_agent.steps.adapters import AdapterSource, NoAdapters
from lab_agent.steps.catch import Catch
from lab_agent.steps.clearing import Clearing
from lab_agent.steps.collect import Collect
from lab_agent.steps.deliver import Deliver
from lab_agent.steps.handler import Handler
from lab_agent.steps.handover import CancelInLis, HandOver
from lab_agent.steps.housekeeping import Housekeeping
from lab_agent.steps.inbox import StoreInbox
from lab_agent.steps.judging import CatalogueSource, Judging
from lab_agent.steps.late_lines import LateLines
from lab_agent.steps.look import LookAtOrder
from lab_agent.steps.match import Match, Matcher
from lab_agent.steps.planning import Planning
from lab_agent.steps.poll import Poll
from lab_agent.steps.reconcile import Reconcile
from lab_agent.steps.tasks import TaskUpdates
from lab_agent.steps.verdict import VerdictPolicy
from lab_agent.steps.waiting import Waiting
from lab_agent.store.migrate import check_schema
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.store.views import SqlViews
from lab_agent.worker.engine import Engine
from lab_agent.worker.groups import make_groups
from lab_agent.worker.outages import Outages
from lab_agent.worker.polling import PollPace
from lab_agent.worker.rounds import LisWatch, PollRound
from lab_agent.worker.ticks import Ticks
from lab_agent.worker.worker import Worker

HOUSEKEEPING_EVERY = 3600.0
WAITING_EVERY = 30.0


class SystemClock:
    """The machine's clock, in UTC."""

    def now(self) -> datetime:
        """Give the time."""
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Parts:
    """What everything else is made of. Tests replace single parts."""

    settings: Settings
    clock: Clock
    store: Store
    views: Views | None
    """None over a store in memory, as a check without a database uses it."""
    exchange: Exchange
    authenticator: Authenticator
    adapters: Adapters
    catalogues: CatalogueShelf
    metrics: Metrics
    owner: str
    mappings: MappingShelf = field(default_factory=lambda: MappingShelf(None))


def open_store(settings: Settings) -> SqlStore:
    """Open the store. Raises `SchemaMismatchError` where the schema is not this program's, `CryptoError`, `StoreError`."""
    check_schema(settings.store.url)
    return SqlStore(settings.store.url, cipher(settings))


def cipher(settings: Settings) -> Cipher:
    """The keys that seal what must not be read from the database."""
    return Cipher(*(key.get_secret_value() for key in settings.store.encryption_keys))


@asynccontextmanager
async def connect(
    settings: Settings,
    *,
    store: Store | None = None,
    exchange: Callable[[Exchange], Exchange] = lambda port: port,
    clock: Clock | None = None,
) -> AsyncIterator[Parts]:
    """Open everything that a command or the daemon needs, and close it again."""
    clock = clock or SystemClock()
    opened = open_store(settings) if store is None else store
    owner = worker_name(socket.gethostname())
    metrics = Metrics()
    async with HttpClient(http_options(settings.exchange)) as http:
        authenticator = Authenticator(settings.exchange.oauth, http, opened, clock, owner)
        try:
            yield Parts(
                settings=settings,
                clock=clock,
                store=opened,
                views=SqlViews(opened) if isinstance(opened, SqlStore) else None,
                exchange=exchange(ExchangeClient(settings.exchange, http, authenticator, heard=metrics.called)),
                authenticator=authenticator,
                adapters=adapters(settings, metrics),
                catalogues=CatalogueShelf(opened, settings.api.catalogue, reach(settings), clock),
                mappings=MappingShelf(settings.results.mappings),
                metrics=metrics,
                owner=owner,
            )
        finally:
            await authenticator.aclose()
            if isinstance(opened, SqlStore) and opened is not store:
                await opened.close()


def adapters(settings: Settings, metrics: Metrics | None = None) -> Adapters:
    """Load the LIS adapters. Never raises: what could not be loaded is a status with its reason."""
    lis = settings.lis
    return load_adapters(lis.tables, lis.default, call_timeout=lis.call_timeout, metrics=metrics)


def reach(settings: Settings) -> Reach:
    """How far back catalogue versions are needed in this installation."""
    return Reach(timedelta(days=settings.rules.look_back_days), timedelta(seconds=settings.api.cache_lifetime))


def systems(settings: Settings) -> Systems:
    """The code systems of this installation."""
    return Systems(
        base_url=settings.exchange.base_url,
        lab_codes_url=settings.exchange.lab_codes_url,
        second_labels_system=settings.exchange.second_labels_system,
    )


def handlers(parts: Parts, adapters: AdapterSource) -> dict[EffectKind, Handler]:
    """One handler for each kind of effect."""
    settings, store, clock, exchange = parts.settings, parts.store, parts.clock, parts.exchange
    made: list[Handler] = [
        LookAtOrder(exchange, store, clock, judging(parts), policy(settings), settings.worker, settings.exchange.base_url),
        HandOver(store, clock, adapters, settings.worker.acknowledge_status),
        CancelInLis(store, clock, adapters),
        Match(clock, matcher(settings, parts.mappings, parts.catalogues.view)),
        Deliver(
            exchange,
            store,
            clock,
            planning(settings, parts.mappings, parts.catalogues.view),
            DocumentRoom(settings.results),
            settings.api.public_url if settings.results.documents == "host" else None,
        ),
        TaskUpdates(exchange, store, clock, late_lines(parts)),
    ]
    return {kind: handler for handler in made for kind in handler.kinds}


def planning(settings: Settings, mappings: MappingShelf, catalogues: CatalogueSource) -> Planning:
    """How this installation's reports become uploads."""
    return Planning(
        systems=systems(settings),
        contracts=settings.exchange.contracts,
        settings=settings.results,
        report_system=settings.report_system,
        observation_system=settings.observation_system,
        mappings=mappings,
        catalogues=catalogues,
    )


def matcher(settings: Settings, mappings: MappingShelf, catalogues: CatalogueSource) -> Matcher:
    """What finds the order of a report; also for the desk."""
    return Matcher(Clearing(planning(settings, mappings, catalogues), DocumentRoom(settings.results)))


def desk_matcher(settings: Settings, catalogues: CatalogueSource) -> Matcher:
    """What matches results at the match desk, with the mapping tables as they lie in their folder now."""
    return matcher(settings, MappingShelf(settings.results.mappings), catalogues)


async def desk_catalogues(settings: Settings, store: Store) -> CatalogueSource:
    """The catalogue versions as they lie in the store now; for a command, which ends before they change."""
    shelf = CatalogueShelf(store, None, reach(settings), SystemClock())
    await shelf.refresh()
    return shelf.view


def late_lines(parts: Parts) -> LateLines:
    """What finds the lines that come after their order was judged."""
    return LateLines(parts.exchange, parts.store, parts.clock, parts.settings.exchange.base_url)


def judging(parts: Parts) -> Judging:
    """The judge of this installation. Raises `SettingsError` where its rules are set in a way that is not possible."""
    settings = parts.settings
    if problems := check_severities(settings.rules.severities):
        raise SettingsError(problems)
    return Judging(
        exchange=parts.exchange,
        store=parts.store,
        clock=parts.clock,
        systems=systems(settings),
        laboratory=settings.exchange.laboratory,
        contracts=settings.exchange.contracts,
        rules=settings.rules,
        catalogues=parts.catalogues.view,
        messages=messages_of(settings.rules.messages, settings.rules.messages_folder),
    )


def policy(settings: Settings) -> VerdictPolicy:
    """What follows upon a judgement in this installation."""
    return VerdictPolicy(
        systems=systems(settings),
        contracts=settings.exchange.contracts,
        default_adapter=settings.lis.default,
        cancel_whole_order=settings.worker.on_line_error == "cancel_order",
        catch=Catch(settings.rules.refusal_limit, timedelta(seconds=settings.rules.refusal_window)),
    )


def make_worker(
    parts: Parts,
    *,
    adapters: AdapterSource | None = None,
    side_tasks: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
) -> Worker:
    """The daemon's worker. `side_tasks` run beside it by name, until it ends; one that ends by itself stops it."""
    settings, store, clock = parts.settings, parts.store, parts.clock
    observe = settings.worker.mode == "observe"
    # Observing writes nothing anywhere, so no laboratory system is even started: one that pushes would be acknowledged (law 10).
    lis: AdapterSource = NoAdapters() if observe else parts.adapters if adapters is None else adapters
    outages = Outages(store, clock, lambda: _answers(parts.exchange))
    engine = Engine(
        store=store,
        clock=clock,
        handlers=handlers(parts, lis),
        outages=outages,
        owner=parts.owner,
        lease=timedelta(seconds=settings.worker.lease),
        backoff=Backoff(settings.worker.backoff_first, settings.worker.backoff_longest),
        luck=random.Random().random,  # noqa: S311 - jitter, no secret
        tried=parts.metrics.tried,
    )
    groups = make_groups(engine, outages, width=settings.worker.concurrency, observe=observe)
    ticks = Ticks(outages)
    poll = PollRound(
        poll=Poll(parts.exchange, store, clock, settings.exchange.base_url),
        outages=outages,
        store=store,
        clock=clock,
        metrics=parts.metrics,
        pace=PollPace(settings.worker.poll_interval, settings.worker.poll_longest),
        again_in=lambda seconds: ticks.postpone("poll", seconds),
        nudge=groups.nudge,
    )
    watch = LisWatch(outages, store, clock, groups.nudge)
    rounds = {
        "poll": (settings.worker.poll_interval, poll.run),
        "collect": (settings.lis.collect_interval, Collect(lis, watch.told).run),
        "reconcile": (
            settings.worker.reconcile_interval,
            Reconcile(parts.exchange, store, clock, late_lines(parts)).run,
        ),
        "waiting": (WAITING_EVERY, Waiting(store, clock).run),
        "housekeeping": (HOUSEKEEPING_EVERY, Housekeeping(store, clock, settings.retention, reach(settings).since).run),
    }
    if observe:
        rounds = {"poll": rounds["poll"]}
    return Worker(
        groups=groups,
        ticks=ticks,
        outages=outages,
        adapters=lis,
        inbox_for=lambda name: StoreInbox(store, clock, name, groups.nudge),
        rounds=rounds,
        side_tasks=side_tasks or {},
        drain_timeout=settings.worker.drain_timeout,
    )


async def _answers(exchange: Exchange) -> bool:
    """Whether the service answers a harmless question."""
    try:
        await exchange.check()
    except Failure:
        return False
    return True
