"""Checks of what is on this machine: keys, store, catalogue, adapters."""

from __future__ import annotations

import asyncio

from lab_agent import bootstrap
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.load import load
from lab_agent.cli.checks import Line, Verdict, listed, wrong
from lab_agent.errors import CatalogueError, CryptoError, Failure, LabAgentError, Problem, SettingsError
from lab_agent.mappings.load import MappingsError
from lab_agent.mappings.load import load as load_mappings
from lab_agent.rules.judge import RULES, check_severities
from lab_agent.rules.messages import messages_of
from lab_agent.settings.masked import mask_address
from lab_agent.settings.root import Settings
from lab_agent.store.engine import sqlite_file


async def check_here(settings: Settings, *, offline: bool) -> list[Line]:
    """Check it all; `offline` leaves a database server and the laboratory systems alone."""
    found = _key(settings)
    if found[0].verdict is Verdict.OK:
        found += await _store(settings, offline=offline)
    found += _rules(settings)
    found += await asyncio.to_thread(_catalogue, settings)
    found += await asyncio.to_thread(_mappings, settings)
    return found + await _adapters(settings, offline=offline)


def _key(settings: Settings) -> list[Line]:
    try:
        bootstrap.cipher(settings)
    except CryptoError as exc:
        return wrong("encryption key", exc)
    number = len(settings.store.encryption_keys)
    return [Line("encryption key", Verdict.OK, f"{number} key{'s' if number > 1 else ''}")]


async def _store(settings: Settings, *, offline: bool) -> list[Line]:
    address = mask_address(settings.store.url)
    file = sqlite_file(settings.store.url)
    if file is None and offline:
        return [Line("store", Verdict.SKIPPED, address)]
    if file is not None and not file.exists():
        return [Line("store", Verdict.TODO, f"there is no database at {file} yet", "run `lab-agent db upgrade`")]
    try:
        store = bootstrap.open_store(settings)
        try:
            await store.run(lambda uow: uow.tokens.current())
        finally:
            await store.close()
    except CryptoError as exc:
        return [Line("store", Verdict.OK, address), *wrong("encryption key", exc)]
    except LabAgentError as exc:
        return wrong("store", exc)
    return [Line("store", Verdict.OK, f"{address}, schema as it should be")]


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


def _catalogue(settings: Settings) -> list[Line]:
    folder = settings.api.catalogue
    if folder is None:
        mend = "`lab-agent catalogue import` puts it there; `lab-agent catalogue check` tries it first"
        return [Line("catalogue", Verdict.OK, "comes from the store", mend), _clients(settings)]
    if not folder.exists():
        mend = "put the laboratory's CSV files there, or set api.catalogue"
        return [Line("catalogue", Verdict.TODO, f"there is no folder {folder} yet", mend)]
    try:
        catalogue = load(folder)
    except CatalogueError as exc:
        return wrong("catalogue", exc)
    except OSError as exc:
        return [Line("catalogue", Verdict.WRONG, f"{exc.filename or folder}: {exc.strerror}")]
    offered = listed(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())
    return [Line("catalogue", Verdict.OK, f"{folder}, {offered}"), *_contracts(settings, catalogue), _clients(settings)]


def _contracts(settings: Settings, catalogue: Catalogue) -> list[Line]:
    set_, offered = set(settings.exchange.contracts), set(catalogue.contracts)
    clients = [client.contracts or () for client in settings.api.tokens] + [
        client.contracts or () for client in settings.api.basic
    ]
    allowed = {code for contracts in clients for code in contracts}
    found = []
    if missing := set_ - offered:
        mend = "add them to the sheet contracts, or remove them from the settings"
        found.append(Line("contracts", Verdict.WRONG, f"not in the catalogue: {listed(missing)}", mend))
    if extra := offered - set_:
        mend = "add [exchange.contracts.<code>]: orders under other contracts are held"
        found.append(Line("contracts", Verdict.WRONG, f"only in the catalogue: {listed(extra)}", mend))
    if unknown := allowed - offered:
        found.append(
            Line("contracts", Verdict.WRONG, f"API clients name unknown ones: {listed(unknown)}", "mend api.tokens or api.basic")
        )
    return found or [Line("contracts", Verdict.OK, listed(set_) or "none", "" if set_ else "set [exchange.contracts.<code>]")]


def _clients(settings: Settings) -> Line:
    names = [client.name for client in settings.api.tokens] + [client.name for client in settings.api.basic]
    if not names:
        mend = "make one: lab-agent api-token create NAME; or add [[api.tokens]] or [[api.basic]]"
        return Line("API clients", Verdict.TODO, "the settings name none", mend)
    return Line("API clients", Verdict.OK, listed(names))


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
