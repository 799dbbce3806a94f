from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.fhir.received_order import ResourceRef
from lab_agent.fhir.references import (
    id_readings,
    is_addressable,
    is_same_origin,
    leads_elsewhere,
    names_resource,
    parse_reference,
    resource_at_end,
)
from lab_agent.shared.errors import ForeignOrigin

BASE = "https://exchange.example/api/"


@pytest.mark.parametrize(
    ("reference", "kind", "resource_id"),
    [
        ("patient/1", "Patient", "1"),
        ("PATIENT/1", "Patient", "1"),
        ("/fhir/patient/1", "Patient", "1"),
        ("/api/fhir/patient/1", "Patient", "1"),
        ("procedurerequest/a-B.7/_history/3", "ProcedureRequest", "a-B.7"),
        (" specimen/9 ", "Specimen", "9"),
        ("https://exchange.example/api/fhir/Questionnaireresponse/q/_HISTORY/2", "QuestionnaireResponse", "q"),
        ("HTTPS://Exchange.Example:443/api/FHIR/task/t", "Task", "t"),
        ("//exchange.example/api/task/t", "Task", "t"),
        ("goal/5", "goal", "5"),
        (" patient/a:b+c~d|e&f%g ", "Patient", "a:b+c~d|e&f%g"),
        ("https://exchange.example/api/fhir/patient/a:b%2F|c", "Patient", "a:b%2F|c"),
        ("fhir/patient/имя/_history/2", "Patient", "имя"),
        (f"patient/{'x' * 500}", "Patient", "x" * 500),
    ],
)
def test_every_reference_form_parsed(reference: str, kind: str, resource_id: str) -> None:
    assert parse_reference(reference, BASE) == ResourceRef(kind, resource_id)


@pytest.mark.parametrize(
    "reference",
    [
        "https://evil.example/api/Patient/1",
        "http://exchange.example/api/Patient/1",
        "https://exchange.example:8443/api/Patient/1",
        "//evil.example/Patient/1",
        "https://exchange.example@evil.example/api/Patient/1",
    ],
)
def test_foreign_origin_rejected(reference: str) -> None:
    with pytest.raises(ForeignOrigin):
        parse_reference(reference, BASE)
    assert not is_same_origin(reference, BASE)


@pytest.mark.parametrize(
    ("base", "reference", "elsewhere"),
    [
        ("http://host:8480", "http://host:8480/hapi/fhir/Patient/8", True),
        ("http://host:8480", "http://host:8480/fhir/Patient/8?x=1", False),
        ("http://host:8480", "http://host:8480/Patient", False),
        ("http://host/api", "http://host/api/other/Patient/8", True),
        ("http://host/api", "http://host/API/fhir/Patient/8#x", False),
        ("http://host/api", "https://host/api/Patient/8", True),
        ("http://host/api", "hapi/fhir/Patient/8", False),
    ],
)
def test_address_of_another_path_leads_elsewhere(base: str, reference: str, elsewhere: bool) -> None:
    assert leads_elsewhere(reference, base) is elsewhere


INVALID = (
    *(
        "",
        "1",
        "patient",
        "patient/",
        "patient/..",
        "patient/../task/1",
        "#contained",
        "urn:uuid:0",
        "patient/1?x=1",
        "patient/1#f",
    ),
    *(None, 5, {}, ["patient/1"], "http://[", "javascript:alert(1)/Patient/1", "other/fhir/patient/1", "patient/a/b"),
    *("patient/a\tb", "patient/a\x7fb", "patient/a\nb", "patient/\ud800", f"patient/{'x' * 501}", "\x00/\x01"),
    "https://exchange.example/api/patient/1?x=1",
)


@pytest.mark.parametrize("reference", INVALID)
def test_invalid_reference_gives_none(reference: object) -> None:
    assert parse_reference(reference, BASE) is None


@given(st.one_of(st.text(), st.from_regex(r"(https?:)?/{0,3}[\w.@:\[\]]{0,9}/(fhir/)?\w{0,9}/[\w.%\-]{0,5}(/_history/\w?)?")))
def test_arbitrary_reference_does_not_crash(reference: str) -> None:
    try:
        found = parse_reference(reference, BASE)
    except ForeignOrigin:
        return
    assert found is None or parse_reference(str(found), BASE) is not None


NAMING = (
    *("patient/a/b", "patient/1?x=1", "Patient/#1", "fhir/Patient/a\tb", "/api/fhir/patient/a/b", f"task/{'x' * 501}"),
    "https://exchange.example/api/patient/1#x",
)
NAMELESS = ("patient", "patient/", "goal/a/b", "other/patient/a/b", "urn:uuid:0", "#patient", "http://[", "", None, 5)


@pytest.mark.parametrize(("references", "names"), [(NAMING, True), (NAMELESS, False)])
def test_reference_names_resource_by_any_id(references: tuple[object, ...], names: bool) -> None:
    assert [each for each in references if names_resource(each, BASE) is not names] == []


@pytest.mark.parametrize(
    ("resource_id", "readings"),
    [
        ("a b", ("a b",)),
        ("50%", ("50%",)),
        ("%D0%B6", ("%D0%B6", "ж")),
        ("a%FFb", ("a%FFb",)),
        ("a%2Fb", ("a%2Fb",)),
        ("%2E%2E", ("%2E%2E",)),
    ],
)
def test_id_is_read_with_and_without_encoding(resource_id: str, readings: tuple[str, ...]) -> None:
    assert id_readings(resource_id) == readings


def test_id_is_addressable_as_one_segment() -> None:
    assert all(map(is_addressable, ("a", "..a", "a|b", "x" * 500)))
    assert not any(map(is_addressable, ("x" * 501, "", "..", "a/b")))


@pytest.mark.parametrize(
    ("reference", "ids"),
    [
        ("https://elsewhere.example/x/Task/7/_history/2", ["7"]),
        ("task/a%20b", ["a%20b", "a b"]),
        ("task", []),
        (None, []),
    ],
)
def test_resource_at_end_is_told_in_each_reading(reference: object, ids: list[str]) -> None:
    assert resource_at_end(reference) == tuple(ResourceRef("Task", each) for each in ids)
