"""Checks of what is on this machine: keys, store, rules, what the API offers, mappings, the letterhead, adapters."""

from __future__ import annotations

import asyncio

from lab_agent import bootstrap
from lab_agent.cli.checks import Line, Verdict, wrong
from lab_agent.cli.checks_offer import Kept, check_offer, look
from lab_agent.documents.room import DocumentRoom
from lab_agent.errors import CryptoError, Failure, LabAgentError, Problem, SettingsError
from lab_agent.mappings.load import MappingsError
from lab_agent.mappings.load import load as load_mappings
from lab_agent.rules.judge import RULES, check_severities
from lab_agent.rules.messages import messages_of
from lab_agent.settings.masked import mask_address
from lab_agent.settings.root import Settings
from lab_agent.store.engine import sqlite_file


async def check_here(settings: Settings, *, offline: bool) -> list[Line]:
    """Check it all; `offline` leaves a database server and the laboratory systems alone."""
    found, kept = _key(settings), None
    if found[0].verdict is Verdict.OK:
        lines, kept = await _store(settings, offline=offline)
        found += lines
    found += _rules(settings)
    found += await asyncio.to_thread(check_offer, settings, kept)
    found += await asyncio.to_thread(_mappings, settings)
    found += await asyncio.to_thread(_printing, settings)
    return found + await _adapters(settings, offline=offline)


def _key(settings: Settings) -> list[Line]:
    try:
        bootstrap.cipher(settings)
    except CryptoError as exc:
        return wrong("encryption key", exc)
    number = len(settings.store.encryption_keys)
    return [Line("encryption key", Verdict.OK, f"{number} key{'s' if number > 1 else ''}")]


async def _store(settings: Settings, *, offline: bool) -> tuple[list[Line], Kept | None]:
    address = mask_address(settings.store.url)
    file = sqlite_file(settings.store.url)
    if file is None and offline:
        return [Line("store", Verdict.SKIPPED, address)], None
    if file is not None and not file.exists():
        return [Line("store", Verdict.TODO, f"there is no database at {file} yet", "run `lab-agent db upgrade`")], None
    try:
        store = bootstrap.open_store(settings)
        try:
            await store.run(lambda uow: uow.tokens.current())
            kept = await store.run(lambda uow: look(uow, settings))
        finally:
            await store.close()
    except CryptoError as exc:
        return [Line("store", Verdict.OK, address), *wrong("encryption key", exc)], None
    except LabAgentError as exc:
        return wrong("store", exc), None
    return [Line("store", Verdict.OK, f"{address}, schema as it should be")], kept


def _mappings(settings: Settings) -> list[Line]:
    folder = settings.results.mappings
    if folder is None:
        return []
    try:
        tables = load_mappings(folder)
    except MappingsError as exc:
        return wrong("mappings", exc)
    rows = sum(len(table or ()) for table in (tables.codes, tables.units, tables.answers))
    return [Line("mappings", Verdict.OK, f"{folder}, {rows} rows")]


def _printing(settings: Settings) -> list[Line]:
    if not settings.results.print_reports:
        return []
    problems = DocumentRoom(settings.results).problems()
    fine = Line("printed reports", Verdict.OK, "the letterhead can be printed")
    return [Line("printed reports", Verdict.WRONG, f"{each.where}: {each.what}", each.mend) for each in problems] or [fine]


def _rules(settings: Settings) -> list[Line]:
    problems = (*check_severities(settings.rules.severities), *_messages(settings))
    changed = len(settings.rules.severities)
    fine = Line("rules", Verdict.OK, f"{len(RULES)} rules, {changed} with a severity of your own")
    return [Line("rules", Verdict.WRONG, f"{each.where}: {each.what}", each.mend) for each in problems] or [fine]


def _messages(settings: Settings) -> tuple[Problem, ...]:
    try:
        messages_of(settings.rules.messages, settings.rules.messages_folder)
    except SettingsError as exc:
        return exc.problems
    return ()


async def _adapters(settings: Settings, *, offline: bool) -> list[Line]:
    adapters = bootstrap.adapters(settings)
    loaded = dict(adapters.running())
    found = []
    for status in adapters.statuses:
        what = f"adapter {status.name}"
        if status.problems:
            found += [Line(what, Verdict.WRONG, f"{each.where}: {each.what}", each.mend) for each in status.problems]
        elif offline:
            found.append(Line(what, Verdict.OK, "loaded; the laboratory system was not asked"))
        else:
            try:
                await loaded[status.name].check()
                found.append(Line(what, Verdict.OK, "answers"))
            except Failure as exc:
                found += wrong(what, exc)
    return found
