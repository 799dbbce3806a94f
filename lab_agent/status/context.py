"""Makes pages of templates: everything that is filled in is escaped, and a name that a template does not know is an error.

What the status page is made of: everything it may look at or touch, handed in by whoever wires it.

What every group of pages works with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from lab_agent.accounts import Accounts, Role
from lab_agent.crypto import Cipher
from lab_agent.domain import text
from lab_agent.metrics import Metrics
from lab_agent.ports.clock import Clock
from lab_agent.ports.queries import AttentionKind, Queries
from lab_agent.ports.repositories import Store
from lab_agent.settings.groups import StatusSettings
from lab_agent.status import formatting
from lab_agent.status.auth import AccessControl, CurrentUser
from lab_agent.workflow.hold_reasons import what_to_do
from lab_agent.workflow.result_matching import ReportMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """A laboratory system's adapter as the page shows it: loaded, or the `reason` why not."""

    name: str
    kind: str
    loaded: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusContext:
    """The parts that the status page works with. Whether neighbours are away stands in the store, as open alerts."""

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
    """What matches results, with the mapping tables as they lie in their folder at the call."""
    missing_tasks: Callable[[], Sequence[str]]
    """Names of parts of the worker that should be running and are not; empty while all is well."""
    is_store_unwritable: Callable[[], bool]
    """Whether the store could not be written when the worker tried last, as with a full disk. It stands in no table."""


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
            "clock_time": formatting.format_timestamp,
            "meaning": formatting.state_meaning,
            "kind_name": formatting.job_kind_name,
            "value": formatting.format_observation,
            "size": formatting.format_size,
            "concept": text.format_concept,
            "normal": text.format_reference_ranges,
            "names": formatting.order_references,
        }
        self._environment.globals |= {
            "advice": formatting.next_step,
            "what_to_do": what_to_do,
            "retry_words": formatting.retry_explanation,
        }

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
            "zone": formatting.utc_offset(now),
            "age": lambda since: formatting.format_age(since, now),
            "account": user and user.account,
            "token": user.session.csrf_token if user else "",
            "may_act": user is not None and user.account.has_role(Role.OPERATOR),
        }
        return HTMLResponse(self._environment.get_template(template).render(common | fields), status)


class PageGroup:
    """A group of pages: the parts of the house, the gate before them, and the paper that they are written on."""

    def __init__(self, context: StatusContext, access: AccessControl, renderer: TemplateRenderer) -> None:
        self._context = context
        self._access = access
        self._renderer = renderer
