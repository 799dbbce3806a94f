"""What the status page is made of: the parts that it reads and acts on, and the renderer of its templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from fastapi import Depends
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from lab_agent.accounts import Accounts, Role
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import OpenCondition
from lab_agent.conditions.table import CONDITIONS, explain
from lab_agent.crypto import Cipher
from lab_agent.domain import value_text
from lab_agent.domain.ages import format_age
from lab_agent.domain.text import shorten
from lab_agent.metrics import Metrics
from lab_agent.monitoring.cause_groups import CauseGroup, count_waiting, read_groups
from lab_agent.monitoring.page_lists import find_group, find_list
from lab_agent.ports.clock import Clock
from lab_agent.ports.queries import Queries
from lab_agent.ports.repositories import Store
from lab_agent.settings.status import StatusSettings
from lab_agent.status import formatting
from lab_agent.status.auth import CurrentUser
from lab_agent.url_origin import origin_of
from lab_agent.workflow.hold_reasons import what_to_do
from lab_agent.workflow.operator_held_groups import AssessOrder
from lab_agent.workflow.refused_message_desk import RefusedMessageDesk
from lab_agent.workflow.result_matching import ReportMatcher

TEMPLATE_FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """A laboratory system's adapter as the page shows it: loaded, or the `reason` why not."""

    name: str
    kind: str
    loaded: bool
    reason: str | None = None
    encoding: str | None = None
    """The code page of its messages, where its settings name one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusContext:
    """The parts that the status page works with. Outages of the neighbours are in the store, as open alerts."""

    settings: StatusSettings
    store: Store
    queries: Queries
    accounts: Accounts
    cipher: Cipher
    metrics: Metrics
    clock: Clock
    adapters: Sequence[AdapterStatus]
    mode: Literal["normal", "observe"]
    create_matcher: Callable[[], ReportMatcher]
    """Makes what matches results, with the mapping tables as they are in their folder at the time of the call."""
    assess_order: AssessOrder
    """Assesses an order as it was last fetched; nothing is written."""
    refused_messages: RefusedMessageDesk
    missing_tasks: Callable[[], Sequence[str]]
    """Names of parts of the worker that should be running and are not."""
    observed_conditions: Callable[[], Sequence[OpenCondition]]
    """What this process knows to hold and the store cannot record, as on a full disk."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """How much waits for a person, and for how many causes: the number beside a name in the navigation, and its title."""

    number: int
    causes: int

    @classmethod
    def of(cls, groups: Sequence[CauseGroup]) -> Self:
        return cls(count_waiting(groups), len(groups))

    @property
    def title(self) -> str:
        return f"{self.number} waiting, for {self.causes} {'cause' if self.causes == 1 else 'causes'}"


class TemplateRenderer:
    """Renders pages. Values are escaped, control characters too; an undefined variable is an error.

    Every page has the time, the mode and its user.
    """

    def __init__(self, context: StatusContext) -> None:
        self._context = context
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATE_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=formatting.without_control_characters,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "timestamp": formatting.format_timestamp,
            "state_meaning": formatting.state_meaning,
            "job_kind_name": formatting.job_kind_name,
            "explain_cause": lambda cause: explain(cause.condition),
            "observation_value": formatting.format_observation,
            "file_size": formatting.format_size,
            "concept": value_text.format_concept,
            "reference_ranges": value_text.format_reference_ranges,
            "order_references": formatting.order_references,
            "shortened": shorten,
            "host": lambda address: origin_of(address).host,
            "with_code": formatting.with_code,
            "told_title": lambda key: CONDITIONS[key.condition].fill(CONDITIONS[key.condition].title, key.subject),
            "general": lambda text, condition: condition.fill(text, "…"),
        }
        self._environment.globals |= {
            "next_step": formatting.next_step,
            "alert_text": formatting.alert_text,
            "what_to_do": what_to_do,
            "group_page": find_group,
            "list_page": find_list,
            "retry_explanation": formatting.retry_explanation,
        }

    async def groups(self) -> tuple[CauseGroup, ...]:
        """Everything that fails or waits, by cause: the longest waiting first."""
        now = self._context.clock.now()
        return await self._context.store.run_read_only(lambda uow: read_groups(uow, now))

    async def render_page(self, template: str, user: CurrentUser, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Render a page for a signed-in user; its navigation shows how much is waiting."""
        groups = [each for each in await self.groups() if each.waiting]
        of_results = [each for each in groups if each.is_of_results]
        fields |= {"attention": {"/waiting": _Waiting.of(groups), "/results": _Waiting.of(of_results)}}
        return self.render(template, user, status=status, **fields)

    def render(self, template: str, user: CurrentUser | None = None, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Render a page without reading the store."""
        now = self._context.clock.now()
        common: dict[str, Any] = {
            "mode": self._context.mode,
            "now": now,
            "utc_offset": formatting.utc_offset(now),
            "age": lambda since: format_age(since, now),
            "age_until_now": lambda since: format_age(min(since, now), now),
            "lasted": lambda since, until: format_age(since, max(until or now, since)),
            "account": user and user.account,
            "agent_gone": explain(ConditionId.AGENT_NOT_RUNNING),
            "with_password": self._context.settings.password,
            "oidc_issuer": self._context.settings.oidc.issuer,
            "oidc_public_url": self._context.settings.oidc.public_url,
            "csrf_token": user.session.csrf_token if user else "",
            "can_act": user is not None and user.account.has_role(Role.OPERATOR),
        }
        return HTMLResponse(self._environment.get_template(template).render(common | fields), status)


async def get_context(request: Request) -> StatusContext:
    """The parts, as `create_app` was given them."""
    context: StatusContext = request.app.state.context
    return context


async def get_renderer(request: Request) -> TemplateRenderer:
    """The renderer of this application."""
    renderer: TemplateRenderer = request.app.state.renderer
    return renderer


Context = Annotated[StatusContext, Depends(get_context)]
Renderer = Annotated[TemplateRenderer, Depends(get_renderer)]
