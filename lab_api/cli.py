"""`lab-api`: serve the laboratory's API, and create tokens and hashes for clients in the settings."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab_agent.catalogue.label_allocation import HighWaterMark, LabelAllocator, check_contracts
from lab_agent.queue.store_watch import StoreWatch
from lab_agent.result_bootstrap import SystemClock
from lab_agent.settings.root import ApiGroups, load_groups
from lab_agent.shared import logs
from lab_agent.shared.errors import LabAgentError
from lab_agent.shared.stop_signals import StopSignals
from lab_agent.shared.text import escape_unprintable
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditChannel
from lab_agent.store.crypto import Passwords, hash_token, new_token
from lab_agent.store.opening import open_store
from lab_agent.store.schema_versions import head_revision
from lab_agent.store.unit_of_work import Store
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.catalogue_sync import CatalogueSync
from lab_api.hosted_documents import HostedDocuments
from lab_api.metrics import ApiMetrics
from lab_api.observation import Observation
from lab_api.presence import ApiPresence
from lab_api.rate_limit import SharedTokenBuckets, TokenBuckets
from lab_api.refusals import RefusalCounter
from lab_api.server import ApiServer, listen
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from lab_api.waiting import wait_for_store

app = typer.Typer(
    name="lab-api",
    help="The laboratory's public API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="LAB_AGENT_CONFIG", help="Settings file (TOML).")]
_stderr = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


@app.command()
def run(config: ConfigOption) -> None:
    """Serve until SIGTERM. A new catalogue is served once it is imported; SIGHUP checks for one at once."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    settings = load_groups(ApiGroups, config)
    logs.configure(settings.logging)
    with closing(listen(settings.api)) as sock:
        asyncio.run(_run(settings, sock))


async def _run(settings: ApiGroups, sock: socket.socket) -> None:
    with StopSignals() as signals:
        if not await wait_for_store(settings.store, settings.api.prefix, sock, signals.received):
            return
        store = open_store(settings.store, origin=find_origin(AuditChannel.API))
        try:
            server = await _build_server(settings, store)
            signals.pass_to(server.stop)
            await server.run_until_stopped(sock)
        finally:
            await store.close()


async def _build_server(settings: ApiGroups, store: Store) -> ApiServer:
    api = settings.api
    sync = CatalogueSync(store, api.catalogue, _now)
    current_catalogue = await sync.open()
    keys = tuple(key.get_secret_value() for key in settings.store.encryption_keys)
    signed = SignedTokens(keys, api.token_lifetime, _now) if api.oauth else None
    clients = Clients(api.tokens, api.basic, lambda: sync.tokens, signed, _now)
    tokens = TokenEndpoint(lambda: sync.tokens, signed, _now) if signed else None
    labels = LabelAllocator(store, api.label_pools, HighWaterMark(api.label_mark) if api.label_mark else None, _now)
    _log_warnings(
        settings,
        sync,
        [str(each) for each in check_contracts(current_catalogue.responses.catalogue, settings.exchange.contracts, api)],
    )
    documents = HostedDocuments(store, _now)
    rate_limit = TokenBuckets(api.rate, api.burst)
    refusals = RefusalCounter(store, _now)
    observation = Observation(ApiMetrics(), refusals, lambda: store.health.conditions)
    app = create_app(api, current_catalogue, labels, clients, tokens, documents, rate_limit, observation)
    background = {
        "rate limit": SharedTokenBuckets(store, rate_limit, _now).run,
        "refusals": refusals.run,
        "database watch": StoreWatch(store, SystemClock(), _take_up_again).run,
        "presence": ApiPresence(store, SystemClock(), head_revision(), settings.monitoring.heartbeat_interval).run,
    }
    return ApiServer(app, current_catalogue, sync, api, background)


async def _take_up_again() -> None:
    """Nothing has to be done when the database works again: each part tries it by itself, every few seconds."""


def _log_warnings(settings: ApiGroups, sync: CatalogueSync, disagreements: list[str]) -> None:
    log = logs.get_logger(__name__)
    for reason in disagreements:
        log.warning("settings and catalogue contradict each other", action="api.contracts", reason=reason)
    if not settings.api.tokens and not settings.api.basic and not sync.tokens:
        log.warning("no client can call yet: create one with `lab-agent api-token create`", action="api.no_clients")


def _now() -> datetime:
    return datetime.now(UTC)


@app.command("new-token")
def make_token() -> None:
    """Create a bearer token for the table api.tokens: give the token to the client, and put the hash into the settings."""
    fresh = new_token()
    typer.echo(f"token:  {fresh}\nsha256: {hash_token(fresh)}")


@app.command()
def hash_password(password: Annotated[str, typer.Option(prompt=True, hide_input=True, confirmation_prompt=True)]) -> None:
    """Hash a password for the table api.basic."""
    typer.echo(Passwords().hash(password))


def main() -> None:
    """Run the command line; an error of ours is printed without a traceback, and the exit code is 1."""
    try:
        app()
    except LabAgentError as exc:
        _stderr.print(escape_unprintable(str(exc)))
        raise SystemExit(1) from exc
