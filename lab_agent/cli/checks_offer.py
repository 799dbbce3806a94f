"""Checks of what the laboratory's API offers: the catalogue in force, who may call, and the labels that are left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.load import load
from lab_agent.catalogue.pools import Pool, second_pool
from lab_agent.catalogue.studies import second_label
from lab_agent.catalogues.agreed import pools_of
from lab_agent.catalogues.keeping import catalogue_of
from lab_agent.catalogues.labels import stretches
from lab_agent.catalogues.mark import Mark
from lab_agent.cli.checks import Line, Verdict, listed, wrong
from lab_agent.domain.offer import ApiToken, CatalogueVersion
from lab_agent.errors import CatalogueError, StoreError
from lab_agent.ports.store import UnitOfWork
from lab_agent.settings.root import Settings


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store says: the catalogue in force, the tokens that are valid, and what each pool has given."""

    newest: CatalogueVersion | None
    tokens: tuple[ApiToken, ...]
    given: Mapping[Pool, Mapping[int, int]]


class Tied(Protocol):
    """Whoever, or whatever, is tied to contracts; None is every one."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def contracts(self) -> tuple[str, ...] | None:
        """The codes."""
        ...


def look(uow: UnitOfWork, settings: Settings) -> Kept:
    """Read it. Nothing is written: the unit of work is not committed."""
    now = datetime.now(UTC)
    tokens = tuple(each for each in uow.api_tokens.all() if each.valid(now))
    given = {pool: uow.labels.hold(pool.pattern, pool.first) for pool in pools_of(settings.api)}
    return Kept(uow.catalogues.newest(), tokens, given)


def check_offer(settings: Settings, kept: Kept | None) -> list[Line]:
    """Check it all; without a store that can be asked, what the settings alone say."""
    in_force, found = _in_force(settings, kept.newest) if kept else (None, [])
    of_folder, lines = _folder(settings, in_force)
    found += lines
    catalogue = in_force or of_folder
    tokens = kept.tokens if kept else ()
    if catalogue:
        found += _contracts(settings, catalogue, tokens)
        found += _second_pools(pools_of(settings.api), catalogue)
    found += _clients(settings, tokens)
    return found + (list(_labels(settings, kept.given)) if kept else [])


def _in_force(settings: Settings, newest: CatalogueVersion | None) -> tuple[Catalogue | None, list[Line]]:
    what = "catalogue in force"
    if newest is None:
        folder = settings.api.catalogue
        mend = (
            f"`lab-api run` and `lab-agent run` take {folder} over" if folder else "`lab-agent catalogue import` puts one there"
        )
        return None, [Line(what, Verdict.TODO, "the store holds none yet", mend)]
    try:
        catalogue = catalogue_of(newest)
    except CatalogueError as exc:
        return None, wrong(what, exc)
    since = newest.since.astimezone().isoformat(" ", "minutes")
    return catalogue, [
        Line(what, Verdict.OK, f"version {newest.version} from {newest.origin} since {since}, {_offered(catalogue)}")
    ]


def _folder(settings: Settings, in_force: Catalogue | None) -> tuple[Catalogue | None, list[Line]]:
    folder = settings.api.catalogue
    if folder is None:
        return None, []
    if not folder.exists():
        mend = "put the laboratory's CSV files there, or set api.catalogue"
        return None, [Line("catalogue", Verdict.TODO, f"there is no folder {folder} yet", mend)]
    try:
        catalogue = load(folder)
    except CatalogueError as exc:
        return None, wrong("catalogue", exc)
    except OSError as exc:
        return None, [Line("catalogue", Verdict.WRONG, f"{exc.filename or folder}: {exc.strerror}")]
    if in_force and in_force.version != catalogue.version:
        mend = f"`lab-agent catalogue diff {folder}` shows how; a start takes it over if it was changed since it was last taken"
        return catalogue, [Line("catalogue", Verdict.OK, f"{folder} is not what is in force", mend)]
    return catalogue, [Line("catalogue", Verdict.OK, f"{folder}, {_offered(catalogue)}")]


def _offered(catalogue: Catalogue) -> str:
    return listed(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())


def _contracts(settings: Settings, catalogue: Catalogue, tokens: tuple[ApiToken, ...]) -> list[Line]:
    set_, offered = set(settings.exchange.contracts), set(catalogue.contracts)
    tied: list[Tied] = [*settings.api.pools, *_callers(settings, tokens)]
    allowed = {code for each in tied for code in each.contracts or ()}
    found = []
    if missing := set_ - offered:
        mend = "add them to the sheet contracts, or remove them from the settings"
        found.append(Line("contracts", Verdict.WRONG, f"not in the catalogue: {listed(missing)}", mend))
    if extra := offered - set_:
        mend = "add [exchange.contracts.<code>]: orders under other contracts are held"
        found.append(Line("contracts", Verdict.WRONG, f"only in the catalogue: {listed(extra)}", mend))
    if unknown := allowed - offered:
        mend = "mend api.tokens, api.basic or api.pools, or revoke the token: lab-agent api-token list"
        found.append(Line("contracts", Verdict.WRONG, f"callers or pools of the API name unknown ones: {listed(unknown)}", mend))
    return found or [Line("contracts", Verdict.OK, listed(set_) or "none", "" if set_ else "set [exchange.contracts.<code>]")]


def _callers(settings: Settings, tokens: tuple[ApiToken, ...]) -> list[Tied]:
    return [*settings.api.tokens, *settings.api.basic, *tokens]


def _clients(settings: Settings, tokens: tuple[ApiToken, ...]) -> list[Line]:
    clients = _callers(settings, tokens)
    if not clients:
        mend = "make one: lab-agent api-token create NAME; or add [[api.tokens]] or [[api.basic]]"
        return [Line("API clients", Verdict.TODO, "there are none yet: nobody may call", mend)]
    seen = {code for each in clients for code in (settings.exchange.contracts if each.contracts is None else each.contracts)}
    if blind := set(settings.exchange.contracts) - seen:
        mend = f"make one: lab-agent api-token create NAME --contract {min(blind)}"
        return [Line("API clients", Verdict.WRONG, f"none may see {listed(blind)}", mend)]
    return [Line("API clients", Verdict.OK, listed({each.name for each in clients}))]


def _second_pools(pools: tuple[Pool, ...], catalogue: Catalogue) -> Iterator[Line]:
    """Pools of second barcodes that no test takes from: nobody would notice before orders are refused."""
    needed = {
        (code, shape)
        for code, each in catalogue.contracts.items()
        for item in each.items.values()
        if (shape := second_label(item))
    }
    serving = {pool for code, shape in needed if (pool := second_pool(pools, code, shape))}
    for pool in pools:
        if pool.second and pool not in serving:
            shapes = listed({str(shape) for _, shape in needed}) or "none"
            mend = f"give it a pattern of a shape that tests need ({shapes}), or remove it"
            yield Line(f"labels {pool.name}", Verdict.WRONG, "second barcodes that no test takes", mend)


def _labels(settings: Settings, given: Mapping[Pool, Mapping[int, int]]) -> Iterator[Line]:
    try:
        marks = Mark(settings.api.label_mark).read() if settings.api.label_mark else {}
    except StoreError as exc:
        yield from wrong("labels", exc)
        return
    for pool, following in given.items():
        yield _left(pool, pool.left(stretches(pool, following, marks)))


def _left(pool: Pool, left: int) -> Line:
    what, mend = f"labels {pool.name}", "give it a new range in the settings ([[api.pools]])"
    if not left:
        return Line(what, Verdict.WRONG, "used up: pre-analytics is answered with 503", mend)
    if left < pool.warn_below:
        return Line(what, Verdict.TODO, f"{left} left", mend)
    return Line(what, Verdict.OK, f"{left} left")
