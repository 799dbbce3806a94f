"""The incidents: each a generator that lets something go wrong, yields, and sets it right again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_sandbox.demo.toml_edit import TomlValue
from tests.incidents.laboratory import Laboratory
from tests.incidents.telling import SCORES

Happening = Callable[[Laboratory], Iterator[None]]
Step = Callable[[Laboratory], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that goes wrong."""

    name: str
    happen: Happening
    key: AlertKey
    affected: Sequence[str] = ()
    without: Sequence[str] = ()
    """Channels that cannot know of it."""
    settings: Mapping[str, Mapping[str, TomlValue]] = field(default_factory=dict)
    sample: bool = False
    alone: bool = False
    """Whether it has a laboratory of its own: what it does to settings or database cannot be undone for the next one."""
    ends: bool = True
    """Whether it is over once it was set right; not, where its condition lasts for a while by its own rules."""

    @property
    def channels(self) -> list[str]:
        return [each for each in SCORES if each not in self.without]


INCIDENTS: dict[str, Incident] = {}


def incident(condition: ConditionId, subject: str = "", **more: Any) -> Callable[[Happening], Happening]:
    """Register an incident by the name of its function; `more` are fields of `Incident`."""

    def register(happen: Happening) -> Happening:
        name = happen.__name__
        assert name not in INCIDENTS
        INCIDENTS[name] = Incident(name=name, happen=happen, key=AlertKey(condition, subject), **more)
        return happen

    return register


def fault_incident(
    name: str,
    condition: ConditionId,
    *faults: Mapping[str, Any],
    subject: str = "",
    before: Step = lambda lab: None,
    during: Step = lambda lab: None,
    after: Step = lambda lab: None,
    **more: Any,
) -> None:
    """Register an incident in which the exchange service fails so, and then `during` happens."""

    def happen(lab: Laboratory) -> Iterator[None]:
        before(lab)
        lab.fault(*faults)
        during(lab)
        yield
        lab.fault()
        after(lab)

    happen.__name__ = name
    incident(condition, subject, **more)(happen)
