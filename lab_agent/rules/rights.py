"""Rules about rights: a missing one is named before work is wasted. They warn; what cannot be read is held elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.domain.received import Placed, Right
from lab_agent.rules.case import Case
from lab_agent.rules.rule import Problem, Rule, Severity


def _update(case: Case) -> Iterator[Problem]:
    for task in (case.order.task, *(line.task for line in case.order.lines)):
        if _lacks(case, task.rights, "updatebody"):
            lines = (task.id,) if task is not case.order.task else ()
            yield Problem(f"{task.where}.meta.security", lines)


def _read(case: Case) -> Iterator[Problem]:
    order = case.order
    parts: tuple[Placed, ...] = (*order.requests, *order.specimens, *order.patients, *(order.responses or ()))
    for part in parts:
        if _lacks(case, part.rights, "read"):
            yield Problem(f"{part.where}.meta.security")


def _lacks(case: Case, rights: tuple[Right, ...], name: str) -> bool:
    """Whether rights are shown, and ours is not among them; a service that shows none says nothing."""
    own = case.facts.own_guid
    return own is not None and bool(rights) and not any(each.code == own and each.name in {name, "owner"} for each in rights)


_SECTION = "Authentication: resource rights"
RULES = (
    Rule(
        id="rights.update",
        severity=Severity.WARN,
        section=_SECTION,
        check=_update,
        message="{where}: the laboratory has no right updatebody, and cannot report the status. Grant it.",
    ),
    Rule(
        id="rights.read",
        severity=Severity.WARN,
        section=_SECTION,
        check=_read,
        message="{where}: the laboratory has no right read, and may not be able to read it again. Grant it.",
    ),
)
