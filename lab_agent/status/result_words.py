"""What a result says, in words of the page: values digit for digit, what it names its order by, how large a document is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab_agent.codec import load_kept
from lab_agent.domain import value_words
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.results import Document, LabMessage, LabReceipt, LabRefusal, LabReport, ReportedObservation
from lab_agent.domain.values import SampledData
from lab_agent.errors import DataInvalidError

_SORTS = {LabReport: "report", LabRefusal: "refusal", LabReceipt: "receipt"}


@dataclass(frozen=True, slots=True)
class Result:
    """A message with its content; `message` is None where this program cannot read what is kept."""

    report: ReportRecord
    message: LabMessage | None

    @property
    def sort(self) -> str:
        """What it is: a report, a refusal, a receipt, or `unreadable`."""
        return "unreadable" if self.message is None else _SORTS[type(self.message)]

    @property
    def documents(self) -> tuple[Document, ...]:
        """Documents of a report; not the values that are files."""
        return self.message.documents if isinstance(self.message, LabReport) else ()


def opened(report: ReportRecord) -> Result:
    """The message with its content."""
    try:
        return Result(report, load_kept(report.body))
    except DataInvalidError:
        return Result(report, None)


def names(result: Result) -> tuple[tuple[str, str], ...]:
    """What the message names its order by, as `(what, value)`; no patient is among it."""
    return tuple(_names(result.message)) if result.message else ()


def _names(message: LabMessage) -> Iterator[tuple[str, str]]:
    if message.order:
        yield "order", message.order
    for line in message.lines if isinstance(message, LabReport) else ():
        yield "line", line
    if message.accession and not isinstance(message, LabReceipt):
        yield "accession", message.accession
    if message.barcode:
        yield "barcode", message.barcode


def value(one: ReportedObservation) -> str:
    """The value of an observation."""
    if one.value_sampled_data is not None:
        return _series(one.value_sampled_data)
    if one.value_attachment is not None:
        return f"a document, {one.value_attachment.content_type}"
    return value_words.value_of(one)


def size(count: int | None) -> str:
    """About how large a document is; one that is not kept any more has no size."""
    if count is None:
        return "not kept any more"
    for unit, many in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= many:
            return f"about {count / many:.1f} {unit}" if count < 10 * many else f"about {count // many} {unit}"
    return "less than 1 kB"


def _series(data: SampledData) -> str:
    return f"{data.data} (every {data.period:f} ms, from {value_words.amount(data.origin)})"
