"""The overview: one sentence, the health of every part, what is on its way, the last hours in charts, what needs a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.operations.cause_groups import CauseGroup, count_waiting
from lab_agent.operations.page_lists import RESULTS_TO_DELIVER
from lab_agent.shared.conditions.model import ConditionId, OpenCondition, Severity
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.shared.text import format_age
from lab_agent.status.auth import Viewer
from lab_agent.status.charts import DAY, WEEK, Chart, Span, collect, draw_counts, draw_times, first_hour, format_seconds
from lab_agent.status.condition_pages import list_open_conditions
from lab_agent.status.context import Context, Renderer, StatusContext, get_context
from lab_agent.status.early_read import EarlyRead
from lab_agent.status.pages import Flash
from lab_agent.status.translation import gettext, ngettext
from lab_agent.status.wording import affected_text, affects_of, title_of
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, hour_of
from lab_agent.store.read_models import Overview, OverviewPage

router = APIRouter()

_STOPPING = frozenset({ConditionId.EXCHANGE_SIGN_IN, ConditionId.STORE_RESTORED, ConditionId.AGENT_SECOND_AGENT})
"""While one of these is open nothing goes on at all."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence that comes first: `good`, `warn` or `bad`, and what follows it in a quieter tone."""

    text: str
    tone: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class AskedOverview:
    """The span of the charts, and the numbers as they are being read."""

    span: Span
    page: EarlyRead[OverviewPage]


async def ask_for_overview(request: Request, span: str = "") -> AskedOverview:
    """Begin to read the numbers of the page."""
    chosen = WEEK if span == WEEK.name else DAY
    context = await get_context(request)
    now = context.clock.now()
    since = min(first_hour(now, chosen), _midnight(now))
    return AskedOverview(chosen, EarlyRead(request, lambda: context.queries.overview_page(now=now, since=since)))


@router.get("/")
async def show_overview(
    asked: Annotated[AskedOverview, Depends(ask_for_overview)], user: Viewer, context: Context, renderer: Renderer, flash: Flash
) -> Response:
    """How things are."""
    now, span = context.clock.now(), asked.span
    read = await asked.page.result()
    overview, hours = read.overview, read.hours
    conditions = list_open_conditions(context, overview)
    every_group = {each.key: each for each in await renderer.groups(user)}
    groups = [each for each in every_group.values() if each.waiting]
    return await renderer.render_page(
        "overview.html",
        user,
        headline=make_headline(conditions, groups, overview, hours, now),
        health=check_health(context, conditions, overview, hours, now),
        stations=count_stations(overview, hours, len(groups) and count_waiting(groups), now),
        charts=draw_charts(hours, now, span),
        span=span,
        format_seconds=format_seconds,
        overview=overview,
        groups=groups,
        groups_by_key=every_group,
        told_above={each.key for each in conditions},
        conditions=conditions,
        states={"orders": OrderState, "lines": LineState, "jobs": JobState, "reports": ReportState},
        flash=flash,
    )


def _midnight(now: datetime) -> datetime:
    return now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0).astimezone(now.tzinfo)


def make_headline(
    conditions: Sequence[OpenCondition],
    groups: Sequence[CauseGroup],
    overview: Overview,
    hours: Sequence[HourlyActivity],
    now: datetime,
) -> Headline:
    """Say how things are, from the conditions that hold (worst first) and from what waits."""
    wrong = [each for each in conditions if each.condition.severity is not Severity.NOTICE]
    worst = wrong[0] if wrong else None
    needs = _needs_you(groups)
    if worst is not None and (worst.condition.severity is Severity.CRITICAL or not groups):
        is_bad = worst.condition.severity is Severity.CRITICAL
        said = gettext("Stopped: %(what)s") if worst.condition.id in _STOPPING else "%(what)s"
        lasting = gettext("%(what)s, for %(span)s.")
        what = said % {"what": title_of(worst)}
        text = lasting % {"what": what, "span": format_age(min(worst.since, now), now)}
        return Headline(text, "bad" if is_bad else "warn", " ".join(_rest(worst, len(wrong) - 1, needs)))
    if groups:
        return Headline(needs, "warn", f"{title_of(worst)}." if worst else "")
    start = _midnight(now)
    today = sum(each.count for each in hours if each.measure is Measure.ORDERS_SEEN and each.hour >= start)
    orders = ngettext("%(num)d order today", "%(num)d orders today", today) % {"num": today}
    due = ""
    if overview.next_due is not None:
        due = gettext(", next result due in %(span)s") % {"span": format_age(now, overview.next_due)}
    return Headline(gettext("All is well: %(orders)s%(due)s.") % {"orders": orders, "due": due}, "good")


def _rest(worst: OpenCondition, others: int, needs: str) -> Iterator[str]:
    """What it affects, how many conditions there are beside it, and what waits for a person."""
    affected = ", ".join(affected_text(each) for each in worst.affected)
    yield gettext("Waiting: %(what)s.") % {"what": affected} if affected else f"{affects_of(worst.condition)}."
    if others:
        yield ngettext("And %(num)d more condition.", "And %(num)d more conditions.", others) % {"num": others}
    if needs:
        yield needs


def _needs_you(groups: Sequence[CauseGroup]) -> str:
    if not groups:
        return ""
    waiting = count_waiting(groups)
    causes = ngettext("%(num)d cause", "%(num)d causes", len(groups)) % {"num": len(groups)}
    things = ngettext("%(num)d thing waits", "%(num)d things wait", waiting) % {"num": waiting}
    return gettext("Needs you: %(causes)s, %(things)s.") % {"causes": causes, "things": things}


# --- the health of every part -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PartHealth:
    """One part of operation: `good`, `warn` or `bad`, in a word, and a few more; `page` is where there is more of it."""

    name: str
    tone: str
    word: str
    said: str = ""
    page: str = ""

    @property
    def mark(self) -> str:
        """A sign beside the word, so that it is never the colour alone."""
        return {"good": "✓", "warn": "!", "bad": "✕"}[self.tone]


def check_health(
    context: StatusContext,
    conditions: Sequence[OpenCondition],
    overview: Overview,
    hours: Sequence[HourlyActivity],
    now: datetime,
) -> tuple[PartHealth, ...]:
    """Say of each part how it is, from the conditions about it."""
    calls = [each for each in hours if each.measure is Measure.EXCHANGE_CALLS and each.hour >= hour_of(now) - HOUR]
    latency = format_seconds(calls[-1].median) if calls else ""
    polled = gettext("never polled")
    if overview.last_poll:
        polled = gettext("polled %(age)s ago") % {"age": format_age(overview.last_poll, now)}
    said = ", ".join(part for part in (polled, latency) if part)
    sign_in = {ConditionId.EXCHANGE_SIGN_IN}
    expiry = ""
    if overview.sign_in_until is not None:
        expiry = gettext("token until %(time)s") % {"time": overview.sign_in_until.astimezone().strftime("%H:%M")}
    return (
        _part(gettext("Exchange service"), _about(conditions, "exchange", without=sign_in), said, "/connection"),
        _part(gettext("Sign-in"), [each for each in conditions if each.condition.id in sign_in], expiry, "/connection"),
        *(
            _part(each.name, [one for one in _about(conditions, "lis") if one.subject == each.name], each.kind, "/adapters")
            if each.loaded
            else PartHealth(each.name, "bad", gettext("not loaded"), each.reason or each.kind, "/adapters")
            for each in context.adapters
        ),
        _part(gettext("API"), _about(conditions, "api", "catalogue", "labels"), "", "/catalogue"),
        _part(gettext("Database"), _about(conditions, "store", "backup"), "", ""),
        _part(gettext("Disk"), _about(conditions, "disk"), "", ""),
        _part(gettext("Clock"), _about(conditions, "clock"), "", ""),
        _part(gettext("Program"), _about(conditions, "agent", "settings", "notification"), "", ""),
    )


def _about(conditions: Iterable[OpenCondition], *subjects: str, without: Collection[ConditionId] = ()) -> list[OpenCondition]:
    return [
        each for each in conditions if each.condition.id.value.partition(".")[0] in subjects and each.condition.id not in without
    ]


def _part(name: str, found: Sequence[OpenCondition], said: str, page: str) -> PartHealth:
    wrong = [each for each in found if each.condition.severity is not Severity.NOTICE]
    if not wrong:
        return PartHealth(name, "good", gettext("works"), said, page)
    is_bad = wrong[0].condition.severity is Severity.CRITICAL
    word = gettext("does not work") if is_bad else gettext("needs a look")
    return PartHealth(name, "bad" if is_bad else "warn", word, title_of(wrong[0]), f"#{wrong[0].key}")


# --- the orders on their way ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStation:
    """A station on the way from poll to delivery: how many stand there, since when the oldest does, and how many pass it."""

    name: str
    number: int
    page: str
    since: datetime | None = None
    per_hour: int | None = None
    is_aside: bool = False


def count_stations(overview: Overview, hours: Sequence[HourlyActivity], waiting: int, now: datetime) -> tuple[FlowStation, ...]:
    """Count what stands at each station."""
    rate = _rates(hours, now)
    orders, oldest = overview.orders, overview.oldest_orders
    to_deliver = overview.reports.get(ReportState.RECEIVED, 0) + overview.reports.get(ReportState.MATCHED, 0)
    oldest_result = [
        at for state in (ReportState.RECEIVED, ReportState.MATCHED) if (at := overview.oldest_reports.get(state)) is not None
    ]
    return (
        FlowStation(
            name=gettext("Being read"),
            number=orders.get(OrderState.SEEN, 0),
            since=oldest.get(OrderState.SEEN),
            per_hour=rate.get(Measure.ORDERS_SEEN),
            page="/orders?state=seen",
        ),
        FlowStation(
            name=gettext("Being handed over"),
            number=orders.get(OrderState.FETCHED, 0),
            since=oldest.get(OrderState.FETCHED),
            per_hour=rate.get(Measure.ORDERS_HANDED_OVER),
            page="/orders?state=fetched",
        ),
        FlowStation(
            name=gettext("At the laboratory"),
            number=orders.get(OrderState.HANDED_OVER, 0),
            since=oldest.get(OrderState.HANDED_OVER),
            per_hour=rate.get(Measure.RESULTS_RECEIVED),
            page="/orders?state=handed_over",
        ),
        FlowStation(
            name=gettext("Results on their way"),
            number=to_deliver,
            since=min(oldest_result, default=None),
            per_hour=rate.get(Measure.RESULTS_DELIVERED),
            page=RESULTS_TO_DELIVER,
        ),
        FlowStation(name=gettext("Closed in 24 h"), number=overview.closed_orders, page="/orders?state=closed"),
        FlowStation(name=gettext("Waiting for you"), number=waiting, page="/waiting", is_aside=True),
    )


def _rates(hours: Sequence[HourlyActivity], now: datetime) -> Mapping[Measure, int]:
    """How many passed in the last hour: those of this one, and the share of the one before that is within sixty minutes."""
    begin = hour_of(now)
    share = 1 - (now - begin) / HOUR
    found: dict[Measure, float] = {}
    for each in hours:
        if each.hour >= begin - HOUR:
            found[each.measure] = found.get(each.measure, 0.0) + each.count * (1.0 if each.hour >= begin else share)
    return {measure: round(number) for measure, number in found.items()}


def draw_charts(hours: Sequence[HourlyActivity], now: datetime, span: Span) -> tuple[tuple[str, Chart], ...]:
    """The charts with their headings."""

    def counts(measure: Measure) -> Chart:
        return draw_counts(measure.value, collect(hours, measure, now, span), span)

    def times(measure: Measure) -> Chart:
        return draw_times(f"{measure.value}-times", collect(hours, measure, now, span), span)

    return (
        (gettext("Orders"), counts(Measure.ORDERS_SEEN)),
        (gettext("Results delivered"), counts(Measure.RESULTS_DELIVERED)),
        (gettext("From order to laboratory system"), times(Measure.ORDERS_HANDED_OVER)),
        (gettext("From result to clinic"), times(Measure.RESULTS_DELIVERED)),
        (gettext("Failed attempts"), counts(Measure.FAILURES)),
        (gettext("Answers of the exchange service"), times(Measure.EXCHANGE_CALLS)),
    )
