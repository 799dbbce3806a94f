"""The page's words: ages and times, what a state means, and what a person can do about what waits.

What a result says, in words of the page: values digit for digit, what it names its order by, how large a document is.

What a page says after a deed. The address carries a word of ours and a number, never a sentence that others could write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from lab_agent.domain import text
from lab_agent.domain.lab_messages import AccessionUpdate, Document, LabMessage, LabRejection, LabReport, ReportedObservation
from lab_agent.domain.records import Job, JobKind, ReportRecord
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.domain.values import SampledData
from lab_agent.errors import DataInvalidError
from lab_agent.ports.queries import AttentionItem, AttentionKind, OrderDetail
from lab_agent.serialization import load_stored_message
from lab_agent.workflow.hold_reasons import what_to_do
from lab_agent.workflow.operator_jobs import can_be_marked_done, describe_retry

_MESSAGE_KINDS = {LabReport: "report", LabRejection: "rejection", AccessionUpdate: "accession number"}


@dataclass(frozen=True, slots=True)
class ResultView:
    """A message with its content; `message` is None where this program cannot read what is kept."""

    report: ReportRecord
    message: LabMessage | None

    @property
    def kind(self) -> str:
        """What it is: a report, a refusal, a receipt, or `unreadable`."""
        return "unreadable" if self.message is None else _MESSAGE_KINDS[type(self.message)]

    @property
    def documents(self) -> tuple[Document, ...]:
        """Documents of a report; not the values that are files."""
        return self.message.documents if isinstance(self.message, LabReport) else ()


def load_result(report: ReportRecord) -> ResultView:
    """The message with its content."""
    try:
        return ResultView(report, load_stored_message(report.body))
    except DataInvalidError:
        return ResultView(report, None)


def order_references(result: ResultView) -> tuple[tuple[str, str], ...]:
    """What the message names its order by, as `(what, value)`; no patient is among it."""
    return tuple(_iter_references(result.message)) if result.message else ()


def _iter_references(message: LabMessage) -> Iterator[tuple[str, str]]:
    if message.order:
        yield "order", message.order
    for line in message.lines if isinstance(message, LabReport) else ():
        yield "line", line
    if message.accession and not isinstance(message, AccessionUpdate):
        yield "accession", message.accession
    if message.barcode:
        yield "barcode", message.barcode


def format_observation(observation: ReportedObservation) -> str:
    """The value of an observation."""
    if observation.value_sampled_data is not None:
        return _format_sampled_data(observation.value_sampled_data)
    if observation.value_attachment is not None:
        return f"a document, {observation.value_attachment.content_type}"
    return text.format_value(observation)


def format_size(byte_count: int | None) -> str:
    """About how large a document is; one that is not kept any more has no size."""
    if byte_count is None:
        return "not kept any more"
    for unit, many in (("MB", 1_000_000), ("kB", 1_000)):
        if byte_count >= many:
            return f"about {byte_count / many:.1f} {unit}" if byte_count < 10 * many else f"about {byte_count // many} {unit}"
    return "less than 1 kB"


def _format_sampled_data(data: SampledData) -> str:
    return f"{data.data} (every {data.period:f} ms, from {text.format_quantity(data.origin)})"


_FLASH_MESSAGES = {
    "retried": "Job {job} is due now; the worker takes it up within seconds.",
    "dismissed": "Job {job} was dismissed and stays undone.",
    "done": "Job {job} was marked as done.",
    "order": "Everything of this order that waited is due now; the worker takes it up within seconds.",
    "result-matched": "The result is matched; the worker delivers it within seconds.",
    "result-delivered": "The result has taken effect.",
    "result-superseded": "A newer version came before this one: it is kept, and goes nowhere.",
    "result-dismissed": "The result was dismissed: it is kept, and goes nowhere.",
    "result-waits": "The result still waits; its reason says why.",
    "mended": "What the tables can say was released; what still waits is listed here.",
    "seen": "The refused messages count as seen.",
    "stopped": "The test is stopped; partners see it with their next request.",
    "delayed": "The test is delayed; partners see it with their next request.",
    "outweighed": "It is announced. In some contract something graver holds, and partners see that: it is listed here.",
    "lifted": "The test is as usual again.",
    "lifted-still": "The notice was lifted. In some contract the test is still stopped or delayed: what holds is listed here.",
    "lifted-later": "The test is as usual for now; what is to come for it is listed here.",
    "lifted-unread": "The notice was lifted. Whether the sheet notices says something of the test is not known.",
    "released": "The rule may refuse again, and what it had held is judged anew.",
}


def flash_message(query: Mapping[str, str]) -> str | None:
    """The sentence for `?did=…&job=…`; None if nothing was done."""
    job = query.get("job", "")
    text = _FLASH_MESSAGES.get(query.get("did", ""))
    if text is None or (job and not (job.isascii() and job.isdigit() and len(job) < 19)):
        return None
    return text.format(job=job)


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
        return what_to_do(ReportState(item.state), item.hold_reason)
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
