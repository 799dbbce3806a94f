"""The page's words: ages and times, what a state means, and what a person can do about what waits."""

from __future__ import annotations

from datetime import datetime

from lab_agent.domain.journal import Job, JobKind
from lab_agent.domain.lifecycle import JobState, OrderState, ReportState
from lab_agent.ports.views import AttentionItem, AttentionKind, OrderDetail
from lab_agent.steps.desk import can_be_marked_done, describe_retry
from lab_agent.steps.result_desk import what_to_do

_ORDER_STATE_MEANINGS = {
    OrderState.SEEN: "seen on the service; its resources are being fetched",
    OrderState.FETCHED: "fetched and accepted; on its way to the laboratory system",
    OrderState.HELD: "held: may be our own fault, so it is not refused",
    OrderState.HANDED_OVER: "in the laboratory system; results are awaited",
    OrderState.REPORTED: "every line has ended; the order-level Task follows",
    OrderState.REJECTED: "refused; the service is being told",
    OrderState.WITHDRAWN: "withdrawn by the partner; the laboratory system is being told",
    OrderState.CLOSED: "finished",
}
_JOB_STATE_MEANINGS = {
    JobState.DUE: "will be done at its time",
    JobState.IN_FLIGHT: "is being done",
    JobState.OUTCOME_UNKNOWN: "may have happened; it is looked at before it is done again",
    JobState.NEEDS_REVIEW: "nobody here can tell whether it happened; a person decides",
    JobState.DEAD_LETTER: "will not work by itself; a person decides",
    JobState.DONE: "done",
    JobState.OBSOLETE: "not needed any more",
    JobState.DISMISSED: "left undone by a person",
}
_REPORT_STATE_MEANINGS = {
    ReportState.RECEIVED: "kept; its order is being looked for",
    ReportState.MATCHED: "on its way to the service",
    ReportState.UNMATCHED: "fits no order",
    ReportState.UNMAPPED: "has a code without a mapping",
    ReportState.HELD: "held",
    ReportState.DELIVERED: "on the service",
    ReportState.SUPERSEDED: "replaced by a newer version",
    ReportState.DISMISSED: "left aside by a person",
}
_JOB_KIND_NAMES = {
    JobKind.FETCH_ORDER: "Fetch and judge the order",
    JobKind.SUBMIT_ORDER: "Hand the order to the laboratory system",
    JobKind.CANCEL_AT_LIS: "Tell the laboratory system of a withdrawal",
    JobKind.MATCH_REPORT: "Find the order of a result",
    JobKind.DELIVER_REPORT: "Upload a report",
    JobKind.UPDATE_LINE_TASK: "Set the status of a line's Task",
    JobKind.UPDATE_ORDER_TASK: "Set the status of the order-level Task",
}


def state_meaning(state: OrderState | JobState | ReportState) -> str:
    """What a state means, in one line."""
    match state:
        case OrderState():
            return _ORDER_STATE_MEANINGS[state]
        case JobState():
            return _JOB_STATE_MEANINGS[state]
        case ReportState():
            return _REPORT_STATE_MEANINGS[state]


def job_kind_name(kind: JobKind | str) -> str:
    """What an effect does, as a heading."""
    return _JOB_KIND_NAMES[JobKind(kind)]


def next_step(item: AttentionItem) -> str:
    """What to do next about something that waits for a person."""
    if item.attention_kind is AttentionKind.ORDER:
        return "Mend what the reason names. The order is judged again by itself from time to time, and at once with the button."
    if item.attention_kind is AttentionKind.REPORT:
        return what_to_do(ReportState(item.state), item.reason)
    if item.state == JobState.NEEDS_REVIEW:
        return "Look at the other side whether it happened: if so, mark it done; if it certainly did not, retry it."
    kind = JobKind(str(item.kind))
    ways = "retry it, mark it done if it happened otherwise, or dismiss it" if can_be_marked_done(kind) else "retry or dismiss it"
    return f"Mend what the reason names; then {ways}."


def retry_explanation(kind: JobKind | str, state: JobState | str) -> str:
    """What the retry button does, as it stands on the page."""
    return describe_retry(JobKind(kind), JobState(state))


def is_unconfirmed_submit(job: Job) -> bool:
    """Whether a retry may give the laboratory system the same order twice: only a person who has looked there may ask for it."""
    return job.kind is JobKind.SUBMIT_ORDER and job.state is JobState.NEEDS_REVIEW


def find_unconfirmed_submit(detail: OrderDetail) -> Job | None:
    """The effect of an order that a person has to decide about before all of it may be retried."""
    return next((job for job in detail.jobs if is_unconfirmed_submit(job)), None)


def format_age(since: datetime | None, now: datetime) -> str:
    """How long ago, in the two largest units: `3 d 4 h`, `12 min`, `8 s`; `in 5 min` for what is to come."""
    if since is None:
        return "never"
    seconds = int((now - since).total_seconds())
    if seconds < 0:
        return f"in {_format_duration(-seconds)}"
    return _format_duration(seconds)


def _format_duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def format_timestamp(at: datetime | None) -> str:
    """A time to the second, in this machine's zone."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def utc_offset(now: datetime) -> str:
    """This machine's zone, as its offset."""
    offset = now.astimezone().strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:]}"
