"""The incidents: each a generator that lets something go wrong, yields, and sets it right again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_sandbox.demo.toml_edit import TomlValue
from tests.incidents.laboratory import Laboratory
from tests.incidents.telling import CHANNELS

Happening = Callable[[Laboratory], Iterator[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that goes wrong. `channels` are those that can know of it; `starts` are the programs that run beforehand."""

    name: str
    happen: Happening
    key: AlertKey
    affected: Sequence[str]
    channels: Sequence[str]
    settings: Mapping[str, Mapping[str, TomlValue]] = field(default_factory=dict)
    starts: Sequence[str] = ("service", "api", "agent")
    is_sample: bool = False
    is_alone: bool = False
    """Whether it has a laboratory of its own: what it does to settings or database cannot be undone for the next one."""
    ends: bool = True
    """Whether it is over once it was set right; not, where its condition lasts for a while by its own rules."""


INCIDENTS: dict[str, Incident] = {}


def incident(
    condition: ConditionId,
    subject: str = "",
    *,
    affected: Sequence[str] = (),
    without: Sequence[str] = (),
    settings: Mapping[str, Mapping[str, TomlValue]] | None = None,
    starts: Sequence[str] = ("service", "api", "agent"),
    sample: bool = False,
    alone: bool = False,
    ends: bool = True,
) -> Callable[[Happening], Happening]:
    """Register an incident by the name of its function. `without` are channels that cannot know of it."""

    def register(happen: Happening) -> Happening:
        name = happen.__name__
        assert name not in INCIDENTS
        INCIDENTS[name] = Incident(
            name=name,
            happen=happen,
            key=AlertKey(condition, subject),
            affected=affected,
            channels=[each for each in CHANNELS if each not in without],
            settings=settings or {},
            starts=starts,
            is_sample=sample,
            is_alone=alone or bool(settings),
            ends=ends,
        )
        return happen

    return register
