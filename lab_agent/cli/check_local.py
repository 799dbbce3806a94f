"""Local checks: keys, store, rules, mappings, letterhead, adapters; those of the API are in `check_api`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent import bootstrap
from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.cli.check_api import StoreSnapshot, check_api
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks, join_sorted
from lab_agent.operations.attention_alerts import find_removed_adapters
from lab_agent.results.document_service import DocumentService
from lab_agent.results.mapping_loader import MappingsError, load_mapping_tables
from lab_agent.rules.engine import RULES, check_severities
from lab_agent.rules.translations import load_messages
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import CryptoError, EmptyDatabaseError, Failure, LabAgentError, Problem, SettingsError
from lab_agent.shared.shipped_files import shipped_path
from lab_agent.store.engine import sqlite_file
from lab_agent.store.integrity import check_integrity
from lab_agent.store.key_rotation import count_older
from lab_agent.store.missing_database import MissingDatabase, find_missing_database, find_remains
from lab_agent.store.opening import build_cipher, open_store
from lab_agent.store.program_records import SchemaVersions
from lab_agent.store.unit_of_work import Store, UnitOfWork

_KEYS_OF_A_ROTATION = 2
_MAKE_DATABASE = "run `lab-agent db upgrade`"
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
    """Check the keys, and what the settings say and name; of the database, only the catalogue in force is read."""
    found, snapshot = _check_encryption_key(settings), None
    if found[0].status is CheckStatus.OK and find_missing_database(settings) is None:
        try:
            snapshot = StoreSnapshot(await _read_active_version(settings))
        except LabAgentError as exc:
            found.append(CheckResult("active catalogue", CheckStatus.SKIPPED, str(exc)))
    return [*found, *await _check_files(settings, snapshot, offline=True)]


async def _read_active_version(settings: Settings) -> CatalogueVersion | None:
    store = open_store(settings.store, patience=_LOCK_PATIENCE)
    try:
        return await store.run_read_only(lambda uow: uow.catalogues.newest())
    finally:
        await store.close()


async def _check_files(settings: Settings, snapshot: StoreSnapshot | None, *, offline: bool) -> list[CheckResult]:
    found = _check_rules(settings)
    found += await asyncio.to_thread(check_api, settings, snapshot)
    found += await asyncio.to_thread(_check_mappings, settings)
    found += await asyncio.to_thread(_check_printed_reports, settings)
    found += await _check_adapters(settings, offline=offline)
    return [*found, _check_notifications(settings)]


def _read_snapshot(uow: UnitOfWork, settings: Settings) -> StoreSnapshot:
    """Read the store; the rows that `lock_ranges` may add are not kept, since the unit of work is rehearsed."""
    now = datetime.now(UTC)
    tokens = tuple(each for each in uow.api_tokens.all() if each.is_valid(now))
    issued = {pool: uow.issued_labels.lock_ranges(pool.pattern, pool.first) for pool in settings.api.label_pools}
    return StoreSnapshot(uow.catalogues.newest(), tokens, issued, uow.orders.waiting_lines())


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
        [CheckResult("store", CheckStatus.TODO, f"{missing.file} does not exist yet", _MAKE_DATABASE)],
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
            await store.transact(lambda uow: uow.oauth_tokens.current())
            snapshot = await store.rehearse(lambda uow: _read_snapshot(uow, settings))
            await store.probe()
            schema = await store.run_read_only(lambda uow: uow.programs.schema())
            keys = await _check_older_keys(settings, store)
        finally:
            await store.close()
    except LabAgentError as exc:
        return _check_store_error(settings, exc)
    if (damage := await check_integrity(settings.store)) is not None:
        return failed_checks("store", damage), snapshot, damage
    return [CheckResult("store", CheckStatus.OK, f"{address}, whole, {_describe_schema(schema)}"), *keys], snapshot, None


def _check_store_error(
    settings: Settings, error: LabAgentError
) -> tuple[list[CheckResult], StoreSnapshot | None, LabAgentError | None]:
    """What an error says; that a database is new and empty is no error."""
    address = mask_url_password(settings.store.url)
    if isinstance(error, CryptoError):
        return [CheckResult("store", CheckStatus.OK, address), *failed_checks("encryption key", error)], None, error
    if isinstance(error, EmptyDatabaseError) and find_remains(settings) is None:
        return [CheckResult("store", CheckStatus.TODO, f"{address} is new and empty", _MAKE_DATABASE)], None, None
    return failed_checks("store", error), None, error


async def _check_older_keys(settings: Settings, store: Store) -> list[CheckResult]:
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
        return [CheckResult("mappings", CheckStatus.OK, "no tables are used: results.mappings is not set")]
    try:
        tables = load_mapping_tables(folder)
    except MappingsError as exc:
        return failed_checks("mappings", exc)
    by_name = {"codes.csv": tables.codes, "units.csv": tables.units, "answers.csv": tables.answers}
    used = ", ".join(f"{name} is missing" if table is None else f"{name} {len(table)} rows" for name, table in by_name.items())
    examples = load_mapping_tables(shipped_path("config/mappings")).codes or {}
    if settings.status.environment == "production" and examples.items() <= (tables.codes or {}).items():
        hint = "remove the rows that are not the laboratory's own codes"
        return [CheckResult("mappings", CheckStatus.TODO, f"{folder}: {used}; codes.csv has those of the example", hint)]
    return [CheckResult("mappings", CheckStatus.OK, f"{folder}: {used}")]


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
