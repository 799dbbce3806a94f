"""`lab-agent run`: the process around the worker: signals, reload, the status page, and one line at start and end."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from lab_agent import bootstrap, result_bootstrap, worker_bootstrap
from lab_agent.bootstrap import Components
from lab_agent.lis.reloading import ReloadOutcome, ReloadResult
from lab_agent.operations.accounts import Accounts
from lab_agent.operations.activity import ActivityRecorder
from lab_agent.operations.search_filling import SearchFiller
from lab_agent.operations.worker import BackgroundTask, Worker
from lab_agent.orders.audit_trail import note_settings
from lab_agent.orders.order_assessment import reassess
from lab_agent.queue.store_watch import record_outages
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.settings.introspection import iter_plain_values
from lab_agent.settings.root import Settings, load_settings
from lab_agent.settings.status import StatusSettings
from lab_agent.shared import logs, sd_notify, web_server
from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition
from lab_agent.shared.errors import SettingsError, StoreError
from lab_agent.shared.stop_signals import StopSignals
from lab_agent.status.app import create_app
from lab_agent.status.context import AdapterStatus, ConnectionDesk, StatusContext
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditChannel
from lab_agent.store.crypto import Passwords
from lab_agent.store.event_records import Alert
from lab_agent.store.opening import build_cipher
from lab_agent.store.unit_of_work import UnitOfWork
from lab_agent.store_start import StoreStart

log = structlog.get_logger(__name__)

_RELOAD_CONDITIONS = {
    ReloadOutcome.INVALID: ConditionId.LIS_MAP_INVALID,
    ReloadOutcome.NEEDS_RESTART: ConditionId.LIS_NEEDS_RESTART,
}
_RELOADABLE = frozenset({"logging"})
_STATUS_DRAIN_SECONDS = 2.0
"""Seconds that a page may take when everything else has ended."""


async def run(
    settings: Settings,
    config: Path | None = None,
    *,
    replace_components: Callable[[Components], Components] = lambda components: components,
) -> None:
    """Run until SIGTERM or SIGINT. `replace_components` is the test seam.

    While the database cannot be opened, it waits, and the status page says why. Raises `SettingsError` if that page's address
    cannot be bound, `StoreError` and `CryptoError` if the database's URL or keys are invalid, and `BackgroundTaskFailed` if a
    part ended by itself.
    """
    logs.configure(settings.logging)
    # The address is bound before anything else: if that fails, nothing was started.
    with closing(_listen(settings.status)) as sock, StopSignals() as signals:
        _log_address(sock)
        start = StoreStart(settings, AgentLock(settings.store.url))
        try:
            if await start.wait(sock, signals.received):
                await _run(settings, config, replace_components, sock, start, signals)
        finally:
            start.lock.release()


def _listen(status: StatusSettings) -> socket.socket:
    try:
        return web_server.listen(status.host, status.port, settings_group="status")
    except web_server.ListenError as exc:
        alert = AlertKey(ConditionId.AGENT_PORT_TAKEN, f"{status.host}:{status.port}")
        log.critical("condition found", action="condition_found", alert=str(alert), reason=str(exc))
        raise


async def _run(
    settings: Settings,
    config: Path | None,
    replace_components: Callable[[Components], Components],
    sock: socket.socket,
    start: StoreStart,
    signals: StopSignals,
) -> None:
    async with bootstrap.open_components(settings, config=config, origin=find_origin(AuditChannel.AGENT)) as opened:
        components = replace_components(opened)
        if start.outages:
            await components.store.transact(lambda uow: record_outages(uow, start.outages, components.clock.now()))
        await note_settings(components.store, dict(iter_plain_values(settings)), components.clock.now())
        await components.catalogue_cache.reload()
        components.mapping_cache.reload()

        desk = RefusedMessageDesk(components.store, components.clock, components.adapters)
        app = create_app(
            _build_status_context(components, desk, lambda: _missing_tasks(worker), lambda: components.store.health.conditions)
        )
        recorder = ActivityRecorder(components.store, components.queries, components.clock, components.recent_calls)
        background_tasks: dict[str, BackgroundTask] = {
            "status page": partial(web_server.serve, app, sock, drain=_STATUS_DRAIN_SECONDS, on_stop=app.state.change_feed.close),
            "catalogue": components.catalogue_cache.watch,
            "search": SearchFiller(components.store, components.clock).run,
            "activity": recorder.run,
        }
        worker = worker_bootstrap.build_worker(components, background_tasks=background_tasks, told_of_store=start.book)
        _log_unloaded_adapters(components)
        reload = ReloadHandler(settings, config, components)
        signals.pass_to(worker.stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.run)
        reload.end_alerts_of_last_run()
        await worker.run()


def _build_status_context(
    components: Components,
    desk: RefusedMessageDesk,
    missing_tasks: Callable[[], Sequence[str]],
    observed: Callable[[], Sequence[OpenCondition]],
) -> StatusContext:
    """Build what the status page works with."""
    adapters = [
        AdapterStatus(
            name=each.name,
            kind=each.kind,
            loaded=each.is_loaded,
            reason=each.reason,
            encoding=bootstrap.adapter_encoding(components.settings, each.name),
        )
        for each in components.adapters.statuses
    ]
    return StatusContext(
        settings=components.settings.status,
        store=components.store,
        queries=components.queries,
        accounts=Accounts(components.store, Passwords()),
        cipher=build_cipher(components.settings.store),
        metrics=components.metrics,
        clock=components.clock,
        adapters=adapters,
        mode=components.settings.worker.mode,
        create_matcher=partial(result_bootstrap.build_manual_matcher, components.settings, components.catalogue_cache.view),
        assess_order=partial(reassess, components.store, bootstrap.build_assessor(components)),
        refused_messages=desk,
        missing_tasks=missing_tasks,
        connection=ConnectionDesk(
            base_url=components.settings.exchange.base_url,
            grant=components.settings.exchange.oauth.grant,
            scopes=components.settings.exchange.oauth.scope.split(),
            check=components.exchange.check,
            refresh=components.authenticator.refresh,
            forget=components.authenticator.forget,
        ),
        check_adapter=lambda name: components.adapters.get(name).check(),
        rule_severities=dict(components.settings.rules.severities),
        label_pools=components.settings.api.label_pools,
        catalogue=components.catalogue_cache.view,
        observed_conditions=observed,
    )


def update_reload_alert(uow: UnitOfWork, result: ReloadResult, now: datetime) -> None:
    """Open the alert that an adapter goes on with its old map, or close it."""
    for outcome, condition in _RELOAD_CONDITIONS.items():
        if result.outcome is outcome:
            detail = result.reason or ""
            open_alert(uow, Alert(condition=condition, subject=result.name, detail=detail, since=now, opened_at=now))
        else:
            close_alert(uow, AlertKey(condition, result.name), now)


def _missing_tasks(worker: Worker) -> list[str]:
    """The parts of the worker that should run and do not."""
    running = {task.get_name() for task in asyncio.all_tasks()}
    return [name for name in worker.task_names if name not in running]


def _log_unloaded_adapters(components: Components) -> None:
    """Say at the start which laboratory systems are left out: the others work, and an alert stays open until it is mended."""
    for each in components.adapters.statuses:
        if not each.is_loaded:
            log.error("adapter not loaded", action="adapter_not_loaded", adapter=each.name, reason=each.reason)


def _log_address(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    log.info("the status page listens", action="status_listens", host=host, port=port)


@dataclass(slots=True)
class ReloadHandler:
    """What SIGHUP does: reload catalogue, mapping tables, adapters' maps and log settings; the log names what needs a restart."""

    settings: Settings
    config: Path | None
    components: Components
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def run(self) -> None:
        """Reload. Settings that cannot be read leave everything as it is, with one log line about it."""
        sd_notify.notify_reloading(time.monotonic_ns() // 1000)
        try:
            new = load_settings(self.config)
        except SettingsError as exc:
            key = AlertKey(ConditionId.SETTINGS_INVALID)
            log.error("settings not reloaded", action="reload_rejected", alert=str(key), reason=str(exc))  # noqa: TRY400 - a fault in the file needs no traceback
            self._start_task(self._update_settings_alert(str(exc)))
        else:
            self._apply(new)
            self._start_task(self._update_settings_alert(None))
        self.components.catalogue_cache.request_reload()
        self.components.mapping_cache.reload()
        self._start_task(self._reload_adapters())

    def end_alerts_of_last_run(self) -> None:
        """End the alerts about maps that could not be reloaded: this run has read them anew, or says why it could not."""
        known = [ReloadResult(name=name, outcome=ReloadOutcome.UNCHANGED) for name, _ in self.components.adapters.running()]
        self._start_task(self._update_alerts(known))
        self._start_task(self._update_settings_alert(None))  # this run has started with them

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_adapters(self) -> None:
        try:
            results = await self.components.adapters.reload()
            for each in results:
                write = log.warning if each.outcome is ReloadOutcome.INVALID else log.info
                write("adapter reloaded", action="adapter_reloaded", adapter=each.name, outcome=each.outcome, reason=each.reason)
            await self._update_alerts(results)
        finally:
            sd_notify.notify_ready("working")

    async def _update_alerts(self, results: Sequence[ReloadResult]) -> None:
        now = self.components.clock.now()

        def update(uow: UnitOfWork) -> None:
            for each in results:
                update_reload_alert(uow, each, now)

        await self._write(update)

    async def _update_settings_alert(self, reason: str | None) -> None:
        """Open the alert that the settings are not valid, with what is wrong with them, or close it."""
        now = self.components.clock.now()

        def update(uow: UnitOfWork) -> None:
            if reason is None:
                close_alert(uow, AlertKey(ConditionId.SETTINGS_INVALID), now)
            else:
                uow.alerts.open(Alert(condition=ConditionId.SETTINGS_INVALID, detail=reason, since=now, opened_at=now))

        await self._write(update)

    async def _write(self, update: Callable[[UnitOfWork], None]) -> None:
        try:
            await self.components.store.transact(update)
        except StoreError as exc:
            log.warning("alerts about a reload not updated", action="reload_alert_failed", error=exc)

    def _apply(self, new: Settings) -> None:
        logs.configure(new.logging)
        changed = [name for name in type(new).model_fields if getattr(new, name) != getattr(self.settings, name)]
        waiting = sorted(set(changed) - _RELOADABLE)
        log.info("settings reloaded", action="reloaded", changed=sorted(changed), needs_restart=waiting)
