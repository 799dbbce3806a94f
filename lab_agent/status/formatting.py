"""Text on the pages: flash messages, what a state means and what to do next, and values, ages and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from lab_agent.lis import value_text
from lab_agent.lis.lab_messages import AccessionUpdate, Document, LabMessage, LabRejection, LabReport, ReportedObservation
from lab_agent.lis.serialization import load_stored_message
from lab_agent.operations.report import to_open_condition
from lab_agent.orders.job_actions import can_be_marked_done, describe_retry
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.hold_reasons import what_to_do
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_history import kept_names
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.shared.systemd_units import with_typed_commands
from lab_agent.shared.text import escape_unprintable, format_age
from lab_agent.shared.values import DateOrTime, PartialDate, SampledData, to_local
from lab_agent.status.translation import gettext, marked
from lab_agent.status.wording import cause_of, title_of
from lab_agent.store.event_records import Alert
from lab_agent.store.read_models import AttentionItem, AttentionKind, OrderDetail

MESSAGE_KINDS = {LabReport: "report", LabRejection: "rejection", AccessionUpdate: "accession_update"}


@dataclass(frozen=True, slots=True)
class ResultView:
    """A stored message with its content; `message` is None where this version cannot read it.

    `kept` are the observations that it keeps of the version before it.
    """

    report: ReportRecord
    message: LabMessage | None
    kept: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`report`, `rejection`, `accession_update` or `unreadable`."""
        return "unreadable" if self.message is None else MESSAGE_KINDS[type(self.message)]

    @property
    def documents(self) -> tuple[Document, ...]:
        """Documents of a report, without the observations that are attachments."""
        return self.message.documents if isinstance(self.message, LabReport) else ()


def load_result(report: ReportRecord) -> ResultView:
    """Read the content of a stored message."""
    try:
        return ResultView(report, load_stored_message(report.body), kept_names(report))
    except DataInvalidError:
        return ResultView(report, None)


def order_references(result: ResultView) -> tuple[tuple[str, str], ...]:
    """The numbers by which the message refers to its order, as `(kind, value)`; none of them names a patient."""
    return tuple(_iter_references(result.message)) if result.message else ()


def _iter_references(message: LabMessage) -> Iterator[tuple[str, str]]:
    if message.order:
        yield marked("order"), message.order
    for line in message.lines if isinstance(message, LabReport) else ():
        yield marked("line"), line
    if message.accession and not isinstance(message, AccessionUpdate):
        yield marked("accession"), message.accession
    if message.barcode:
        yield marked("barcode"), message.barcode


def format_observation(observation: ReportedObservation) -> str:
    """The value of an observation."""
    if observation.value_sampled_data is not None:
        return _format_sampled_data(observation.value_sampled_data)
    if observation.value_attachment is not None:
        return gettext("a document, %(type)s") % {"type": observation.value_attachment.content_type}
    return value_text.format_value(observation)


def format_size(byte_count: int | None) -> str:
    """The approximate size of a document; None is one that was purged."""
    if byte_count is None:
        return gettext("no longer stored")
    for unit, many in (("MB", 1_000_000), ("kB", 1_000)):
        if byte_count >= many:
            size = f"{byte_count / many:.1f} {unit}" if byte_count < 10 * many else f"{byte_count // many} {unit}"
            return gettext("about %(size)s") % {"size": size}
    return gettext("less than 1 kB")


def _format_sampled_data(data: SampledData) -> str:
    return f"{data.data} (every {data.period:f} ms, from {value_text.format_quantity(data.origin)})"


_PLACEHOLDER = re.compile(r"\{\w+\}")
_LEFT_OVER = "{left} were left as they are; what waits still is listed here."
FLASH_MESSAGES = {
    "retried": "Job {job} is due now; the worker picks it up within seconds.",
    "dismissed": "Job {job} was dismissed and will not be done.",
    "done": "Job {job} was marked as done.",
    "group-retry": "{done} are due now; the worker takes them up within seconds.",
    "group-assess": "{done} are being assessed again; those that are right by now go on.",
    "group-dismiss": "{done} were dismissed.",
    "group-release": "{done} were released.",
    "sign-in-refreshed": "The sign-in was refreshed.",
    "sign-in-forgotten": "The sign-in was deleted. Nothing is fetched or delivered until somebody signs in again.",
    "adapter-paused": marked(
        "The laboratory system is paused: nothing is handed over, cancelled or verified there until it is resumed."
    ),
    "adapter-resumed": marked("The laboratory system is resumed; what has waited for it goes on within seconds."),
    "orders-retried": "What waits of {done} is due now; the worker takes it up within seconds.",
    "order-retried": "All waiting jobs of this order are due now; the worker picks them up within seconds.",
    "order-released": marked("The order is released, and is being assessed again."),
    "order-rejected": marked("The order is rejected; its Tasks are being updated, and the clinic reads your reason."),
    "line-accepted": marked("The line is accepted; its results will be delivered."),
    "line-rejected": marked("The line is rejected; its Task is being updated, and the clinic reads your reason."),
    "result-matched": "The result is matched; the worker delivers it within seconds.",
    "result-delivered": "The result has taken effect.",
    "result-superseded": "A newer version arrived before this one; this one is kept but not delivered.",
    "result-dismissed": "The result was dismissed; it is kept but not delivered.",
    "result-held-back": "The result is still waiting; its reason says why.",
    "mappings-released": "Every result that the mapping tables now cover was released; what is still waiting is listed here.",
    "refused-replayed": "Everything in the message was taken in; its results go their way within seconds.",
    "refused-still-waiting": "The message is still waiting: a part of it was refused again. Its other parts were taken in.",
    "refused-dismissed": "Dismissed; it does not wait any more.",
    "stopped": "The test is stopped; partners see it with their next request.",
    "delayed": "The test is delayed; partners see it with their next request.",
    "announced-overridden": (
        "The notice was announced. In some contracts a more severe notice applies, and partners see that one; it is listed here."
    ),
    "lifted": "The notice was lifted; the test is available as usual.",
    "lifted-still-limited": (
        "The notice was lifted. In some contracts the test is still stopped or delayed by the notices listed here."
    ),
    "lifted-later": "The notice was lifted; the test is available as usual for now. Upcoming notices are listed here.",
    "lifted-unknown": "The notice was lifted. Whether the catalogue's sheet notices still limits the test is unknown.",
    "user-added": marked("The user was added."),
    "user-removed": marked("The user was removed, and is signed out everywhere."),
    "role-changed": marked("The role was changed; the user has to sign in again."),
    "reveal-given": marked("The user may now search for patients and see their names, and has to sign in again."),
    "reveal-taken": marked("The user may no longer search for patients or see their names, and has to sign in again."),
    "password-set": marked("The new password is set; the user has to sign in with it."),
    "own-password-set": marked("Your new password is set; your other sessions were ended."),
    "session-ended": marked("The session was ended."),
    "sessions-ended": marked("The sessions were ended: {done}."),
    "nothing-changed": marked("Nothing was changed: it was so already."),
    "rule-released": "The rule can reject orders again; the orders that it had held are being reassessed.",
}


async def flash_message(flash: str = "", job: str = "", done: str = "", left: str = "") -> str | None:
    """The sentence for `?flash=…&job=…`; None for anything else, so that an address cannot put words on the page."""
    message = FLASH_MESSAGES.get(flash)
    if message is None or not all(_is_number(each) for each in (job, done, left) if each):
        return None
    left_over = gettext(_LEFT_OVER).format(left=left) if left.strip("0") else ""
    return f"{gettext(message).format(job=job, done=done)} {left_over}".rstrip()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


_ORDER_STATE_MEANINGS = {
    OrderState.SEEN: "found by the poll, or offered again after its end; its resources are being fetched",
    OrderState.FETCHED: "assessed and accepted; being submitted to its laboratory systems",
    OrderState.HELD: (
        "needs an operator, or waits for the partner: the cause may be on our side, or its Tasks are not requested now, so "
        "nothing is rejected; it is reassessed automatically"
    ),
    OrderState.HANDED_OVER: "in its laboratory systems; results are awaited",
    OrderState.REPORTED: "every line is finished; the order-level Task is updated next",
    OrderState.REJECTED: "rejected; nothing goes to the laboratory, and the Tasks are being updated",
    OrderState.WITHDRAWN: "withdrawn by the partner or the service; the laboratory system is being informed",
    OrderState.CLOSED: "finished; a corrected result is still delivered, and an order that is offered again is taken up again",
}
_WORK_ORDER_STATE_MEANINGS = {
    WorkOrderState.ACCEPTED: "accepted; on its way to its laboratory system",
    WorkOrderState.HANDED_OVER: "in its laboratory system; the results of its lines are awaited",
    WorkOrderState.CANCELLED: "does not go to its laboratory system: its lines were withdrawn, cancelled or decided anew",
}
_LINE_STATE_MEANINGS = {
    LineState.REQUESTED: "not decided yet; its Task is as the partner created it",
    LineState.HELD: "arrived after its order was assessed, or was put back after its end; an operator accepts or rejects it",
    LineState.REJECTED: "rejected; its Task is cancelled with the reason",
    LineState.ACCEPTED: "accepted; on its way to the laboratory system, or there",
    LineState.RESULTED: "a final report is being delivered",
    LineState.COMPLETED: "finished; its Task is completed",
    LineState.CANCELLED: "the laboratory cannot perform it; its Task is cancelled with the reason",
    LineState.WITHDRAWN: "its Task was ended by someone else",
}
_REPORT_STATE_MEANINGS = {
    ReportState.RECEIVED: "stored; its order is being looked up",
    ReportState.MATCHED: "matched to its order; on its way to the service",
    ReportState.UNMATCHED: "fits no order, or more than one; an operator decides",
    ReportState.UNMAPPED: "has a code without a mapping; can be released once the mapping tables have it",
    ReportState.HELD: "not delivered automatically; an operator decides",
    ReportState.DELIVERED: "delivered to the service",
    ReportState.SUPERSEDED: "replaced by a newer version",
    ReportState.DISMISSED: "dismissed by an operator; never delivered",
}
_JOB_STATE_MEANINGS = {
    JobState.DUE: "is done at its time",
    JobState.IN_FLIGHT: "is being done by a worker",
    JobState.OUTCOME_UNKNOWN: "may have happened; verified before it is tried again",
    JobState.NEEDS_REVIEW: "may have happened, and cannot be verified automatically; an operator decides",
    JobState.DEAD_LETTER: "failed, and retrying will not help by itself; an operator decides",
    JobState.DONE: "done",
    JobState.OBSOLETE: "no longer needed",
    JobState.DISMISSED: "dismissed by an operator; never done",
}
_JOB_KIND_NAMES = {
    JobKind.FETCH_ORDER: "Fetch and assess the order",
    JobKind.SUBMIT_ORDER: "Submit the order to the laboratory system",
    JobKind.CANCEL_AT_LIS: "Cancel the order at the laboratory system",
    JobKind.MATCH_REPORT: "Match a result to its order",
    JobKind.DELIVER_REPORT: "Deliver a report",
    JobKind.UPDATE_LINE_TASK: "Update a line's Task",
    JobKind.UPDATE_ORDER_TASK: "Update the order-level Task",
}


def alert_text(alert: Alert) -> str:
    """What an alert says, in one line."""
    found = to_open_condition(alert)
    return f"{title_of(found)}: {cause_of(found)}"


def without_control_characters(value: object) -> object:
    """What a template prints, where it is text from elsewhere: it steers no terminal and reorders nothing on the page."""
    return escape_unprintable(value) if type(value) is str and not value.isprintable() else value


def with_code(text: str) -> Markup:
    """Text with what stands in backticks as code, as in the table of conditions; everything else is escaped."""
    parts = escape_unprintable(with_typed_commands(text)).split("`")
    if len(parts) % 2 == 0:  # a backtick without its fellow, as in a foreign text
        return escape("`".join(parts))
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def state_meaning(state: OrderState | WorkOrderState | LineState | ReportState | JobState) -> str:
    """What a state means, in one line; for the pages and for docs/states.md."""
    match state:
        case OrderState():
            return gettext(_ORDER_STATE_MEANINGS[state])
        case WorkOrderState():
            return gettext(_WORK_ORDER_STATE_MEANINGS[state])
        case LineState():
            return gettext(_LINE_STATE_MEANINGS[state])
        case ReportState():
            return gettext(_REPORT_STATE_MEANINGS[state])
        case JobState():
            return gettext(_JOB_STATE_MEANINGS[state])


def state_name(state: OrderState | WorkOrderState | LineState | ReportState | JobState | str) -> str:
    """A state in words, as on its badge."""
    return gettext(str(getattr(state, "value", state)).replace("_", " "))


def job_kind_name(kind: JobKind | str) -> str:
    """What a job does, as a heading."""
    return gettext(_JOB_KIND_NAMES[JobKind(kind)])


NEXT_STEPS = {
    AttentionKind.ORDER: "Fix what the reason names. The order is reassessed automatically; “Assess again now” does it at once.",
    AttentionKind.LINE: "Enter it in the laboratory system, and accept it on its order's page; or reject it there.",
    AttentionKind.REFUSED: "See why it could not be read; correct the map or the laboratory system, then replay or dismiss it.",
}


def next_step(item: AttentionItem) -> str:
    """What to do about something that is waiting for an operator."""
    if item.attention_kind is AttentionKind.REPORT:
        return gettext(what_to_do(ReportState(item.state), item.hold_reason))
    if item.attention_kind in NEXT_STEPS:
        return gettext(NEXT_STEPS[item.attention_kind])
    if item.state == JobState.NEEDS_REVIEW:
        return gettext("Check on the other side whether it happened. If it did, mark it done; if it certainly did not, retry it.")
    if can_be_marked_done(JobKind(str(item.kind))):
        return gettext("Fix what the reason names; then retry it, mark it done if it was done some other way, or dismiss it.")
    return gettext("Fix what the reason names; then retry or dismiss it.")


def retry_explanation(kind: JobKind | str, state: JobState | str) -> str:
    """What the retry button does."""
    return gettext(describe_retry(JobKind(kind), JobState(state)))


def is_unconfirmed_submit(job: Job) -> bool:
    """Whether a retry may submit the same order twice, so that an operator has to confirm that it is not there."""
    return job.kind is JobKind.SUBMIT_ORDER and job.state is JobState.NEEDS_REVIEW


def find_unconfirmed_submit(detail: OrderDetail) -> Job | None:
    """The job that an operator has to settle before the whole order may be retried."""
    return next((job for job in detail.jobs if is_unconfirmed_submit(job)), None)


def rule_text(message: str) -> str:
    """What a rule says, for all orders: `…` stands for what it finds in one."""
    text = _PLACEHOLDER.sub("…", message.removeprefix("{where}: ")).replace("….", "…")
    return text[:1].upper() + text[1:]


def age_in_words(since: datetime | None, now: datetime) -> str:
    """How long ago, or in how long."""
    if since is None:
        return gettext("never")
    return format_age(since, now) if since <= now else gettext("in %(span)s") % {"span": format_age(now, since)}


def format_timestamp(at: DateOrTime | None) -> str:
    """A time to the second, in this machine's time zone; a date of which no time is known as it was given."""
    if isinstance(at, PartialDate):
        return at.text
    return "" if at is None else to_local(at).strftime("%Y-%m-%d %H:%M:%S")


def utc_offset(now: datetime) -> str:
    """This machine's time zone, as its offset."""
    offset = now.astimezone().strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:]}"
