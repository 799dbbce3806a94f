"""Reads whose result it is: PID as `ReportedPatient`, to be compared with the patient of the order.

Nothing is made up: what PID leaves out, or says in a form that cannot be read, is not said.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import FieldPath, FieldValue, Segment
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_partial_date
from lab_agent.lis.lab_messages import ReportedPatient
from lab_agent.shared.values import BirthDate, Identifier, PartialDate

_FULL_DATE_LENGTH = 10
_AUTHORITY = 4
_GENDERS = {"M": "male", "F": "female", "O": "other", "U": "unknown"}
"""HL7 table 0001, as far as FHIR has the same."""
_URI_TYPES = frozenset({"URI", "URL"})

_PATHS = ("family", "given", "birth_date", "sex", "patient_ids")
"""The paths of the map that are read here."""


Said = dict[tuple[Segment, ...], ReportedPatient | None]
"""What has been read of a message's patients, by the segments that say it: very many groups may have one patient."""


def read_patient(group: ObrGroup, field_map: FieldMap, said: Said) -> ReportedPatient | None:
    """Whose results a group has; None if the message does not say it.

    An identifier's system is its assigning authority (CX-4) by `[tables.assigning_authorities]`, None if it has none: so come
    back the numbers that we sent, where the LIS keeps the number alone.
    """
    paths = (path for name in _PATHS for path in field_map.results.paths[name])
    names = dict.fromkeys(path.segment for path in paths)
    segments = tuple(segment for name in names for segment in group.segments_named(name))
    if segments not in said:
        said[segments] = _read_patient(group, field_map)
    return said[segments]


def _read_patient(group: ObrGroup, field_map: FieldMap) -> ReportedPatient | None:
    paths = field_map.results.paths
    patient = ReportedPatient(
        family=group.find_first(paths["family"]) or None,
        given=tuple(text for path in paths["given"] if (text := group.find_first((path,)))),
        birth_date=_read_birth_date(group, field_map),
        gender=_read_gender(group, field_map),
        identifiers=tuple(dict.fromkeys(_read_identifiers(group, field_map))),
    )
    return None if patient == ReportedPatient() else patient


def _read_birth_date(group: ObrGroup, field_map: FieldMap) -> BirthDate | None:
    text = group.find_first(field_map.results.paths["birth_date"])
    try:
        read = parse_partial_date(text) if text else ""
    except InvalidTimestampError:
        return None
    return date.fromisoformat(read) if len(read) == _FULL_DATE_LENGTH else PartialDate(read) if read else None


def _read_gender(group: ObrGroup, field_map: FieldMap) -> str | None:
    code = group.find_first(field_map.results.paths["sex"])
    own = {written.upper(): gender for gender, written in field_map.table("sex").items()}
    gender = {**_GENDERS, **own}.get(code.upper())
    return gender if gender in _GENDERS.values() else None


def _read_identifiers(group: ObrGroup, field_map: FieldMap) -> Iterator[Identifier]:
    for path in field_map.results.paths["patient_ids"]:
        for value in _values_at(group, path):
            number = value.component_text(path.component or 1, path.subcomponent).strip()
            if number:
                whole = path.component is None or path.component == 1
                yield Identifier(system=_read_system(value, field_map) if whole else None, value=number)


def _values_at(group: ObrGroup, path: FieldPath) -> Iterator[FieldValue]:
    return (value for segment in group.segments_named(path.segment) for value in segment.repetitions(path.field))


def _read_system(value: FieldValue, field_map: FieldMap) -> str | None:
    """The assigning authority: its URI or OID if it has one, else its name."""
    name, universal, kind = (value.component_text(_AUTHORITY, part).strip() for part in (1, 2, 3))
    known = field_map.table("assigning_authorities")
    if found := known.get(name or universal) or known.get(universal or name):
        return found
    if universal and kind.upper() in _URI_TYPES:
        return universal
    return f"urn:oid:{universal}" if universal and kind.upper() == "ISO" else name or universal or None
