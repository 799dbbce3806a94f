"""Local checks: keys, store, rules, catalogue, API clients and labels, mappings, letterhead, adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from lab_agent import bootstrap
from lab_agent.catalogue.labels import second_label_pattern
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.settings_check import find_route_problems
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.catalogue_service.high_water_mark import HighWaterMark
from lab_agent.catalogue_service.label_allocation import issued_ranges
from lab_agent.catalogue_service.versions import unpack_catalogue
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks, join_sorted
from lab_agent.documents.service import DocumentService
from lab_agent.domain.catalogue_records import ApiToken, CatalogueVersion
from lab_agent.domain.label_pools import LabelPool, find_second_label_pool
from lab_agent.domain.programs import SchemaVersions
from lab_agent.errors import CatalogueError, CryptoError, Failure, LabAgentError, Problem, SettingsError, StoreError
from lab_agent.mappings.loader import MappingsError, load_mapping_tables
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.rules.engine import RULES, check_severities
from lab_agent.rules.translations import load_messages
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import Settings
from lab_agent.store.engine import sqlite_file
from lab_agent.store.integrity import check_integrity
from lab_agent.store.key_rotation import count_older
from lab_agent.store.missing_database import MissingDatabase, find_missing_database
from lab_agent.store.opening import build_cipher, open_store
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow.attention_alerts import find_removed_adapters

_KEYS_OF_A_ROTATION = 2
_LOCK_PATIENCE = 2.0
"""Seconds that the check waits for a database that another program has locked: who looks wants to know."""


@dataclass(frozen=True, slots=True)
class LocalChecks:
    """What was found; whether the store can be read, and what is wrong with it, if it was tried and could not."""

    results: list[CheckResult]
    has_store: bool
    store_error: LabAgentError | None


async def check_local(settings: Settings, *, offline: bool) -> LocalChecks:
    """Run all local checks; `offline` skips database servers and laboratory systems."""
    found, snapshot, error = _check_encryption_key(settings), None, None
    if found[0].status is CheckStatus.OK:
        store_results, snapshot, error = await _check_store(settings, offline=offline)
        found += store_results
    found += await _check_files(settings, snapshot, offline=offline)
    found += _check_removed_adapters(settings, snapshot.waiting_lines if snapshot else {})
    return LocalChecks(found, snapshot is not None, error)


async def check_files(settings: Settings) -> list[CheckResult]:
    """Check the keys, and what the settings say and name; neither the database nor anything beyond this machine is asked."""
    return [*_check_encryption_key(settings), *await _check_files(settings, None, offline=True)]


async def _check_files(settings: Settings, snapshot: StoreSnapshot | None, *, offline: bool) -> list[CheckResult]:
    found = _check_rules(settings)
    found += await asyncio.to_thread(_check_api, settings, snapshot)
    found += await asyncio.to_thread(_check_mappings, settings)
    found += await asyncio.to_thread(_check_printed_reports, settings)
    found += await _check_adapters(settings, offline=offline)
    return [*found, _check_notifications(settings)]


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What is read from the store: the active catalogue, the valid tokens, labels issued from each pool, and how many
    lines wait at each laboratory system."""

    active_version: CatalogueVersion | None
    valid_tokens: tuple[ApiToken, ...]
    labels_issued: Mapping[LabelPool, Mapping[int, int]]
    waiting_lines: Mapping[str, int]


class ContractScoped(Protocol):
    """An API client or pool restricted to contracts; None is all of them."""

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def contracts(self) -> tuple[str, ...] | None:
        """The contract codes."""
        ...


def _read_snapshot(uow: UnitOfWork, settings: Settings) -> StoreSnapshot:
    """Read the store without writing: the unit of work is not committed."""
    now = datetime.now(UTC)
    tokens = tuple(each for each in uow.api_tokens.all() if each.is_valid(now))
    issued = {pool: uow.issued_labels.lock_ranges(pool.pattern, pool.first) for pool in settings.api.label_pools}
    return StoreSnapshot(uow.catalogues.newest(), tokens, issued, uow.orders.waiting_lines())


def _check_api(settings: Settings, snapshot: StoreSnapshot | None) -> list[CheckResult]:
    """Check the catalogue, the API clients and the labels; without a store, what the settings alone allow."""
    active, found = _check_active_catalogue(settings, snapshot.active_version) if snapshot else (None, [])
    from_folder, folder_results = _check_catalogue_folder(settings, active)
    found += folder_results
    catalogue = active or from_folder
    tokens = snapshot.valid_tokens if snapshot else ()
    if catalogue:
        found += _check_contracts(settings, catalogue, tokens)
        found += _check_routes(settings, catalogue)
        found += _check_second_labels_system(settings, catalogue)
        found += _check_second_pools(settings.api.label_pools, catalogue)
    found += _check_api_clients(settings, tokens)
    return found + (list(_check_label_pools(settings, snapshot.labels_issued)) if snapshot else [])


def _check_active_catalogue(
    settings: Settings, active_version: CatalogueVersion | None
) -> tuple[Catalogue | None, list[CheckResult]]:
    what = "active catalogue"
    if active_version is None:
        folder = settings.api.catalogue
        hint = f"`lab-api run` and `lab-agent run` import {folder}" if folder else "run `lab-agent catalogue import SOURCE`"
        return None, [CheckResult(what, CheckStatus.TODO, "the store has none yet", hint)]
    try:
        catalogue = unpack_catalogue(active_version)
    except CatalogueError as exc:
        return None, failed_checks(what, exc)
    since = active_version.since.astimezone().isoformat(" ", "minutes")
    return catalogue, [
        CheckResult(
            what,
            CheckStatus.OK,
            f"version {active_version.version} from {active_version.origin} since {since}, {_describe_contracts(catalogue)}",
        )
    ]


def _check_catalogue_folder(settings: Settings, active: Catalogue | None) -> tuple[Catalogue | None, list[CheckResult]]:
    folder = settings.api.catalogue
    if folder is None:
        return None, []
    if not folder.exists():
        hint = "put the laboratory's CSV files there, or set api.catalogue"
        return None, [CheckResult("catalogue", CheckStatus.TODO, f"the folder {folder} does not exist yet", hint)]
    try:
        catalogue = load_catalogue(folder)
    except CatalogueError as exc:
        return None, failed_checks("catalogue", exc)
    except OSError as exc:
        return None, [CheckResult("catalogue", CheckStatus.WRONG, f"{exc.filename or folder}: {exc.strerror}")]
    if active and active.version != catalogue.version:
        hint = f"`lab-agent catalogue diff {folder}` shows how; a start imports it if it changed since the last import"
        return catalogue, [CheckResult("catalogue", CheckStatus.OK, f"{folder} differs from the active catalogue", hint)]
    return catalogue, [CheckResult("catalogue", CheckStatus.OK, f"{folder}, {_describe_contracts(catalogue)}")]


def _describe_contracts(catalogue: Catalogue) -> str:
    return join_sorted(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())


def _check_routes(settings: Settings, catalogue: Catalogue) -> list[CheckResult]:
    """Check what `[[lis.routes]]` names; nothing where there are none."""
    routes = settings.lis.routes
    problems = find_route_problems(catalogue, routes)
    ok = [CheckResult("routes", CheckStatus.OK, join_sorted({each.adapter for each in routes}))] if routes else []
    return [CheckResult("routes", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in problems] or ok


def _check_contracts(settings: Settings, catalogue: Catalogue, tokens: tuple[ApiToken, ...]) -> list[CheckResult]:
    configured, offered = set(settings.exchange.contracts), set(catalogue.contracts)
    scoped: list[ContractScoped] = [*settings.api.pools, *_api_clients(settings, tokens)]
    allowed = {code for each in scoped for code in each.contracts or ()}
    found = []
    if missing := configured - offered:
        hint = "add them to the sheet contracts, or remove them from the settings"
        found.append(CheckResult("contracts", CheckStatus.WRONG, f"not in the catalogue: {join_sorted(missing)}", hint))
    if extra := offered - configured:
        hint = "add [exchange.contracts.<code>]: orders under other contracts are held"
        found.append(CheckResult("contracts", CheckStatus.WRONG, f"only in the catalogue: {join_sorted(extra)}", hint))
    if unknown := allowed - offered:
        hint = "correct api.tokens, api.basic or api.pools, or revoke the token (`lab-agent api-token list`)"
        found.append(
            CheckResult(
                "contracts", CheckStatus.WRONG, f"API clients or pools name unknown contracts: {join_sorted(unknown)}", hint
            )
        )
    if found:
        return found
    if not configured:
        return [CheckResult("contracts", CheckStatus.OK, "none", "set [exchange.contracts.<code>]")]
    return [CheckResult("contracts", CheckStatus.OK, join_sorted(configured))]


def _api_clients(settings: Settings, tokens: tuple[ApiToken, ...]) -> list[ContractScoped]:
    return [*settings.api.tokens, *settings.api.basic, *tokens]


def _check_api_clients(settings: Settings, tokens: tuple[ApiToken, ...]) -> list[CheckResult]:
    clients = _api_clients(settings, tokens)
    if not clients:
        hint = "run `lab-agent api-token create NAME`, or add [[api.tokens]] or [[api.basic]]"
        return [CheckResult("API clients", CheckStatus.TODO, "none yet: nobody can call the API", hint)]
    visible = {code for each in clients for code in (settings.exchange.contracts if each.contracts is None else each.contracts)}
    if unseen := set(settings.exchange.contracts) - visible:
        hint = f"run `lab-agent api-token create NAME --contract {min(unseen)}`"
        return [CheckResult("API clients", CheckStatus.WRONG, f"no client may see {join_sorted(unseen)}", hint)]
    return [CheckResult("API clients", CheckStatus.OK, join_sorted({each.name for each in clients}))]


def _check_second_labels_system(settings: Settings, catalogue: Catalogue) -> Iterator[CheckResult]:
    """Report studies with a second barcode whose system is not set: their orders are held."""
    offered = (item for contract in catalogue.contracts.values() for item in contract.items.values())
    studies = {item.id for item in offered if second_label_pattern(item)}
    if studies and settings.exchange.second_labels_system is None:
        what = f"studies with a second barcode, whose system is not set: {join_sorted(studies)}"
        yield CheckResult("second barcodes", CheckStatus.WRONG, what, "Set `exchange.second_labels_system`.")


def _check_second_pools(pools: tuple[LabelPool, ...], catalogue: Catalogue) -> Iterator[CheckResult]:
    """Report pools of second barcodes that no test uses, which nobody would notice before orders are rejected."""
    needed = {
        (code, pattern)
        for code, each in catalogue.contracts.items()
        for item in each.items.values()
        if (pattern := second_label_pattern(item))
    }
    serving = {pool for code, pattern in needed if (pool := find_second_label_pool(pools, code, pattern))}
    for pool in pools:
        if pool.second and pool not in serving:
            patterns = join_sorted({str(pattern) for _, pattern in needed}) or "none"
            hint = f"give it a pattern that tests need ({patterns}), or remove it"
            yield CheckResult(f"labels {pool.name}", CheckStatus.WRONG, "second barcodes that no test uses", hint)


def _check_label_pools(settings: Settings, issued: Mapping[LabelPool, Mapping[int, int]]) -> Iterator[CheckResult]:
    try:
        marks = HighWaterMark(settings.api.label_mark).read() if settings.api.label_mark else {}
    except StoreError as exc:
        yield from failed_checks("labels", exc)
        return
    for pool, following in issued.items():
        yield _label_pool_result(pool, pool.remaining(issued_ranges(pool, following, marks)))


def _label_pool_result(pool: LabelPool, remaining: int) -> CheckResult:
    what, hint = f"labels {pool.name}", "add a new range to the settings ([[api.pools]])"
    if not remaining:
        return CheckResult(what, CheckStatus.WRONG, "exhausted: pre-analytics requests are answered with 503", hint)
    if remaining < pool.warn_below:
        return CheckResult(what, CheckStatus.TODO, f"{remaining} left", hint)
    return CheckResult(what, CheckStatus.OK, f"{remaining} left")


def _check_encryption_key(settings: Settings) -> list[CheckResult]:
    try:
        build_cipher(settings.store)
    except CryptoError as exc:
        return failed_checks("encryption key", exc)
    number = len(settings.store.encryption_keys)
    return [CheckResult("encryption key", CheckStatus.OK, f"{number} key{'s' if number > 1 else ''}")]


def _check_missing_database(missing: MissingDatabase) -> tuple[list[CheckResult], None, LabAgentError | None]:
    """One that is lost is wrong; one that was never made is still to be done."""
    if missing.remains is not None:
        error = missing.to_error()
        return failed_checks("store", error), None, error
    return (
        [CheckResult("store", CheckStatus.TODO, f"{missing.file} does not exist yet", "run `lab-agent db upgrade`")],
        None,
        None,
    )


async def _check_store(
    settings: Settings, *, offline: bool
) -> tuple[list[CheckResult], StoreSnapshot | None, LabAgentError | None]:
    address = mask_url_password(settings.store.url)
    if sqlite_file(settings.store.url) is None and offline:
        return [CheckResult("store", CheckStatus.SKIPPED, address)], None, None
    if (missing := find_missing_database(settings)) is not None:
        return _check_missing_database(missing)
    try:
        store = open_store(settings.store, patience=_LOCK_PATIENCE)
        try:
            await store.run(lambda uow: uow.oauth_tokens.current())
            snapshot = await store.run(lambda uow: _read_snapshot(uow, settings))
            await store.probe()
            schema = await store.run_read_only(lambda uow: uow.programs.schema())
            keys = await _check_older_keys(settings, store)
        finally:
            await store.close()
    except CryptoError as exc:
        return [CheckResult("store", CheckStatus.OK, address), *failed_checks("encryption key", exc)], None, exc
    except LabAgentError as exc:
        return failed_checks("store", exc), None, exc
    if (damage := await check_integrity(settings.store)) is not None:
        return failed_checks("store", damage), snapshot, damage
    return [CheckResult("store", CheckStatus.OK, f"{address}, whole, {_describe_schema(schema)}"), *keys], snapshot, None


async def _check_older_keys(settings: Settings, store: SqlStore) -> list[CheckResult]:
    """Say whether the older keys can go, where there are some."""
    if len(settings.store.encryption_keys) < _KEYS_OF_A_ROTATION:
        return []
    if older := await count_older(store, build_cipher(settings.store)):
        hint = "once every program has the newest key as its first: `lab-agent db rotate-keys`"
        return [CheckResult("older keys", CheckStatus.TODO, f"{older} stored values need one", hint)]
    hint = "they can be removed from store.encryption_keys once every program has the newest key as its first"
    return [CheckResult("older keys", CheckStatus.OK, "no stored value needs one", hint)]


def _describe_schema(schema: SchemaVersions) -> str:
    if schema.is_newer:
        return f"schema {schema.database} of a newer version, which serves this one ({schema.program}) too"
    return "schema up to date"


def _check_mappings(settings: Settings) -> list[CheckResult]:
    folder = settings.results.mappings
    if folder is None:
        return []
    try:
        tables = load_mapping_tables(folder)
    except MappingsError as exc:
        return failed_checks("mappings", exc)
    rows = sum(len(table or ()) for table in (tables.codes, tables.units, tables.answers))
    return [CheckResult("mappings", CheckStatus.OK, f"{folder}, {rows} rows")]


def _check_printed_reports(settings: Settings) -> list[CheckResult]:
    if not settings.results.print_reports:
        return []
    problems = DocumentService(settings.results).problems()
    ok = CheckResult("printed reports", CheckStatus.OK, "the letterhead is valid")
    return [CheckResult("printed reports", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in problems] or [
        ok
    ]


def _check_rules(settings: Settings) -> list[CheckResult]:
    problems = (*check_severities(settings.rules.severities), *_rule_message_problems(settings))
    changed = len(settings.rules.severities)
    ok = CheckResult("rules", CheckStatus.OK, f"{len(RULES)} rules, {changed} with a configured severity")
    return [CheckResult("rules", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in problems] or [ok]


def _rule_message_problems(settings: Settings) -> tuple[Problem, ...]:
    try:
        load_messages(settings.rules.messages, settings.rules.messages_folder)
    except SettingsError as exc:
        return exc.problems
    return ()


def _check_notifications(settings: Settings) -> CheckResult:
    """Say who is told of what goes wrong; what none of them can tell, the dead man's switch does."""
    channels = [name for name, _ in settings.notify.channels()]
    if channels:
        return CheckResult("notifications", CheckStatus.OK, join_sorted(channels))
    detail = "no channel is set: nobody is told what goes wrong"
    hint = "add a table such as [notify.email.it] (docs/notifications.md), then `lab-agent alert test`"
    return CheckResult("notifications", CheckStatus.TODO, detail, hint)


def _check_removed_adapters(settings: Settings, waiting_lines: Mapping[str, int]) -> list[CheckResult]:
    """Report tables that were removed while their laboratory systems still have lines of ours."""
    hint = "add the table again until their results are in; `lab-agent orders list` shows which orders are there"
    removed = find_removed_adapters(settings.lis.tables, waiting_lines)
    return [
        CheckResult(f"adapter {name}", CheckStatus.WRONG, f"no table [lis.{name}]; lines there wait for results: {number}", hint)
        for name, number in removed.items()
    ]


async def _check_adapters(settings: Settings, *, offline: bool) -> list[CheckResult]:
    adapters = bootstrap.build_adapters(settings)
    loaded = dict(adapters.running())
    found = []
    for status in adapters.statuses:
        what = f"adapter {status.name}"
        if status.problems:
            found += [CheckResult(what, CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in status.problems]
        elif offline:
            found.append(CheckResult(what, CheckStatus.OK, "loaded; the laboratory system was not contacted"))
        else:
            try:
                await loaded[status.name].check()
                found.append(CheckResult(what, CheckStatus.OK, "reachable"))
            except Failure as exc:
                found += failed_checks(what, exc)
    return found
