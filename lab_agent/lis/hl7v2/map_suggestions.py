"""What a map or the settings lack for a message, as lines to add; a value is proposed only where it is certain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lab_agent.lis.code_page_guess import guess_code_pages
from lab_agent.lis.hl7v2.code_pages import is_open_charset
from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import FieldPath, FieldValue, Message, Segment, declared_charsets
from lab_agent.lis.hl7v2.results.obx_entries import rename_codes, why_left_out
from lab_agent.lis.hl7v2.results.obx_flags import flag_result, has_speaking_flag, propose_flag, unknown_flags
from lab_agent.lis.hl7v2.results.obx_values import CODE_STRING_TYPES, CODED_TYPES, TEXT_TYPES
from lab_agent.lis.hl7v2.results.organisms import is_antibiogram
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, SplitMessage, split_message
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.timestamps import has_minutes
from lab_agent.lis.laboratory_system import MapSuggestion
from lab_agent.lis.value_reading import suggests_decimal_comma
from lab_agent.shared.ids import is_line_key, is_order_key
from lab_agent.shared.text import shorten

_ZONE = re.compile(r"[+-]\d{4}\Z")
_LOINC_LIKE = re.compile(r"\d{1,7}-\d\Z", re.ASCII)
_LOINC = "http://loinc.org"
_TIME_TYPES = frozenset({"DT", "TM", "DTM", "TS"})
_VALUE_TYPES = TEXT_TYPES | CODED_TYPES | CODE_STRING_TYPES | _TIME_TYPES | {"NM", "SN", "ED", "RP"}
_ISSUE_CANDIDATES = tuple(map(FieldPath.parse, ("OBX-19.1", "ORC-9.1", "EVN-2.1", "OBX-14.1")))
_BARCODE_CANDIDATES = tuple(map(FieldPath.parse, ("OBR-3.1", "OBR-2.1", "ORC-3.1", "ORC-2.1", "OBR-20.1")))
_KNOWN_SEGMENTS = frozenset({"MSH", "PID", "ORC", "OBR", "OBX", "NTE", "SPM", "SAC", "DSC"})
_CONTROL_ID_INDEX = 9
_MESSAGE_TYPE = re.compile(rb"[A-Z]{3}(?:\W|\Z)")
_NOISE = re.compile(rb"[\x00-\x08\x0e-\x1b\x1d-\x1f]")
"""Control characters that no text has, whatever its code page."""
_MAX_GROUPS = 200
_MAX_OBX = 2_000
"""What is looked at for suggestions: what is missing further on is proposed once these lines are there."""
_PROCESSING_IDS = frozenset({"P", "T", "D"})
_NO_RESULT = frozenset({"X", "N"})
_NO_RESULT_TYPES = frozenset({"AOE", "ASC", "QST", "SCI"})
"""OBX-29: questions and clinical information (HL7 table 0936)."""
_SUPPLEMENTAL_SYSTEM = "IHELAW"
"""The coding system of IHE LAW for raw values, lots and such, which are no results."""
_MAX_NAMED = 20


def suggest_for_results(message: Message, settings: Hl7v2Settings, name: str) -> tuple[MapSuggestion, ...]:
    """What is missing for a message of results; `name` is the adapter's. Each line once."""
    found: list[MapSuggestion] = []
    looked_at = 0
    numbers: list[str] = []
    listed: list[Segment] = []
    names_no_order = False
    for group in split_groups(message, settings.field_map)[:_MAX_GROUPS]:
        if looked_at > _MAX_OBX:
            break
        looked_at += len(group.obx_entries)
        if settings.field_map.results.find_ignore_rule(group.texts_at):
            continue
        rename_codes(group, settings.field_map)
        found += _suggest_for_group(group, settings)
        is_culture = is_antibiogram(group.obx_entries) or bool(group.obr.text(26))
        names_no_order |= not _has_own_key(group, settings)
        for entry in group.obx_entries[:_MAX_OBX]:
            if why_left_out(entry.obx, settings.field_map):
                continue
            listed.append(entry.obx)
            if _says_no_result(entry.obx):
                continue
            found += _suggest_for_obx(entry.obx, settings)
            found += _suggest_flags(entry.obx, settings.field_map, is_culture=is_culture)
            numbers += _numbers(entry.obx, settings)
        if settings.zone is None and any(map(_lacks_zone, _times(group, settings))):
            reason = "times have no zone; name the laboratory's, such as Europe/Berlin"
            found.append(MapSuggestion(table=f"lis.{name}", key="time_zone", reason=reason))
    if names_no_order:
        found += _suggest_reference(message)
    found += (*_suggest_decimal_comma(numbers), *_suggest_unused_segments(message, settings))
    found += _suggest_leaving_out(listed, settings.field_map)
    return tuple({(each.table, each.key, each.if_barcode): each for each in reversed(found)}.values())[::-1]


def split_groups(message: Message, field_map: FieldMap) -> tuple[ObrGroup, ...]:
    """The groups of a message, as they are read."""
    return _split(message, field_map).groups


def _split(message: Message, field_map: FieldMap) -> SplitMessage:
    unused = field_map.table("unused_segments")
    return split_message(message, lambda name: bool(unused.get(name)), field_map.results.segments.__contains__)


def _suggest_unused_segments(message: Message, settings: Hl7v2Settings) -> Iterator[MapSuggestion]:
    """Segments that nothing reads, if they have no place among the known ones either."""
    known = _KNOWN_SEGMENTS | settings.field_map.results.segments | set(settings.field_map.table("unused_segments"))
    for name in dict.fromkeys(segment.name for segment in message.segments if segment.name not in known):
        reason = f"nothing reads {name}; if it carries nothing for a result, say what it is"
        yield MapSuggestion(table="tables.unused_segments", key=name, reason=reason)


def suggest_for_header(message: Message, settings: Hl7v2Settings, name: str) -> tuple[MapSuggestion, ...]:
    """The settings that would let a message in that was refused by its header."""
    given = message.header.text(11)
    if given == settings.processing_id or not given:
        return ()
    if given not in _PROCESSING_IDS:
        reason = f"MSH-11 is {shorten(given)}: name it here if these are results; what is none goes into [[results.ignore]]"
        return (MapSuggestion(table=f"lis.{name}", key="processing_id", reason=reason),)
    reason = f"MSH-11 is {given}; or have the laboratory system send {settings.processing_id}"
    return (MapSuggestion(table=f"lis.{name}", key="processing_id", value=json.dumps(given), reason=reason),)


def suggest_encoding(data: bytes, name: str) -> tuple[MapSuggestion, ...]:
    """The code page of a message that declares none and is not valid in the configured one."""
    if not is_open_charset(declared_charsets(data)) or not _is_readable(data):
        return ()
    guess = guess_code_pages(data)
    value = json.dumps(guess.page) if guess.page else None
    return (MapSuggestion(table=f"lis.{name}", key="received_encoding", value=value, reason=guess.reason),)


def _is_readable(data: bytes) -> bool:
    """Whether bytes are a message but for its letters: noise is full of letters in any code page, and proposes nothing."""
    header = re.split(rb"[\r\n]", data, maxsplit=1)[0]
    fields = header.split(header[3:4] or b"|")
    has_type = len(fields) > _CONTROL_ID_INDEX and _MESSAGE_TYPE.match(fields[_CONTROL_ID_INDEX - 1]) is not None
    return header.startswith(b"MSH") and has_type and not _NOISE.search(data)


def _suggest_for_group(group: ObrGroup, settings: Hl7v2Settings) -> Iterator[MapSuggestion]:
    results, paths = settings.field_map.results, settings.field_map.results.paths
    status, known = group.find_first(paths["status"]), settings.field_map.table("report_status")
    if status and status not in known:
        yield _suggest_status("report_status", status, known.get(status.upper()), "OBR-25")
    if not _has_own_key(group, settings):
        yield from _suggest_barcode(group, results.barcode)
    if not any(has_minutes(group.find_first((path,))) for path in paths["issued"]):
        yield from _suggest_issued(group, results.issued)
    item = group.find_first(paths["item"])
    if item and not any(_is_own_key(text) for text in group.find_all(paths["line"])):
        reason = f"the test of the order that {shorten(item)} is"
        yield MapSuggestion(table="tables.items", key=item, reason=reason, unless_item=item)


def _suggest_status(table: str, code: str, meaning: str | None, field: str) -> MapSuggestion:
    reason = f"{shorten(code)} in {field} has no meaning yet"
    return MapSuggestion(table=f"tables.{table}", key=code, value=json.dumps(meaning) if meaning else None, reason=reason)


def _has_own_key(group: ObrGroup, settings: Hl7v2Settings) -> bool:
    paths = settings.field_map.results.paths
    return any(map(_is_own_key, (*group.find_all(paths["line"]), *group.find_all(paths["order"]))))


def _suggest_reference(message: Message) -> Iterator[MapSuggestion]:
    """Where one of our own keys stands, if it is in none of the fields that are searched."""
    for segment in message.segments:
        for number in range(1, len(segment.fields)):
            text = segment.text(number)
            if _is_own_key(text):
                key = "line" if is_line_key(text) else "order"
                value = json.dumps(["OBR-2.1", "ORC-2.1", f"{segment.name}-{number}.1"])
                reason = f"{segment.name}-{number} holds one of our keys"
                yield MapSuggestion(table="results", key=key, value=value, reason=reason)
                return


def _suggest_barcode(group: ObrGroup, known: tuple[str, ...]) -> Iterator[MapSuggestion]:
    """Where the number of a tube stands in the place of the laboratory's own number, as analysers write it."""
    for path in _BARCODE_CANDIDATES:
        text, name = group.find_first((path,)), f"{path.segment}-{path.field}.{path.component}"
        if text and name not in known:
            reason = f"{name} holds the barcode of a tube"
            yield MapSuggestion(table="results", key="barcode", value=json.dumps([*known, name]), reason=reason, if_barcode=text)


def _suggest_issued(group: ObrGroup, known: tuple[str, ...]) -> Iterator[MapSuggestion]:
    found = next((path for path in _ISSUE_CANDIDATES if has_minutes(group.find_first((path,)))), None)
    if found is not None:
        path = f"{found.segment}-{found.field}.{found.component}"
        reason = f"no time of issue is where the map searches it; {path} has one"
        yield MapSuggestion(table="results", key="issued", value=json.dumps([*known, path]), reason=reason)


def _suggest_for_obx(obx: Segment, settings: Hl7v2Settings) -> Iterator[MapSuggestion]:
    field_map = settings.field_map
    status, known = obx.text(11), field_map.table("observation_status")
    if status and status not in known:
        yield _suggest_status("observation_status", status, known.get(status.upper()), "OBX-11")
    if status in _NO_RESULT and known.get(status) == "held" and _is_word(obx):
        reason = f"OBX-11 is {status}: the test was not done, and the text says why"
        yield MapSuggestion(table="tables.observation_status", key=status, value='"left_out"', reason=reason)
    kind = obx.text(2).upper()
    if obx.repetitions(5) and kind not in _VALUE_TYPES and kind not in field_map.table("value_types"):
        reason = f"OBX-2 is {shorten(kind) or 'empty'}; name the type that such values are of, such as ST or NM"
        yield MapSuggestion(table="tables.value_types", key=kind, reason=reason)
    yield from _suggest_code_systems(obx, settings)


def _is_word(obx: Segment) -> bool:
    """Whether OBX-5 has a text without a digit, and so no value."""
    kind, text = obx.text(2).upper(), obx.raw(5)
    return bool(obx.repetitions(5)) and kind in TEXT_TYPES | CODED_TYPES | CODE_STRING_TYPES and not any(map(str.isnumeric, text))


def _suggest_flags(obx: Segment, field_map: FieldMap, *, is_culture: bool) -> Iterator[MapSuggestion]:
    """Flags that nobody knows, and those beside an empty value that may be the result: what they mean is a question."""
    table = field_map.table("flags")
    for flag in unknown_flags(obx, has_organism=is_culture, table=table):
        known = propose_flag(flag)
        reason = f"{shorten(flag)} in OBX-8 is no code of HL7 table 0078; it stays a comment"
        if flag.upper() in {"S", "I", "R"}:
            reason = f"{flag} in OBX-8 stands beside no organism: reactive (RR), or really a susceptibility ({flag.upper()})?"
        yield MapSuggestion(table="tables.flags", key=flag, value=json.dumps(known) if known else None, reason=reason)
    is_done = obx.text(11) not in _NO_RESULT and field_map.table("observation_status").get(obx.text(11)) != "registered"
    if obx.repetitions(5) or not is_done or not has_speaking_flag(obx) or flag_result(obx, has_organism=is_culture, table=table):
        return
    for flag in dict.fromkeys(text for value in obx.repetitions(8) if (text := value.component_text(1).strip())):
        reason = f"{shorten(flag)} in OBX-8 stands beside an empty value: its result by HL7 table 0078, or nothing?"
        yield MapSuggestion(table="tables.flags", key=flag, reason=reason)


def _suggest_leaving_out(listed: Sequence[Segment], field_map: FieldMap) -> Iterator[MapSuggestion]:
    """Rules for OBX that are no results: by what they say themselves; else a question about those that look like settings."""
    before = [_inline_table(rule.model_dump(exclude_none=True)) for rule in field_map.results.leave_out]
    sure = tuple(dict.fromkeys(rule for obx in listed if (rule := _says_no_result(obx))))
    if sure:
        value = f"[{', '.join((*before, *sure))}]"
        reason = "OBX that say themselves that they are no results"
        yield MapSuggestion(table="results", key="leave_out", value=value, reason=reason)
        return
    names = {obx.text(3): obx.text(3, 2) for obx in listed if _looks_like_setting(obx, field_map)}
    codes = tuple(names)[:_MAX_NAMED]
    if codes:
        shown = ", ".join(f"{shorten(code)} ({shorten(names[code])})" if names[code] else shorten(code) for code in codes)
        rules = ", ".join((*before, *(_inline_table({"code": code}) for code in codes)))
        reason = f"if these are settings of the run and no results, leave them out: {shown}; [{rules}]"
        yield MapSuggestion(table="results", key="leave_out", reason=reason, if_codes=codes)


def _says_no_result(obx: Segment) -> str:
    """The rule that leaves out an OBX which says itself that it is no result; empty for any other."""
    if obx.text(29) in _NO_RESULT_TYPES:
        return _inline_table({"type": obx.text(29)})
    return _inline_table({"system": _SUPPLEMENTAL_SYSTEM}) if _SUPPLEMENTAL_SYSTEM in {obx.text(3, 3), obx.text(3, 6)} else ""


def _looks_like_setting(obx: Segment, field_map: FieldMap) -> bool:
    """Whether an OBX under a code of the laboratory's own has a bare value: a word of a table, or a number without a unit."""
    systems = field_map.table("code_systems")
    is_loinc = any(systems.get(obx.text(3, number).upper()) == _LOINC for number in (3, 6))
    is_bare = not (obx.text(6) or obx.text(7) or obx.repetitions(8))
    return bool(obx.text(3)) and not is_loinc and is_bare and obx.text(2).upper() in CODE_STRING_TYPES | {"NM"}


def _inline_table(rule: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'{name} = {json.dumps(value, ensure_ascii=False)}' for name, value in rule.items())} }}"


def _numbers(obx: Segment, settings: Hl7v2Settings) -> list[str]:
    """The texts that are read as numbers; none where their notation is known already."""
    kind = obx.text(2).upper()
    is_text = kind in TEXT_TYPES | CODE_STRING_TYPES and settings.field_map.results.numeric_text and obx.raw(6)
    if settings.field_map.results.decimal_comma:
        return []
    return [obx.text(5)] if kind == "NM" or is_text else [obx.text(5, part) for part in (2, 4)] if kind == "SN" else []


def _suggest_decimal_comma(numbers: Sequence[str]) -> Iterator[MapSuggestion]:
    comma = suggests_decimal_comma(numbers)
    if comma is not False:
        reason = "numbers have a decimal comma" if comma else "numbers have a comma before three digits: decimals, or thousands?"
        yield MapSuggestion(table="results", key="decimal_comma", value="true" if comma else None, reason=reason)


def _suggest_code_systems(obx: Segment, settings: Hl7v2Settings) -> Iterator[MapSuggestion]:
    """Names of code systems without an address: a code of them cannot be sent. LOINC is known by its name and its form."""
    known = settings.field_map.table("code_systems")
    codings = list(_codings(obx.first_repetition(3)))
    is_loinc = any(known.get(system.upper()) == _LOINC for _, system in codings)
    answers = obx.repetitions(5) if obx.text(2).upper() in CODED_TYPES else ()
    for code, system in (*(() if is_loinc else codings), *(each for value in answers for each in _codings(value))):
        if (
            not system
            or ":" in system
            or system.upper() == "L"
            or system.startswith("99")
            or {system, system.upper()} & set(known)
        ):
            continue
        names_loinc = _LOINC_LIKE.match(code) is not None and system.upper().startswith("L") and "N" in system.upper()
        reason = f"{shorten(system)} names LOINC" if names_loinc else f"the address of the code system {shorten(system)}"
        value = json.dumps(_LOINC) if names_loinc else None
        yield MapSuggestion(table="tables.code_systems", key=system, value=value, reason=reason)


def _codings(value: FieldValue) -> Iterator[tuple[str, str]]:
    """Code and system of the first triple and of the alternative one."""
    pairs = ((value.component_text(first).strip(), value.component_text(first + 2).strip()) for first in (1, 4))
    return (pair for pair in pairs if pair[0])


def _times(group: ObrGroup, settings: Hl7v2Settings) -> Iterable[str]:
    """The times that are read of a group."""
    paths = settings.field_map.results.paths
    yield from (group.find_first((path,)) for path in paths["issued"])
    yield group.find_first(paths["collected"])
    for entry in group.obx_entries:
        yield from (entry.obx.text(14), entry.obx.text(19))
        if entry.obx.text(2).upper() in {"TS", "DTM"}:
            yield entry.obx.text(5)


def _lacks_zone(text: str) -> bool:
    return has_minutes(text) and not _ZONE.search(text.strip())


def _is_own_key(text: str) -> bool:
    return is_line_key(text) or is_order_key(text)
