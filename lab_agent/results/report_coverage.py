"""Which lines of an order a message of the LIS is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lab_agent.lis.lab_messages import LabRejection, LabReport, ReportStatus
from lab_agent.orders.records import LineRecord
from lab_agent.shared.ids import LineKey
from lab_agent.shared.state_machines import LineState
from lab_agent.shared.text import shorten

_NOT_SUBMITTED = frozenset({LineState.REQUESTED, LineState.HELD, LineState.REJECTED})


@dataclass(frozen=True, slots=True)
class OrderCodes:
    """By what a message may name parts of an order, each with its lines: nomenclature and laboratory `codes`, and `barcodes` of
    tubes. `accession` is the laboratory's number of the whole order, if it gave one.
    """

    codes: Mapping[str, Sequence[LineKey]]
    barcodes: Mapping[str, Sequence[LineKey]] = field(default_factory=dict)
    accession: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The `lines` that a message is about, those that it `completes`, those not performed with the reason; or a `problem`.

    `extra_items` are tests that the laboratory did beside those of the order, on the lines that it names (interface:
    Laboratory-side endpoints). `withdrawn` are lines that the message is about and that the partner withdrew: they are among
    `lines` only if there is no other, and never among `completes`.
    """

    lines: tuple[LineKey, ...] = ()
    completes: tuple[LineKey, ...] = ()
    not_performed: Mapping[LineKey, str] = field(default_factory=dict)
    extra_items: tuple[str, ...] = ()
    withdrawn: tuple[LineKey, ...] = ()
    problem: str | None = None


class _UnknownReference(LookupError):
    """A reference that is no line and no item of the order."""


def determine_coverage(message: LabReport | LabRejection, lines: Sequence[LineRecord], order_codes: OrderCodes) -> Coverage:
    """Say what `message` covers.

    Lines are named by key or by item code; if none is named, those of the tube or of the line whose number the message gives,
    else all submitted lines are meant. The laboratory may have worked on a line before it learned that it was withdrawn: such a
    line is covered if nothing else is, and else left out. An item that the order does not have is an extra test, if the report
    also names a line; where the message gives the number of one line alone, it is the laboratory's own name of that line's test.
    A final report completes what it covers, unless it says otherwise, or says that a line was not performed, or states extra
    tests alone, or says nothing but what was not performed. One that completes what its own number means completes that line,
    and none where the number means several.
    """
    served = {line.key for line in lines if line.state not in _NOT_SUBMITTED}
    gone = {line.key for line in lines if line.state is LineState.WITHDRAWN}
    try:
        ours, extra = _split_items(message, lines, order_codes)
        named = _resolve_lines(ours, lines, order_codes)
        meant = named or tuple(line.key for line in lines if line.key in served & _lines_by_numbers(message, lines, order_codes))
        covered = tuple(key for key in meant if key not in gone) or meant
        absent = {
            key: entry.reason
            for entry in message.not_performed
            for key in (_resolve_lines(filter(None, (entry.line, entry.item)), lines, order_codes) or covered)
        }
        completes = _completed_lines(
            message, covered, lines, order_codes, only_extra=bool(extra) and set(ours) <= set(_message_lines(message))
        )
    except _UnknownReference as unknown:
        return Coverage(problem=f"{shorten(str(unknown))} is no line and no item of this order")
    if strange := [key for key in (*named, *absent) if key not in served]:
        return Coverage(problem=f"line {strange[0]} did not go to the laboratory; no result is expected for it")
    if not covered:
        return Coverage(problem="no line of this order went to the laboratory; no result is expected for it")
    completes = tuple(key for key in completes if key not in absent and key in served - gone)
    return Coverage(covered, completes, absent, extra, tuple(key for key in (named or covered) if key in gone))


def _lines_by_numbers(
    message: LabReport | LabRejection, lines: Sequence[LineRecord], order_codes: OrderCodes
) -> frozenset[LineKey]:
    """The lines that the numbers of a message mean: those of its tube, of its line; all if it gives only the order's number.

    A tube is ignored if some line has none: such a line would never be meant.
    """
    left = frozenset(line.key for line in lines)
    in_tubes = {key for tube in order_codes.barcodes.values() for key in tube}
    if message.barcode and all(line.key in in_tubes for line in lines if line.state not in _NOT_SUBMITTED):
        left = frozenset(order_codes.barcodes.get(message.barcode) or left)
    if message.accession and message.accession != order_codes.accession:
        left = left & {line.key for line in lines if line.accession == message.accession} or left
    return left


def is_only_not_performed(report: LabReport) -> bool:
    """Whether a report says nothing but what was not performed: uploaded, it would tell the clinic nothing."""
    return bool(report.not_performed) and not (report.observations or report.documents)


def _message_lines(message: LabReport | LabRejection) -> tuple[str, ...]:
    return message.lines if isinstance(message, LabReport) else ()


def _split_items(
    message: LabReport | LabRejection, lines: Sequence[LineRecord], order_codes: OrderCodes
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a report names of the order, and the extra tests, which must have a line beside them."""
    if not isinstance(message, LabReport):
        return (), ()
    known = {*order_codes.codes, *(line.key for line in lines)}
    extra = tuple(item for item in message.items if item not in known)
    ours = (*message.lines, *(item for item in message.items if item in known))
    if extra and not ours:
        numbered = tuple(line.key for line in lines if message.accession and line.accession == message.accession)
        if len(numbered) != 1:
            raise _UnknownReference(extra[0])
        return numbered, ()
    return ours, extra


def _completed_lines(
    message: LabReport | LabRejection,
    covered: tuple[LineKey, ...],
    lines: Sequence[LineRecord],
    order_codes: OrderCodes,
    *,
    only_extra: bool,
) -> tuple[LineKey, ...]:
    if not isinstance(message, LabReport) or message.status is not ReportStatus.FINAL:
        return ()
    if message.completes is None:
        return () if only_extra or is_only_not_performed(message) else covered
    numbers = {message.order, message.accession, message.barcode} - set(order_codes.codes)
    named = tuple(name for name in message.completes if name not in numbers)
    if len(named) < len(message.completes) and len(covered) == 1:
        return (*covered, *_resolve_lines(named, lines, order_codes))
    return _resolve_lines(named, lines, order_codes)


def _resolve_lines(references: Iterable[str], lines: Sequence[LineRecord], order_codes: OrderCodes) -> tuple[LineKey, ...]:
    keys = {line.key for line in lines}
    found: dict[LineKey, None] = {}
    for name in references:
        if name in keys:
            found[LineKey(name)] = None
        elif name in order_codes.codes:
            found.update(dict.fromkeys(order_codes.codes[name]))
        else:
            raise _UnknownReference(name)
    return tuple(found)
