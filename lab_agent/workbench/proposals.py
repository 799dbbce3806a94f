"""What is missing for the tried messages, as lines to add: each once, and only those that are needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab_agent.ports.lis import MapSuggestion, ParsedMessage
from lab_agent.workbench.rehearsal import PartOutcome
from lab_agent.workbench.table_rows import TableRow, rows_for


@dataclass(frozen=True, slots=True)
class Proposals:
    """Lines for the adapter's map and settings, and rows for the mapping tables."""

    map_lines: tuple[MapSuggestion, ...]
    rows: tuple[TableRow, ...]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.map_lines or self.rows)


def collect_proposals(tried: Iterable[tuple[ParsedMessage, tuple[PartOutcome, ...]]]) -> Proposals:
    """The proposals of all messages that lack something."""
    lines: dict[tuple[str, str], MapSuggestion] = {}
    outcomes: list[PartOutcome] = []
    for parsed, of_message in tried:
        outcomes += of_message
        if all(outcome.is_delivered for outcome in of_message):
            continue
        unknown = {item for outcome in of_message for item in outcome.unknown_items}
        for each in parsed.suggestions:
            if each.unless_item is None or each.unless_item in unknown:
                lines.setdefault((each.table, each.key), each)
    return Proposals(tuple(lines.values()), rows_for(outcomes))
