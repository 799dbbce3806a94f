"""Adds what `lab-agent adapter NAME try --write` proposes to the map, the settings and the mapping tables, after asking."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import available_timezones

import typer

from lab_agent.cli.adapter_trial import Trial
from lab_agent.cli.output import print_error
from lab_agent.lis.laboratory_system import MapSuggestion
from lab_agent.results.trial.map_lines import TomlLine, add_lines, paste_lines, split_table
from lab_agent.results.trial.proposals import Proposals
from lab_agent.results.trial.table_rows import TableRow, plan_changes, require_folder, write_changes
from lab_agent.settings.root import load_settings
from lab_agent.shared.atomic_file import rewrite_atomically, temporary_file

_SETTINGS_PREFIX = "lis"
_TIME_ZONE = "time_zone"


class NothingAnsweredError(Exception):
    """The input ended before a question was answered."""

    def __init__(self) -> None:
        super().__init__("nothing was answered")


@dataclass(frozen=True, slots=True)
class Target:
    """The file that lines belong into; None where it is not known, and `label` says what it is."""

    label: str
    file: Path | None = None


def lines_by_target(trial: Trial, suggestions: Iterable[MapSuggestion]) -> dict[Target, list[TomlLine]]:
    """The lines by the file that they belong into; a value that is not known is empty."""
    found: dict[Target, list[TomlLine]] = {}
    for each in suggestions:
        target, table = _target(trial, split_table(each.table) if each.table else ())
        value = each.value if each.value is not None else '""'
        found.setdefault(target, []).append(TomlLine(table, each.key, value))
    return found


def write_proposals(trial: Trial, proposals: Proposals, *, ask: bool) -> Proposals:
    """Ask for what only a person knows, show the change, and make it. Without `ask`, only what is certain is added.

    Returns what was added.

    Every file is checked as it would be before any is written. Raises `NothingAnsweredError`, `InputError`, `TomlEditError`,
    `MappingsError`, `OSError`.
    """
    suggestions = [each for line in proposals.map_lines if (each := _with_value(line, ask=ask))]
    rows = [filled for row in proposals.rows if (filled := _with_target(row, ask=ask))]
    texts = _planned_files(trial, suggestions)
    changes = plan_changes(require_folder(trial.settings.results.mappings), rows) if rows else ()
    for path, (lines, _) in texts.items():
        print_error(f"{path}:")
        for line in paste_lines(lines):
            print_error(f"+ {line}")
    for change in changes:
        print_error(f"{change.path}:")
        for text in change.lines:
            print_error(f"+ {text}")
    if not (texts or changes):
        return Proposals((), ())
    if ask:
        _confirm("Add these lines?")
    for path, (_, text) in texts.items():
        rewrite_atomically(path, text.encode("utf-8"))
    write_changes(changes)
    written = {target for target in lines_by_target(trial, suggestions) if target.file is not None}
    return Proposals(tuple(each for each in suggestions if set(lines_by_target(trial, [each])) <= written), tuple(rows))


def _target(trial: Trial, table: tuple[str, ...]) -> tuple[Target, tuple[str, ...]]:
    """The file and the table that a suggestion is for: `lis.NAME` is of the settings, everything else of the map."""
    if table[:1] != (_SETTINGS_PREFIX,):
        if trial.has_map_setting:
            return _named_target(trial.map_file, "the adapter's map: name it with --map"), table
        table = (_SETTINGS_PREFIX, trial.given.name, *table)
    if trial.given.map_file is not None and not trial.has_map_setting:
        return _named_target(trial.given.map_file, ""), table[2:]
    return _named_target(trial.given.config, "the settings: name them with --config, or try it with --set"), table


def _named_target(file: Path | None, otherwise: str) -> Target:
    return Target(str(file) if file else otherwise, file)


def _planned_files(trial: Trial, suggestions: Sequence[MapSuggestion]) -> dict[Path, tuple[list[TomlLine], str]]:
    """Each file with its new lines, and its text with them; all are checked."""
    planned: dict[Path, tuple[list[TomlLine], str]] = {}
    for target, lines in lines_by_target(trial, suggestions).items():
        path = target.file
        if path is None:
            print_error(f"Not written: {', '.join(map(str, lines))}. It belongs into {target.label}.")
            continue
        text = add_lines(path.read_bytes().decode("utf-8") if path.exists() else "", lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(path, text.encode("utf-8")) as trial_file:
            if path == trial.given.config:
                load_settings(trial_file, requires_login=False)
            else:
                trial.check_map(trial_file)
        planned[path] = (lines, text)
    return planned


def _with_value(suggestion: MapSuggestion, *, ask: bool) -> MapSuggestion | None:
    """The suggestion with a value; None where nobody knows one."""
    if suggestion.value is not None or not ask:
        return suggestion if suggestion.value is not None else None
    question = f"{suggestion.table}: {suggestion.key or '(empty)'} ({suggestion.reason}); empty leaves it out"
    answer = _ask(question)
    while suggestion.key == _TIME_ZONE and answer and answer not in available_timezones():
        print_error(f"{answer} is no time zone; write it as in Europe/Berlin.")
        answer = _ask(question)
    is_list = answer.startswith("[")  # as TOML writes it, such as several rules
    return replace(suggestion, value=answer if is_list else json.dumps(answer, ensure_ascii=False)) if answer else None


def _with_target(row: TableRow, *, ask: bool) -> TableRow | None:
    """The row with its target; None where nobody knows it."""
    if row.is_complete or not ask:
        return row if row.is_complete else None
    kind = {"codes.csv": "LOINC code", "units.csv": "UCUM code"}.get(row.file, "standard code, as SYSTEM|CODE,")
    while answer := _ask(f"{kind} of {row.key}{f' ({row.about})' if row.about else ''}; empty leaves it out"):
        try:
            return row.fill(answer)
        except ValueError as error:
            print_error(str(error))
    return None


def _confirm(question: str) -> None:
    """Ask for a yes. Raises `NothingAnsweredError` for the end of the input, and `Abort` for a no."""
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise NothingAnsweredError from None
    if not agreed:
        raise typer.Abort


def _ask(question: str) -> str:
    try:
        return str(typer.prompt(question, default="", show_default=False, err=True)).strip()
    except typer.Abort:
        raise NothingAnsweredError from None
