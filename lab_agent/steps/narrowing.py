"""A message as if it had named the order, and of its lines those alone, that a person says it is about. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from lab_agent.domain.coverage import is_only_not_performed
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.results import AccessionUpdate, LabMessage, LabReport, NotPerformed

LineCodes = Mapping[str, Sequence[LineKey]]
"""What a message may call a line of the order (line keys, nomenclature codes, laboratory codes) → its lines."""


def assign_to_order(message: LabMessage, order: OrderKey, lines: tuple[LineKey, ...], codes: LineCodes) -> LabMessage:
    """Give the message for this order, and for these of its lines alone, if any are given.

    What a message says of other lines is left out; what nobody here can name is meant for those that the person names. Beside
    results, a name that nobody knows stays where it says what was not performed: it may be any line, so nobody may complete it.
    """
    if isinstance(message, AccessionUpdate):
        return replace(message, order=order, barcode=None)
    message = replace(message, order=order, accession=None, barcode=None)
    if isinstance(message, LabReport):
        return _restrict_report(message, lines, codes) if lines else replace(message, lines=())
    return replace(message, not_performed=_restrict_rejection(message.not_performed, lines, codes)) if lines else message


def _restrict_report(report: LabReport, lines: tuple[LineKey, ...], codes: LineCodes) -> LabReport:
    if is_only_not_performed(report):
        return replace(
            report, lines=lines, items=(), completes=None, not_performed=_restrict_rejection(report.not_performed, lines, codes)
        )
    items = tuple(_restrict_items(report, lines, codes))
    if report.completes is not None:
        named = (key for name in report.completes for key in codes.get(name, lines))
        completes: tuple[str, ...] | None = tuple(dict.fromkeys(key for key in named if key in lines))
    else:  # an item that is left out was a test of these lines all the same: what remains is no extra test alone
        completes = lines if len(items) < len(report.items) else None
    unknown = (each for each in report.not_performed if any(name not in codes for name in _entry_names(each)))
    absent = (*_restrict_not_performed(report.not_performed, lines, codes, unknown=()), *unknown)
    return replace(report, lines=lines, items=items, completes=completes, not_performed=absent)


def _restrict_items(report: LabReport, lines: Collection[LineKey], codes: LineCodes) -> Iterator[str]:
    """The items of these lines, and extra tests: what the order does not have, beside something that it has."""
    has_own = bool(report.lines) or any(item in codes for item in report.items)
    for item in report.items:
        if set(codes[item]) <= set(lines) if item in codes else has_own:
            yield item


def _restrict_rejection(
    entries: tuple[NotPerformed, ...], lines: tuple[LineKey, ...], codes: LineCodes
) -> tuple[NotPerformed, ...]:
    """What is said of these lines; where nothing is, the person says that the whole of it is."""
    said = tuple(_restrict_not_performed(entries, lines, codes, unknown=lines))
    return said or tuple(NotPerformed(line=line, reason=each.reason) for each in entries for line in lines)


def _restrict_not_performed(
    entries: tuple[NotPerformed, ...], lines: tuple[LineKey, ...], codes: LineCodes, *, unknown: tuple[LineKey, ...]
) -> Iterator[NotPerformed]:
    """What is said of these lines, each by its key; `unknown` are those that are meant by a name that nobody here knows."""
    for entry in entries:
        named = _entry_names(entry)
        keys = [key for name in named for key in codes.get(name, unknown)] if named else [*lines]
        for key in dict.fromkeys(keys):
            if key in lines:
                yield NotPerformed(line=key, reason=entry.reason)


def _entry_names(entry: NotPerformed) -> list[str]:
    return [name for name in (entry.line, entry.item) if name]
