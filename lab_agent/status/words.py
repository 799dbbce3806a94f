"""The page's words: ages and times, what a state means, and what a person can do about what waits."""

from __future__ import annotations

from datetime import datetime

from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.domain.lifecycle import EffectState, OrderState, ReportState
from lab_agent.ports.views import OrderDetail, Sort, Trouble
from lab_agent.steps.desk import may_be_marked_done, what_retry_does
from lab_agent.steps.result_desk import what_to_do

_ORDERS = {
    OrderState.SEEN: "seen on the service; its resources are being fetched",
    OrderState.FETCHED: "fetched and accepted; on its way to the laboratory system",
    OrderState.HELD: "held: may be our own fault, so it is not refused",
    OrderState.HANDED_OVER: "in the laboratory system; results are awaited",
    OrderState.REPORTED: "every line has ended; the order-level Task follows",
    OrderState.REFUSED: "refused; the service is being told",
    OrderState.WITHDRAWN: "withdrawn by the partner; the laboratory system is being told",
    OrderState.CLOSED: "finished",
}
_EFFECTS = {
    EffectState.DUE: "will be done at its time",
    EffectState.IN_FLIGHT: "is being done",
    EffectState.UNKNOWN: "may have happened; it is looked at before it is done again",
    EffectState.REVIEW: "nobody here can tell whether it happened; a person decides",
    EffectState.PARKED: "will not work by itself; a person decides",
    EffectState.DONE: "done",
    EffectState.OBSOLETE: "not needed any more",
    EffectState.DISMISSED: "left undone by a person",
}
_REPORTS = {
    ReportState.RECEIVED: "kept; its order is being looked for",
    ReportState.MATCHED: "on its way to the service",
    ReportState.UNMATCHED: "fits no order",
    ReportState.UNMAPPED: "has a code without a mapping",
    ReportState.HELD: "held",
    ReportState.DELIVERED: "on the service",
    ReportState.SUPERSEDED: "replaced by a newer version",
    ReportState.DISMISSED: "left aside by a person",
}
_KINDS = {
    EffectKind.LOOK: "Fetch and judge the order",
    EffectKind.HANDOVER: "Hand the order to the laboratory system",
    EffectKind.LIS_CANCEL: "Tell the laboratory system of a withdrawal",
    EffectKind.MATCH: "Find the order of a result",
    EffectKind.DELIVER: "Upload a report",
    EffectKind.LINE_TASK: "Set the status of a line's Task",
    EffectKind.ORDER_TASK: "Set the status of the order-level Task",
}


def meaning(state: OrderState | EffectState | ReportState) -> str:
    """What a state means, in one line."""
    match state:
        case OrderState():
            return _ORDERS[state]
        case EffectState():
            return _EFFECTS[state]
        case ReportState():
            return _REPORTS[state]


def kind_name(kind: EffectKind | str) -> str:
    """What an effect does, as a heading."""
    return _KINDS[EffectKind(kind)]


def advice(trouble: Trouble) -> str:
    """What to do next about something that waits for a person."""
    if trouble.sort is Sort.ORDER:
        return "Mend what the reason names. The order is judged again by itself from time to time, and at once with the button."
    if trouble.sort is Sort.REPORT:
        return what_to_do(ReportState(trouble.state), trouble.reason)
    if trouble.state == EffectState.REVIEW:
        return "Look at the other side whether it happened: if so, mark it done; if it certainly did not, retry it."
    kind = EffectKind(str(trouble.kind))
    ways = "retry it, mark it done if it happened otherwise, or dismiss it" if may_be_marked_done(kind) else "retry or dismiss it"
    return f"Mend what the reason names; then {ways}."


def retry_words(kind: EffectKind | str, state: EffectState | str) -> str:
    """What the retry button does, as it stands on the page."""
    return what_retry_does(EffectKind(kind), EffectState(state))


def is_doubtful_handover(effect: Effect) -> bool:
    """Whether a retry may give the laboratory system the same order twice: only a person who has looked there may ask for it."""
    return effect.kind is EffectKind.HANDOVER and effect.state is EffectState.REVIEW


def doubtful_handover(detail: OrderDetail) -> Effect | None:
    """The effect of an order that a person has to decide about before all of it may be retried."""
    return next((effect for effect in detail.effects if is_doubtful_handover(effect)), None)


def age(since: datetime | None, now: datetime) -> str:
    """How long ago, in the two largest units: `3 d 4 h`, `12 min`, `8 s`; `in 5 min` for what is to come."""
    if since is None:
        return "never"
    seconds = int((now - since).total_seconds())
    if seconds < 0:
        return f"in {_span(-seconds)}"
    return _span(seconds)


def _span(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def clock_time(at: datetime | None) -> str:
    """A time to the second, in this machine's zone."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def zone_name(now: datetime) -> str:
    """This machine's zone, as its offset."""
    offset = now.astimezone().strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:]}"
