"""What a result says, in words of the page: values digit for digit, what it names its order by, how large a document is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab_agent.codec import load_stored_message
from lab_agent.domain import value_words
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.results import AccessionUpdate, Document, LabMessage, LabRejection, LabReport, ReportedObservation
from lab_agent.domain.values import SampledData
from lab_agent.errors import DataInvalidError

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
    return value_words.format_value(observation)


def format_size(byte_count: int | None) -> str:
    """About how large a document is; one that is not kept any more has no size."""
    if byte_count is None:
        return "not kept any more"
    for unit, many in (("MB", 1_000_000), ("kB", 1_000)):
        if byte_count >= many:
            return f"about {byte_count / many:.1f} {unit}" if byte_count < 10 * many else f"about {byte_count // many} {unit}"
    return "less than 1 kB"


def _format_sampled_data(data: SampledData) -> str:
    return f"{data.data} (every {data.period:f} ms, from {value_words.format_quantity(data.origin)})"
