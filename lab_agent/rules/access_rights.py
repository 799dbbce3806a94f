"""Rules about access rights: a missing one is named before work is wasted. They warn; `order.readable` holds."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.fhir.received_order import AccessRight, OrderResource
from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Severity, Violation, rule

_SECTION = "Authentication: resource rights"


@rule(
    "rights.update",
    Severity.WARN,
    _SECTION,
    "{where}: the laboratory lacks the right updatebody, so it cannot report the status. Please grant it.",
)
def _check_update(context: RuleContext) -> Iterator[Violation]:
    for task in (context.order.task, *(line.task for line in context.order.lines)):
        if _lacks_right(context, task.rights, "updatebody"):
            lines = (task.id,) if task is not context.order.task else ()
            yield Violation(f"{task.where}.meta.security", lines)


def _lacks_right(context: RuleContext, rights: tuple[AccessRight, ...], name: str) -> bool:
    """Whether rights are shown and ours is not among them; a service that shows none leaves it open."""
    own = context.facts.own_guid
    return own is not None and bool(rights) and not any(each.code == own and each.name in {name, "owner"} for each in rights)


@rule(
    "rights.read",
    Severity.WARN,
    _SECTION,
    "{where}: the laboratory lacks the right read, so it may not be able to read this resource again. Please grant it.",
)
def _check_read(context: RuleContext) -> Iterator[Violation]:
    order = context.order
    parts: tuple[OrderResource, ...] = (*order.requests, *order.specimens, *order.patients, *(order.responses or ()))
    for part in parts:
        if _lacks_right(context, part.rights, "read"):
            yield Violation(f"{part.where}.meta.security")
