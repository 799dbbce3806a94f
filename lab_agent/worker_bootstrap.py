"""The composition root of the worker: what runs at intervals and beside the jobs, and what looks at operation."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from datetime import timedelta

from lab_agent.bootstrap import (
    Components,
    build_ended_orders,
    build_handlers,
    build_poller,
    build_reconciler,
)
from lab_agent.exchange.service import Exchange
from lab_agent.lis.laboratory_system import AdapterSource, NoAdapters
from lab_agent.operations.agent import AgentLimits, AgentProbe
from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.operations.clock_watch import ClockWatch
from lab_agent.operations.exchange_probes import ClockProbe, SlownessProbe
from lab_agent.operations.hosts import LivingHosts, OwnHostProbe, SchemaProbe
from lab_agent.operations.monitor import Monitor, Probe
from lab_agent.operations.notification.building import build_notifier
from lab_agent.operations.notification.dead_man import DeadManPing
from lab_agent.operations.notification.memory import MemoryBook
from lab_agent.operations.notification.notifier import Notifier
from lab_agent.operations.presence import Presence, WorkerIdentity
from lab_agent.operations.probe_building import build_machine_probes, build_neighbour_probes, build_own_api_probes
from lab_agent.operations.restore_watch import RestoreWatch
from lab_agent.operations.retention import RetentionPurger
from lab_agent.operations.schedule import LeasedTask, LisHealth, PollInterval, PollTask, ScheduledTask, Scheduler
from lab_agent.operations.search_alerts import SearchAlerts
from lab_agent.operations.worker import BackgroundTask, Worker
from lab_agent.orders.unconfirmed_orders import UnconfirmedOrders
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_queues import list_queues
from lab_agent.queue.job_runner import JobRunner
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.retry import Backoff
from lab_agent.queue.service_hold import ServiceHold
from lab_agent.queue.store_watch import StoreWatch
from lab_agent.result_bootstrap import build_version_horizon
from lab_agent.results.result_inbox import ResultCollector, StoreInbox
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import AnswerTooLarge, Failure, ServicePaused, StoreUnreachableError
from lab_agent.store.schema_versions import head_revision
from lab_agent.store.store_health import name_host
from lab_agent.store.store_mark import open_mark
from lab_agent.store.unit_of_work import Store

RETENTION_INTERVAL = 3600.0
"""Seconds."""
_LEASED_TASKS = ("ended_orders", "reconcile", "retention")
"""What one worker is enough for, where several share a database. The rest is about the worker's own machine and connections:
laboratory systems, the service as it answers here, alerts, the ping. Each polls, as an order may be seen by whoever is first."""
_OBSERVING_TASKS = ("poll", "ended_orders", "attention", "monitor", "searches", "ping")
"""What runs in observe mode, which writes to our own database alone."""


def build_worker(
    components: Components,
    *,
    adapters: AdapterSource | None = None,
    background_tasks: Mapping[str, BackgroundTask] | None = None,
    told_of_store: MemoryBook | None = None,
) -> Worker:
    """Build the daemon's worker. `background_tasks` run beside it by name until it stops; one that ends by itself stops it.

    `told_of_store` is what channels were told of the store before it was open.
    """
    settings = components.settings
    observe = settings.worker.mode == "observe"
    # Observing writes nothing anywhere, so no adapter is even started: a LIS that pushes results would be acknowledged (law 10).
    lis: AdapterSource = NoAdapters() if observe else components.adapters if adapters is None else adapters
    outages = build_outages(components)
    runner = build_runner(components, lis, outages)
    scheduler = Scheduler(outages)
    clock_watch = _build_clock_watch(components, scheduler)
    dispatcher = JobDispatcher(
        list_queues(observe=observe),
        runner,
        outages,
        concurrency=settings.worker.concurrency,
        can_trust_leases=clock_watch.can_trust_leases,
    )
    components.store.on_jobs_due = dispatcher.wake
    scheduled_tasks = _lease_tasks(components, _build_scheduled_tasks(components, lis, outages, scheduler))
    return Worker(
        dispatcher=dispatcher,
        scheduler=scheduler,
        outages=outages,
        presence=_build_presence(components),
        restore_watch=_build_restore_watch(components, dispatcher),
        adapters=lis,
        inbox_for=lambda name: StoreInbox(components.store, components.clock, name),
        scheduled_tasks={name: scheduled_tasks[name] for name in _OBSERVING_TASKS} if observe else scheduled_tasks,
        background_tasks={
            "heartbeat": runner.heartbeat.run,
            "store watch": StoreWatch(components.store, components.clock, dispatcher.look).run,
            "clock watch": clock_watch.run,
            "loop lag": components.metrics.loop_lag.watch,
            "notifications": _build_notifier(components, outages, told_of_store or MemoryBook()).run,
            **(background_tasks or {}),
        },
        drain_timeout=settings.worker.drain_timeout,
    )


def _build_presence(components: Components) -> Presence:
    identity = WorkerIdentity.of_this_process(components.owner, components.settings.worker.mode, head_revision())
    interval = components.settings.monitoring.heartbeat_interval
    return Presence(components.store, components.clock, identity, interval, components.metrics.loop_lag.take_longest)


def _build_restore_watch(components: Components, dispatcher: JobDispatcher) -> RestoreWatch:
    mark, reconciler = open_mark(components.settings.store), build_reconciler(components)
    return RestoreWatch(components.store, components.clock, mark, dispatcher.hold, reconciler.run)


def _build_clock_watch(components: Components, scheduler: Scheduler) -> ClockWatch:
    worker = components.settings.worker
    longest = timedelta(seconds=max(worker.backoff_longest, worker.hold_retry))
    return ClockWatch(components.store, components.clock, scheduler, longest, timedelta(seconds=worker.lease))


def build_outages(components: Components) -> OutageTracker:
    """Build what knows which neighbours are out, and holds back what is sent to a service that answers nothing."""
    exchange, store = components.exchange, components.store
    hold = ServiceHold(exchange, store, components.settings.worker.probe_longest)
    return OutageTracker(store, components.clock, lambda: _is_service_up(exchange), hold=hold)


def build_runner(components: Components, adapters: AdapterSource, outages: OutageTracker) -> JobRunner:
    """Build what runs the jobs."""
    worker = components.settings.worker
    return JobRunner(
        store=components.store,
        clock=components.clock,
        handlers=build_handlers(components, adapters),
        outages=outages,
        owner=components.owner,
        lease=timedelta(seconds=worker.lease),
        backoff=Backoff(worker.backoff_first, worker.backoff_longest),
        random=random.Random().random,  # noqa: S311 - jitter, no secret
        on_attempt=components.metrics.record_attempt,
        on_failure=components.recent_calls.record_failure,
    )


def _build_scheduled_tasks(
    components: Components, adapters: AdapterSource, outages: OutageTracker, scheduler: Scheduler
) -> dict[str, tuple[float, ScheduledTask]]:
    """Build what runs at intervals, by name, with the seconds between two runs."""
    settings, store, clock, exchange = components.settings, components.store, components.clock, components.exchange
    poll = PollTask(
        poll=build_poller(components),
        outages=outages,
        store=store,
        clock=clock,
        metrics=components.metrics,
        interval=PollInterval(settings.worker.poll_interval, settings.worker.poll_longest),
        reschedule=lambda seconds: scheduler.postpone("poll", seconds),
    )
    ended_orders = build_ended_orders(components)  # beside the poll: reads that time out must not stop it
    collector = ResultCollector(adapters, LisHealth(outages, store, clock).on_result)
    reconciler = build_reconciler(components)
    purger = RetentionPurger(store, clock, settings.retention, build_version_horizon(settings).since)
    return {
        "poll": (settings.worker.poll_interval, poll.run),
        "ended_orders": (settings.worker.poll_interval, ended_orders.run),
        "collect": (settings.lis.collect_interval, collector.run),
        "confirm": (settings.lis.collect_interval, UnconfirmedOrders(store, clock, adapters).run),
        "reconcile": (settings.worker.reconcile_interval, reconciler.run),
        "attention": (settings.monitoring.interval, _build_attention(components, outages)),
        "monitor": (settings.monitoring.interval, Monitor(store, clock, build_probes(components)).run),
        "searches": (settings.monitoring.interval, SearchAlerts(exchange, store, clock).run),
        "retention": (RETENTION_INTERVAL, purger.run),
        "ping": (settings.notify.ping.interval, DeadManPing(settings.notify.ping, lambda: _can_work(store, poll)).run),
    }


def _lease_tasks(components: Components, tasks: dict[str, tuple[float, ScheduledTask]]) -> dict[str, tuple[float, ScheduledTask]]:
    """Let one of several workers run what is about the database as a whole."""
    if not _name_shared_host(components.settings):
        return tasks
    store, clock, owner = components.store, components.clock, components.owner
    leased = {}
    for name in _LEASED_TASKS:
        interval, task = tasks[name]
        leased[name] = interval, LeasedTask(name, task, interval, store, clock, owner).run
    return {**tasks, **leased}


def _can_work(store: Store, poll: PollTask) -> bool:
    """Whether the agent works as far as it can tell itself: its database takes what it writes, and it polls."""
    return not (any(each.condition.is_unready for each in store.health.conditions) or poll.is_late())


def _build_notifier(components: Components, outages: OutageTracker, book: MemoryBook) -> Notifier:
    host = _name_shared_host(components.settings)

    async def on_look(failure: Exception | None) -> None:
        if failure is None:
            await outages.end_fault("notifications")
        elif isinstance(failure, StoreUnreachableError):
            await outages.record_failure(failure)
        else:
            await outages.record_fault("notifications", failure)

    return build_notifier(
        components.settings.notify,
        components.store,
        components.clock,
        components.owner,
        queries=components.queries,
        observed=lambda: [name_host(each, host) for each in components.store.health.conditions],
        on_look=on_look,
        book=book,
    )


def build_probes(components: Components, *, once: bool = False) -> tuple[Probe, ...]:
    """Build what looks at operation at regular intervals; `once`, for a command that looks a single time."""
    settings, clock, store = components.settings, components.clock, components.store
    limits = AgentLimits.of(settings.monitoring, settings.worker)
    host, living = _name_shared_host(settings), LivingHosts(limits.stale_after)
    of_this_host: tuple[Probe, ...] = (
        *build_machine_probes(settings, components.config, components.adapters.settings(), clock, store),
        *build_own_api_probes(settings, store, clock, once=once),
        SlownessProbe(components.call_durations, settings.monitoring.slow_after),
        SchemaProbe(store),
    )
    return (
        AgentProbe(store, clock, limits, shares_store=bool(host)),
        *(OwnHostProbe(each, host, store, living) if host else each for each in of_this_host),
        *build_neighbour_probes(settings, store, components.queries, clock),
        _build_clock_probe(components, host, living),
    )


def _name_shared_host(settings: Settings) -> str:
    """Name this machine where several may share the database; a SQLite has one agent, whose machine needs no name."""
    return "" if settings.store.url.startswith("sqlite") else socket.gethostname()


def _build_attention(components: Components, outages: OutageTracker) -> ScheduledTask:
    monitoring = components.settings.monitoring
    adapters = {each.name: each.reason for each in components.adapters.statuses}
    alerts = AttentionAlerts(
        components.store,
        components.clock,
        timedelta(seconds=monitoring.alert_after),
        adapters,
        monitoring.alert_after_attempts,
    )

    async def run() -> None:
        await alerts.run()
        await outages.end_settled_parts()

    return run


async def _is_service_up(exchange: Exchange) -> bool:
    """Whether the service answers a harmless request; one that asks us to wait does."""
    try:
        await exchange.check()
    except (ServicePaused, AnswerTooLarge):
        return True
    except Failure:
        return False
    return True


def _build_clock_probe(components: Components, host: str, living: LivingHosts) -> ClockProbe:
    tolerance = timedelta(seconds=components.settings.monitoring.clock_tolerance)
    return ClockProbe(components.exchange, components.store, components.clock, tolerance, host, living)
