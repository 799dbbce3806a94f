"""Prints what `lab-agent adapter NAME try` found: segment by segment, part by part, and the lines to add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab_agent.cli.adapter_trial import Trial
from lab_agent.cli.adapter_try_write import Target, lines_by_target
from lab_agent.cli.output import Row, print_fields, print_heading, print_line, print_list
from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabReport
from lab_agent.lis.laboratory_system import TraceLine
from lab_agent.lis.value_text import format_value
from lab_agent.results.mapping_loader import COLUMNS
from lab_agent.results.trial.map_lines import paste_lines
from lab_agent.results.trial.proposals import Proposals, TriedMessage
from lab_agent.results.trial.table_rows import csv_lines
from lab_agent.results.trial.trial_outcomes import Fate, OutgoingObservation, PartOutcome
from lab_agent.shared.text import shorten

_HIDDEN = "(names the patient: --show-patient shows it)"
_LONGEST_LINE = 400
_FATES: Mapping[Fate, str] = {
    Fate.DELIVERED: "would be delivered",
    Fate.REJECTS_LINES: "would reject its lines",
    Fate.NUMBERS: "would give the laboratory's numbers",
    Fate.RECEIVED_BEFORE: "was received before: nothing would happen",
    Fate.IGNORED: "would be acknowledged, and nothing of it read",
    Fate.WAITS: "would wait for an operator",
    Fate.REFUSED: "would be refused",
}


def print_messages(tried: Sequence[TriedMessage], *, show_patient: bool) -> None:
    """Print every message with its segments and its parts."""
    for message in tried:
        print_heading(message.name)
        for line in message.parsed.trace:
            print_line(_shown_text(line, show_patient=show_patient))
            if line.skipped or line.meaning:
                print_line(f"    {'— skipped' if line.skipped else f'→ {line.meaning}'}")
        for outcome in message.outcomes:
            _print_part(message, outcome, show_patient=show_patient)
        if not message.outcomes:
            print_line("Nothing of it is a result: it is acknowledged, and that is all.")


def print_proposals(trial: Trial, proposals: Proposals) -> None:
    """Print the lines to add, under the file that each belongs into; a line that only a person can complete is a question."""
    known = [each for each in proposals.map_lines if each.value is not None]
    for target, lines in lines_by_target(trial, known).items():
        print_heading(f"Add to {target.label}")
        for line in paste_lines(lines):
            print_line(line)
    for each in known:
        print_line(f"    {each.key or '(empty)'}: {each.reason}")
    for target, questions in _questions(trial, proposals).items():
        print_heading(f"To be answered for {target.label}")
        for question in questions:
            print_line(f"    {question}")
    for file in COLUMNS:
        rows = [row for row in proposals.rows if row.file == file]
        if rows:
            print_heading(f"Add to {file} (columns {','.join(COLUMNS[file])})")
            for line in csv_lines(file, rows, list(COLUMNS[file])):
                print_line(line)
            for row in rows:
                if row.about:
                    print_line(f"    {row.key}: {shorten(row.about)}")


def _questions(trial: Trial, proposals: Proposals) -> dict[Target, list[str]]:
    """What only a person can complete, by the file that it belongs into."""
    found: dict[Target, list[str]] = {}
    for each in proposals.map_lines:
        if each.value is None:
            ((target, (line,)),) = lines_by_target(trial, [each]).items()
            found.setdefault(target, []).append(f"{'.'.join((*line.table, line.key or '(empty)'))}: {each.reason}")
    return found


def messages_json(tried: Sequence[TriedMessage], *, show_patient: bool) -> list[Row]:
    """The messages with their segments and parts."""
    return [_message_json(each, show_patient=show_patient) for each in tried]


def proposals_json(proposals: Proposals) -> Row:
    """The lines for the map and the settings, and the rows for the tables."""
    lines = [{"table": each.table, "key": each.key, "value": each.value, "reason": each.reason} for each in proposals.map_lines]
    rows = [{"file": row.file, "cells": dict(row.cells), "about": row.about} for row in proposals.rows]
    return {"map": lines, "tables": rows}


def _message_json(message: TriedMessage, *, show_patient: bool) -> Row:
    segments = [
        {
            "place": line.place,
            "text": _shown_text(line, show_patient=show_patient),
            "meaning": line.meaning,
            "skipped": line.skipped,
        }
        for line in message.parsed.trace
    ]
    parts = [_part_row(message, each, show_patient=show_patient) | {"observations": _rows(each)} for each in message.outcomes]
    return {"name": message.name, "segments": segments, "parts": parts}


def _shown_text(line: TraceLine, *, show_patient: bool) -> str:
    if line.personal and not show_patient:
        return f"{line.place:<7} {shorten(line.open_text, _LONGEST_LINE) + ' ' if line.open_text else ''}{_HIDDEN}"
    return f"{line.place:<7} {shorten(line.text, _LONGEST_LINE)}"


def _print_part(message: TriedMessage, outcome: PartOutcome, *, show_patient: bool) -> None:
    print_line("")
    row = _part_row(message, outcome, show_patient=show_patient)
    print_fields({name: value for name, value in row.items() if name != "fate"}, as_json=False)
    rows = [{key: shorten(str(value)) for key, value in row.items()} for row in _rows(outcome)]
    if rows:
        print_list(rows, as_json=False, empty_text="")


def _part_row(message: TriedMessage, outcome: PartOutcome, *, show_patient: bool) -> dict[str, Any]:
    content = outcome.content
    missing = [str(each) for each in outcome.missing]
    return {
        "part": outcome.part.place or "message",
        "fate": outcome.fate,
        "meaning": _FATES[outcome.fate],
        "reason": outcome.reason,
        "next_step": outcome.next_step,
        "notes": list(outcome.part.notes),
        "missing": missing,
        "order": outcome.order,
        "lines": list(outcome.lines),
        **_content_fields(content, show_patient=show_patient),
        "comments": [_comment(message, each, show_patient=show_patient) for each in outcome.observations if each.reported.note],
        "not_sent": list(outcome.not_sent),
        "uncoded_units": list(outcome.uncoded_units),
    }


def _comment(message: TriedMessage, observation: OutgoingObservation, *, show_patient: bool) -> str:
    text = observation.reported.note or ""
    is_hidden = not show_patient and any(name in text.casefold() for name in message.parsed.names)
    return f"{observation.reported.code.code}: {_HIDDEN if is_hidden else shorten(' '.join(text.split()), _LONGEST_LINE)}"


def _content_fields(content: LabMessage | None, *, show_patient: bool) -> dict[str, Any]:
    if content is None:
        return {}
    patient = getattr(content, "patient", None)
    shown = {"patient": _patient_text(patient)} if show_patient and patient is not None else {}
    entries = () if isinstance(content, AccessionUpdate) else content.not_performed
    absent = {"not_performed": [": ".join(filter(None, (each.line or each.item, each.reason))) for each in entries]}
    if not isinstance(content, LabReport):
        return {**absent, **shown}
    return {
        "report": content.report_id,
        "status": content.status,
        "issued": content.issued,
        "collected": getattr(content.effective, "text", None) or content.effective,
        "items": list(content.items),
        "documents": len(content.documents),
        **absent,
        **shown,
    }


def _patient_text(patient: Any) -> str:
    identifiers = ", ".join(each.value for each in patient.identifiers)
    name = " ".join(part for part in (patient.family, *patient.given) if part)
    born = patient.birth_date.isoformat() if patient.birth_date else None
    return "; ".join(part for part in (name, born, patient.gender, identifiers) if part)


def _rows(outcome: PartOutcome) -> list[Row]:
    return [_observation_row(each) for each in outcome.observations]


def _observation_row(observation: OutgoingObservation) -> Row:
    """A value of the laboratory beside the Observation that the clinic gets."""
    reported, body = observation.reported, observation.body or {}
    code: Mapping[str, Any] = next(iter(body.get("code", {}).get("coding", [])), {})
    return {
        "code": reported.code.code,
        "name": reported.code.display or "",
        "sent_as": code.get("code", ""),
        "value": _value_text(body) or format_value(reported),
        "unit": body.get("valueQuantity", {}).get("code", ""),
        "range": ", ".join(_range_texts(body)),
        "status": body.get("status") or reported.status,
        "interpretation": ", ".join(each["code"] for each in body.get("interpretation", {}).get("coding", [])),
    }


def _value_text(body: Mapping[str, Any]) -> str:
    for key, value in body.items():
        if key == "valueQuantity":
            return f"{value.get('comparator', '')}{value.get('value', '')} {value.get('unit', '')}".strip()
        if key == "valueCodeableConcept":
            codes = ", ".join(f"{each.get('display', '')} {each['code']}".strip() for each in value.get("coding", []))
            return codes or str(value.get("text", ""))
        if key.startswith("value") and not isinstance(value, Mapping):
            return str(value)
    return ""


def _range_texts(body: Mapping[str, Any]) -> Iterator[str]:
    for each in body.get("referenceRange", []):
        ends = [str(each.get(end, {}).get("value", "")) for end in ("low", "high")]
        yield each.get("text") or "–".join(ends)
