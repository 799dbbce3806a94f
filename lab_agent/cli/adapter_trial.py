"""What `lab-agent adapter NAME try` works with: the settings or a stand-in for them, the adapter, and a store for rehearsals."""

from __future__ import annotations

import base64
import secrets
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lab_agent import result_bootstrap
from lab_agent.cli.lazy_commands import paused_garbage_collection
from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.registry import ENTRY_POINT_GROUP, load_adapters
from lab_agent.results.mapping_loader import MappingCache, load_mapping_tables
from lab_agent.results.trial.map_lines import toml_value
from lab_agent.results.trial.trial_outcomes import Rehearsal
from lab_agent.settings.root import Settings, load_settings
from lab_agent.settings.sources import deep_merge
from lab_agent.shared.errors import InputError, LabAgentError, SettingsError, StoreError
from lab_agent.shared.ids import OrderKey
from lab_agent.store.unit_of_work import Store

_STAND_IN_EXCHANGE: Mapping[str, Any] = {
    "base_url": "https://exchange.invalid/",
    "lab_codes_url": "https://codes.invalid",
    "laboratory": "trial",
    "oauth": {"grant": "password", "auth_url": "https://exchange.invalid/", "client_id": "trial", "username": "trial"},
}
"""Nothing is asked or written there: it only lets a message be planned before anything is configured."""
_MAP_SETTING = "mapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInput:
    """What the command line says. `assignments` are the texts KEY=VALUE of `--set`."""

    name: str
    config: Path | None = None
    map_file: Path | None = None
    tables: Path | None = None
    order: str | None = None
    assignments: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Everything that a trial needs. `table` are the adapter's settings; `map_file` its map, if it has one."""

    given: TrialInput
    settings: Settings
    table: Mapping[str, Any]
    adapter: GuardedAdapter
    has_map_setting: bool

    @property
    def is_configured(self) -> bool:
        """Whether there is a settings file."""
        return self.given.config is not None

    @property
    def map_file(self) -> Path | None:
        """The file of the adapter's map: given, or of the settings."""
        named = self.table.get(_MAP_SETTING) if self.has_map_setting else None
        return self.given.map_file or (Path(named) if named else None)

    def check_map(self, path: Path) -> None:
        """Raise `InputError` where the adapter cannot be loaded with this map."""
        load_trial(replace(self.given, map_file=path))


def load_trial(given: TrialInput) -> Trial:
    """Load the settings and the adapter. Raises `InputError` for whatever is wrong with either."""
    try:
        settings = load_settings(given.config, requires_login=False) if given.config else _stand_in_settings()
    except SettingsError as error:
        raise InputError(str(error)) from error
    if given.tables is not None:
        settings = settings.model_copy(update={"results": settings.results.model_copy(update={"mappings": given.tables})})
    folder = settings.results.mappings
    if folder is not None and folder.is_dir():
        try:
            load_mapping_tables(folder)
        except LabAgentError as error:
            raise InputError(str(error)) from error
    with paused_garbage_collection():  # the adapter's modules are imported
        table, has_map = _adapter_table(given, settings)
    registry = load_adapters({given.name: table}, given.name, call_timeout=settings.lis.call_timeout)
    (status,) = registry.statuses
    if not status.is_loaded:
        raise InputError(str(SettingsError(status.problems)))
    adapter = registry.loaded[given.name]
    if not adapter.can_parse:
        raise InputError(f"the adapter {status.kind} cannot read a message by itself: it has no method parse_message")
    return Trial(given=given, settings=settings, table=table, adapter=adapter, has_map_setting=has_map)


def _stand_in_settings() -> Settings:
    key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return Settings.model_validate({"exchange": _STAND_IN_EXCHANGE, "store": {"encryption_keys": [key]}})


def _adapter_table(given: TrialInput, settings: Settings) -> tuple[dict[str, Any], bool]:
    """The table of the settings, else the adapter's own for a trial; and whether the adapter has a map of its own."""
    table = dict(settings.lis.tables.get(given.name, {}))
    made = _adapter_class(str(table.get("adapter", given.name)))
    if given.name not in settings.lis.tables:
        if made is None:
            kinds = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
            known = ", ".join(sorted({*settings.lis.tables, *kinds}))
            raise InputError(
                f"there is no table [lis.{given.name}] in the settings and no adapter {given.name}; known are {known}"
            )
        table = dict(getattr(made, "trial_settings", {}))
    has_map = _MAP_SETTING in getattr(getattr(made, "Settings", None), "model_fields", {})
    if given.map_file is not None:
        table = deep_merge(table, _map_settings(given.map_file, has_map=has_map))
    for text in given.assignments:
        table = deep_merge(table, _parse_assignment(text))
    return table, has_map


def _adapter_class(kind: str) -> Any:
    """The class of an installed adapter; None if there is none, or it cannot be imported: loading says why."""
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == kind]
    try:
        return found[0].load() if found else None
    except Exception:  # noqa: BLE001 — foreign code: `load_adapters` reports what it raises
        return None


def _map_settings(path: Path, *, has_map: bool) -> dict[str, Any]:
    """The settings that a map file means: its path, or, for an adapter without a map, the settings in it."""
    if not path.exists():
        return {}  # `--write` creates it
    if has_map:
        return {_MAP_SETTING: str(path)}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def _parse_assignment(text: str) -> dict[str, Any]:
    """The setting as a tree; a dot leads into a table of the adapter's, as in TOML."""
    key, equals, value = text.partition("=")
    try:
        assigned = tomllib.loads(f"{key} = {toml_value(value.strip())}") if equals else {}
    except tomllib.TOMLDecodeError:
        assigned = {}
    if not assigned:
        raise InputError(
            f"--set {text}: write it as KEY=VALUE, such as --set time_zone=Europe/Berlin or --set csv.dialect=excel-de"
        )
    return assigned


@dataclass(frozen=True, slots=True)
class OpenedRehearsal:
    """A rehearsal, and why it does not know the orders (empty if it does)."""

    rehearsal: Rehearsal
    without_orders: str = ""


@asynccontextmanager
async def open_rehearsal(trial: Trial) -> AsyncIterator[OpenedRehearsal]:
    """Open the installation's store, if there is one. Raises `InputError` for an order without orders."""
    reason = "there are no settings" if not trial.is_configured else ""
    if not reason:
        with (
            paused_garbage_collection()
        ):  # the database library takes half of the time of a trial: it is imported if it is needed
            from lab_agent.store.opening import open_store  # noqa: PLC0415

        try:
            store = open_store(trial.settings.store)
        except StoreError as error:
            reason = str(error)
        else:
            try:
                yield OpenedRehearsal(await _build(trial, store))
            finally:
                await store.close()
            return
    if trial.given.order is not None:
        raise InputError(f"--order {trial.given.order}: no order is known ({reason})")
    yield OpenedRehearsal(await _build(trial, None), reason)


async def _build(trial: Trial, store: Store | None) -> Rehearsal:
    order = trial.given.order
    if order is not None and store is not None and not await _is_known(store, OrderKey(order)):
        raise InputError(f"--order {order}: there is no such order")
    catalogues = await result_bootstrap.load_catalogues(trial.settings, store) if store is not None else _no_catalogue
    folder = trial.settings.results.mappings
    tables = MappingCache(folder if folder is not None and folder.is_dir() else None)
    return Rehearsal(
        store=store,
        matcher=result_bootstrap.build_matcher(trial.settings, tables, catalogues),
        clock=result_bootstrap.SystemClock(),
        source=trial.given.name,
        order=OrderKey(order) if order else None,
    )


def _no_catalogue() -> None:
    return None


async def _is_known(store: Store, order: OrderKey) -> bool:
    return bool(await store.transact(lambda uow: uow.orders.lines(order)))
