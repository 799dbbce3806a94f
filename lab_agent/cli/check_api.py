"""Local checks of the laboratory's API: the catalogue, its contracts, who may call, and the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lab_agent.catalogue.label_allocation import HighWaterMark, issued_ranges
from lab_agent.catalogue.labels import second_label_pattern
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import ApiToken, CatalogueVersion
from lab_agent.catalogue.settings_check import find_route_problems
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue, read_tables
from lab_agent.catalogue.spreadsheet.schema import SheetTable
from lab_agent.catalogue.versions import unpack_catalogue, unpack_tables
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks, join_sorted
from lab_agent.operations.catalogue import find_sample_items
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import CatalogueError, StoreError
from lab_agent.shared.label_pools import LabelPool, find_second_label_pool


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What is read from the store: the active catalogue, the valid tokens, labels issued from each pool, and how many
    lines wait at each laboratory system."""

    active_version: CatalogueVersion | None
    valid_tokens: tuple[ApiToken, ...] = ()
    labels_issued: Mapping[LabelPool, Mapping[int, int]] = field(default_factory=dict)
    waiting_lines: Mapping[str, int] = field(default_factory=dict)


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


def check_api(settings: Settings, snapshot: StoreSnapshot | None) -> list[CheckResult]:
    """Check the catalogue, the API clients and the labels; without a store, what the settings alone allow."""
    version = snapshot.active_version if snapshot else None
    active, found = _check_active_catalogue(settings, version) if snapshot else (None, [])
    from_folder, folder_results = _check_catalogue_folder(settings, version if active else None)
    found += folder_results
    catalogue = active or from_folder
    tokens = snapshot.valid_tokens if snapshot else ()
    if active and version:
        found += _check_sample(settings, unpack_tables(version.content))
    elif from_folder and settings.api.catalogue:
        found += _check_sample(settings, read_tables(settings.api.catalogue))
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
        hint = f"`lab-agent run` or `lab-api run` imports {folder}" if folder else "run `lab-agent catalogue import SOURCE`"
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


def _check_catalogue_folder(settings: Settings, active: CatalogueVersion | None) -> tuple[Catalogue | None, list[CheckResult]]:
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
    if active is None:
        return catalogue, [CheckResult("catalogue", CheckStatus.OK, f"{folder}, {_describe_contracts(catalogue)}")]
    return catalogue, [_compare_folder(settings, active, catalogue.version)]


def _compare_folder(settings: Settings, active: CatalogueVersion, version: str) -> CheckResult:
    """Say whether the folder holds the version in force, and if not, what becomes of what is in it."""
    folder = settings.api.catalogue
    if version == active.version:
        return CheckResult("catalogue", CheckStatus.OK, f"{folder}, as in force")
    differs, hint = f"{folder} differs from the active catalogue", f"`lab-agent catalogue diff {folder}` shows how"
    if active.by is None:
        return CheckResult("catalogue", CheckStatus.TODO, f"{differs}, which it replaces at the next start or reload", hint)
    kept = f"{differs}, which {active.by} imported and which therefore stays"
    hint += f"; import it (`lab-agent catalogue import {folder}`), or remove api.catalogue"
    return CheckResult("catalogue", CheckStatus.TODO, kept, hint)


def _check_sample(settings: Settings, tables: Mapping[str, SheetTable]) -> Iterator[CheckResult]:
    """Report tests of the sample, which no laboratory offers."""
    if settings.status.environment == "production" and (items := find_sample_items(tables)):
        detail = f"the catalogue has tests of the sample: {len(items)}, such as {items[0]}"
        hint = (
            "`lab-agent catalogue import SOURCE` with the laboratory's own; elsewhere than in production set status.environment"
        )
        yield CheckResult("sample", CheckStatus.TODO, detail, hint)


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
