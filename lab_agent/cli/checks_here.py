"""Checks of what is on this machine: keys, store, rules, what the API offers, mappings, the letterhead, adapters."""

from __future__ import annotations

import asyncio

from lab_agent import bootstrap
from lab_agent.cli.checks import CheckResult, CheckStatus, failed_checks
from lab_agent.cli.checks_offer import StoreSnapshot, check_api, read_store
from lab_agent.documents.room import DocumentService
from lab_agent.errors import CryptoError, Failure, LabAgentError, Problem, SettingsError
from lab_agent.mappings.load import MappingsError
from lab_agent.mappings.load import load_mapping_tables as load_mappings
from lab_agent.rules.judge import RULES, check_severities
from lab_agent.rules.messages import load_messages
from lab_agent.settings.masked import mask_url_password
from lab_agent.settings.root import Settings
from lab_agent.store.engine import sqlite_file


async def check_local(settings: Settings, *, offline: bool) -> list[CheckResult]:
    """Check it all; `offline` leaves a database server and the laboratory systems alone."""
    found, kept = _check_encryption_key(settings), None
    if found[0].status is CheckStatus.OK:
        lines, kept = await _check_store(settings, offline=offline)
        found += lines
    found += _check_rules(settings)
    found += await asyncio.to_thread(check_api, settings, kept)
    found += await asyncio.to_thread(_check_mappings, settings)
    found += await asyncio.to_thread(_check_printed_reports, settings)
    return found + await _check_adapters(settings, offline=offline)


def _check_encryption_key(settings: Settings) -> list[CheckResult]:
    try:
        bootstrap.build_cipher(settings)
    except CryptoError as exc:
        return failed_checks("encryption key", exc)
    number = len(settings.store.encryption_keys)
    return [CheckResult("encryption key", CheckStatus.OK, f"{number} key{'s' if number > 1 else ''}")]


async def _check_store(settings: Settings, *, offline: bool) -> tuple[list[CheckResult], StoreSnapshot | None]:
    address = mask_url_password(settings.store.url)
    file = sqlite_file(settings.store.url)
    if file is None and offline:
        return [CheckResult("store", CheckStatus.SKIPPED, address)], None
    if file is not None and not file.exists():
        return [CheckResult("store", CheckStatus.TODO, f"there is no database at {file} yet", "run `lab-agent db upgrade`")], None
    try:
        store = bootstrap.open_store(settings)
        try:
            await store.run(lambda uow: uow.oauth_tokens.current())
            kept = await store.run(lambda uow: read_store(uow, settings))
        finally:
            await store.close()
    except CryptoError as exc:
        return [CheckResult("store", CheckStatus.OK, address), *failed_checks("encryption key", exc)], None
    except LabAgentError as exc:
        return failed_checks("store", exc), None
    return [CheckResult("store", CheckStatus.OK, f"{address}, schema as it should be")], kept


def _check_mappings(settings: Settings) -> list[CheckResult]:
    folder = settings.results.mappings
    if folder is None:
        return []
    try:
        tables = load_mappings(folder)
    except MappingsError as exc:
        return failed_checks("mappings", exc)
    rows = sum(len(table or ()) for table in (tables.codes, tables.units, tables.answers))
    return [CheckResult("mappings", CheckStatus.OK, f"{folder}, {rows} rows")]


def _check_printed_reports(settings: Settings) -> list[CheckResult]:
    if not settings.results.print_reports:
        return []
    problems = DocumentService(settings.results).problems()
    fine = CheckResult("printed reports", CheckStatus.OK, "the letterhead can be printed")
    return [CheckResult("printed reports", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in problems] or [
        fine
    ]


def _check_rules(settings: Settings) -> list[CheckResult]:
    problems = (*check_severities(settings.rules.severities), *_rule_message_problems(settings))
    changed = len(settings.rules.severities)
    fine = CheckResult("rules", CheckStatus.OK, f"{len(RULES)} rules, {changed} with a severity of your own")
    return [CheckResult("rules", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in problems] or [fine]


def _rule_message_problems(settings: Settings) -> tuple[Problem, ...]:
    try:
        load_messages(settings.rules.messages, settings.rules.messages_folder)
    except SettingsError as exc:
        return exc.problems
    return ()


async def _check_adapters(settings: Settings, *, offline: bool) -> list[CheckResult]:
    adapters = bootstrap.build_adapters(settings)
    loaded = dict(adapters.running())
    found = []
    for status in adapters.statuses:
        what = f"adapter {status.name}"
        if status.problems:
            found += [CheckResult(what, CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in status.problems]
        elif offline:
            found.append(CheckResult(what, CheckStatus.OK, "loaded; the laboratory system was not asked"))
        else:
            try:
                await loaded[status.name].check()
                found.append(CheckResult(what, CheckStatus.OK, "answers"))
            except Failure as exc:
                found += failed_checks(what, exc)
    return found
