"""`lab-agent adapter NAME try`: what captured messages would become, and what is missing for them. Nothing is changed without
`--write`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.adapter_trial import Trial, TrialInput, load_trial, open_rehearsal
from lab_agent.cli.adapter_try_output import messages_json, print_messages, print_proposals, proposals_json
from lab_agent.cli.adapter_try_write import NothingAnsweredError, write_proposals
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_error, print_json, print_line
from lab_agent.results.trial.captured_messages import CapturedMessage, read_captured
from lab_agent.results.trial.proposals import Proposals, TriedMessage, collect_proposals
from lab_agent.shared.errors import InputError
from lab_agent.shared.text import shorten

_MOST_ROUNDS = 5
_UNCODED_UNITS = 3
"""Exit code; 2 is that of a mistake of use."""
FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Files with messages, folders of such files, or - for standard input.")
]
MapOption = Annotated[
    Path | None, typer.Option("--map", metavar="MAP", help="The adapter's map (TOML), instead of that of the settings.")
]
TablesOption = Annotated[
    Path | None, typer.Option("--tables", metavar="FOLDER", help="The mapping tables, instead of those of the settings.")
]
OrderOption = Annotated[
    str | None, typer.Option("--order", metavar="KEY", help="Take every message as if it named this order and nothing else.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the adapter, such as time_zone=Europe/Berlin or csv.dialect=excel-de."
    ),
]


def try_messages(  # noqa: PLR0913, PLR0917 - one option for each thing that a trial may be told
    ctx: typer.Context,
    files: FilesArgument,
    map_file: MapOption = None,
    tables: TablesOption = None,
    order: OrderOption = None,
    assignments: SetOption = None,
    write: Annotated[bool, typer.Option("--write", help="Ask for what is missing, and add the lines to their files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --write: add what is certain, without asking.")] = False,
    show_patient: Annotated[bool, typer.Option("--show-patient", help="Show what names the patient.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what captured messages would become, and the lines that the map and the mapping tables lack; nothing is touched.

    NAME is a laboratory system of the settings, or, without settings, a kind of adapter such as hl7v2. Exit code 1 while
    something is missing; 3 if nothing is, and units of numbers go out without a code, since there is no table of units.
    """
    name = (ctx.parent.info_name if ctx.parent else None) or "hl7v2"
    if yes and not write:
        raise InputError("--yes belongs to --write")
    if write and not yes and (as_json or Path("-") in files):
        raise InputError("--write asks questions: use it without --json and -, or with --yes")
    given = TrialInput(
        name=name, config=config, map_file=map_file, tables=tables, order=order, assignments=tuple(assignments or ())
    )
    trial = load_trial(given)
    captured = list(read_captured(files, _read_standard_input))
    if not captured:
        raise InputError("no message was found")
    outcome = _try(trial, captured)
    if as_json:
        outcome = _write(trial, captured, outcome, ask=False) if write else outcome
        print_json(
            {
                "complete": outcome.is_complete,
                "uncoded_units": list(outcome.uncoded_units),
                "messages": messages_json(outcome.tried, show_patient=show_patient),
                "missing": proposals_json(outcome.proposals),
                "added": proposals_json(outcome.added),
            }
        )
    else:
        print_messages(outcome.tried, show_patient=show_patient)
        print_proposals(outcome.trial, outcome.proposals)
        outcome = _write(trial, captured, outcome, ask=not yes) if write else outcome
        print_line(f"\n{outcome.summary}")
    if not outcome.is_complete or outcome.uncoded_units:
        raise typer.Exit(_UNCODED_UNITS if outcome.is_complete else 1)


def _read_standard_input() -> bytes:
    return sys.stdin.buffer.read()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one round of a trial found."""

    trial: Trial
    tried: Sequence[TriedMessage]
    proposals: Proposals
    added: Proposals = field(default_factory=lambda: Proposals((), ()))

    @property
    def is_complete(self) -> bool:
        return not self.proposals and all(part.is_delivered for each in self.tried for part in each.outcomes)

    @property
    def summary(self) -> str:
        parts = [part for each in self.tried for part in each.outcomes]
        good = sum(part.is_delivered for part in parts)
        summary = f"Messages: {len(self.tried)}. Parts: {len(parts)}; {good} lack nothing, {len(parts) - good} lack something."
        units = ", ".join(map(shorten, self.uncoded_units))
        return f"{summary}\nUnits that would be sent without a code, as there is no units.csv: {units}." if units else summary

    @property
    def uncoded_units(self) -> tuple[str, ...]:
        outcomes = (part for each in self.tried for part in each.outcomes)
        return tuple(dict.fromkeys(unit for each in outcomes for unit in each.uncoded_units))


def _try(trial: Trial, captured: Sequence[CapturedMessage]) -> _Outcome:
    tried = asyncio.run(_try_all(trial, captured))
    return _Outcome(trial, tried, collect_proposals(tried))


def _write(trial: Trial, captured: Sequence[CapturedMessage], outcome: _Outcome, *, ask: bool) -> _Outcome:
    """Add the proposals and try again, as long as that shows more to add: a value that is refused hides what it lacks."""
    for _ in range(_MOST_ROUNDS):
        try:
            written = write_proposals(outcome.trial, outcome.proposals, ask=ask)
        except NothingAnsweredError as error:
            kept = "what was added before stays" if outcome.added else "nothing was changed"
            raise InputError(f"{error}; {kept}") from error
        if not written:
            break
        outcome = replace(_try(load_trial(trial.given), captured), added=outcome.added + written)
    return outcome


async def _try_all(trial: Trial, captured: Sequence[CapturedMessage]) -> list[TriedMessage]:
    async with open_rehearsal(trial) as opened:
        if opened.without_orders:
            print_error(f"Which order a message would meet is not known: {opened.without_orders}.")
        tried = []
        for message in captured:
            parsed = await trial.adapter.parse_message(message.data, message.name)
            outcomes = [await opened.rehearsal.rehearse(part) for part in parsed.parts]
            barcodes = await opened.rehearsal.known_barcodes(each.if_barcode for each in parsed.suggestions)
            tried.append(TriedMessage(message.name, parsed, tuple(outcomes), barcodes))
        return tried
