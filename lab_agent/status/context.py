"""What the status page is made of: the parts that it reads and acts on, and the renderer of its templates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse

from lab_agent.catalogue.model import Catalogue
from lab_agent.operations.accounts import Accounts, Role
from lab_agent.operations.cause_groups import CauseGroup, count_waiting, read_groups
from lab_agent.orders.held_group_actions import AssessOrder
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.label_pools import LabelPool
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.text import format_age
from lab_agent.status import formatting
from lab_agent.status.sessions import CurrentUser
from lab_agent.status.templating import create_environment
from lab_agent.status.translation import gettext, ngettext
from lab_agent.store.crypto import Cipher
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """A laboratory system's adapter as the page shows it: loaded, or the `reason` why not."""

    name: str
    kind: str
    loaded: bool
    reason: str | None = None
    version: str = ""
    """Package and version that the adapter comes from."""
    encoding: str | None = None
    """The code page of its messages, where its settings name one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDesk:
    """The sign-in at the exchange service. Its calls may raise a `Failure`; none of it gives a token away."""

    base_url: str
    grant: str
    """How we sign in (`exchange.oauth.grant`)."""
    scopes: Sequence[str]
    check: Callable[[], Awaitable[None]]
    """Asks the service something harmless."""
    refresh: Callable[[], Awaitable[None]]
    """Gets a new token."""
    forget: Callable[[], Awaitable[None]]
    """Deletes our tokens."""


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
    catalogue: Callable[[], CatalogueHistory | None]
    """The catalogue versions as this process has them; None where none can be read."""
    observed_conditions: Callable[[], Sequence[OpenCondition]]
    """What this process knows to hold and the store cannot record, as on a full disk."""

    connection: ConnectionDesk
    """The connection to the exchange service, as a page shows it and acts on it."""
    check_adapter: Callable[[str], Awaitable[None]]
    """Lets an adapter look whether its laboratory system can be reached. Raises a `Failure`, or `LabAgentError`."""
    rule_severities: Mapping[str, str] = field(default_factory=dict)
    """The severities that settings give to rules, by their ids."""
    label_pools: Sequence[LabelPool] = ()
    """The pools of barcodes."""

    def contracts(self) -> tuple[str, ...]:
        """The codes of the contracts that the catalogue has, sorted."""
        found = self.active_catalogue()
        return tuple(sorted(found.contracts)) if found else ()

    def test_name(self, item: str, contract: str | None = None) -> str:
        """The name of a test, of its contract where that has it; empty where the catalogue has none."""
        found = self.active_catalogue()
        if found is None:
            return ""
        own = found.contracts.get(contract or "")
        each = (own, *found.contracts.values()) if own else found.contracts.values()
        return next((one.items[item].caption for one in each if item in one.items), "")

    def container_name(self, container: str | None) -> str:
        """The name of a container's type; empty where the catalogue has none."""
        found = self.active_catalogue()
        known = found.containers.get(container or "") if found else None
        return known.name if known else ""

    def active_catalogue(self) -> Catalogue | None:
        """The version in force; None where there is none, or none can be read."""
        history = self.catalogue()
        return history.versions[0].catalogue if history and history.versions else None


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
        causes = ngettext("%(num)d cause", "%(num)d causes", self.causes) % {"num": self.causes}
        return gettext("%(number)d waiting, for %(causes)s") % {"number": self.number, "causes": causes}


class TemplateRenderer:
    """Renders pages. Values are escaped, control characters too; an undefined variable is an error.

    Every page has the time, the mode and its user.
    """

    def __init__(self, context: StatusContext) -> None:
        self._context = context
        self._environment = create_environment()

    async def groups(self, user: CurrentUser) -> tuple[CauseGroup, ...]:
        """Everything that fails or waits, by cause: the longest waiting first. Read now, where it was not with the user."""
        if user.groups is not None:
            return user.groups
        now = self._context.clock.now()
        return await self._context.store.look(lambda uow: read_groups(uow, now))

    async def render_page(self, template: str, user: CurrentUser, *, status: int = 200, **fields: Any) -> HTMLResponse:
        """Render a page for a signed-in user; its navigation shows how much is waiting."""
        groups = [each for each in await self.groups(user) if each.waiting]
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
            "age": lambda since: formatting.age_in_words(since, now),
            "age_until_now": lambda since: format_age(min(since, now), now),
            "lasted": lambda since, until: format_age(since, max(until or now, since)),
            "account": user and user.account,
            "agent_gone": CONDITIONS[ConditionId.AGENT_NOT_RUNNING],
            "environment": self._context.settings.environment,
            "laboratory": self._context.settings.laboratory,
            "read_only": self._context.settings.read_only,
            "with_password": self._context.settings.password,
            "oidc_issuer": self._context.settings.oidc.issuer,
            "oidc_public_url": self._context.settings.oidc.public_url,
            "csrf_token": user.session.csrf_token if user else "",
            "operator_role": Role.OPERATOR,
            "admin_role": Role.ADMIN,
            "can_act": user is not None and user.may(Role.OPERATOR),
            "can_manage": user is not None and user.may(Role.ADMIN),
            "can_reveal": user is not None and user.account.may_reveal,
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
