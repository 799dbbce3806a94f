"""Which lines of an order a message of the LIS is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lab_agent.domain.ids import LineKey
from lab_agent.domain.journal import LineRecord
from lab_agent.domain.lifecycle import LineState
from lab_agent.domain.quoting import quoted
from lab_agent.domain.results import LabRefusal, LabReport, ReportStatus

_NOT_SERVED = frozenset({LineState.REQUESTED, LineState.HELD, LineState.REFUSED})


@dataclass(frozen=True, slots=True)
class Names:
    """By what a message may name parts of an order, each with its lines: `codes` (nomenclature codes and laboratory codes),
    `tubes` (barcodes); `accession` is the laboratory's number of the whole order, if it gave one.
    """

    codes: Mapping[str, Sequence[LineKey]]
    tubes: Mapping[str, Sequence[LineKey]] = field(default_factory=dict)
    accession: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The `lines` that a message is about, those that it `completes`, those not performed with the reason; or a `problem`.

    `extra` are items that the order does not have: tests that the laboratory did besides, on the lines that it names
    (interface: Laboratory-side endpoints). `withdrawn` are lines that the message is about and that the partner withdrew: they
    are among `lines` only where there is no other, and never among `completes`.
    """

    lines: tuple[LineKey, ...] = ()
    completes: tuple[LineKey, ...] = ()
    not_performed: Mapping[LineKey, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    withdrawn: tuple[LineKey, ...] = ()
    problem: str | None = None


class _UnknownName(LookupError):
    """A name that is no line and no item of the order."""


def cover(message: LabReport | LabRefusal, lines: Sequence[LineRecord], names: Names) -> Coverage:
    """Say what `message` covers.

    Lines are named by key or by item code; where none is named, those of the tube or of the line whose number the message gives,
    else all served lines are meant. The laboratory may have worked on a line before it heard that it was withdrawn: such a line
    is covered where nothing else is, and else left aside. An item that the order does not have is an extra test, if the report
    also names a line. A final report completes what it covers, unless it says otherwise, or says that a line was not performed,
    or states extra tests alone, or says nothing but what was not performed.
    """
    served = {line.key for line in lines if line.state not in _NOT_SERVED}
    gone = {line.key for line in lines if line.state is LineState.WITHDRAWN}
    try:
        ours, extra = _items(message, lines, names)
        named = _named(ours, lines, names)
        meant = named or tuple(line.key for line in lines if line.key in served & _numbered(message, lines, names))
        covered = tuple(key for key in meant if key not in gone) or meant
        absent = {
            key: entry.reason
            for entry in message.not_performed
            for key in (_named(filter(None, (entry.line, entry.item)), lines, names) or covered)
        }
        completes = _completes(message, covered, lines, names, only_extra=bool(extra) and set(ours) <= set(_lines(message)))
    except _UnknownName as unknown:
        return Coverage(problem=f"{quoted(str(unknown))} is no line and no item of this order")
    if strange := [key for key in (*named, *absent) if key not in served]:
        return Coverage(problem=f"line {strange[0]} did not go to the laboratory; nothing is expected for it")
    if not covered:
        return Coverage(problem="no line of this order is served; nothing is expected for it")
    completes = tuple(key for key in completes if key not in absent and key in served - gone)
    return Coverage(covered, completes, absent, extra, tuple(key for key in (named or covered) if key in gone))


def _numbered(message: LabReport | LabRefusal, lines: Sequence[LineRecord], names: Names) -> frozenset[LineKey]:
    """The lines that the numbers of a message leave: its tube's, its line's; all of them where it gives none but the order's.

    A tube says nothing where a line has none: such a line would never be meant.
    """
    left = frozenset(line.key for line in lines)
    in_tubes = {key for tube in names.tubes.values() for key in tube}
    if message.barcode and all(line.key in in_tubes for line in lines if line.state not in _NOT_SERVED):
        left = frozenset(names.tubes.get(message.barcode) or left)
    if message.accession and message.accession != names.accession:
        left = left & {line.key for line in lines if line.accession == message.accession} or left
    return left


def only_refuses(report: LabReport) -> bool:
    """Whether a report says nothing but what was not performed: uploaded, it would tell the clinic nothing."""
    return bool(report.not_performed) and not (report.observations or report.documents)


def _lines(message: LabReport | LabRefusal) -> tuple[str, ...]:
    return message.lines if isinstance(message, LabReport) else ()


def _items(message: LabReport | LabRefusal, lines: Sequence[LineRecord], names: Names) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a report names of the order, and the extra tests; without a line beside them, nobody could say whose they are."""
    if not isinstance(message, LabReport):
        return (), ()
    known = {*names.codes, *(line.key for line in lines)}
    extra = tuple(item for item in message.items if item not in known)
    ours = (*message.lines, *(item for item in message.items if item in known))
    if extra and not ours:
        raise _UnknownName(extra[0])
    return ours, extra


def _completes(
    message: LabReport | LabRefusal, covered: tuple[LineKey, ...], lines: Sequence[LineRecord], names: Names, *, only_extra: bool
) -> tuple[LineKey, ...]:
    if not isinstance(message, LabReport) or message.status is not ReportStatus.FINAL:
        return ()
    if message.completes is None:
        return () if only_extra or only_refuses(message) else covered
    return _named(message.completes, lines, names)


def _named(given: Iterable[str], lines: Sequence[LineRecord], names: Names) -> tuple[LineKey, ...]:
    keys = {line.key for line in lines}
    found: dict[LineKey, None] = {}
    for name in given:
        if name in keys:
            found[LineKey(name)] = None
        elif name in names.codes:
            found.update(dict.fromkeys(names.codes[name]))
        else:
            raise _UnknownName(name)
    return tuple(found)
