"""Finds the adapters that the settings name. Loading never raises: what cannot be loaded becomes a status with its reason.

Built-in adapters come through the same entry points as everybody's (group `lab_agent.adapters`), so that there is no second
door which only we can use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from lab_agent.codec.problems import did_you_mean, found_by_pydantic, path
from lab_agent.errors import LisUnavailable, Problem
from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.shape import shape_problems
from lab_agent.metrics import Metrics
from lab_agent.ports.lis import LisAdapter

GROUP = "lab_agent.adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """What became of one `[lis.<name>]` table: loaded, or the reasons why not. `kind` is the entry point's name."""

    name: str
    kind: str
    problems: tuple[Problem, ...] = ()
    source: str | None = None
    idempotent: bool | None = None

    @property
    def loaded(self) -> bool:
        """Whether the adapter is there."""
        return not self.problems

    @property
    def reason(self) -> str | None:
        """Why it is not there, in one line."""
        return "; ".join(map(str, self.problems)) or None


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters by name, and how loading went for each."""

    default: str
    statuses: tuple[AdapterStatus, ...]
    loaded: Mapping[str, GuardedAdapter] = field(default_factory=dict)

    def get(self, name: str | None = None) -> GuardedAdapter:
        """Give the adapter of that name, or the default one. Raises `LisUnavailable` with the reason where it is not there."""
        wanted = name or self.default
        if adapter := self.loaded.get(wanted):
            return adapter
        reasons = [status.reason for status in self.statuses if status.name == wanted]
        known = [status.name for status in self.statuses]
        why = reasons[0] if reasons else f"there is no table [lis.{wanted}] {did_you_mean(wanted, known)}".rstrip()
        raise LisUnavailable(f"the adapter {wanted} is not loaded: {why}")

    def running(self) -> Iterator[tuple[str, GuardedAdapter]]:
        """Give those that could be loaded, with their names."""
        yield from self.loaded.items()


def load_adapters(
    tables: Mapping[str, Mapping[str, Any]],
    default: str,
    *,
    call_timeout: float = 60.0,
    doors: Iterable[EntryPoint] | None = None,
    metrics: Metrics | None = None,
) -> Adapters:
    """Load the adapter of each `[lis.<name>]` table; `adapter` in it names the kind, where that is not the table's name.

    `call_timeout` is the seconds that one call to an adapter may take; `metrics` are kept of the calls. Never raises; see
    `Adapters.statuses`.
    """
    metrics = metrics or Metrics()
    offered = tuple(entry_points(group=GROUP) if doors is None else doors)
    loaded: dict[str, GuardedAdapter] = {}
    statuses = []
    for name, table in tables.items():
        own = dict(table)
        kind = str(own.pop("adapter", name))
        made = _load(name, kind, own, offered)
        if not isinstance(made, tuple):
            loaded[name] = GuardedAdapter(made, name, timeout=call_timeout, heard=partial(metrics.called_lis, name))
        statuses.append(_status(name, kind, made, offered))
    return Adapters(default, tuple(statuses), loaded)


def _status(name: str, kind: str, made: LisAdapter | tuple[Problem, ...], offered: tuple[EntryPoint, ...]) -> AdapterStatus:
    source = next((door.dist.name for door in offered if door.name == kind and door.dist), None)
    if isinstance(made, tuple):
        return AdapterStatus(name=name, kind=kind, source=source, problems=made)
    return AdapterStatus(name=name, kind=kind, source=source, idempotent=made.idempotent)


def _load(name: str, kind: str, table: dict[str, Any], offered: tuple[EntryPoint, ...]) -> LisAdapter | tuple[Problem, ...]:
    """Go through the door, look at what is behind it, and make one."""
    where = f"lis.{name}"
    doors = {door.value: door for door in offered if door.name == kind}
    if len(doors) != 1:
        return (_no_one_door(where, kind, offered),)
    try:
        made = next(iter(doors.values())).load()
        return shape_problems(made, where) or _make(made, name, table)
    except ValidationError as exc:
        known = set(made.Settings.model_fields)
        found = found_by_pydantic(exc, known)
        return tuple(Problem(f"{where}.{path(one.place)}" if one.place else where, one.what, one.mend) for one in found)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 — foreign code: whatever it raises becomes the adapter's status
        problem = _said(exc)
        return (Problem(where, f"the adapter {kind} cannot be loaded: {problem}", "mend or reinstall the package it comes from"),)


def _make(kind: type[LisAdapter], name: str, table: dict[str, Any]) -> LisAdapter:
    constructor: Any = kind
    made: LisAdapter = constructor(kind.Settings.model_validate(table), name)
    return made


def _no_one_door(where: str, kind: str, offered: tuple[EntryPoint, ...]) -> Problem:
    values = sorted(door.value for door in offered if door.name == kind)
    if values:
        return Problem(where, f"several packages offer an adapter {kind}: {', '.join(values)}", "uninstall all but one")
    names = sorted({door.name for door in offered})
    mend = did_you_mean(kind, names) or f"install the package that brings it; there are {', '.join(names) or 'none'}"
    return Problem(where, f"no installed package offers an adapter {kind}", mend)


def _said(exc: BaseException) -> str:
    """Name what was raised; the text of an import error holds no data, that of other exceptions might."""
    return f"{type(exc).__name__}: {exc}" if isinstance(exc, ImportError | AttributeError) else type(exc).__name__
