"""Makes pages of templates: everything that is filled in is escaped, and a name that a template does not know is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from lab_agent.accounts import Role
from lab_agent.domain import value_words
from lab_agent.ports.views import AttentionKind
from lab_agent.status import result_words, words
from lab_agent.status.house import StatusContext
from lab_agent.status.sessions import CurrentUser
from lab_agent.steps.result_desk import what_to_do

TEMPLATE_FOLDER = Path(__file__).parent / "templates"


class TemplateRenderer:
    """Fills templates. Every page knows the time, the mode and who looks."""

    def __init__(self, context: StatusContext) -> None:
        self._context = context
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATE_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "clock_time": words.format_timestamp,
            "meaning": words.state_meaning,
            "kind_name": words.job_kind_name,
            "value": result_words.format_observation,
            "size": result_words.format_size,
            "concept": value_words.format_concept,
            "normal": value_words.format_reference_ranges,
            "names": result_words.order_references,
        }
        self._environment.globals |= {"advice": words.next_step, "what_to_do": what_to_do, "retry_words": words.retry_explanation}

    async def render_page(self, template: str, user: CurrentUser, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Give a page of a visitor; its head says how much waits."""
        asking = await self._context.queries.attention_counts()
        waits = {"/waiting": sum(asking.values()), "/results": asking.get(AttentionKind.REPORT, 0)}
        return self.render(template, user, status=status, waits=waits, **fields)

    def render(self, template: str, user: CurrentUser | None = None, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Give a page."""
        now = self._context.clock.now()
        common: dict[str, Any] = {
            "mode": self._context.mode,
            "now": now,
            "zone": words.utc_offset(now),
            "age": lambda since: words.format_age(since, now),
            "account": user and user.account,
            "token": user.session.csrf_token if user else "",
            "may_act": user is not None and user.account.has_role(Role.OPERATOR),
        }
        return HTMLResponse(self._environment.get_template(template).render(common | fields), status)
