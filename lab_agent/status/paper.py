"""Makes pages of templates: everything that is filled in is escaped, and a name that a template does not know is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from lab_agent.accounts import Role
from lab_agent.domain import value_words
from lab_agent.ports.views import Sort
from lab_agent.status import result_words, words
from lab_agent.status.house import House
from lab_agent.status.sessions import Visitor
from lab_agent.steps.result_desk import what_to_do

TEMPLATES = Path(__file__).parent / "templates"


class Paper:
    """Fills templates. Every page knows the time, the mode and who looks."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= {
            "clock_time": words.clock_time,
            "meaning": words.meaning,
            "kind_name": words.kind_name,
            "value": result_words.value,
            "size": result_words.size,
            "concept": value_words.concept,
            "normal": value_words.normal,
            "names": result_words.names,
        }
        self._environment.globals |= {"advice": words.advice, "what_to_do": what_to_do, "retry_words": words.retry_words}

    async def sheet(self, template: str, visitor: Visitor, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Give a page of a visitor; its head says how much waits."""
        asking = await self._house.views.asking()
        waits = {"/waiting": sum(asking.values()), "/results": asking.get(Sort.REPORT, 0)}
        return self.page(template, visitor, status=status, waits=waits, **fields)

    def page(self, template: str, visitor: Visitor | None = None, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Give a page."""
        now = self._house.clock.now()
        common: dict[str, Any] = {
            "mode": self._house.mode,
            "now": now,
            "zone": words.zone_name(now),
            "age": lambda since: words.age(since, now),
            "account": visitor and visitor.account,
            "token": visitor.session.form_token if visitor else "",
            "may_act": visitor is not None and visitor.account.may(Role.OPERATOR),
        }
        return HTMLResponse(self._environment.get_template(template).render(common | fields), status)
