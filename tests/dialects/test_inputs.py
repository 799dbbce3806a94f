"""Small inputs with their right outcome, live over MLLP and as `try` reads them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.lab_messages import LabReport, ObservationStatus, ReportedObservation
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage
from lab_agent.lis.value_text import format_value
from tests.harness.dialects import FOLDER, line_key
from tests.harness.hl7_peer import connected_peer

INPUTS: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "inputs.toml").read_text(encoding="utf-8"))
HEADER = "MSH|^~\\&|LIS|LAB|AGENT||20260302100000+0000||{kind}|1|{mode}|2.5{rest}"
PID = "PID|1||4711^^^HOSP"
OBR = "OBR|1|@L1@|F1|GLU|||20260301080000+0000|||||||||||||||20260302080000+0000|||F"


def segments_of(given: dict[str, Any]) -> list[str]:
    """The message of an input; its OBX have no number yet, and are final where they say nothing else."""
    own = [each if each[:3] in {"PID", "SPM", "OBR"} else obx_of(each) for each in given["segments"]]
    rest = f"|{given['header']}" if "header" in given else ""
    header = HEADER.format(kind=given.get("kind", "ORU^R01"), mode=given.get("mode", "P"), rest=rest)
    ordinary = [each for each in (PID, OBR) if not any(one.startswith(each[:3]) for one in own)]
    own.sort(key=lambda each: not each.startswith("PID"))
    head = [each for each in own if each.startswith("PID")]
    message = [header, *head, *ordinary, *own[len(head) :]]
    return [each.replace("@L1@", line_key(0)) for each in message]


def obx_of(text: str) -> str:
    fields = ["OBX", "1", *text.split("|")]
    fields += [""] * (12 - len(fields))
    fields[11] = fields[11] or "F"
    return "|".join(fields)


def shown(one: ReportedObservation) -> str:
    """An observation as `becomes` has it."""
    name = f"{one.code.code} ({one.id})" if one.id else one.code.code
    value = one.value_codeable_concept
    text = format_value(one)
    if value is not None and value.coding:
        text = " ".join(dict.fromkeys((value.text or "", value.coding[0].code)))
    bounds = "; ".join(each.text or bounds_of(each) for each in one.reference_ranges)
    flags = " ".join(one.flags)
    status = "" if one.status is ObservationStatus.FINAL else one.status.value
    return " ".join(filter(None, (f"{name} = {text}", bounds and f"[{bounds}]", flags and f"{{{flags}}}", status)))


def bounds_of(found: Any) -> str:
    unit = f" {found.high.unit}" if found.high.unit else ""
    return f"{found.low.value} – {found.high.value}{unit}"


def proposals(parsed: ParsedMessage) -> list[str]:
    return sorted(f"{each.table}.{each.key} = {each.value or '?'}" for each in parsed.suggestions if is_of_map(each))


def is_of_map(suggestion: MapSuggestion) -> bool:
    return not (suggestion.table.startswith("lis.") or suggestion.unless_item or suggestion.if_barcode)


@pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS)
async def test_input_has_its_right_outcome(tmp_path: Path, given: dict[str, Any]) -> None:
    segments = segments_of(given)
    async with connected_peer(tmp_path, mapping=given.get("map", ""), answer_results="original", time_zone="UTC") as peer:
        answer = await peer.send(*segments)
        parsed = await peer.adapter.parse_message(("\r".join(segments) + "\r").encode(), "input")
        tried = [part.content for part in parsed.parts if isinstance(part.content, LabReport)]
        problems = [part.problem for part in parsed.parts if part.problem]
        assert tried == peer.reports
        assert [shown(one) for report in tried for one in report.observations] == given.get("becomes", [])
        notes = [note for part in parsed.parts if not part.problem for note in part.notes]
        assert len(notes) == given.get("left_out", 0)
        assert bool(notes) is bool(peer.inbox.skipped)
        if "refused" in given:
            assert answer[:2] == "AE"
            assert given["refused"] in "; ".join(problems)
        else:
            assert (answer, problems) == ("AA", [])
        if "proposed" in given:
            assert proposals(parsed) == sorted(given["proposed"])
