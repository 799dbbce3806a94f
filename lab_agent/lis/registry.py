"""Finds and loads the adapters that the settings name. Loading never raises: a failure becomes a status with its reason.

Built-in adapters come through the same entry points as everybody's (group `lab_agent.adapters`). Whether an entry point leads
to an adapter at all is checked before anything of it is called.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.laboratory_system import CONTRACT_VERSION, LisAdapter
from lab_agent.lis.reloading import AdapterReloader, ReloadResult
from lab_agent.settings.errors import to_problems
from lab_agent.shared.errors import LisNotLoaded, Problem, did_you_mean
from lab_agent.shared.metrics import Metrics

ADAPTER_METHODS = {
    "start": 1,
    "stop": 0,
    "check": 0,
    "prepare": 1,
    "submit": 1,
    "was_received": 1,
    "cancel": 3,
    "collect": 0,
}
"""The methods of an adapter, each with the number of arguments it is called with."""


def interface_problems(candidate: Any, where: str) -> tuple[Problem, ...]:
    """What is missing or wrong in an adapter class; empty if nothing is."""
    if not isinstance(candidate, type):
        return (Problem(where, "the entry point does not name a class", "make it name the adapter's class"),)
    declared = getattr(candidate, "contract_version", 1)
    if declared != CONTRACT_VERSION:
        return (_version_problem(candidate, declared, where),)
    return tuple(Problem(where, f"{candidate.__name__}.{what}", hint) for what, hint in _interface_faults(candidate))


def _version_problem(candidate: type[Any], declared: object, where: str) -> Problem:
    if not isinstance(declared, int) or isinstance(declared, bool):
        return Problem(where, f"{candidate.__name__}.contract_version is not a whole number", f"set it to {CONTRACT_VERSION}")
    older = declared < CONTRACT_VERSION
    what = f"wrong version: {candidate.__name__} implements version {declared} of the adapter contract, "
    hint = "install a newer version of the adapter's package" if older else "install a newer version of the agent"
    return Problem(where, f"{what}but this agent uses version {CONTRACT_VERSION}", hint)


def _interface_faults(candidate: type[Any]) -> Iterator[tuple[str, str]]:
    settings = getattr(candidate, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        yield "Settings is missing", "add a pydantic model of the adapter's settings"
    elif settings.model_config.get("extra") != "forbid":
        yield "Settings accepts unknown keys", 'set model_config = ConfigDict(extra="forbid")'
    if not isinstance(getattr(candidate, "idempotent", None), bool):
        yield "idempotent is missing", "set it to True or False: may submit be repeated for the same order?"
    for name, arguments in ADAPTER_METHODS.items():
        yield from _method_faults(candidate, name, arguments)


def _method_faults(candidate: type[Any], name: str, arguments: int) -> Iterator[tuple[str, str]]:
    method = getattr(candidate, name, None)
    if method is None:
        yield f"{name} is missing", "add it; docs/adapters.md describes it"
    elif not inspect.iscoroutinefunction(method):
        yield f"{name} is not async", f"write async def {name}"
    else:
        try:
            inspect.signature(method).bind(*[None] * (arguments + 1))
        except TypeError:
            yield f"{name} cannot be called with {arguments} arguments", "give it the arguments of the LisAdapter protocol"


ENTRY_POINT_GROUP = "lab_agent.adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLoadStatus:
    """How loading one `[lis.<name>]` table went: loaded, or the reasons why not. `kind` is the entry point's name."""

    name: str
    kind: str
    problems: tuple[Problem, ...] = ()
    source: str | None = None
    idempotent: bool | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the adapter was loaded."""
        return not self.problems

    @property
    def reason(self) -> str | None:
        """Why it was not loaded, in one line."""
        return "; ".join(map(str, self.problems)) or None


@dataclass(frozen=True, slots=True)
class AdapterRegistry:
    """The adapters by name, and how loading went for each."""

    default: str
    statuses: tuple[AdapterLoadStatus, ...]
    loaded: Mapping[str, GuardedAdapter] = field(default_factory=dict)
    reloaders: Sequence[AdapterReloader] = ()

    def get(self, name: str | None = None) -> GuardedAdapter:
        """The adapter with that name, or the default one. Raises `LisNotLoaded` with the reason if it was not loaded."""
        wanted = name or self.default
        if adapter := self.loaded.get(wanted):
            return adapter
        reasons = [status.reason for status in self.statuses if status.name == wanted]
        known = [status.name for status in self.statuses]
        why = reasons[0] if reasons else f"there is no table [lis.{wanted}] {did_you_mean(wanted, known)}".rstrip()
        raise LisNotLoaded(f"the adapter {wanted} is not loaded: {why}")

    async def reload(self) -> tuple[ReloadResult, ...]:
        """Read the files again that the adapters' settings name, such as maps. What is invalid leaves its adapter as it is."""
        return tuple([await each.reload() for each in self.reloaders])

    def settings(self) -> Mapping[str, BaseModel]:
        """The settings of the adapters that were loaded, as they are in force, by name."""
        return {each.name: each.settings for each in self.reloaders}

    def running(self) -> Iterator[tuple[str, GuardedAdapter]]:
        """The adapters that were loaded, with their names."""
        yield from self.loaded.items()


def load_adapters(
    tables: Mapping[str, Mapping[str, Any]],
    default: str,
    *,
    call_timeout: float = 60.0,
    available: Iterable[EntryPoint] | None = None,
    metrics: Metrics | None = None,
) -> AdapterRegistry:
    """Load the adapter of each `[lis.<name>]` table; its key `adapter` names the kind where that is not the table's name.

    `call_timeout` is the seconds one call to an adapter may take; `metrics` count the calls. Never raises: see
    `AdapterRegistry.statuses`.
    """
    metrics = metrics or Metrics()
    available_entries = tuple(entry_points(group=ENTRY_POINT_GROUP) if available is None else available)
    loaded: dict[str, GuardedAdapter] = {}
    statuses, reloaders = [], []
    for name, table in tables.items():
        own = dict(table)
        kind = str(own.pop("adapter", name))
        result = _load_adapter(name, kind, own, available_entries)
        if not isinstance(result, tuple):
            on_call, on_skip = partial(metrics.record_lis_call, name), partial(metrics.record_skip, name)
            loaded[name] = GuardedAdapter(result.adapter, name, timeout=call_timeout, on_call=on_call, on_skip=on_skip)
            reloaders.append(AdapterReloader(name, loaded[name], own, result.settings))
        statuses.append(_make_status(name, kind, result, available_entries))
    return AdapterRegistry(default, tuple(statuses), loaded, tuple(reloaders))


@dataclass(frozen=True, slots=True)
class _LoadedAdapter:
    adapter: LisAdapter
    settings: BaseModel


def _make_status(
    name: str, kind: str, loaded: _LoadedAdapter | tuple[Problem, ...], available: tuple[EntryPoint, ...]
) -> AdapterLoadStatus:
    source = next((entry.dist.name for entry in available if entry.name == kind and entry.dist), None)
    if isinstance(loaded, tuple):
        return AdapterLoadStatus(name=name, kind=kind, source=source, problems=loaded)
    return AdapterLoadStatus(name=name, kind=kind, source=source, idempotent=loaded.adapter.idempotent)


def _load_adapter(
    name: str, kind: str, table: dict[str, Any], available: tuple[EntryPoint, ...]
) -> _LoadedAdapter | tuple[Problem, ...]:
    """Load the entry point, check what it names, and construct the adapter."""
    where = f"lis.{name}"
    entries = {entry.value: entry for entry in available if entry.name == kind}
    if len(entries) != 1:
        return (_entry_point_problem(where, kind, available),)
    try:
        made = next(iter(entries.values())).load()
        return interface_problems(made, where) or _construct(made, name, table)
    except ValidationError as exc:
        return to_problems(exc, made.Settings, prefix=where)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 — foreign code: whatever it raises becomes the adapter's status
        problem = _describe_exception(exc)
        return (Problem(where, f"the adapter {kind} cannot be loaded: {problem}", "fix or reinstall the package it comes from"),)


def _construct(adapter_class: type[LisAdapter], name: str, table: dict[str, Any]) -> _LoadedAdapter:
    constructor: Any = adapter_class
    settings = adapter_class.Settings.model_validate(table)
    return _LoadedAdapter(constructor(settings, name), settings)


def _entry_point_problem(where: str, kind: str, available: tuple[EntryPoint, ...]) -> Problem:
    values = sorted(entry.value for entry in available if entry.name == kind)
    if values:
        return Problem(where, f"several packages provide an adapter {kind}: {', '.join(values)}", "uninstall all but one")
    names = sorted({entry.name for entry in available})
    if unreadable := _unreadable_packages():
        hint = f"this user cannot read {unreadable[0].name}, which is installed: `chmod -R go+rX {unreadable[0].parent}`"
        return Problem(where, f"no installed package provides an adapter {kind}", hint)
    hint = did_you_mean(kind, names) or f"install the package that provides it; installed are {', '.join(names) or 'none'}"
    return Problem(where, f"no installed package provides an adapter {kind}", hint)


def _unreadable_packages() -> list[Path]:
    """What was installed with a narrow umask: it has no entry points for whoever cannot read it, as if it were not there."""
    infos = [info for folder in sys.path for info in Path(folder).glob("*.dist-info")]
    return [info for info in infos if not os.access(info, os.R_OK | os.X_OK)]


def _describe_exception(exc: BaseException) -> str:
    """Name the exception; the text of an import error holds no data, that of others might."""
    return f"{type(exc).__name__}: {exc}" if isinstance(exc, ImportError | AttributeError) else type(exc).__name__
