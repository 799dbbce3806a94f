"""What is missing for the tried messages, as lines to add: each once, and only those that are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage
from lab_agent.results.code_translation import MissingKind
from lab_agent.results.trial.table_rows import TableRow, rows_for
from lab_agent.results.trial.trial_outcomes import PartOutcome


@dataclass(frozen=True, slots=True)
class Proposals:
    """Lines for the adapter's map and settings, and rows for the mapping tables."""

    map_lines: tuple[MapSuggestion, ...]
    rows: tuple[TableRow, ...]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.map_lines or self.rows)

    def __add__(self, more: Proposals) -> Proposals:
        """Both."""
        return Proposals(self.map_lines + more.map_lines, self.rows + more.rows)


@dataclass(frozen=True, slots=True)
class TriedMessage:
    """A message as the adapter read it, and what would become of its parts; `name` is its file.

    `barcodes` are those of the orders, as far as suggestions name any.
    """

    name: str
    parsed: ParsedMessage
    outcomes: tuple[PartOutcome, ...]
    barcodes: Collection[str] = ()


def collect_proposals(tried: Iterable[TriedMessage]) -> Proposals:
    """The proposals of all messages; also of one that would be delivered, but as something else than its sender means."""
    lines: dict[tuple[str, str], MapSuggestion] = {}
    outcomes: list[PartOutcome] = []
    for message in tried:
        outcomes += message.outcomes
        for each in message.parsed.suggestions:
            if _is_needed(each, message):
                lines[each.table, each.key] = _merge(lines.get((each.table, each.key), each), each)
    return Proposals(tuple(lines.values()), rows_for(outcomes))


def _merge(first: MapSuggestion, second: MapSuggestion) -> MapSuggestion:
    """One line for what two messages lack: the value that one of them is certain of; a question where they differ in one."""
    if first.value is None or second.value is None:
        return second if first.value is None else first
    is_choice = first.value != second.value and first.value.startswith('"')
    return replace(first, value=None, reason=f"messages differ: {first.value} or {second.value}") if is_choice else first


def _is_needed(suggestion: MapSuggestion, message: TriedMessage) -> bool:
    if suggestion.unless_item is not None:
        return any(suggestion.unless_item in outcome.unknown_items for outcome in message.outcomes)
    if suggestion.if_codes:
        missing = (each for outcome in message.outcomes for each in outcome.missing if each.kind is MissingKind.CODE)
        return any(each.value in suggestion.if_codes for each in missing)
    if suggestion.if_barcode is not None:
        return suggestion.if_barcode in message.barcodes and any(outcome.order is None for outcome in message.outcomes)
    return True
